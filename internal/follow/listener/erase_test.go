package listener_test

import (
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/core/part"
	"j17/internal/follow/listener"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// said counts what is kept of what the endpoint has said.
func (h *house) said() (n int) {
	h.tb.Helper()
	for _, space := range []store.Space{"listener.logs", "listener.deliveries"} {
		items, err := h.Scan(h.tb.Context(), shop, space, store.Range{}, 1000)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, it := range items {
			n += strings.Count(string(it.Value), "not today") + strings.Count(string(it.Value), "the answer has")
		}
	}
	return n
}

// TestErasure erases aggregates of which one try is over, one is under way and one event waits: what the endpoint has
// said of them goes, also what it says later, and what was erased is no longer sent.
func TestErasure(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", func(m message) (int, time.Duration) {
			if m.Key == "order:b" {
				return 500, 3 * time.Second
			}
			return 500, 0
		})
		h.write("order:a", "was_placed", 1)
		h.write("order:a", "was_paid", 2)
		h.write("order:kept", "was_placed", 3)
		h.rest()
		h.write("order:b", "was_placed", 4)
		h.rest()
		if h.said() == 0 {
			t.Fatal("nothing is kept of what was said: the test shows nothing")
		}

		// Erase them.
		erased := part.Erased{Keys: []j17.Key{{Type: "order", ID: "a"}, {Type: "order", ID: "b"}}}
		for _, key := range erased.Keys {
			gone := []store.Rewritten{{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)}}
			if key.ID == "a" {
				gone = append(gone, store.Rewritten{
					Version: 2, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`),
				})
			}
			if err := storetest.Erase(t.Context(), h.Store, shop, key, gone); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := s.Erase(t.Context(), shop, erased); err != nil {
				t.Fatal(err)
			}
		}
		kept := h.said()

		// The try that was under way ends, and the others have their turns.
		h.pass(20 * time.Second)
		for _, d := range h.deliveries(s, listener.Filter{Key: "order:a"}) {
			if d.Type == "was_placed" && (d.Status != listener.Failed || d.LastError != "the event was erased") {
				t.Errorf("%+v", d)
			}
		}
		for _, key := range []string{"order:a", "order:b"} {
			if got := h.numbers("hook", key); len(got) == 0 || got[0] == 0 || len(got) > 1 && got[1] != 0 {
				t.Errorf("of %s these were sent: %v", key, got)
			}
		}
		logs, err := h.Scan(t.Context(), shop, "listener.logs", store.Prefix("order:b/"), 9)
		if err != nil || len(logs) == 0 || strings.Contains(string(logs[0].Value), "not today") ||
			!strings.Contains(string(logs[0].Value), `"status":500`) {
			t.Errorf("%+v %v", logs, err)
		}
		if kept != 3 || len(h.numbers("hook", "order:kept")) < 2 {
			t.Errorf("%d things that were said of others are kept", kept)
		}
	})
}

// TestAReplayOfWhatWasErased replays what has failed, of which one event was erased since: the listener is not told of
// the marker in its place, which it does not select.
func TestAReplayOfWhatWasErased(t *testing.T) {
	inBubble(t, `{"hook": {"url": "https://example.com/hook", "events": ["order.was_placed"]}}`, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 1)
		h.write("order:b", "was_placed", 2)
		h.pass(10 * time.Minute)
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Failed})), 2)
		gone := []store.Rewritten{{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)}}
		key := j17.Key{Type: "order", ID: "a"}
		if err := storetest.Erase(t.Context(), h.Store, shop, key, gone); err != nil {
			t.Fatal(err)
		}
		if err := s.Erase(t.Context(), shop, part.Erased{Keys: []j17.Key{key}}); err != nil {
			t.Fatal(err)
		}
		h.answer("hook", nil)
		told := len(h.messages("hook"))
		if _, err := s.Replay(t.Context(), shop, "hook", listener.Replay{OnlyFailed: true}); err != nil {
			t.Fatal(err)
		}
		h.pass(10 * time.Minute)
		same(t, h.numbers("hook", "")[told:], []int{2})
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Pending})), 0)
	})
}
