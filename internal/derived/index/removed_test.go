package index_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// interrupted is a store that lets something happen right after a write, once.
type interrupted struct {
	store.Store

	left atomic.Int64 // writes up to it, that one included
	then func()
}

// Write is that of the store.
func (s *interrupted) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	err := s.Store.Write(ctx, t, sides, fences...)
	if err == nil && s.left.Add(-1) == 0 {
		s.then()
	}
	return err
}

// TestRemovedWhileManyRowsFollow: another process removes an index between two commits of rows, of a backlog and of a
// source of many: the slot is gone when its upkeep looks at it again. The upkeep ends without a fault, and nothing is
// left.
func TestRemovedWhileManyRowsFollow(t *testing.T) {
	shop := j17.Key{Type: "shop", ID: "s"}
	d := &index.Definition{
		ID: "one", Type: "item", Types: []string{"shop"},
		Rows: func(_ context.Context, _ j17.Tenant, _ j17.StreamID, ids []string) (rows []index.Row, err error) {
			for _, id := range ids {
				rows = append(rows, index.Row{
					ID: id, Entries: []index.Entry{index.NewEntry(0)}, Sources: []j17.Key{shop},
				})
			}
			return rows, nil
		},
	}
	items := func(n int) (events []store.NewEvent) {
		for i := range n {
			events = append(events, event("item", fmt.Sprintf("i%05d", i), `{}`))
		}
		return events
	}
	for name, tc := range map[string]struct{ before, then []store.NewEvent }{
		"a backlog": {items(60), items(60)},
		"a source":  {items(3000), []store.NewEvent{event("shop", "s", `{}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			removed := 0
			for left := int64(1); left < 8; left++ {
				inBubble(t, func(t *testing.T, h *house) {
					t.Helper()
					h.hasty = true
					h.write(prod, tc.before...)
					st := &interrupted{Store: h.disk}
					p := h.start(st)
					h.ready(p, prod, d)
					h.unasked()
					other := h.start(h.disk)
					st.then = func() {
						status, err := other.Status(t.Context(), prod, d.ID)
						if err == nil && status.Fanout != nil && status.Fanout.Done > 0 {
							removed++
						}
						if err := other.Remove(t.Context(), prod, d.ID); err != nil {
							t.Error(err)
						}
					}
					st.left.Store(left)
					h.write(prod, tc.then...)
					h.pass(time.Minute)
					if strings.Contains(h.log.String(), "ERROR") || strings.Contains(h.log.String(), "WARN") {
						t.Errorf("removed after %d writes: %s", left, h.log)
					}
					for _, space := range []store.Space{
						"index.slots", "index.heads", "index.counts", "index.entries", "index.rows", "index.sources",
						"feed.subscriptions",
					} {
						if n, err := h.disk.Count(t.Context(), prod, space, store.Range{}, 10); err != nil ||
							n != 0 && st.left.Load() < 1 {
							t.Errorf("removed after %d writes: %d items in %s, %v", left, n, space, err)
						}
					}
					p.stop()
					other.stop()
				})
			}
			if removed == 0 {
				t.Error("nothing was removed between two commits of rows")
			}
		})
	}
}
