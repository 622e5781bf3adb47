package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"j17/internal/work/worktest"
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

// eventNumbers reads all events of the aggregate page by page and returns what their data count, and how many pages there
// were.
func eventNumbers(tb testing.TB, f *fixture, count string, most int, headers ...string) (seen []int, pages int) {
	tb.Helper()
	type event struct {
		Data struct{ N int }
	}
	for next := ""; ; {
		target := "/note/" + noteID + "/events?count=" + count
		if next != "" {
			target += "&start=" + next
		}
		a := f.do(tb, "GET", target, "", headers...)
		if a.status != http.StatusOK || len(a.body) > most {
			tb.Fatalf("%s: %d with %d bytes", target, a.status, len(a.body))
		}
		if want := fmt.Sprint(len(a.body)); a.header.Get("Content-Length") != want {
			tb.Errorf("Content-Length %s, want %s", a.header.Get("Content-Length"), want)
		}
		var page struct {
			Events []event
			Next   *string
		}
		if len(headers) == 0 {
			if err := json.Unmarshal([]byte(a.body), &page); err != nil {
				tb.Fatal(err)
			}
		} else {
			for d := json.NewDecoder(strings.NewReader(a.body)); ; {
				var e event
				if err := d.Decode(&e); err == io.EOF {
					break
				} else if err != nil {
					tb.Fatal(err)
				}
				page.Events = append(page.Events, e)
			}
			if v := a.header.Get("X-J17-Next"); v != "" {
				page.Next = &v
			}
		}
		for _, e := range page.Events {
			seen = append(seen, e.Data.N)
		}
		pages++
		if page.Next == nil {
			return seen, pages
		}
		if next = *page.Next; len(page.Events) == 0 {
			tb.Fatal("a page without events that names a next one")
		}
	}
}

func TestPagesOfEventsEndByCountAndByBytes(t *testing.T) {
	large, small := newFixture(t, nil), newFixture(t, nil)
	writeLarge(t, large, 12, 900_000)
	writeLarge(t, small, 24, 9_000)
	for _, tc := range []struct {
		name    string
		from    *fixture
		events  int
		count   string
		pages   int
		headers []string
	}{
		{"bytes", large, 12, "1000", 2, nil},
		{"bytes, lines", large, 12, "1000", 2, []string{"Accept: application/x-ndjson"}},
		{"count", small, 24, "4", 6, nil},
		{"count, lines", small, 24, "4", 6, []string{"Accept: application/x-ndjson"}},
		{"the last page is full", small, 24, "8", 3, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen, pages := eventNumbers(t, tc.from, tc.count, 8<<20+1<<10, tc.headers...)
			var want []int
			for i := range tc.events {
				want = append(want, i)
			}
			if fmt.Sprint(seen) != fmt.Sprint(want) {
				t.Errorf("got events %v", seen)
			}
			if pages != tc.pages {
				t.Errorf("%d pages, want %d", pages, tc.pages)
			}
		})
	}
}

// TestAnEventLargerThanAPage checks that paging gets past it.
func TestAnEventLargerThanAPage(t *testing.T) {
	f := newFixture(t, nil)
	batch := func(n, size int) string {
		return fmt.Sprintf(`{"events":[{"type":"was_written","data":{"n":%d,"t":%q}}],%s}`, n, strings.Repeat("x", size), actor)
	}
	for i, size := range []int{10, 9 << 20, 10} {
		if a := f.do(t, "POST", "/note/"+noteID, batch(i, size)); a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	seen, pages := eventNumbers(t, f, "1000", 10<<20)
	if fmt.Sprint(seen) != "[0 1 2]" || pages != 3 {
		t.Errorf("got events %v on %d pages", seen, pages)
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
	if a := f.do(t, "HEAD", target, ""); a.body != "" || a.header.Get("Content-Length") != fmt.Sprint(len(first.body)) || a.header.Get("ETag") != tag {
		t.Errorf("HEAD: %v with a body of %d bytes", a.header, len(a.body))
	}
	writeLarge(t, f, 1, 10)
	if a := f.do(t, "GET", target, "", "If-None-Match: "+tag); a.status != http.StatusOK {
		t.Errorf("%d after one more event", a.status)
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

// sink takes an answer and keeps nothing of it.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) Write(p []byte) (int, error) { return len(p), nil }
func (s sink) WriteHeader(int)             {}

// TestAPageIsNotHeldInMemory counts what is allocated for a page of 7 MB.
func TestAPageIsNotHeldInMemory(t *testing.T) {
	f := newFixture(t, nil)
	writeLarge(t, f, 70, 100_000)
	get := func() {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://app.j17.example/note/"+noteID+"/events", nil)
		r.Header.Set("Authorization", "Bearer "+f.key)
		f.handler.ServeHTTP(sink{http.Header{}}, r)
	}
	get() // fills pools and caches
	// The least of some tries: pools are emptied now and then. Under the race detector they lose every fourth buffer too.
	most, least := uint64(1<<20), uint64(math.MaxUint64)
	if worktest.RaceDetector {
		most = 14 << 20
	}
	for range 12 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		get()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > most {
		t.Errorf("%d bytes were allocated for a page of 7 MB, at most %d are allowed", least, most)
	}
}
