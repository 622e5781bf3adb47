package listener_test

import (
	"fmt"
	"testing"
	"time"
)

// TestATryKeepsItsLease lets deliveries wait for their turn until so little of their leases is left that a try would
// outlast them: each is still told once, since nobody else may take it over meanwhile.
func TestATryKeepsItsLease(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()

		// An endpoint that was quick may have many deliveries ready when it becomes slow.
		h.answer("hook", func(m message) (int, time.Duration) {
			if m.N < 100 {
				return 200, 0
			}
			return 200, 8600 * time.Millisecond
		})
		const events = 320
		for n := range events {
			h.write(fmt.Sprint("order:", n), "was_placed", n)
		}
		h.pass(10 * time.Minute)

		told := map[string]int{}
		for _, m := range h.messages("hook") {
			told[m.ID]++
		}
		same(t, len(told), events)
		for id, n := range told {
			if n != 1 {
				t.Errorf("delivery %s was sent %d times", id, n)
			}
		}
		same(t, h.lag(s, "hook"), 0)
	})
}
