//go:build !race

package index_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// TestVerifyTakesTurns compares an index on a turn on a processor. Somebody else who waits for one has it before all is
// compared, and where there is none nothing is.
func TestVerifyTakesTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		const rows = 8000
		events := make([]store.NewEvent, 0, rows)
		for n := range rows {
			events = append(events, event("item", fmt.Sprintf("i%04d", n), `{"label":"a"}`))
		}
		h.write(prod, events...)
		p := h.start(h.disk)
		defer p.stop()
		h.ready(p, prod, source{h.disk}.definition(nil))

		turns := work.NewPool(1, 1)
		var own, other work.Slot
		own.Open(turns, "a")
		other.Open(turns, "b")
		ctx := context.WithValue(t.Context(), work.SlotKey(), &own)
		asked, had := false, make(chan struct{})
		var at, all uint64
		difference, err := p.Verify(ctx, prod, "one", func(done, total uint64) {
			if turns.Used() == 1 && !asked {
				asked = true
				go func() {
					defer close(had)
					if err := other.Take(t.Context()); err != nil {
						t.Error(err)
					}
					other.End()
				}()
				synctest.Wait()
			}
			select {
			case <-had:
				if at == 0 {
					at = done
				}
			default:
			}
			all = total
		})
		if err != nil || difference != nil || at == 0 || at >= all {
			t.Errorf("the other one had its turn when %d of %d were compared: %v %v", at, all, difference, err)
		}
		if own.End(); turns.Used() != 0 {
			t.Errorf("%d turns are left taken", turns.Used())
		}

		var keeps, late work.Slot
		keeps.Open(turns, "b")
		late.Open(turns, "a")
		if err := keeps.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = p.Verify(context.WithValue(t.Context(), work.SlotKey(), &late), prod, "one", nil)
		if keeps.End(); j17.CodeOf(err) != j17.CodeBusy {
			t.Errorf("where there is no turn: %v", err)
		}
	})
}
