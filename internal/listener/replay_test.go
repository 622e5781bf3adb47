package listener_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"j17/internal/listener"
)

// TestAReplayWithoutRoomHoldsUpNoOther begins replays of slow listeners, which have no room for them, and then one of a quick listener.
func TestAReplayWithoutRoomHoldsUpNoOther(t *testing.T) {
	var listeners []string
	for _, name := range []string{"slow1", "slow2", "slow3", "slow4", "quick"} {
		listeners = append(listeners, fmt.Sprintf(`%q: {"url": "https://example.com/%s", "events": ["order.*"]}`, name, name))
	}
	inBubble(t, "{"+strings.Join(listeners, ",")+"}", func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		for n := 1; n <= 4; n++ {
			h.answer(fmt.Sprint("slow", n), func(message) (int, time.Duration) { return 200, 9 * time.Second })
		}
		const events = 80
		for n := range events {
			h.write(fmt.Sprint("order:", n), "was_placed", n)
		}
		h.rest()
		replay := func(name string) {
			if n, err := s.Replay(t.Context(), shop, name, listener.Replay{}); n != events || err != nil {
				t.Fatal(n, err)
			}
			h.rest()
		}
		for n := 1; n <= 4; n++ {
			replay(fmt.Sprint("slow", n))
		}
		replay("quick")
		h.pass(2 * time.Second)
		same(t, len(h.messages("quick")), 2*events)

		// The slow ones come to their end too.
		h.pass(4 * time.Minute)
		for n := 1; n <= 4; n++ {
			same(t, len(h.messages(fmt.Sprint("slow", n))), 2*events)
		}
	})
}
