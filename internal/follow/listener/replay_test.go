package listener_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/listener"
)

// TestAReplayWithoutRoomHoldsUpNoOther begins replays of slow listeners, which have no room for them, and then one of a
// quick listener.
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

func TestReplay(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		var at []j17.StreamID
		for n := range 5 {
			at = append(at, h.write("order:a", "was_placed", n))
			h.write("note:a", "was_written", n)
		}
		h.rest()
		r := listener.Replay{After: at[0], Until: at[3]}
		if n, err := s.CountReplay(t.Context(), shop, "hook", r); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := s.Replay(t.Context(), shop, "hook", r); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		h.rest()
		same(t, h.numbers("hook", "order:a"), []int{0, 1, 2, 3, 4, 1, 2, 3})
		ids := map[string]bool{}
		for _, m := range h.messages("hook") {
			ids[m.ID] = true
		}
		same(t, len(ids), 8)
		_, err := s.Replay(t.Context(), shop, "hook", listener.Replay{After: at[3], Until: at[0]})
		same(t, j17.CodeOf(err), j17.CodeInvalidField)
		_, err = s.Replay(t.Context(), shop, "ghost", r)
		same(t, j17.CodeOf(err), j17.CodeNotFound)
	})
}
