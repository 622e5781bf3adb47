package index_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/derived/index"
)

// TestSeveralLongValues looks for several values that are cut at the same place, among others: each row is found once,
// at its first value, page by page and counted.
func TestSeveralLongValues(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		long := strings.Repeat("x", 1000)
		a, b, c := long+"a", long+"b", long+"c"
		list := func(values ...string) string { return `["` + strings.Join(values, `","`) + `"]` }
		lists := []string{
			list(a), list(b), list(c), list(a, b), list(c, b, a), list("k", b), list("z", a), list("xx"), list(long),
			list("k", "z"),
		}
		for n, label := range lists {
			h.write(prod, event("item", fmt.Sprintf("i%02d", n), `{"label":`+label+`}`))
		}
		p := h.start(h.disk)
		h.ready(p, prod, source{h.disk}.definition(nil))
		v, err := p.At(t.Context(), prod, "one", h.end(prod))
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		for _, wanted := range [][]string{{a, b}, {a, b, c}, {"k", a, b}, {b, c, "z"}, {"k", a, "z"}, {long, a, b, c}} {
			var ranges []index.Range
			for _, text := range wanted {
				at := index.Bound{Value: value.StringValue(text)}
				ranges = append(ranges, index.All(labels, 2).Between(at, at))
			}
			var want []string
			for _, text := range wanted {
				for n, label := range lists {
					if id := fmt.Sprintf("i%02d", n); strings.Contains(label, `"`+text+`"`) &&
						!slices.Contains(want, id) {
						want = append(want, id)
					}
				}
			}
			slices.Sort(want)
			q := index.Query{Lanes: [][]index.Range{ranges}}
			for _, backward := range []bool{false, true} {
				q.Backward = backward
				for _, limit := range []int{1, 2, 100} {
					got := h.scan(v, q, limit)
					if slices.Sort(got); !slices.Equal(got, want) {
						t.Errorf("%d values, backward %v, %d at a time: %v, want %v", len(wanted), backward, limit, got, want)
					}
				}
			}
			if n, err := v.Count(plenty(), q); err != nil || n != uint64(len(want)) {
				t.Errorf("%d rows, %v, want %d", n, err, len(want))
			}
		}
		p.stop()
	})
}
