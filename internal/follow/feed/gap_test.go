package feed_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// spoil changes the JSON of an item of the subscription "x", as a fault of the program or of a disk would.
func (h *house) spoil(space store.Space, key string, change func(members map[string]any)) {
	h.tb.Helper()
	it, err := h.Get(h.tb.Context(), shop, space, key)
	if err != nil {
		h.tb.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(it.Value, &members); err != nil {
		h.tb.Fatal(err)
	}
	change(members)
	value, err := json.Marshal(members)
	if err != nil {
		h.tb.Fatal(err)
	}
	if err := h.Write(h.tb.Context(), shop, []store.Side{
		{Op: store.Put, Space: space, Key: key, Value: value},
	}); err != nil {
		h.tb.Fatal(err)
	}
}

// TestAGapIsNoticed lets checkpoints and marks say that events were passed which were not, or others: the running hash
// shows it, at once in the last stretch and after a while in the others. It is told and counted, and what follows the
// last place that is right comes again.
func TestAGapIsNoticed(t *testing.T) {
	const mark = "test/x/0000000000000800" // after 2,048 events
	otherHash := func(members map[string]any) { members["hash"] = hex.EncodeToString([]byte(strings.Repeat("x", 32))) }
	for name, tc := range map[string]struct {
		spoil func(h *house)
		// again is the number of the event with which what comes again begins; within is how soon.
		again  int
		within time.Duration
	}{
		"a checkpoint that has skipped events": {func(h *house) {
			var ahead j17.StreamID
			n := 0
			for e, err := range h.ReadFeed(h.tb.Context(), shop, j17.StreamID{}, 2590) {
				if err != nil {
					h.tb.Fatal(err)
				}
				ahead = e.StreamID
				n++
			}
			h.spoil(
				"feed.subscriptions", "test/x",
				func(members map[string]any) { members["after"], members["count"] = ahead.String(), n },
			)
		}, 2048, time.Second},
		"a checkpoint after other events": {
			func(h *house) { h.spoil("feed.subscriptions", "test/x", otherHash) }, 2048, time.Second,
		},
		"a mark after other events": {func(h *house) {
			h.spoil("feed.marks", mark, otherHash)
			h.spoil("feed.subscriptions", "test/x", func(members map[string]any) { members["checked"] = 0 })
		}, 1024, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				h.append(shop, 2500)
				var before heard
				s := h.set(feed.Kind{Do: before.take})
				stop := h.run(s)
				h.subscribe(s, shop, "x", feed.Beginning())
				pass(t, time.Minute)
				stop()
				if s.Counts().Gaps != 0 || s.Counts().Checked == 0 || h.log.Len() > 0 {
					t.Fatalf("%+v\n%s", s.Counts(), h.log)
				}
				h.append(shop, 100)
				tc.spoil(h)

				var after heard
				s = h.set(feed.Kind{Do: after.take})
				stop = h.run(s)
				pass(t, tc.within)
				if s.Counts().Gaps == 0 || !strings.Contains(h.log.String(), "a subscription has passed other events than the feed holds") {
					t.Errorf("%+v\n%s", s.Counts(), h.log)
				}
				pass(t, time.Hour)
				stop()

				// All that comes is in order, and nothing is left out.
				all, got := h.all(shop), after.of(shop, "x")
				want := all[tc.again:]
				if len(got) < len(want) || !slices.Equal(got[len(got)-len(want):], want) {
					t.Errorf("%d events came again, from %q on", len(got), got[:min(1, len(got))])
				}
				if status := h.status(s, "x"); status.Lag != 0 || status.Count != uint64(len(all)) ||
					status.Failures != 0 {
					t.Errorf("%+v", status)
				}
			})
		})
	}
}

// unmarked calls gone before marks are read.
type unmarked struct {
	store.Store
	gone func()
}

func (u unmarked) Scan(
	ctx context.Context, t j17.Tenant, s store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	if s == "feed.marks" {
		u.gone()
	}
	return u.Store.Scan(ctx, t, s, keys, limit)
}

// TestRemovedWhileCompared removes a subscription, and makes it again, just before its marks are read to compare it
// with the feed: that is no gap.
func TestRemovedWhileCompared(t *testing.T) {
	for _, anew := range []bool{false, true} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			var g heard
			first := h.set(feed.Kind{Do: g.take})
			h.append(shop, 3)
			h.subscribe(first, shop, "x", feed.End())
			h.append(shop, 1) // else nobody looks at it

			gone := sync.OnceFunc(func() {
				if err := first.Unsubscribe(t.Context(), shop, "test", "x"); err != nil {
					t.Error(err)
				}
				if anew {
					h.subscribe(first, shop, "x", feed.Beginning())
				}
			})
			s := h.set(feed.Kind{Do: g.take}, func(o *feed.Options) { o.Store = unmarked{h.Store, gone} })
			stop := h.run(s)
			pass(t, time.Minute)
			if s.Counts().Gaps != 0 || h.log.Len() > 0 {
				t.Errorf("anew: %v, %+v\n%s", anew, s.Counts(), h.log)
			}
			if anew {
				same(t, "what is handed out", h.all(shop), g.of(shop, "x"))
			}
			stop()
		})
	}
}

// TestNotesArrive erases events: a kind that asks for notes gets one where it happened, whatever its filter lets
// through, and one that does not gets none.
func TestNotesArrive(t *testing.T) {
	for _, notes := range []bool{false, true} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			var g heard
			s := h.set(feed.Kind{Notes: notes, Do: g.take, Filter: nothing})
			stop := h.run(s)
			h.append(shop, 10)
			h.subscribe(s, shop, "x", feed.Beginning())
			pass(t, time.Second)
			erase(t, h, "o0", 1, 2)
			pass(t, time.Second)
			h.append(shop, 10)
			erase(t, h, "o1", 1)
			pass(t, time.Minute)
			stop()
			var want []string
			if notes {
				want = []string{"note", "note"}
			}
			same(t, "what is handed out", want, g.of(shop, "x"))
			if status := h.status(s, "x"); status.Lag != 0 || status.Failures != 0 || s.Counts().Gaps != 0 {
				t.Errorf("%+v %+v", status, s.Counts())
			}

			// Another set finds nothing that it would have to hand out again.
			again := h.set(feed.Kind{Notes: notes, Do: g.take, Filter: nothing})
			stop = h.run(again)
			h.append(shop, 1)
			pass(t, time.Minute)
			stop()
			same(t, "what is handed out after a restart", want, g.of(shop, "x"))
		})
	}
}

// TestAnotherOneOfTheSameName removes a subscription and makes one of its name again while its marks are being removed,
// and after a process has ended before they were: the other one keeps its own, and no others are taken for them.
func TestAnotherOneOfTheSameName(t *testing.T) {
	for _, killed := range []bool{false, true} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			h.append(shop, 100)
			var got heard
			kind := feed.Kind{Do: got.take}
			last := h.set(kind)
			h.subscribe(last, shop, "x", feed.End())
			h.append(shop, 30)
			from := feed.Beginning()
			anew := func() {
				h.subscribe(last, shop, "x", from)
				from = feed.End()
			}
			if killed {
				s := h.set(kind, func(o *feed.Options) { o.Store = storetest.NewCrashing(h.Store, 1, false) })
				if err := s.Unsubscribe(t.Context(), shop, "test", "x"); err == nil {
					t.Error("the process has not ended")
				}
				anew()
			} else {
				from = feed.End()
				s := h.set(kind, func(o *feed.Options) { o.Store = unmarked{h.Store, anew} })
				if err := s.Unsubscribe(t.Context(), shop, "test", "x"); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				h.append(shop, 1)
				s := h.set(kind)
				stop := h.run(s)
				pass(t, time.Minute)
				stop()
				if s.Counts().Gaps != 0 || h.log.Len() > 0 {
					t.Errorf("killed %v: %+v\n%s", killed, s.Counts(), h.log)
				}
			}
			want := 2
			if killed {
				want = 132
			}
			if all := got.of(shop, "x"); len(all) != want {
				t.Errorf("killed %v: %d events came, want %d", killed, len(all), want)
			}
		})
	}
}
