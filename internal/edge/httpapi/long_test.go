//go:build !race

package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"j17/internal/storage/testopen"
)

// eventNumbers reads all events of the aggregate page by page and returns what their data count, and how many pages
// there were.
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
	// The least of some tries: pools are emptied now and then.
	most, least := uint64(1<<20), uint64(math.MaxUint64)
	if testopen.OnPostgres() {
		most = 20 << 20 // each event is copied by the client of the database and by the store, some at a time
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

// TestPostedProjectionsAreDescribed: the OpenAPI document of an environment has the projections that were posted to it,
// with the filters that their indexes allow, from the next request on and as long as they are there.
func TestPostedProjectionsAreDescribed(t *testing.T) {
	a := administer(t)
	a.deploySpec(t, ordersSpec(`"chain":`+chain)).wants(t, 201)
	document := func(without answer) (answer, document) {
		got := a.ask(t, a.admin, "GET", "app-staging.j17.example", "/_openapi.json", "")
		got.wants(t, 200)
		if got.header.Get("ETag") == without.header.Get("ETag") {
			t.Error("the entity tag is that of the document before it")
		}
		valid(t, []byte(got.body))
		return got, parsed(t, []byte(got.body))
	}
	was, before := document(answer{})
	if before.Paths["/_projections/chain"] == nil || before.Paths["/_projections/listed"] != nil {
		t.Errorf("%.2000s", was.body)
	}

	// One with indexes, of fields that are hard to name.
	a.staging(t, "POST", "projections", `{"name":"listed","for_each":"order","sources":{"order":"$key"},"select":{"total":"$.order.total","größe":"$.order.size","title":"$.order.title"},`+
		`"index":["total","größe",{"words":"title"}]}`).wants(t, 201)
	is, after := document(was)
	op, _ := json.Marshal(after.Paths["/_projections/listed"]["get"]["parameters"])
	counted, _ := json.Marshal(after.Paths["/_projections/listed/_count"]["get"]["parameters"])
	for _, name := range []string{"total.gte", "title.words"} {
		if !strings.Contains(string(op), name) || !strings.Contains(string(counted), name) {
			t.Errorf("%s takes no %s", op, name)
		}
	}
	for _, name := range []string{"near", "radius", "title.gte"} {
		if strings.Contains(string(op), name) {
			t.Errorf("%s takes %s", op, name)
		}
	}

	// Another definition, and none.
	a.staging(t, "POST", "projections", `{"name":"listed","for_each":"order","sources":{"order":"$key"},"select":{"total":"$.order.total"}}`).wants(t, 200)
	again, plain := document(is)
	op, _ = json.Marshal(plain.Paths["/_projections/listed"]["get"]["parameters"])
	if strings.Contains(string(op), "total") || strings.Contains(string(op), "order") {
		t.Errorf("without an index the list takes %s", op)
	}
	a.staging(t, "DELETE", "projections/listed", "").wants(t, 200)
	if got, _ := document(again); got.body != was.body {
		t.Error("what is not there any more is described")
	}
}
