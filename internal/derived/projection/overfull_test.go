package projection_test

import (
	"strconv"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// overfullSpec has a projection with two arrays in one index.
const overfullSpec = `{"agent_types":["user"],
	"aggregate_types":{"item":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}},
	"projections":{"tags":{"for_each":"item","sources":{"i":"$key"},"select":{"title":"$.i.title","tags":"$.i.tags","people":"$.i.people"},
		"index":["title",["tags","people"]]}}}`

// numbersTo is an array of the numbers below n.
func numbersTo(n int) string {
	var all []string
	for i := range n {
		all = append(all, strconv.Itoa(i))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// TestOverfullRows: a row that has more entries than a row may have is found as if all of its fields were null, and
// says so in the place of its data. One whose fields are null, or have nulls in them, does not.
func TestOverfullRows(t *testing.T) {
	t.Parallel()
	f := newIndexed(t, overfullSpec)
	f.make(t, "item", id(1), `{"title":"large","tags":`+numbersTo(101)+`,"people":`+numbersTo(101)+`}`)
	f.make(t, "item", id(2), `{"title":"fits","tags":`+numbersTo(99)+`,"people":`+numbersTo(99)+`}`)
	f.make(t, "item", id(3), `{"tags":[null,1],"people":[null]}`)
	f.make(t, "item", id(4), `{}`)
	for name, c := range map[string]struct {
		filters map[string]string
		want    []string
		failed  string
	}{
		"found by its title":  {map[string]string{"title": "fits"}, []string{id(2)}, ""},
		"where it is not":     {map[string]string{"title": "large"}, nil, ""},
		"where it is":         {map[string]string{"title": "null"}, []string{id(1), id(3), id(4)}, id(1)},
		"in the compound one": {map[string]string{"tags": "null"}, []string{id(1), id(3), id(4)}, id(1)},
		"by both of its parts": {
			map[string]string{"tags": "null", "people": "null"}, []string{id(1), id(3), id(4)}, id(1),
		},
	} {
		var got []string
		for _, r := range f.list(t, projection.ListAsk{Name: "tags", Filters: c.filters, Count: 10}).Rows {
			got = append(got, r.ID)
			if (j17.CodeOf(r.Err) == j17.CodeProjectionLimit) != (r.ID == c.failed) || r.Err != nil && len(r.Data) > 0 {
				t.Errorf("%s: %s is %.80s, %v", name, r.ID, r.Data, r.Err)
			}
		}
		if strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}

	// Trying the definition tells of it.
	definition := `{"name":"again","for_each":"item","sources":{"i":"$key"},"select":{"tags":"$.i.tags","people":"$.i.people"},"index":[["tags","people"]]}`
	tried, err := f.Try(t.Context(), enginetest.Tenant, projection.Posting{Definition: []byte(definition)}, 10)
	if err != nil || tried.Replay.Failed != 1 || len(tried.Replay.Differences) != 1 ||
		tried.Replay.Differences[0].Key != "item:"+id(1) {
		t.Errorf("tried: %+v, %v", tried.Replay, err)
	}
}

// newNearlyOverfull returns rows without a title that have nearly as many entries as a row may have.
func newNearlyOverfull(tb testing.TB, rows int) *fixture {
	tb.Helper()
	f := newIndexed(tb, overfullSpec)
	for n := range rows {
		f.make(tb, "item", id(n), `{"tags":`+numbersTo(99)+`,"people":`+numbersTo(99)+`}`)
	}
	return f
}

// TestOverfullRowsAreToldWithoutTheirEntries: to tell rows whose fields are null from those that have too many entries
// makes none of these.
func TestOverfullRowsAreToldWithoutTheirEntries(t *testing.T) {
	const rows, mostEach = 4, 3000
	f := newNearlyOverfull(t, rows)
	ask := projection.ListAsk{Name: "tags", Filters: map[string]string{"title": "null"}, Count: rows}
	f.list(t, ask)
	all := testing.AllocsPerRun(3, func() {
		if l := f.list(t, ask); len(l.Rows) != rows || l.Rows[0].Err != nil {
			t.Errorf("%d rows, %v", len(l.Rows), l.Rows[0].Err)
		}
	})
	t.Logf("%.0f pieces of memory for %d rows", all, rows)
	if all > rows*mostEach {
		t.Errorf("%.0f pieces of memory were taken for %d rows", all, rows)
	}
}

// BenchmarkNullsOfLargeRows lists rows that are found by a field that is null, and that have many entries beside it.
func BenchmarkNullsOfLargeRows(b *testing.B) {
	const rows = 20
	f := newNearlyOverfull(b, rows)
	f.count(b, "tags", nil) // builds the index
	for name, filters := range map[string]map[string]string{"nulls": {"title": "null"}, "all": nil} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f.list(b, projection.ListAsk{Name: "tags", Filters: filters, Count: rows})
			}
		})
	}
}
