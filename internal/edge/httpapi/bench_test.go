package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"j17/internal/storage/testopen"
)

// discarded is an answer of which nothing is kept but its status.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d *discarded) WriteHeader(status int)      { d.status = status }

// handled makes a request and, unless want is 0, has it answered with that status.
func (f *fixture) handled(tb testing.TB, want int, method, target, body string) {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), method, "http://app.j17.example"+target, whole{
		strings.NewReader(body),
	})
	r.Header.Set("Authorization", "Bearer "+f.key)
	r.Header.Set("Content-Type", "application/json")
	w := &discarded{header: http.Header{}}
	if want == 0 {
		return
	}
	if f.handler.ServeHTTP(w, r); w.status != want {
		tb.Fatal(w.status)
	}
}

// whole is a body that has come whole, as those of small requests have.
type whole struct{ *strings.Reader }

// Close does nothing.
func (whole) Close() error { return nil }

// TestAReadTakesFewAllocations counts those of a cached read beside those of its request: 13 when this was written.
func TestAReadTakesFewAllocations(t *testing.T) {
	f := newFixture(t, nil)
	f.handled(
		t, http.StatusCreated, http.MethodPost, "/note/"+noteID+"/was_written", `{"data":{"text":"a note"},`+actor+`}`,
	)
	count := func(want int) float64 {
		return testing.AllocsPerRun(200, func() { f.handled(t, want, http.MethodGet, "/note/"+noteID, "") })
	}
	most := 18.0
	if testopen.OnPostgres() {
		most = 100 // 82 by itself, with those of the client of the database
	}
	if own := count(http.StatusOK) - count(0); own > most {
		t.Errorf("a read takes %v allocations", own)
	}
}

// TestAWriteTakesFewAllocations counts those of a write beside those of its request: 38 when this was written, with
// those of the store's goroutines.
func TestAWriteTakesFewAllocations(t *testing.T) {
	f := newFixture(t, nil)
	n := 0
	count := func(want int) float64 {
		return testing.AllocsPerRun(500, func() {
			n++
			f.handled(t, want, http.MethodPost, fmt.Sprintf("/note/00000000-0000-4000-8000-%012x/was_written", n), `{"data":{"text":"a note"},`+actor+`}`)
		})
	}
	most := 48.0 // 40 by itself; the race detector adds five or six
	if testopen.OnPostgres() {
		most = 360 // 304 by itself, with those of the client of the database
	}
	if own := count(http.StatusCreated) - count(0); own > most {
		t.Errorf("a write takes %v allocations", own)
	}
}

// BenchmarkHandler measures the public handler alone, without a connection. What the request itself takes is part of
// it: BenchmarkHandler/request.
func BenchmarkHandler(b *testing.B) {
	f := newFixture(b, nil)
	event := `{"data":{"text":"a note"},` + actor + `}`
	f.handled(b, http.StatusCreated, http.MethodPost, "/note/"+noteID+"/was_written", event)
	for name, c := range map[string]struct {
		want           int
		method, target string
	}{
		"request": {0, http.MethodPost, "/note/%s/was_written"},
		"write":   {http.StatusCreated, http.MethodPost, "/note/%s/was_written"},
		"read":    {http.StatusOK, http.MethodGet, "/note/" + noteID},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			target, body := c.target, ""
			if c.method == http.MethodPost {
				body = event
			}
			for b.Loop() {
				if c.method == http.MethodPost {
					target = fmt.Sprintf(c.target, uuid.New())
				}
				f.handled(b, c.want, c.method, target, body)
			}
		})
	}
}
