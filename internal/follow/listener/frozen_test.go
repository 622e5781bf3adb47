package listener_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/listener"
	"j17/internal/storage/store"
)

// freezing is a way to the store that can be frozen: what asks or writes over it waits.
type freezing struct {
	store.Store
	mu   sync.Mutex
	gate chan struct{} // nil unless frozen
}

func (f *freezing) freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := make(chan struct{})
	f.gate = gate
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.gate = nil
		close(gate)
	}
}

func (f *freezing) pass() {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (f *freezing) Get(ctx context.Context, t j17.Tenant, s store.Space, key string) (store.Item, error) {
	f.pass()
	return f.Store.Get(ctx, t, s, key)
}

func (f *freezing) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	f.pass()
	return f.Store.Write(ctx, t, sides, fences...)
}

func (f *freezing) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) ([]store.Item, error) {
	f.pass()
	return f.Store.ClaimDue(ctx, t, c)
}

// TestAFrozenSetIsTakenOver freezes a set of workers in the middle of its tries, lets another one take over, and thaws
// the first: what it still wants to commit is refused, it sends nothing more of what is not its own, and each event
// counts once.
func TestAFrozenSetIsTakenOver(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		h.answer("hook", func(message) (int, time.Duration) { return 200, 2 * time.Second })
		way := &freezing{Store: h.Store}
		first := h.serveOn(way)
		const events, aggregates = 60, 20
		for n := range events {
			h.write(fmt.Sprint("order:", n%aggregates), "was_placed", n)
		}
		h.pass(time.Second)
		thaw := way.freeze()
		begun := len(h.messages("hook"))
		if begun == 0 {
			t.Fatal("no try is under way")
		}
		second := h.serve()
		h.pass(10 * time.Minute)
		same(
			t, []int{h.lag(second, "hook"), len(h.deliveries(second, listener.Filter{Status: listener.Delivered}))},
			[]int{0, events},
		)
		if n := len(h.messages("hook")); n > events+begun {
			t.Errorf("%d messages for %d events, %d of which were under way", n, events, begun)
		}

		// The first one goes on.
		before := len(h.messages("hook"))
		thaw()
		h.pass(10 * time.Minute)
		same(t, len(h.messages("hook")), before)
		same(t, first.Counts().Delivered+second.Counts().Delivered, uint64(events))
		ids := map[string]int{}
		for _, d := range h.deliveries(second, listener.Filter{}) {
			ids[d.ID] = d.Attempts
			same(t, []any{d.Status, d.Attempts}, []any{listener.Delivered, 1})
		}
		same(t, len(ids), events)
		for key := range aggregates {
			var first []int
			for _, m := range h.messages("hook") {
				if m.Key == fmt.Sprint("order:", key) && !slices.Contains(first, m.N) {
					first = append(first, m.N)
				}
			}
			if !slices.IsSorted(first) || len(first) != events/aggregates {
				t.Errorf("order:%d was told %v", key, first)
			}
		}

		// Either of them takes what comes then.
		h.write("order:new", "was_placed", events)
		h.pass(time.Minute)
		same(t, h.numbers("hook", "order:new"), []int{events})
		first.stop()
		second.stop()
	})
}
