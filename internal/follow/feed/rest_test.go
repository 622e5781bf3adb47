package feed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// lazy is a kind whose subscriptions rest as long as it is told.
type lazy struct {
	heard

	mu    sync.Mutex
	rests time.Duration
	// asked counts the questions; behind and end are what the last one said.
	asked  int
	behind uint64
	end    j17.StreamID
}

func (l *lazy) kind() feed.Kind { return feed.Kind{Notes: true, Do: l.take, Rest: l.rest} }

func (l *lazy) rest(_ j17.Tenant, _ string, behind uint64, end j17.StreamID) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked, l.behind, l.end = l.asked+1, behind, end
	return l.rests
}

func (l *lazy) set(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rests = d
}

func (l *lazy) last() (asked int, behind uint64, end j17.StreamID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked, l.behind, l.end
}

// TestASubscriptionRests leaves events for later as long as the kind says so, and until somebody wakes the
// subscription.
func TestASubscriptionRests(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		l := &lazy{rests: time.Hour}
		s := h.set(l.kind())
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())

		// It is asked again for what is written, and not for nothing.
		for range 10 {
			h.append(shop, 3)
			pass(t, 10*time.Millisecond)
		}
		asked, behind, end := l.last()
		extent, err := h.Extent(t.Context(), shop)
		if err != nil || asked < 10 || behind != 30 || end != extent.Last || len(l.of(shop, "x")) > 0 {
			t.Errorf("asked %d times, %d events behind %s (%+v, %v), %d were handled", asked, behind, end, extent, err, len(l.of(shop, "x")))
		}

		// The lease stays, for longer than a tenant is held in which nothing happens.
		pass(t, 10*time.Minute)
		if c := s.Counts(); c.Held != 1 || c.Taken != 1 || h.status(s, "x").Lag != 30 {
			t.Errorf("%+v, %+v", c, h.status(s, "x"))
		}

		// Who is woken does not rest before it has come to where the feed ended then.
		wake := func(by *feed.Subscriptions, want int) {
			t.Helper()
			if err := by.Wake(t.Context(), shop, "test", "x"); err != nil {
				t.Fatal(err)
			}
			pass(t, time.Second)
			if n := len(l.of(shop, "x")); n != want {
				t.Errorf("%d of %d events were handled", n, want)
			}
		}
		wake(s, 30)
		h.append(shop, 3)
		pass(t, time.Minute)
		if n := len(l.of(shop, "x")); n != 30 {
			t.Errorf("%d events were handled, want 30", n)
		}

		// Another set wakes it as well, and whoever waits until all is done needs not.
		wake(h.set(l.kind()), 33)
		h.append(shop, 3)
		pass(t, 30*time.Millisecond)
		if err := s.Settle(t.Context()); err != nil || len(l.of(shop, "x")) != 36 {
			t.Errorf("%v, %d events were handled", err, len(l.of(shop, "x")))
		}

		// It goes on when the time is over that the kind has said.
		l.set(40 * time.Millisecond)
		h.append(shop, 3)
		pass(t, 10*time.Millisecond)
		l.set(0)
		pass(t, 20*time.Millisecond)
		if n := len(l.of(shop, "x")); n != 36 {
			t.Errorf("%d events were handled, want 36", n)
		}
		pass(t, 20*time.Millisecond)
		if n := len(l.of(shop, "x")); n != 39 {
			t.Errorf("%d events were handled, want 39", n)
		}

		// What one set has left, the next one takes up at once.
		l.set(time.Hour)
		h.append(shop, 3)
		pass(t, 30*time.Millisecond)
		stop()
		l.set(0)
		next := h.set(l.kind())
		stop = h.run(next)
		pass(t, 30*time.Millisecond)
		same(t, "what was handled", h.all(shop), l.of(shop, "x"))
		stop()
	})
}

// TestWhatIsPassedIsNotHandedOut has a handler that has done more than it was handed: what it says comes to nobody any
// longer, a note among it, and the running hash is that of all events.
func TestWhatIsPassedIsNotHandedOut(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.append(shop, 3000)
		erased := []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
		if err := storetest.Erase(t.Context(), h.Store, shop, j17.Key{Type: "order", ID: "o0"}, erased); err != nil {
			t.Fatal(err)
		}
		extent, err := h.Extent(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		noted := extent.Last
		var g heard
		first := true
		s := h.set(feed.Kind{Notes: true, Batch: 10, Do: func(ctx context.Context, b *feed.Batch) error {
			if b.Behind == 0 || b.Behind > 3005 {
				t.Errorf("%d events are behind", b.Behind)
			}
			if first {
				b.Passed(noted)
			}
			first = false
			return g.take(ctx, b)
		}})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		pass(t, time.Second)
		if n, status := len(g.of(shop, "x")),
			h.status(s, "x"); n != 10 || status.After != noted || status.Count != 3000 || status.Lag != 0 {
			t.Errorf("%d were handed out; %+v, the note is at %s", n, status, noted)
		}
		h.append(shop, 5)
		pass(t, 10*time.Minute)
		if n, status := len(g.of(shop, "x")),
			h.status(s, "x"); n != 15 || status.Checked < 2048 || s.Counts().Gaps > 0 {
			t.Errorf("%d were handed out; %+v, %+v", n, status, s.Counts())
		}
		stop()
	})
}

// TestWhatIsBehindIsHandedOut has a handler that has done more than it was handed, and less than there is: what is
// behind comes, all of it.
func TestWhatIsBehindIsHandedOut(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		const events, passed, batch = 3000, 2000, 10
		h.append(shop, events)
		var upTo j17.StreamID
		for e, err := range h.ReadFeed(t.Context(), shop, j17.StreamID{}, passed) {
			if err != nil {
				t.Fatal(err)
			}
			upTo = e.StreamID
		}
		var g heard
		first := true
		s := h.set(feed.Kind{Batch: batch, Do: func(ctx context.Context, b *feed.Batch) error {
			if first {
				b.Passed(upTo)
			}
			first = false
			return g.take(ctx, b)
		}})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		pass(t, 10*time.Minute)
		all := h.all(shop)
		same(t, "what was handled", slices.Concat(all[:batch], all[passed:]), g.of(shop, "x"))
		if status := h.status(s, "x"); status.Count != events || status.Lag != 0 || status.Checked < 2048 ||
			s.Counts().Gaps > 0 {
			t.Errorf("%+v, %+v", status, s.Counts())
		}
		stop()
	})
}

// TestRestAsksOfWhatIsWanted: a subscription that rests is behind by the events of its types. Others do not let it
// rest, and are passed as far as nothing that it wants is before them.
func TestRestAsksOfWhatIsWanted(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		l := &lazy{}
		k := orders(&l.heard)
		k.Rest = l.rest
		s := h.set(k)
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		h.mixed("order")
		pass(t, 100*time.Millisecond)
		extent := func() store.Extent {
			t.Helper()
			e, err := h.Extent(t.Context(), shop)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}

		// Others only.
		l.set(time.Hour)
		before, _, _ := l.last()
		for range 20 {
			h.mixed(slices.Repeat([]string{"cart"}, 10)...)
			pass(t, 10*time.Millisecond)
		}
		if asked, _, _ := l.last(); asked != before || h.status(s, "x").Lag != 0 {
			t.Errorf("it was asked %d times, where nothing that it wants was written; %+v", asked-before, h.status(s, "x"))
		}

		// Both, a few at a time.
		var end j17.StreamID
		for range 5 {
			h.mixed("cart", "order", "cart", "order")
			end = extent().Last
			h.mixed("cart", "cart")
			pass(t, 10*time.Millisecond)
		}
		if _, behind, last := l.last(); behind != 10 || last != end || len(l.of(shop, "x")) != 1 {
			t.Errorf("%d events are behind, the last of them %s, want 10 and %s", behind, last, end)
		}
		if lag := h.status(s, "x").Lag; lag != 29 { // but the cart before the first order
			t.Errorf("the subscription is behind by %d events, want 29", lag)
		}

		// All that it wants is handed out.
		l.set(0)
		h.mixed("order")
		pass(t, 100*time.Millisecond)
		if n := len(l.of(shop, "x")); n != 12 || h.status(s, "x").Lag != 0 {
			t.Errorf("%d events were handed out, want 12; %+v", n, h.status(s, "x"))
		}
		stop()
	})
}

// TestRestNeedsToKnow: where it is not in memory what a subscription has not passed, it does not rest.
func TestRestNeedsToKnow(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		l := &lazy{rests: time.Hour}
		k := orders(&l.heard)
		k.Rest = l.rest
		s := h.set(k)
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())

		// Of which types they are is known from the first event on.
		h.mixed("order", "order")
		pass(t, 100*time.Millisecond)
		if n := len(l.of(shop, "x")); n != 2 {
			t.Errorf("%d events were handed out, want 2", n)
		}
		h.mixed("order")
		pass(t, 100*time.Millisecond)
		if _, behind, _ := l.last(); behind != 1 || h.status(s, "x").Lag != 1 {
			t.Errorf("it does not rest: %d events are behind", behind)
		}

		// A note says of which events is not known what stands there now.
		erased := []store.Rewritten{{Version: 1, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}
		if err := storetest.Erase(t.Context(), h.Store, shop, j17.Key{Type: "order", ID: "o"}, erased); err != nil {
			t.Fatal(err)
		}
		pass(t, 100*time.Millisecond)
		if status := h.status(s, "x"); status.Lag != 0 {
			t.Errorf("it rests, though there is a note: %+v", status)
		}
		stop()
	})
}
