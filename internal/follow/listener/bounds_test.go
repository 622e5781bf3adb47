package listener_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/follow/listener"
	"j17/internal/storage/store"
)

// TestWhatIsCountedCostsWhatItMay counts what a listener was not told, and what a replay would tell, while little work
// is allowed: the first number is what was found by then, the second one is refused.
func TestWhatIsCountedCostsWhatItMay(t *testing.T) {
	inBubble(t, `{"hook": {"url": "https://example.com/hook", "events": ["order.*"], "condition": {"not": {"some": {"in": "$.metadata.actor.id", "match": {"exists": "$item"}}}}}}`, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		const events = 300
		for n := range events {
			h.write("order:a", "was_placed", n)
		}
		h.rest()
		if n, err := s.CountReplay(t.Context(), shop, "hook", listener.Replay{}); n != events || err != nil {
			t.Errorf("%d: %v", n, err)
		}
		s.SetCountWork(work.HeavyAfter / 32)
		for _, r := range []listener.Replay{{}, {OnlyFailed: true}} {
			n, err := s.CountReplay(t.Context(), shop, "hook", r)
			if refused := j17.CodeOf(err) == j17.CodeWorkLimit; refused == r.OnlyFailed || n != 0 {
				t.Errorf("%+v: %d %v", r, n, err)
			}
		}
		if _, err := s.Replay(t.Context(), shop, "hook", listener.Replay{}); j17.CodeOf(err) != j17.CodeWorkLimit {
			t.Errorf("a replay that cannot be counted is %v", err)
		}
	})
}

// TestAPageOfDeliveriesCostsWhatItMay lists what has been delivered while few rows may be looked at: a page that needs
// no more is answered.
func TestAPageOfDeliveriesCostsWhatItMay(t *testing.T) {
	inBubble(t, `{"hook": {"url": "https://example.com/hook", "events": ["order.*"]}}`, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		const events, listed = 60, 40
		for n := range events {
			h.write(fmt.Sprint("order:", n), "was_placed", n)
		}
		h.rest()
		s.SetListed(listed)
		for _, f := range []listener.Filter{{}, {Listener: "hook", Status: listener.Delivered}} {
			if page, err := s.Deliveries(t.Context(), shop, f, 0, listed); len(page) != listed || err != nil {
				t.Errorf("%+v: %d deliveries, %v", f, len(page), err)
			}
			if page, err := s.Deliveries(t.Context(), shop, f, 0, events); page != nil ||
				j17.CodeOf(err) != j17.CodeWorkLimit {
				t.Errorf("%+v: %d deliveries, %v", f, len(page), err)
			}
		}
	})
}

// TestTheLagOfManyEventsIsAtLeastThat has a listener that is paused, and whose condition takes long: what is looked at
// to count what it was not told is bounded, and so is what a list of listeners takes.
func TestTheLagOfManyEventsIsAtLeastThat(t *testing.T) {
	const condition = `"condition": {"not": {"some": {"in": "$.data.list", "as": "$a", "match": {"some": {"in": "$.data.list", "as": "$b", "match": {"equals": ["$b", -1]}}}}}}`
	inBubble(t, `{"a": {"url": "https://example.com/a", "events": ["order.*"], `+condition+`}, "b": {"url": "https://example.com/b", "events": ["order.*"], `+condition+`}}`, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		s.SetCountWork(work.Command / 4)
		for _, name := range []string{"a", "b"} {
			if err := s.Pause(t.Context(), shop, name); err != nil {
				t.Fatal(err)
			}
		}
		const events = 200
		u := store.Append{Timestamp: time.Now().Unix()}
		for range events {
			u.Events = append(u.Events, store.NewEvent{
				Key: j17.Key{Type: "order", ID: "a"}, Type: "was_placed",
				Data: []byte(`{"list": [0` + strings.Repeat(",1", 300) + `]}`), Metadata: []byte("{}"),
			})
		}
		if r, err := h.Append(t.Context(), shop, []store.Append{u}); err != nil || r[0].Outcome != store.Committed {
			t.Fatal(r, err)
		}
		all := h.lag(s, "a")
		if all == 0 || all >= events {
			t.Errorf("%d of %d events are counted", all, events)
		}
		list, err := s.List(t.Context(), shop, 0, 10)
		if err != nil || len(list) != 2 || list[0].Lag == 0 || list[0].Lag+list[1].Lag > all+2 {
			t.Errorf("%d events are counted of one listener, of two %+v: %v", all, list, err)
		}
		if list, err = s.List(t.Context(), shop, 1, 1); err != nil || len(list) != 1 || list[0].Name != "b" {
			t.Errorf("the second one is %+v: %v", list, err)
		}
	})
}

// TestAReplayPassesWhatIsGone lets more of what has failed be gone than a page of a replay has: what failed after it is
// still told.
func TestAReplayPassesWhatIsGone(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		var gone []store.Side
		for n := range 1200 {
			gone = append(gone, store.Side{
				Op: store.Put, Space: "listener.failed", Key: fmt.Sprintf("hook/%013d-0000000000", n+1),
				Value: fmt.Append(nil, "dlv_gone", n),
			})
		}
		if err := h.Write(t.Context(), shop, gone); err != nil {
			t.Fatal(err)
		}
		h.answer("hook", always(410))
		h.write("order:a", "was_placed", 1)
		h.rest()
		h.answer("hook", always(200))
		if err := s.Resume(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Replay(t.Context(), shop, "hook", listener.Replay{OnlyFailed: true}); n != 1 || err != nil {
			t.Errorf("%d: %v", n, err)
		}
		h.pass(time.Second)
		same(t, h.numbers("hook", ""), []int{1, 1})
	})
}
