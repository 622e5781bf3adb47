package index_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestAPanicInABacklogIsRepeated lets a definition panic for a row of a backlog, whoever computes it: that ends the turn and not the process.
func TestAPanicInABacklogIsRepeated(t *testing.T) {
	for items, rows := range map[int]int{60: 7, 600: 600} { // the second commit, and one that all processors have a part of
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			h.hasty = true
			var panics atomic.Int64
			d := source{h.disk}.definition(func(_ context.Context, ids []string) error {
				if slices.Contains(ids, fmt.Sprintf("x%03d", items*3/4)) && panics.Add(-1) >= 0 {
					panic("of the definition")
				}
				return nil
			})
			write := func(label string) {
				for n := range items {
					h.write(prod, event("item", fmt.Sprintf("x%03d", n), `{"label":"`+label+`"}`))
				}
			}
			write("before")
			p := h.start(h.disk)
			p.Bulk(items, rows)
			h.ready(p, prod, d)
			h.at(p, prod)
			h.unasked()
			panics.Store(1)
			write("behind")
			h.pass(time.Minute)
			h.at(p, prod)
			if panics.Load() >= 0 || !strings.Contains(h.log.String(), "panicked") {
				t.Errorf("nothing has panicked, or nobody has logged it: %s", h.log)
			}
			h.verify(p, prod)
			p.stop()
		})
	}
}
