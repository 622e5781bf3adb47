package listener_test

import (
	"testing"
	"time"

	"j17/internal/follow/listener"
	"j17/internal/lang/spec"
)

// TestWhatIsNotRestoredIsNotGone starts again while the spec of the environment is not there for a minute, with a
// delivery that is to be tried again, events that wait behind it, and events that nobody has looked at. All of it is
// told when the spec is there.
func TestWhatIsNotRestoredIsNotGone(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		h.answer("hook", always(500))
		s := h.serve()
		for n := range 3 {
			h.write("order:1", "was_placed", n)
		}
		h.pass(2 * time.Second)
		s.stop()
		h.crash()
		h.write("order:2", "was_placed", 3)
		h.answer("hook", always(200))

		h.mu.Lock()
		there := h.spec
		before := len(h.got)
		h.mu.Unlock()
		h.set(nil)
		s = h.serve()
		defer s.stop()
		h.pass(time.Minute)
		same(t, len(h.messages("hook")), before)
		h.set(there)
		h.pass(time.Hour)
		told := map[int]bool{}
		for _, m := range h.messages("hook")[before:] {
			told[m.N] = true
		}
		same(t, len(told), 4)
		same(t, h.lag(s, "hook"), 0)
	})
}

// TestASpecThatIsAwayIsNoListenerThatIsGone takes the spec of an environment away during a try, as on a server that an
// environment leaves and comes back to: the delivery has not failed, and nothing that waits behind it is lost.
func TestASpecThatIsAwayIsNoListenerThatIsGone(t *testing.T) {
	for _, answer := range []int{500, 200} {
		inBubble(t, hook, func(t *testing.T, h *house) {
			t.Helper()
			s := h.serve()
			defer s.stop()
			h.answer("hook", func(message) (int, time.Duration) { return answer, 5 * time.Second })
			h.write("order:1", "was_placed", 1)
			h.write("order:1", "was_placed", 2)
			h.rest()
			there := h.spec
			h.set(nil)
			h.pass(10 * time.Second)
			h.answer("hook", always(200))
			h.set(there)
			h.pass(time.Hour)
			same(t, h.numbers("hook", ""), []int{1, 1, 2})
			same(t, len(h.deliveries(s, listener.Filter{Status: listener.Delivered})), 2)
		})
	}
}

// set puts a spec in the place of the one that there is.
func (h *house) set(c *spec.Compiled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spec = c
}
