//go:build !race

package index_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/derived/index"
)

// TestSmallRowsAreComputedTogether: many rows of a backlog are computed together, but not where they have much.
func TestSmallRowsAreComputedTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		const few, many = 128, 512
		h.label(2*many+few, "before")
		for name, test := range map[string]struct {
			label string
			most  int
		}{"small": {"a", many}, "large": {strings.Repeat("long ", 20_000), few}} {
			var mu sync.Mutex
			most := 0
			d := &index.Definition{
				ID: name, Type: "item",
				Rows: func(_ context.Context, _ j17.Tenant, _ j17.StreamID, ids []string) ([]index.Row, error) {
					mu.Lock()
					most = max(most, len(ids))
					mu.Unlock()
					rows := make([]index.Row, len(ids))
					for i, id := range ids {
						rows[i] = index.Row{ID: id, Entries: []index.Entry{
							index.NewEntry(0, value.StringValue(test.label)),
							index.NewEntry(1, value.StringValue(test.label)),
						}}
					}
					return rows, nil
				},
			}
			p := h.start(h.disk)
			h.ready(p, prod, d)
			p.stop()
			h.label(2*many+few, name)

			most = 0 // nobody computes rows now
			p = h.start(h.disk)
			p.Bulk(4*many, many)
			p.Know(t.Context(), prod, d)
			h.pass(time.Minute)
			if most != test.most {
				t.Errorf("%d %s rows were computed together, not %d", most, name, test.most)
			}
			p.stop()
		}
	})
}
