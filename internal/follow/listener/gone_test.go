package listener_test

import (
	"slices"
	"testing"
	"time"

	"j17/internal/follow/listener"
	"j17/internal/storage/store"
)

func TestListenersComeAndGo(t *testing.T) {
	inBubble(t, `{}`, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.write("order:a", "was_placed", 1)
		h.deploy(s, hook)
		h.write("order:a", "was_placed", 2)
		h.rest()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 3)
		h.rest()
		h.deploy(s, `{}`)
		h.rest()
		// Not only when the next try is due.
		same(t, h.one(s, listener.Filter{Status: listener.Failed}).LastError, "the listener was removed from the spec")
		h.write("order:a", "was_placed", 4)
		h.pass(time.Hour)
		same(t, h.numbers("hook", ""), []int{2, 3})
		d := h.one(s, listener.Filter{Status: listener.Failed})
		same(t, d.LastError, "the listener was removed from the spec")

		// It comes back as a new one.
		h.answer("hook", always(200))
		h.deploy(s, hook)
		h.write("order:a", "was_placed", 5)
		h.pass(time.Hour)
		same(t, h.numbers("hook", ""), []int{2, 3, 5})
	})
}

// TestAListenerGoesDuringATry: a delivery that is under way when its listener leaves the spec ends with its try, and
// nothing waits behind it when the listener comes back.
func TestAListenerGoesDuringATry(t *testing.T) {
	for _, c := range []struct {
		answer int
		want   listener.DeliveryStatus
		last   string
	}{{500, listener.Failed, "the listener was removed from the spec"}, {410, listener.Failed, "the listener was removed from the spec"}, {200, listener.Delivered, ""}} {
		inBubble(t, hook, func(t *testing.T, h *house) {
			t.Helper()
			s := h.serve()
			defer s.stop()
			h.answer("hook", func(message) (int, time.Duration) { return c.answer, 5 * time.Second })
			h.write("order:a", "was_placed", 1)
			h.write("order:a", "was_placed", 2)
			h.rest()
			h.deploy(s, `{}`)
			h.pass(time.Minute)
			d := h.one(s, listener.Filter{})
			same(t, []any{d.Status, d.LastError, d.Attempts}, []any{c.want, c.last, 1})

			h.answer("hook", always(200))
			h.deploy(s, hook)
			h.write("order:a", "was_placed", 3)
			h.pass(time.Minute)
			same(t, h.numbers("hook", ""), []int{1, 3})
		})
	}
}

// TestAListenerGoesWhileATryIsNoted removes a listener when what came of a try has been decided and is not written yet:
// no delivery waits for a next try, or for a listener to be resumed that is not there.
func TestAListenerGoesWhileATryIsNoted(t *testing.T) {
	for _, paused := range []bool{false, true} {
		inBubble(t, hook, func(t *testing.T, h *house) {
			t.Helper()
			way := &meeting{Store: h.Store}
			s := h.serveOn(way)
			defer s.stop()
			h.answer("hook", func(message) (int, time.Duration) { return 500, 5 * time.Second })
			h.write("order:a", "was_placed", 1)
			h.rest()
			writes := 1
			if paused {
				writes++ // the first is refused, since the listener was active when the try began
				if err := s.Pause(t.Context(), shop, "hook"); err != nil {
					t.Fatal(err)
				}
			}
			way.once(func(sides []store.Side) bool {
				if slices.ContainsFunc(sides, func(it store.Side) bool { return it.Space == "listener.logs" }) {
					writes--
				}
				return writes == 0
			}, func() { h.deploy(s, `{}`) })
			h.pass(6 * time.Second)
			d := h.one(s, listener.Filter{})
			same(t, []any{d.Status, d.LastError}, []any{listener.Failed, "the listener was removed from the spec"})
		})
	}
}

// TestWhatWasLeftGoesOn: where an earlier version left a delivery that waits for ever, its aggregate is told of again
// once the listener is back.
func TestWhatWasLeftGoesOn(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 1)
		h.rest()
		var left []store.Side
		for _, space := range []store.Space{"listener.lanes", "listener.deliveries"} {
			items, err := h.Scan(t.Context(), shop, space, store.Prefix(""), 2)
			if err != nil || len(items) != 1 {
				t.Fatal(items, err)
			}
			left = append(left, store.Side{Op: store.Put, Space: space, Key: items[0].Key, Value: items[0].Value})
		}
		h.deploy(s, `{}`)
		h.rest()
		if err := h.Write(t.Context(), shop, left); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Hour)
		same(t, h.one(s, listener.Filter{Status: listener.Pending}).Attempts, 1)

		h.answer("hook", always(200))
		h.deploy(s, hook)
		h.write("order:a", "was_placed", 2)
		h.pass(time.Hour)
		sent := h.numbers("hook", "")
		same(t, sent[len(sent)-1], 2)
	})
}
