package feed_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// looks counts the entries that are read of feeds.
type looks struct {
	store.Store
	entries atomic.Int64
}

// ReadChanges counts.
func (l *looks) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range l.Store.ReadChanges(ctx, t, after, limit) {
			if l.entries.Add(1); !yield(e, err) {
				return
			}
		}
	}
}

// mixed stores events of the types in their order, one unit each.
func (h *house) mixed(types ...string) {
	h.tb.Helper()
	for _, name := range types {
		h.n++
		e := store.NewEvent{
			Key: j17.Key{Type: name, ID: "o"}, Type: "was_counted", Data: []byte(strconv.Itoa(h.n)),
			Metadata: []byte("{}"),
		}
		if _, err := h.Append(h.tb.Context(), shop, []store.Append{
			{Timestamp: time.Now().Unix(), Events: []store.NewEvent{e}},
		}); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// orders lets a kind want orders only, and notes.
func orders(g *heard) feed.Kind {
	return feed.Kind{
		Notes: true,
		Types: func(context.Context, j17.Tenant, string) ([]string, error) { return []string{"order"}, nil },
		Do:    g.take,
	}
}

// TestOtherTypesAreNotRead has a subscription that wants orders, and writes others: they are passed without a look at
// them, and what it wants comes in its order, also notes. The running hash is that of all events.
func TestOtherTypesAreNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		counted := &looks{Store: h.Store}
		var g heard
		s := h.set(orders(&g), func(o *feed.Options) { o.Store = counted })
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		h.mixed("order", "cart")
		pass(t, 100*time.Millisecond)

		// Others only.
		before := counted.entries.Load()
		for range 30 {
			h.mixed(slices.Repeat([]string{"cart"}, 100)...)
			pass(t, 20*time.Millisecond)
		}
		if n := counted.entries.Load() - before; n > 0 {
			t.Errorf("%d entries were read for 3,000 events of another type", n)
		}
		if status := h.status(s, "x"); status.Lag != 0 || status.Count != 3002 {
			t.Errorf("%+v", status)
		}

		// Some that are wanted between them, and a note.
		h.mixed("cart", "order", "cart", "cart", "order")
		pass(t, 100*time.Millisecond)
		h.mixed("cart")
		erased := []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
		if err := storetest.Erase(t.Context(), h.Store, shop, j17.Key{Type: "cart", ID: "o"}, erased); err != nil {
			t.Fatal(err)
		}
		h.mixed("cart")
		pass(t, 100*time.Millisecond)
		h.mixed("order", "cart")
		pass(t, 100*time.Millisecond)
		same(t, "what was wanted", []string{"1", "3004", "3007", "note", "3010"}, g.of(shop, "x"))
		if status := h.status(s, "x"); status.Lag != 0 || status.Count != 3011 || status.Failures != 0 {
			t.Errorf("%+v", status)
		}

		// What was passed is compared with the feed.
		pass(t, 10*time.Minute)
		if status := h.status(s, "x"); status.Checked < 2048 || s.Counts().Gaps > 0 {
			t.Errorf("%+v, %+v", status, s.Counts())
		}
		stop()
	})
}

// TestTypesOfManyHistories has random runs of types, now and then with a pause or after a restart: each order comes
// once, in its order.
func TestTypesOfManyHistories(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		var want []string
		for round := range 6 {
			s := h.set(orders(&g))
			stop := h.run(s)
			if round == 0 {
				h.subscribe(s, shop, "x", feed.Beginning())
			}
			for i := range 40 {
				run := slices.Repeat([]string{[]string{"order", "cart", "note"}[(round+i*i)%3]}, 1+(i*7+round)%90)
				first := h.n
				h.mixed(run...)
				for n := first + 1; run[0] == "order" && n <= h.n; n++ {
					want = append(want, fmt.Sprint(n))
				}
				if i%3 == 0 {
					pass(t, 30*time.Millisecond)
				}
			}
			if round%2 == 0 {
				pass(t, time.Minute)
			}
			stop()
			if round%2 == 1 { // nothing of the last round is in memory any longer
				h.Store = h.data.Open(t, clock.System{})
			}
		}
		s := h.set(orders(&g))
		stop := h.run(s)
		pass(t, time.Minute)
		stop()
		same(t, "what was wanted", want, g.of(shop, "x"))
		if status := h.status(s, "x"); status.Lag != 0 || status.Count != uint64(h.n) || s.Counts().Gaps > 0 {
			t.Errorf("%+v, %+v", status, s.Counts())
		}
	})
}
