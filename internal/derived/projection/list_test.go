package projection_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// list returns a page, which must be there.
func (f *fixture) list(tb testing.TB, ask projection.ListAsk) *projection.List {
	tb.Helper()
	l, err := patiently(func() (*projection.List, error) { return f.List(tb.Context(), enginetest.Tenant, ask) })
	if err != nil {
		tb.Fatalf("%+v: %v", ask, err)
	}
	return l
}

// patiently asks again where an index is not ready: on a machine that has much else to do, it takes longer than a
// reader waits. Each question waits for some seconds by itself.
func patiently[T any](ask func() (T, error)) (got T, err error) {
	const most = 12
	for range most {
		if got, err = ask(); j17.CodeOf(err) != j17.CodeIndexNotReady {
			break
		}
	}
	return got, err
}

// pages returns the ids of all rows, page by page; between calls what there is to do between pages.
func (f *fixture) pages(tb testing.TB, ask projection.ListAsk, between func()) (ids []string) {
	tb.Helper()
	for {
		l := f.list(tb, ask)
		if len(l.Rows) > ask.Count || len(l.Rows) < ask.Count && l.Next != "" {
			tb.Fatalf("%+v: a page has %d rows, and then %q", ask, len(l.Rows), l.Next)
		}
		for _, row := range l.Rows {
			ids = append(ids, row.ID)
		}
		if ask.Start = l.Next; l.Next == "" {
			return ids
		}
		between()
	}
}

func (f *fixture) count(tb testing.TB, name string, filters map[string]string) uint64 {
	tb.Helper()
	n, err := patiently(func() (uint64, error) { return f.Count(tb.Context(), enginetest.Tenant, name, filters) })
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// TestListsByID pages through rows while there come more: none that stays is skipped or comes twice.
func TestListsByID(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	if l := f.list(t, projection.ListAsk{
		Name: "details", Count: 5,
	}); len(l.Rows) > 0 || l.Next != "" || !l.Position.IsZero() {
		t.Errorf("an empty environment has %+v", l)
	}
	var want []string
	for n := range 17 {
		f.make(t, "order", id(2*n), fmt.Sprintf(`{"total":%d}`, n))
		want = append(want, id(2*n))
	}
	f.make(t, "customer", id(1), `{}`)
	for count := range 19 {
		more := 0
		got := f.pages(t, projection.ListAsk{Name: "details", Count: count + 1}, func() {
			if more++; more < 4 {
				f.make(t, "order", id(1000+more+100*count), `{}`) // behind all of them
				f.make(t, "order", id(0), `{}`)
			}
		})
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || !slices.IsSorted(got) {
			t.Errorf("pages of %d: %q", count+1, got)
		}
	}

	// Rows are values, as of the position of the page.
	written := f.make(t, "order", id(2), `{"total":99}`)
	l := f.list(t, projection.ListAsk{Name: "details", Count: 2})
	if row := l.Rows[1]; row.ID != id(2) || string(row.Data) != `{"total":99,"customer":null,"vat":null,"products":[]}` || l.Position.Compare(written.IDs[0]) < 0 {
		t.Errorf("%+v", l)
	}
	if n, all := f.count(t, "details", nil),
		f.pages(t, projection.ListAsk{Name: "details", Count: 1000}, nil); n != uint64(len(all)) {
		t.Errorf("%d rows are counted of %d", n, len(all))
	}

	// Handles stand there, and what a row cannot be computed for.
	f.make(t, "bill", id(1), `{"n":1}`)
	if row := f.list(t, projection.ListAsk{Name: "bills", Count: 1}).Rows[0]; !strings.HasPrefix(row.Handle, "bil_") ||
		string(row.Data) != `{"n":1}` {
		t.Errorf("%+v", row)
	}
	var lines string
	for n := range 1001 {
		lines += `{"product_id":"` + id(n) + `"},`
	}
	f.make(t, "order", id(0), `{"lines":[`+strings.TrimSuffix(lines, ",")+`]}`)
	l = f.list(t, projection.ListAsk{Name: "details", Count: 2})
	if j17.CodeOf(l.Rows[0].Err) != j17.CodeProjectionLimit || l.Rows[0].ID != id(0) || l.Rows[1].Err != nil {
		t.Errorf("%+v", l.Rows)
	}
}

// TestRowsAreKeptFromTheSecondTimeOn lists rows again and again: what was asked for once leaves nothing behind, and
// from the third time on nothing is computed. A row that is read by itself is kept at once.
func TestRowsAreKeptFromTheSecondTimeOn(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	const rows = 10
	for n := range rows {
		f.make(t, "order", id(n), fmt.Sprintf(`{"total":%d}`, n))
	}
	few := rows / 2 // two that share a place among those asked for before are not kept as soon
	for n := range 3 {
		before := f.Stats()
		f.list(t, projection.ListAsk{Name: "details", Count: rows})
		after := f.Stats()
		kept, hits := after.Kept, int(after.Hits-before.Hits)
		if (kept > few) != (n > 0) || (hits > few) != (n > 1) || kept > rows ||
			hits+int(after.Misses-before.Misses) != rows {
			t.Errorf("list %d: %d of its rows were kept and %d are", n, hits, kept)
		}
	}

	kept := f.Stats().Kept
	f.make(t, "order", id(rows), `{"total":1}`)
	f.view(t, projection.Ask{Name: "details", ID: id(rows)})
	if now := f.Stats().Kept; now != kept+1 {
		t.Errorf("%d values are kept after one was read by itself, and %d before", now, kept)
	}
}

// TestPagesAreBounded: a page of large rows ends early, and the next one goes on.
func TestPagesAreBounded(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{CacheBytes: 1})
	large := strings.Repeat("x", 900<<10)
	for n := range 12 {
		f.make(t, "order", id(n), `{"total":"`+large+`"}`)
	}
	rows, pages := 0, 0
	for ask := (projection.ListAsk{Name: "details", Count: 1000}); ; pages++ {
		l := f.list(t, ask)
		size := 0
		for _, row := range l.Rows {
			size += len(row.Data)
		}
		if rows += len(l.Rows); size > 8<<20 || len(l.Rows) == 0 {
			t.Fatalf("a page of %d rows has %d bytes", len(l.Rows), size)
		}
		if ask.Start = l.Next; l.Next == "" {
			break
		}
	}
	if rows != 12 || pages == 0 {
		t.Errorf("%d rows on %d pages", rows, pages+1)
	}
}

// TestRefusedLists asks for what there is not.
func TestRefusedLists(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	f.make(t, "order", id(1), `{}`)
	f.make(t, "order", id(2), `{}`)
	of := func(name, start string, filters map[string]string) projection.ListAsk {
		return projection.ListAsk{Name: name, Count: 1, Start: start, Filters: filters}
	}
	next := f.list(t, of("details", "", nil)).Next
	for _, c := range []struct {
		ask  projection.ListAsk
		code j17.Code
	}{
		{of("ghost", "", nil), j17.CodeUnknownProjection},
		{of("pair", "", nil), j17.CodeNotFound},
		{of("details", "x", nil), j17.CodeInvalidParameter},
		{of("whole", next, nil), j17.CodeInvalidParameter},
		{of("details", "", map[string]string{"total": "1"}), j17.CodeNotIndexed},
	} {
		if _, err := f.List(t.Context(), enginetest.Tenant, c.ask); j17.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c.ask, err)
		}
	}
	if _, err := f.Count(t.Context(), enginetest.Tenant, "ghost", nil); j17.CodeOf(err) != j17.CodeUnknownProjection {
		t.Error(err)
	}
}

// TestCountsAreExact counts while others write: never less than what was there before, nor more than afterwards.
func TestCountsAreExact(t *testing.T) {
	f := newFixture(t, shopSpec, projection.Options{})
	const each = 60
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for n := range each {
				f.make(t, "order", id(w*1000+n), `{}`)
			}
		})
	}
	for last := uint64(0); last < 2*each; {
		n := f.count(t, "details", nil)
		if n < last || n > 2*each {
			t.Fatalf("%d after %d", n, last)
		}
		last = n
	}
	writers.Wait()
}
