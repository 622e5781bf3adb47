//go:build !race

package listener_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/listener"
	"j17/internal/storage/store"
)

// searches is a way to the store that counts how often a search for what waits is put off, and may be lost at one of
// them.
type searches struct {
	store.Store
	putOff atomic.Int32
	// at is the number of the one with which lose is called, 0 for none.
	at   int32
	lose func()
}

func (s *searches) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	err := s.Store.Write(ctx, t, sides, fences...)
	for i := range sides {
		if err == nil && sides[i].Space == "listener.lanes" && sides[i].Op == store.Put && len(sides[i].Value) == 0 {
			if s.putOff.Add(1) == s.at {
				s.lose()
			}
		}
	}
	return err
}

// TestASearchForWhatWaitsCostsWhatItMay lets an event wait behind very many others that the listener does not want, as
// it finds out with much work for each: they are looked at bit by bit, over a restart and while the listener is paused,
// and then the event is told once. It computes for long, one thing after the other.
func TestASearchForWhatWaitsCostsWhatItMay(t *testing.T) {
	const costly = `{"hook": {"url": "https://example.com/hook", "events": ["order.*"], "condition": {"some": {"in": "$.data.list", "as": "$a", "match":
		{"some": {"in": "$.data.list", "as": "$b", "match": {"equals": ["$b", -1]}}}}}}}`
	for _, with := range []string{"", "a restart", "a pause"} {
		t.Run(with, func(t *testing.T) {
			inBubble(t, costly, func(t *testing.T, h *house) {
				t.Helper()
				way := &searches{Store: h.Store, at: 2, lose: func() {}}
				reached := make(chan struct{})
				if with == "a restart" {
					way.lose = func() { close(reached) }
				}
				s := h.serveOn(way)
				h.answer("hook", func(message) (int, time.Duration) { return 200, time.Second })

				// One that is wanted, many that are not, and one that is.
				const unwanted, wanted = `[0`, `[-1]`
				add := func(list string, many int) {
					u := store.Append{Timestamp: time.Now().Unix()}
					for range many {
						u.Events = append(u.Events, store.NewEvent{
							Key: j17.Key{Type: "order", ID: "a"}, Type: "was_placed",
							Data: []byte(`{"n":1,"list":` + list + `}`), Metadata: []byte("{}"),
						})
					}
					if r, err := h.Append(t.Context(), shop, []store.Append{u}); err != nil ||
						r[0].Outcome != store.Committed {
						t.Fatal(r, err)
					}
				}
				add(wanted, 1)
				h.rest()
				add(unwanted+strings.Repeat(",1", 99)+"]", 300)
				add(wanted, 1)
				switch with {
				case "a restart":
					soon, cancel := context.WithTimeout(t.Context(), time.Minute)
					select {
					case <-reached:
					case <-soon.Done():
						t.Error("the search was not put off")
					}
					cancel()
					s.stop()
					s = h.serveOn(way)
				case "a pause":
					h.rest() // All wait, and the try of the first one is under way.
					if err := s.Pause(t.Context(), shop, "hook"); err != nil {
						t.Fatal(err)
					}
					h.pass(10 * time.Minute)
					same(t, len(h.messages("hook")), 1)
					if err := s.Resume(t.Context(), shop, "hook"); err != nil {
						t.Fatal(err)
					}
				}
				h.pass(10 * time.Minute)
				s.stop()

				if n := way.putOff.Load(); n < 2 || n > 100 {
					t.Errorf("the search was put off %d times", n)
				}
				same(t, len(h.messages("hook")), 2)
				same(t, []any{
					h.lag(s, "hook"), len(h.deliveries(s, listener.Filter{Key: "order:a", Status: listener.Delivered})),
				}, []any{0, 2})
				for _, space := range []store.Space{"listener.lanes", "listener.behind"} {
					if n, err := h.Count(t.Context(), shop, space, store.Range{}, 10); n != 0 || err != nil {
						t.Errorf("%d items are left in %s: %v", n, space, err)
					}
				}
			})
		})
	}
}
