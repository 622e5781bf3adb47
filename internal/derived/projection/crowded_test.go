//go:build !race

package projection_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// sumsSpec has a projection whose rows take work that grows with the square of the length of "n".
const sumsSpec = `{"agent_types":["user"],
	"aggregate_types":{"a":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}},
	"projections":{"sums":{"for_each":"a","sources":{"a":"$key"},"select":{"k":"$.a.k",
		"sum":{"$sum":"$.a.n","as":"$x","of":{"$sum":"$.a.n","as":"$y","of":{"$multiply":["$x","$y"]}}}}}}}`

// row is the data of such a row with so many numbers.
func row(n int) string {
	return fmt.Sprintf(`{"k":1,"n":[1%s]}`, strings.Repeat(",1", n-1))
}

// TestRowsDoNotDependOnThoseBesideThem lists rows each of which takes a good part of the work that a value may take,
// and one that takes more than that: each shows in a list what it shows by its id, a page takes work within a bound,
// and all of them come.
func TestRowsDoNotDependOnThoseBesideThem(t *testing.T) {
	const rows, large, tooLarge = 10, 900, 3000
	f := newFixture(t, sumsSpec, projection.Options{})
	want := map[string]string{}
	for n := range rows {
		size := large
		if n == 5 {
			size = tooLarge
		}
		f.make(t, "a", id(n), row(size))
		want[id(n)] = fmt.Sprintf(`{"k":1,"sum":%d}`, size*size)
	}
	want[id(5)] = string(j17.CodeWorkLimit)
	if _, err := f.Read(t.Context(), enginetest.Tenant, &projection.Ask{
		Name: "sums", ID: id(5),
	}); j17.CodeOf(err) != j17.CodeWorkLimit {
		t.Fatalf("the large one: %v", err)
	}

	ask := projection.ListAsk{Name: "sums", Count: 100}
	var ids []string
	for more := true; more; more = ask.Start != "" {
		l := f.list(t, ask)
		for _, r := range l.Rows {
			is := string(r.Data)
			if r.Err != nil {
				is = string(j17.CodeOf(r.Err))
			}
			if is != want[r.ID] {
				t.Errorf("row %s is %s, want %s", r.ID, is, want[r.ID])
			}
			ids = append(ids, r.ID)
		}
		ask.Start = l.Next
	}
	if len(ids) != rows || !slices.IsSorted(ids) || len(slices.Compact(ids)) != rows {
		t.Errorf("%d rows: %v", len(ids), ids)
	}
}

// TestPagesOfHeavyRowsEndEarly lists rows of which each takes most of the work that a value may take: a page ends where
// they took as much as it may, and the next one goes on there.
func TestPagesOfHeavyRowsEndEarly(t *testing.T) {
	const rows = 32
	f := newFixture(t, sumsSpec, projection.Options{CacheBytes: 1})
	for n := range rows {
		f.make(t, "a", id(n), row(900))
	}
	l := f.list(t, projection.ListAsk{Name: "sums", Count: rows})
	if n := len(l.Rows); n < rows/4 || n >= rows || l.Next == "" {
		t.Errorf("a page has %d rows, and then %q", n, l.Next)
	}
	next := f.list(t, projection.ListAsk{Name: "sums", Count: rows, Start: l.Next})
	if len(next.Rows) == 0 || next.Rows[0].ID != id(len(l.Rows)) {
		t.Errorf("the next page has %d rows", len(next.Rows))
	}
}
