package listener_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"j17/internal/follow/listener"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

const lanes store.Space = "listener.lanes"

// dueNow fails the test where a delivery of the shop that is not over is not due now, and returns how many there are.
func (h *house) dueNow() int {
	h.tb.Helper()
	items, err := h.Scan(h.tb.Context(), shop, lanes, store.Range{}, 1000)
	if err != nil {
		h.tb.Fatal(err)
	}
	for _, it := range items {
		if it.Due.IsZero() || it.Due.After(h.clock.Now()) {
			h.tb.Errorf("%s is due at %s, and now is %s", it.Key, it.Due, h.clock.Now())
		}
	}
	return len(items)
}

// TestAStopGivesBackWhatItTook stops a service while a try is under way that ends well, so that the next event of its
// aggregate is made ready when nothing is begun any longer; while another takes longer than the service waits, and
// others wait for their turn. Nobody has to wait for a lease afterwards.
func TestAStopGivesBackWhatItTook(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		h.answer("hook", func(m message) (int, time.Duration) {
			if m.Key == "order:a" {
				return 200, 2 * time.Second
			}
			return 200, 9 * time.Second
		})
		s := h.serve()
		for n := range 3 {
			h.write("order:a", "was_placed", n)
		}
		for n := range 300 {
			h.write(fmt.Sprint("order:", n), "was_placed", 0)
		}
		h.rest()
		s.stop()
		h.dueNow()
		same(t, len(h.numbers("hook", "order:a")), 1)

		// Another process tells all of it at once, and each event of the aggregate once.
		h.answer("hook", nil)
		s = h.serve()
		h.pass(2 * time.Second)
		same(t, h.lag(s, "hook"), 0)
		same(t, h.dueNow(), 0)
		if got := h.numbers("hook", "order:a"); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("the events of an aggregate were told as %v", got)
		}
		s.stop()
	})
}

// TestAKillLeavesNoLease cuts a process off while tries are under way, a second one among them, and pages of a replay.
// When the claims were given back all of it goes on at once, in order; what waits for its next try waits for it, and no
// longer.
func TestAKillLeavesNoLease(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		tries := map[string]int{}
		h.answer("hook", func(m message) (int, time.Duration) {
			h.mu.Lock()
			defer h.mu.Unlock()
			tries[m.Key]++
			switch {
			case m.Key == "order:paused" || m.Key == "order:second" && tries[m.Key] == 1:
				return 500, 0
			case m.Key == "order:told":
				return 200, 0
			}
			return 200, 9 * time.Second
		})
		process := storetest.NewCrashing(h.Store, -1, false)
		s := h.serveOn(process)
		for n := range 3 {
			h.write("order:told", "was_placed", n)
		}
		h.rest()
		h.write("order:second", "was_placed", 1)
		h.pass(4 * time.Second)
		h.write("order:paused", "was_placed", 1) // its second try is due in 5 s
		for n := range 3 {
			h.write("order:first", "was_placed", n)
		}
		h.pass(2 * time.Second) // the second try of the other is under way
		process.End()
		s.stop()
		paused := func() time.Time {
			it, err := h.Get(t.Context(), shop, lanes, "hook//order:paused")
			if err != nil {
				t.Fatal(err)
			}
			return it.Due
		}
		due := paused()
		released, err := h.ReleaseClaims(t.Context())
		if err != nil || released < 2 {
			t.Fatalf("%d claims were given back, %v", released, err)
		}
		same(t, paused(), due)

		// What was under way goes on within a second.
		h.answer("hook", nil)
		s = h.serve()
		defer s.stop()
		h.pass(time.Second)
		if got := h.numbers("hook", "order:first"); !slices.Equal(got, []int{0, 0, 1, 2}) {
			t.Errorf("the events of an aggregate were told as %v", got)
		}
		same(t, len(h.numbers("hook", "order:second")), 3)
		same(t, len(h.numbers("hook", "order:paused")), 2)
	})
}

// TestAKillLeavesReplaysGoingOn cuts a process off in the middle of a replay, which goes on at once when the claims
// were given back.
func TestAKillLeavesReplaysGoingOn(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		process := storetest.NewCrashing(h.Store, -1, false)
		s := h.serveOn(process)
		const events = 600
		for n := range events {
			h.write(fmt.Sprint("order:", n), "was_placed", n)
		}
		h.pass(10 * time.Second)
		same(t, len(h.messages("hook")), events)

		// Tries take a second from now on: much of the replay is left.
		h.answer("hook", func(message) (int, time.Duration) { return 200, time.Second })
		if n, err := s.Replay(t.Context(), shop, "hook", listener.Replay{}); err != nil || n != events {
			t.Fatal(n, err)
		}
		h.pass(3 * time.Second)
		told := len(h.messages("hook"))
		process.End()
		s.stop()
		if _, err := h.ReleaseClaims(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.answer("hook", nil)
		s = h.serve()
		h.pass(time.Second)
		if now := len(h.messages("hook")); now <= told {
			t.Errorf("of %d messages %d are of the time after the start", now, now-told)
		}
		h.pass(20 * time.Second)
		again := map[int]int{}
		for _, m := range h.messages("hook")[events:] {
			again[m.N]++
		}
		same(t, len(again), events)
		s.stop()
	})
}
