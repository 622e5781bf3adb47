package index_test

import (
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/derived/index"
)

// plenty is a budget that does not end.
func plenty() *work.Budget { return work.Counted(1 << 40) }

// TestOneRowWithManyEntriesIsLookedUpOnce asks for the beginning of words of which one row has a thousand: what that
// takes grows with the entries, not with their square, and ends where the budget ends.
func TestOneRowWithManyEntriesIsLookedUpOnce(t *testing.T) {
	const words = 1000
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var title strings.Builder
		for i := range words {
			fmt.Fprintf(&title, "w%d ", i)
		}
		h.write(prod, event("item", "i1", `{"title":"`+title.String()+`"}`), event("item", "i2", `{"title":"w5 w6"}`))
		p := h.start(h.disk)
		defer p.stop()
		h.ready(p, prod, source{h.disk}.definition(nil))
		v, err := p.At(t.Context(), prod, "one", h.end(prod))
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()

		for _, ask := range []struct {
			name string
			do   func(b *work.Budget) (int, error)
		}{
			{"scan", func(b *work.Budget) (int, error) {
				hits, err := v.Words(b, titles, index.SplitWords("w"), "", 10)
				return len(hits), err
			}},
			{"count", func(b *work.Budget) (int, error) {
				n, err := v.CountWords(b, titles, index.SplitWords("w"))
				return int(n), err
			}},
			{"count of two words", func(b *work.Budget) (int, error) {
				n, err := v.CountWords(b, titles, index.SplitWords("w5 w"))
				return int(n), err
			}},
		} {
			b := plenty()
			if n, err := ask.do(b); err != nil || n != 2 {
				t.Errorf("%s: %d rows, %v, want 2", ask.name, n, err)
			}
			if spent := b.Spent(); spent < words || spent > 30*words {
				t.Errorf("%s took %d units for %d entries", ask.name, spent, words)
			}
			if _, err := ask.do(work.Counted(words / 2)); j17.CodeOf(err) != j17.CodeWorkLimit {
				t.Errorf("%s with half of a unit an entry: %v", ask.name, err)
			}
		}
		if hits, err := v.Scan(
			work.Counted(1000), index.Query{Lanes: [][]index.Range{{index.All(all, 0)}}}, "", 10,
		); err != nil || len(hits) != 2 {
			t.Error(hits, err)
		}
	})
}
