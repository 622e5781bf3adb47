//go:build !race

package index_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// TestManyValuesInEitherDirection goes through rows with many values each, of which a question lets through all but the
// first: at the end of the index nearly every entry is one of a row that stands before. Both directions have the same
// rows, page by page and in one search, and no page costs more than a few passes through all records, however many
// entries there are.
func TestManyValuesInEitherDirection(t *testing.T) {
	const rows, values, page = 4500, 20, 1000
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var want []string
		for chunk := range slices.Chunk(numbers(rows), 500) {
			var events []store.NewEvent
			for _, n := range chunk {
				var all []string
				for v := range values {
					all = append(all, fmt.Sprintf(`"x%03d"`, (n+v)%(values+5)))
				}
				id := fmt.Sprintf("i%05d", n)
				events = append(events, event("item", id, `{"label":["a",`+strings.Join(all, ",")+`]}`))
				want = append(want, id)
			}
			h.write(prod, events...)
		}
		p := h.start(h.disk)
		defer p.stop()
		h.ready(p, prod, source{h.disk}.definition(nil))
		v, err := p.At(t.Context(), prod, "one", h.end(prod))
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()

		// A pass through the records compares each of their entries and reads all of their bytes.
		pass := int64(rows * (100 + 5*values))
		q := index.Query{Lanes: [][]index.Range{{index.All(labels, 2).Prefix("x")}}}
		var forward []string
		for _, q.Backward = range []bool{false, true} {
			var got []string
			most := int64(0)
			for after := ""; ; {
				b := plenty()
				hits, err := v.Scan(b, q, after, page)
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, b.Spent())
				for _, hit := range hits {
					got, after = append(got, hit.ID), hit.Cursor
				}
				if len(hits) < page {
					break
				}
			}
			if most > 3*pass {
				t.Errorf("backward %v: a page took %d units, and a pass through all records is %d", q.Backward, most, pass)
			}
			if q.Backward {
				slices.Reverse(got)
				if !slices.Equal(got, forward) {
					t.Error("backward is not the reverse of forward")
				}
			}
			forward = got
			if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, want) {
				t.Errorf("backward %v: %d rows, not all %d", q.Backward, len(sorted), rows)
			}

			// One search in small steps is no more than its page.
			b := plenty()
			s := v.Search(b, q, "", page)
			some := 0
			for after := ""; some < page; {
				hits, err := s.Next(after, 100)
				if err != nil {
					t.Fatal(err)
				}
				some, after = some+len(hits), hits[len(hits)-1].Cursor
			}
			if b.Spent() > 3*pass {
				t.Errorf("backward %v: a search took %d units", q.Backward, b.Spent())
			}
		}

		// It ends where the budget ends.
		for units := int64(1000); units < 100_000; units *= 5 {
			if _, err := v.Scan(work.Counted(units), q, "", page); j17.CodeOf(err) != j17.CodeWorkLimit {
				t.Errorf("with %d units: %v", units, err)
			}
		}
	})
}

// numbers are those from 0 to below n.
func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
