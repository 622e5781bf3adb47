package httpapi

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
)

// blobHandlers keep the files of custom code.
type blobHandlers struct {
	blobs  *blob.Store
	deploy *deploy.Service
}

// routes administer the files of custom code.
func (h *blobHandlers) routes() []route {
	inspect, operate := need{control.RightInspect, instance}, need{control.RightOperate, instance}
	return []route{
		{0, get, "blobs", operator, inspect, "", h.listBlobs, operation{
			id: "listBlobs", about: "List the files", query: paged(), gives: rows{"blobs", wire.Blob{}},
		}},
		{0, post, "blobs", operator, operate, "blob.upload", h.putBlob, operation{
			id: "putBlob", about: "Upload a file", body: form{}, gives: wire.Stored{}, anew: wire.Stored{},
		}},
		{0, get, "blobs/{name}", operator, inspect, "", h.getBlob, operation{
			id: "getBlob", about: "Download a file", query: version(), gives: file{"application/octet-stream"},
			tagged: true, headers: contentHeaders(),
		}},
		{0, get, "blobs/{name}/versions", operator, inspect, "", h.listBlobVersions, operation{
			id: "listBlobVersions", about: "List the versions of a file", query: paged(),
			gives: rows{"versions", wire.Blob{}},
		}},
		{0, remove, "blobs/{name}", operator, operate, "blob.delete", h.deleteBlob, operation{
			id: "deleteBlob", about: "Delete one version of a file, or all of them", query: version(),
		}},
	}
}

// Limits of an upload beside those of the blob itself.
const (
	// transferTime is how long an upload or a download may take.
	transferTime = time.Hour
	// maxFormOverhead bounds what a form consists of apart from the file, maxFormField each of its fields.
	maxFormOverhead = 64 << 10
	maxFormField    = 1 << 10
)

func (h *blobHandlers) listBlobs(c *call, w http.ResponseWriter) error {
	l := c.listing()
	rows, err := h.blobs.List(c.request.Context(), c.tenant, l.offset, l.limit+1)
	return list(c, w, "blobs", l, wire.Each(rows, func(n *blob.Named) wire.Blob { return n.Wire(n.Versions) }), err)
}

func (h *blobHandlers) listBlobVersions(c *call, w http.ResponseWriter) error {
	l := c.listing()
	all, err := h.blobs.Versions(c.request.Context(), c.tenant, c.request.PathValue("name"))
	return list(c, w, "versions", l, wire.Each(portion(all, l), func(b *blob.Blob) wire.Blob { return b.Wire(0) }), err)
}

// putBlob is POST blobs: a form with the fields name and file.
func (h *blobHandlers) putBlob(c *call, w http.ResponseWriter) error {
	c.allowTime(w, transferTime)
	form, err := h.form(c, w)
	if err != nil {
		return err
	}
	defer form.close()
	name, file, err := form.open()
	if err != nil {
		return err
	}
	b, created, err := h.deploy.PutBlob(c.actorContext(), deploy.Upload{
		Instance: c.instance, Environment: c.env, Name: name, By: c.principal.ID, Content: file,
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.answer(w, status, wire.Stored{Blob: b.Wire(0)})
}

// uploadForm is a form with a file that is read as it arrives, if its name is known by then.
type uploadForm struct {
	parts *multipart.Reader
	limit int64
	// early is the file where it came before the name.
	early *os.File
}

// close removes what was put aside.
func (f *uploadForm) close() {
	if f.early != nil {
		_ = f.early.Close()
	}
}

// putAside keeps a file until the name is there.
func (f *uploadForm) putAside(p *multipart.Part) (err error) {
	if f.early, err = scratchFile(); err != nil {
		return err
	}
	if _, err := f.early.ReadFrom(&partReader{form: f, part: p}); err != nil {
		return err
	}
	_, err = f.early.Seek(0, io.SeekStart)
	return err
}

// partReader explains what is wrong with the form when a part cannot be read.
type partReader struct {
	form *uploadForm
	part *multipart.Part
}

// Read reads on in the part.
func (r *partReader) Read(p []byte) (int, error) {
	n, err := r.part.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.form.broken(err)
	}
	return n, err
}

// form prepares to read a form with a file.
func (h *blobHandlers) form(c *call, w http.ResponseWriter) (*uploadForm, error) {
	wrong := j17.Errorf(j17.CodeInvalidContentType, "The Content-Type must be multipart/form-data with a boundary, as HTML forms and 'curl -F' send it")
	if enc := c.request.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, j17.Errorf(j17.CodeInvalidContentType, "Uploads must not be compressed as a whole; send them without Content-Encoding")
	}
	media, params, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		return nil, wrong
	}
	const maxBoundary = 70 // RFC 2046
	if b := params["boundary"]; b == "" || len(b) > maxBoundary {
		return nil, wrong
	}
	limit := h.blobs.MaxBytes()
	if c.request.ContentLength > limit+maxFormOverhead {
		return nil, tooLargeUpload(limit)
	}
	body := http.MaxBytesReader(w, c.request.Body, limit+maxFormOverhead)
	return &uploadForm{parts: multipart.NewReader(body, params["boundary"]), limit: limit}, nil
}

func tooLargeUpload(limit int64) error {
	return j17.Errorf(j17.CodePayloadTooLarge, "The file is larger than %d bytes", limit).At("file")
}

// open reads the fields up to the file, and returns the name and the file. The file's reader fails where anything
// follows that does not belong there.
func (f *uploadForm) open() (name string, file io.Reader, err error) {
	named := false

	for {
		// The end comes too early, unless the file was put in front of its name and set aside.
		p, err := f.parts.NextPart()
		if errors.Is(err, io.EOF) && named && f.early != nil {
			return name, f.early, nil
		}
		if errors.Is(err, io.EOF) {
			missing := "file"
			if !named {
				missing = "name"
			}
			return "", nil, j17.Errorf(j17.CodeMissingField, "The form has no field '%s'. It needs 'name' and 'file'.", missing).At(missing)
		}
		if err != nil {
			return "", nil, f.broken(err)
		}

		// Each field once and in its place; a file after its name is read as it arrives, to its end.
		switch field := p.FormName(); {
		case field == "name" && named:
			return "", nil, j17.Errorf(j17.CodeInvalidField, "The form has the field 'name' twice").At("name")
		case field == "name":
			if name, err = f.text(p); err != nil {
				return "", nil, err
			}
			named = true
		case field == "file" && f.early == nil && !named:
			if err := f.putAside(p); err != nil {
				return "", nil, err
			}
		case field == "file" && f.early == nil:
			return name, &lastPart{partReader{form: f, part: p}}, nil
		default:
			return "", nil, unknownPart(field)
		}
	}
}

func unknownPart(field string) error {
	return j17.Errorf(j17.CodeUnknownField, "The form has an unknown field; it needs 'name' and 'file', once each").At(safe(field))
}

// text reads a short field.
func (f *uploadForm) text(p *multipart.Part) (string, error) {
	raw, err := io.ReadAll(io.LimitReader(p, maxFormField+1))
	if err != nil {
		return "", f.broken(err)
	}
	if len(raw) > maxFormField {
		return "", j17.Errorf(j17.CodeInvalidField, "The field is longer than %d bytes", maxFormField).At(p.FormName())
	}
	return string(raw), nil
}

// broken returns the error of a body that could not be read.
func (f *uploadForm) broken(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLargeUpload(f.limit)
	}
	return j17.Errorf(j17.CodeInvalidRequest, "The form is malformed, or did not arrive whole").Because(err)
}

// lastPart reads the last part of a form and ends only where the form does.
type lastPart struct{ partReader }

// Read reads on in the part.
func (l *lastPart) Read(p []byte) (int, error) {
	n, err := l.partReader.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	next, err := l.form.parts.NextPart()
	switch {
	case errors.Is(err, io.EOF):
		return n, io.EOF
	case err != nil:
		return n, l.form.broken(err)
	default:
		return n, unknownPart(next.FormName())
	}
}

// blobVersion reads the version of a blob that a request is about, from the name ("handler.wasm:v2") or the parameter
// version; 0 where neither says.
func (*blobHandlers) blobVersion(c *call) (name string, version int, err error) {
	name, pin, pinned := strings.Cut(c.request.PathValue("name"), ":v")
	text, asked := c.query["version"]
	switch {
	case pinned && asked:
		return "", 0, j17.Errorf(j17.CodeInvalidParameter, "The version is given twice, in the name and as a parameter").At("version")
	case pinned:
		text = pin
	case !asked:
		return name, 0, nil
	}
	version, err = strconv.Atoi(text)
	if err != nil || version < 1 || strconv.Itoa(version) != text {
		return "", 0, j17.Errorf(j17.CodeInvalidParameter, "A version is a whole number from 1 on, as in ?version=2 or handler.wasm:v2").At("version")
	}
	return name, version, nil
}

// getBlob is GET blobs/{name}: the content.
func (h *blobHandlers) getBlob(c *call, w http.ResponseWriter) error {
	name, version, err := h.blobVersion(c)
	if err != nil {
		return err
	}
	b, chunks, err := h.blobs.Open(c.request.Context(), c.tenant, name, version)
	if err != nil {
		return err
	}

	// A client that has the content already gets none.
	header := w.Header()
	header.Set(headerBlobVersion, strconv.Itoa(b.Version))
	if known, err := c.known(w, `"`+b.SHA256+`"`); known || err != nil {
		return err
	}
	// Uploads are data, never pages: browsers must not display them or guess their type.
	header.Set("Content-Type", "application/octet-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": b.Name}))
	header.Set("Content-Length", strconv.FormatInt(b.Size, 10))
	if c.request.Method == http.MethodHead {
		c.status = http.StatusOK
		w.WriteHeader(http.StatusOK)
		return nil
	}

	c.allowTime(w, transferTime)

	// What has been sent cannot be taken back: before the first byte an error is answered, after it the answer is
	// broken off.
	for chunk, err := range chunks {
		if err != nil {
			if c.bytes == 0 {
				header.Del("Content-Length")
				return err
			}
			panic(http.ErrAbortHandler) // the only way left to tell the client that this is not all
		}
		c.status = http.StatusOK
		c.bytes += int64(len(chunk))
		if _, err := w.Write(chunk); err != nil {
			return nil // the client is gone
		}
	}
	return nil
}

// deleteBlob is DELETE blobs/{name}: one version, or all of them.
func (h *blobHandlers) deleteBlob(c *call, w http.ResponseWriter) error {
	name, version, err := h.blobVersion(c)
	if err != nil {
		return err
	}
	if err := blob.CheckName(name); err != nil {
		return j17.Errorf(j17.CodeNotFound, "There is no blob of that name.")
	}
	if err := h.deploy.DeleteBlob(c.actorContext(), c.instance, c.env, name, version); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}
