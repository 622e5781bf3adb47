package httpapi

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"j17"
	"j17/dashboard"
)

// dashboardHandlers serve the dashboard on the control host.
type dashboardHandlers struct {
	files *dashboard.Files
	// public is the path that a proxy puts in front of all others.
	public string
	// packed has compressed files by encoding and name. Each file is compressed once, when it is first asked for: a
	// build has few files, and including their compressed forms would add half of their size to the program.
	packed *sync.Map
}

// screenPath is where the dashboard is on the control host.
const screenPath = "/ui"

// routes serve the page and its files, unless the dashboard is left out.
func (h *dashboardHandlers) routes() []route {
	if h.files == nil {
		return nil
	}
	return []route{
		{controlSite, get, screenPath, free, need{}, "", h.lead, operation{
			id: "getDashboardPath", about: "Go to the dashboard", query: anything(), gives: file{"text/html"},
		}},
		{controlSite, get, screenPath + "/{path...}", free, need{}, "", h.serve, operation{
			id: "getDashboard", about: "Get the dashboard, or one of its files", query: anything(), gives: file{"text/html"},
		}},
	}
}

// lead is GET /ui.
func (h *dashboardHandlers) lead(c *call, w http.ResponseWriter) error {
	return h.leadWith(c, w, http.StatusTemporaryRedirect)
}

// leadWith leads to the dashboard with a status.
func (h *dashboardHandlers) leadWith(c *call, w http.ResponseWriter, status int) error {
	w.Header().Set("Location", h.public+"/ui/")
	c.status = status
	w.WriteHeader(status)
	return nil
}

// serve is GET /ui/…: a file, or the page, which itself shows that there is nothing at an address.
func (h *dashboardHandlers) serve(c *call, w http.ResponseWriter) error {
	name := c.request.PathValue("path")
	if f, ok := h.files.File(name); ok {
		return h.file(c, w, name, f)
	}
	if first, below, _ := strings.Cut(name, "/"); first == "assets" || below == "" && strings.Contains(first, ".") {
		// no page has such an address
		return j17.Errorf(j17.CodeNotFound, "The dashboard has no such file. A page of an earlier version of the server asks for it; load the page again.")
	}

	nonce := rand.Text()
	header := w.Header()
	h.protect(header)
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self' 'nonce-"+nonce+"'; style-src 'self' 'nonce-"+nonce+
		"'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "+
		"require-trusted-types-for 'script'; trusted-types svelte-trusted-html")
	c.write(w, http.StatusOK, []byte(h.files.Page(h.public, nonce)))
	return nil
}

// protect sets the headers that protect everything below /ui/ in browsers.
func (*dashboardHandlers) protect(header http.Header) {
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func (h *dashboardHandlers) file(c *call, w http.ResponseWriter, name string, f dashboard.File) error {
	header := w.Header()
	h.protect(header)
	header.Set("Content-Type", f.Type)
	header.Set("Cache-Control", "public, max-age=3600")
	if f.Hashed {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body := f.Body
	if !strings.HasPrefix(f.Type, "font/") {
		header.Add("Vary", "Accept-Encoding")
		if encoding := preferred(c.request.Header.Get("Accept-Encoding")); encoding != "" {
			packed, err := h.pack(encoding, name, f.Body)
			if err != nil {
				return err
			}
			header.Set("Content-Encoding", encoding)
			body = packed
		}
	}
	c.write(w, http.StatusOK, body)
	return nil
}

// preferred is the encoding to answer with, "" for none.
func preferred(accepted string) string {
	found := ""
	for part := range strings.SplitSeq(accepted, ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.ReplaceAll(quality, " ", "") == "q=0" {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "zstd":
			return "zstd"
		case "gzip":
			found = "gzip"
		}
	}
	return found
}

// pack returns a file in an encoding.
func (h *dashboardHandlers) pack(encoding, name string, body []byte) ([]byte, error) {
	key := encoding + " " + name
	if packed, ok := h.packed.Load(key); ok {
		return packed.([]byte), nil //nolint:errcheck // nothing else is stored
	}
	var packed []byte
	if encoding == "zstd" {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		packed = w.EncodeAll(body, nil)
		if err := w.Close(); err != nil {
			return nil, err
		}
	} else {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		packed = b.Bytes()
	}
	h.packed.Store(key, packed)
	return packed, nil
}
