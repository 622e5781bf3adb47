package client_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/edge/client"
)

// TestCall checks what a request of an operator becomes, and that a reply that is none of ours is no success.
func TestCall(t *testing.T) {
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if got := r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("If-Match") + " " +
			string(raw); got != `POST /api/a%2Fb?x=1 "h" {"n": 1}` {
			t.Error(got)
		}
		answer(w, 201, `{"ok":true,"id":"i"}`)
	}, nil)
	var got struct {
		ID string `json:"id"`
	}
	err := c.Call(t.Context(), client.Request{
		Method: http.MethodPost, Path: []string{"api", "a/b"}, Query: map[string][]string{"x": {"1"}},
		Body: []byte(`{"n": 1}`), IfMatch: `"h"`,
	}, &got)
	if err != nil || got.ID != "i" {
		t.Error(got, err)
	}
	for _, body := range []string{`{}`, `[]`, ``, `{"ok":false}`} {
		c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) }, nil)
		var raw json.RawMessage
		if err := c.Call(t.Context(), client.Request{Path: []string{"api"}}, &raw); err == nil ||
			!strings.Contains(err.Error(), "not that of a j17 server") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestWithoutKey checks that no credential is sent where there is none.
func TestWithoutKey(t *testing.T) {
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Authorization"]; ok {
			t.Error(r.Header)
		}
		answer(w, 200, `{"ok":true}`)
	}, func(o *client.Options) { o.Key = "" })
	var raw json.RawMessage
	if err := c.Call(t.Context(), client.Request{Path: []string{"x"}}, &raw); err != nil {
		t.Error(err)
	}
}

// TestRows checks that lists go on by offsets and by cursors, and end.
func TestRows(t *testing.T) {
	for name, next := range map[string][]string{
		"offsets": {"2", "4", "null"}, "cursors": {`"b"`, `"c"`, "null"}, "no next": {"1", "2", ""},
	} {
		page := 0
		c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if page > 0 && strings.Trim(next[page-1], `"`) != q.Get("offset")+q.Get("start") || q.Get("f") != "1" {
				t.Error(name, page, r.URL.RequestURI())
			}
			member := ""
			if next[page] != "" {
				member = `,"next":` + next[page]
			}
			page++
			answer(w, 200, fmt.Sprintf(`{"ok":true,"rows":[%d,0]%s}`, page, member))
		}, nil)
		var got []string
		for row, err := range c.Rows(t.Context(), []string{"list"}, map[string][]string{"f": {"1"}}, "rows", 0) {
			if err != nil {
				t.Fatal(name, err)
			}
			got = append(got, string(row))
		}
		if strings.Join(got, "") != "102030" {
			t.Error(name, got)
		}
	}
	for _, body := range []string{`{"ok":true}`, `{"ok":true,"rows":null}`, `{"ok":true,"rows":[],"next":""}`} {
		c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, body) }, nil)
		failed := false
		for _, err := range c.Rows(t.Context(), []string{"list"}, nil, "rows", 0) {
			failed = failed || err != nil
		}
		if !failed {
			t.Error(body)
		}
	}
}

// TestContent checks that a body which is not kept in memory is sent whole, again where that is safe, and never short
// of what it was.
func TestContent(t *testing.T) {
	const text = "one line\nand another\n"
	for _, tc := range []struct {
		name       string
		repeatable bool
		requests   int32
		ok         bool
	}{{"a load that may be repeated", true, 3, true}, {"one that may not", false, 1, false}} {
		t.Run(tc.name, func(t *testing.T) {
			var requests atomic.Int32
			c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
				raw, err := io.ReadAll(r.Body)
				if err != nil || string(raw) != text || r.ContentLength != int64(len(text)) ||
					r.Header.Get("Content-Type") != "application/x-ndjson" {
					t.Errorf("%q %v %d %v", raw, err, r.ContentLength, r.Header)
				}
				if requests.Add(1) < 3 {
					panic(http.ErrAbortHandler)
				}
				answer(w, 200, `{"ok":true,"stored":2}`)
			}, func(o *client.Options) { o.Clock, o.Retrying = &stepped{}, nil })
			var sent int64
			content := &client.Content{
				From: strings.NewReader(text), Size: int64(len(text)), Type: "application/x-ndjson",
				Sent: func(n int64) { sent = n },
			}
			var got struct{ Stored int }
			err := c.Call(t.Context(), client.Request{
				Method: http.MethodPost, Path: []string{"import"}, Body: content, Repeatable: tc.repeatable,
			}, &got)
			if (err == nil) != tc.ok || tc.ok && got.Stored != 2 || requests.Load() != tc.requests ||
				sent != int64(len(text)) {
				t.Errorf("%v %+v, %d requests, %d bytes sent", err, got, requests.Load(), sent)
			}
		})
	}

	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Error("the server was told that this is all")
		}
		answer(w, 400, `{"ok":false,"code":"invalid_request","error":"No."}`)
	}, nil)
	var raw json.RawMessage
	shrunk := &client.Content{From: strings.NewReader(text[:5]), Size: int64(len(text)), Type: "application/x-ndjson"}
	if err := c.Call(
		t.Context(), client.Request{Method: http.MethodPost, Path: []string{"import"}, Body: shrunk}, &raw,
	); err == nil {
		t.Error("a file that has become shorter was sent")
	}
}

// TestBusyLoads: a load of which nothing is stored when the server is busy is sent again then, and not where it is not
// known what has become of it.
func TestBusyLoads(t *testing.T) {
	for name, tc := range map[string]struct {
		nothing  bool
		code     string
		requests int32
	}{
		"busy":                  {true, "busy", 3},
		"busy, with some of it": {false, "busy", 1},
		"not ready":             {true, "index_not_ready", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) {
				if requests.Add(1) < 3 {
					w.Header().Set("Retry-After", "1")
					answer(w, 503, `{"ok":false,"code":"`+tc.code+`","error":"Not now."}`)
					return
				}
				answer(w, 200, `{"ok":true,"stored":2}`)
			}, func(o *client.Options) { o.Clock, o.Retrying = &stepped{}, nil })
			content := &client.Content{From: strings.NewReader("a line"), Size: 6, Type: "application/x-ndjson"}
			var got struct{ Stored int }
			err := c.Call(t.Context(), client.Request{
				Method: http.MethodPost, Path: []string{"cold_start"}, Body: content, NothingIfBusy: tc.nothing,
			}, &got)
			if (err == nil) != (tc.requests == 3) || requests.Load() != tc.requests {
				t.Errorf("%v %+v, %d requests", err, got, requests.Load())
			}
		})
	}
}

// TestUpload checks the form that is sent, a refusal before it is read, and a file that cannot be read.
func TestUpload(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1<<20)
	c, _ := served(t, func(w http.ResponseWriter, r *http.Request) {
		file, _, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		raw, err := io.ReadAll(file)
		if err != nil || !bytes.Equal(raw, content) || r.FormValue("name") != "a.wasm" {
			t.Error(len(raw), err, r.FormValue("name"))
		}
		answer(w, 201, `{"ok":true,"blob":{"version":1}}`)
	}, nil)
	var got struct {
		Blob struct {
			Version int `json:"version"`
		} `json:"blob"`
	}
	if err := c.Upload(t.Context(), []string{"blobs"}, "a.wasm", bytes.NewReader(content), &got); err != nil ||
		got.Blob.Version != 1 {
		t.Error(got, err)
	}
	c, _ = served(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Error("the server was told that this is all")
		}
		answer(w, 400, `{"ok":false,"code":"invalid_request","error":"No."}`)
	}, nil)
	if err := c.Upload(
		t.Context(), []string{"blobs"}, "a.wasm", io.MultiReader(strings.NewReader("x"), torn{}), &got,
	); err == nil || !strings.Contains(err.Error(), "could not be sent whole") {
		t.Error(err)
	}
	c, _ = served(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 403, `{"ok":false,"code":"forbidden","error":"No."}`)
	}, nil)
	if err := c.Upload(
		t.Context(), []string{"blobs"}, "a.wasm", strings.NewReader("x"), &got,
	); j17.CodeOf(err) != j17.CodeForbidden {
		t.Error(err)
	}
}

type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestDownload checks a download and a refusal.
func TestDownload(t *testing.T) {
	status := 200
	c, _ := served(t, func(w http.ResponseWriter, _ *http.Request) {
		if status == 200 {
			w.Header().Set("Etag", `"h"`)
			_, _ = io.WriteString(w, "content")
			return
		}
		answer(w, status, `{"ok":false,"code":"not_found","error":"None."}`)
	}, nil)
	body, header, err := c.Download(t.Context(), []string{"blobs", "a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(body)
	if err != nil || body.Close() != nil || string(raw) != "content" || header.Get("Etag") != `"h"` {
		t.Error(string(raw), header, err)
	}
	status = 404
	if _, _, err := c.Download(t.Context(), []string{"blobs", "a"}, nil); j17.CodeOf(err) != j17.CodeNotFound {
		t.Error(err)
	}
}

// TestAuthorities checks that a certificate is trusted whose authority is given, and no other one.
func TestAuthorities(t *testing.T) {
	secure := httptest.NewTLSServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"ok":true}`) }),
	)
	t.Cleanup(secure.Close)
	known := x509.NewCertPool()
	known.AddCert(secure.Certificate())
	for _, roots := range []*x509.CertPool{known, x509.NewCertPool()} {
		c, err := client.New(client.Options{URL: secure.URL, Clock: clock.System{}, RootCAs: roots, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := c.Call(t.Context(), client.Request{Path: []string{"x"}}, &raw); (err == nil) != (roots == known) {
			t.Error(err)
		}
	}
}
