package listener_test

import (
	"slices"
	"testing"
	"time"
)

// TestAPanicOfATry lets what sends messages panic, on the goroutine of a try: the delivery is tried again, as one whose
// process has ended, and others go on meanwhile.
func TestAPanicOfATry(t *testing.T) {
	inBubble(t, `{"hook": {"url": "https://example.com/orders", "events": ["order.*"]}}`, func(t *testing.T, h *house) {
		t.Helper()
		panics := 2
		h.answer("orders", func(m message) (int, time.Duration) {
			if m.Key == "order:a" && panics > 0 {
				panics--
				panic("a fault")
			}
			return 200, 0
		})
		s := h.serve()
		h.write("order:a", "was_placed", 1)
		h.write("order:b", "was_placed", 2)
		h.rest()
		if got := h.numbers("orders", "order:b"); !slices.Equal(got, []int{2}) {
			t.Errorf("of another aggregate %v were delivered", got)
		}
		h.pass(time.Hour)
		if got := h.numbers("orders", "order:a"); len(got) != 3 || panics != 0 {
			t.Errorf("it was tried %d times", len(got))
		}
		s.stop()
	})
}
