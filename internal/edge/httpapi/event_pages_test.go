package httpapi_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const noteID = "7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05"

// writeLarge writes events of some size to one aggregate.
func writeLarge(tb testing.TB, f *fixture, events, size int) {
	tb.Helper()
	for i := range events {
		body := fmt.Sprintf(`{"data":{"n":%d,"t":%q},%s}`, i, strings.Repeat("x", size), actor)
		if a := f.do(tb, "POST", "/note/"+noteID+"/was_written", body); a.status != http.StatusCreated {
			tb.Fatalf("event %d: %d %s", i, a.status, a.body)
		}
	}
}

func TestLargePagesHaveEntityTags(t *testing.T) {
	f := newFixture(t, nil)
	writeLarge(t, f, 3, 300_000)
	target := "/note/" + noteID + "/events"
	first := f.do(t, "GET", target, "")
	tag := first.header.Get("ETag")
	if a := f.do(t, "GET", target, "", "If-None-Match: "+tag); a.status != http.StatusNotModified || tag == "" {
		t.Errorf("%d for the tag %q", a.status, tag)
	}
	if a := f.do(t, "HEAD", target, ""); a.body != "" ||
		a.header.Get("Content-Length") != fmt.Sprint(len(first.body)) || a.header.Get("ETag") != tag {
		t.Errorf("HEAD: %v with a body of %d bytes", a.header, len(a.body))
	}
	writeLarge(t, f, 1, 10)
	if a := f.do(t, "GET", target, "", "If-None-Match: "+tag); a.status != http.StatusOK {
		t.Errorf("%d after one more event", a.status)
	}
}

func TestPagesOfLinesAreCompressed(t *testing.T) {
	f := newFixture(t, nil)
	writeLarge(t, f, 3, 300_000)
	for name, target := range map[string]string{"several pieces": "/events", "one piece": "/events?count=1"} {
		target = "/note/" + noteID + target
		want := f.do(t, "GET", target, "", "Accept: application/x-ndjson")
		a := f.do(t, "GET", target, "", "Accept: application/x-ndjson", "Accept-Encoding: gzip")
		if a.status != http.StatusOK || a.header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %d %v", name, a.status, a.header)
		}
		r, err := gzip.NewReader(strings.NewReader(a.body))
		if err != nil {
			t.Errorf("%s: %v, though the answer is said to be compressed", name, err)
			continue
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != want.body {
			t.Errorf("%s: %d bytes in place of %d, %v", name, len(got), len(want.body), err)
		}
	}
}

// gone is a client that leaves after some bytes.
type gone struct {
	httptest.ResponseRecorder
	left int
}

func (g *gone) Write(p []byte) (int, error) {
	if g.left -= len(p); g.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestAPageIsBrokenOffWhenItsClientLeaves(t *testing.T) {
	f := newFixture(t, nil)
	writeLarge(t, f, 3, 300_000)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://app.j17.example/note/"+noteID+"/events", nil)
	r.Header.Set("Authorization", "Bearer "+f.key)
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("got the panic %v", err)
		}
	}()
	f.handler.ServeHTTP(&gone{left: 400_000}, r)
	t.Error("the answer looks whole")
}
