package feed_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// readings is a way to the store that counts the readings of the feed under way, and those that were begun.
type readings struct {
	store.Store
	open, begun atomic.Int32
}

func (r *readings) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		r.begun.Add(1)
		r.open.Add(1)
		defer r.open.Add(-1)
		r.Store.ReadChanges(ctx, t, after, limit)(yield)
	}
}

// TestWhatIsReadAheadIsAsItIsNow erases an event of a page that was read while the one before was at work: what is
// handed out is the marker.
func TestWhatIsReadAheadIsAsItIsNow(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		const events, page, erased = 8000, 1024, 4500
		h.append(shop, events)
		var g heard
		reached, goOn := make(chan struct{}), make(chan struct{})
		calls := 0
		way := &readings{Store: h.Store}
		s := h.set(feed.Kind{Batch: page, Do: func(ctx context.Context, b *feed.Batch) error {
			if calls++; calls == erased/page {
				close(reached)
				<-goOn
			}
			return g.take(ctx, b)
		}}, func(o *feed.Options) { o.Store = way })
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		<-reached
		synctest.Wait()
		if way.open.Load() != 1 {
			t.Error("nothing is read ahead")
		}
		before := h.all(shop)
		erase(t, h, "o0", erased/3)
		close(goOn)
		pass(t, time.Second)
		stop()
		now := h.all(shop)
		if before[erased-1] == now[erased-1] {
			t.Fatal("the event was not erased")
		}
		same(
			t, "what is handed out", append(before[:erased/page*page:erased/page*page], now[erased/page*page:]...),
			g.of(shop, "x"),
		)
		if status := h.status(s, "x"); status.Lag != 0 || status.Failures != 0 || s.Counts().Gaps != 0 {
			t.Errorf("%+v %+v", status, s.Counts())
		}
	})
}

// TestReadingAhead lets a subscription catch up that is quick, at first: its feed is read in one go while it is, and
// nothing is held for it when it is not.
func TestReadingAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.append(shop, 10*1024)
		h.append(shop, 10*1024)
		var g heard
		way := &readings{Store: h.Store}
		calls := 0
		s := h.set(feed.Kind{Batch: 1024, Do: func(ctx context.Context, b *feed.Batch) error {
			switch calls++; {
			case calls == 10:
				return feed.Later{For: time.Minute}
			case calls > 16:
				rest(ctx, 10*time.Second)
			}
			return g.take(ctx, b)
		}}, func(o *feed.Options) { o.Store = way })
		stop := h.run(s)
		defer stop()
		h.subscribe(s, shop, "x", feed.Beginning())
		pass(t, 500*time.Millisecond)
		if n := way.begun.Load(); n > 4 || way.open.Load() != 1 {
			t.Errorf("%d readings were begun, %d are under way", n, way.open.Load())
		}
		pass(t, 10*time.Second)
		if n := way.open.Load(); n != 0 {
			t.Errorf("%d readings are under way while nothing is taken", n)
		}
		pass(t, time.Minute)
		if n := way.open.Load(); n != 0 {
			t.Errorf("%d readings are under way for a slow handler", n)
		}
		pass(t, time.Minute)
		same(t, "what is handed out", h.all(shop), g.of(shop, "x"))
	})
}

// pausing is a way to a store that looks up much at a time for who reads a feed on and on: it takes a while before the
// fifth page of each such reading.
type pausing struct {
	readings

	far atomic.Int32
}

func (p *pausing) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	all := p.readings.ReadChanges(ctx, t, after, limit)
	if limit <= 1024 {
		return all
	}
	p.far.Add(1)
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for e, err := range all {
			if n++; n == 4*1024 {
				rest(ctx, 3*time.Second)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestWhatTakesAWhileIsReadOn lets a subscription catch up while events are written, and the store take a while for
// what it looks up ahead: that is handed out when it is there, not given up for having taken so long.
func TestWhatTakesAWhileIsReadOn(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.append(shop, 10*1024)
		h.append(shop, 10*1024)
		var g heard
		way := &pausing{readings: readings{Store: h.Store}}
		s := h.set(feed.Kind{Batch: 1024, Do: func(ctx context.Context, b *feed.Batch) error {
			rest(ctx, 100*time.Millisecond)
			return g.take(ctx, b)
		}}, func(o *feed.Options) { o.Store = way })
		stop := h.run(s)
		defer stop()
		h.subscribe(s, shop, "x", feed.Beginning())
		for range 200 {
			pass(t, 50*time.Millisecond)
			h.append(shop, 1)
		}
		if n := way.far.Load(); n > 2 {
			t.Errorf("the feed was begun to be read ahead %d times", n)
		}
		pass(t, time.Minute)
		same(t, "what is handed out", h.all(shop), g.of(shop, "x"))
	})
}

// TestReadingAheadInStretches lets a subscription catch up for which the store is asked for some entries at a time,
// which end with a page, in the middle of one, or with the feed.
func TestReadingAheadInStretches(t *testing.T) {
	const events = 8 * 1024
	for _, some := range []int{1024, 1500, 2048, 3000, 4096, 4097, events - 1024, events} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			h.append(shop, events)
			erase(t, h, "o0", 1)
			var g heard
			way := &readings{Store: h.Store}
			s := h.set(feed.Kind{Batch: 1024, Do: g.take}, func(o *feed.Options) { o.Store = way })
			s.SetAheadEntries(some)
			stop := h.run(s)
			h.subscribe(s, shop, "x", feed.Beginning())
			pass(t, time.Second)
			stop()
			same(t, fmt.Sprint("what is handed out ", some, " at a time"), h.all(shop), g.of(shop, "x"))
			if n, most := int(way.begun.Load()), 6+events/some; n > most {
				t.Errorf("%d readings were begun, want %d at most", n, most)
			}
		})
	}
}

// TestTheEndOfWhatIsReadAhead appends an event while the last page is at work, of which it is known by then that
// nothing follows it: the event is handed out.
func TestTheEndOfWhatIsReadAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		const page, pages = 1024, 3
		h.append(shop, pages*page)
		var g heard
		reached, goOn := make(chan struct{}), make(chan struct{})
		calls := 0
		way := &readings{Store: h.Store}
		s := h.set(feed.Kind{Batch: page, Do: func(ctx context.Context, b *feed.Batch) error {
			if calls++; calls == pages {
				close(reached)
				<-goOn
			}
			return g.take(ctx, b)
		}}, func(o *feed.Options) { o.Store = way })
		stop := h.run(s)
		defer stop()
		h.subscribe(s, shop, "x", feed.Beginning())
		<-reached
		pass(t, 100*time.Millisecond)
		if way.begun.Load() < 2 || way.open.Load() != 0 {
			t.Errorf("%d readings were begun, %d are under way: the end was not read ahead", way.begun.Load(), way.open.Load())
		}
		h.append(shop, 1)
		pass(t, 100*time.Millisecond)
		close(goOn)
		pass(t, time.Minute)
		same(t, "what is handed out", h.all(shop), g.of(shop, "x"))
	})
}

// TestReadingAheadIsBounded lets the subscriptions of many environments catch up, each of which rests after some pages:
// pages are kept ready for a few of them only.
func TestReadingAheadIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		const tenants, most, page = 18, 16, 64
		var g heard
		way := &readings{Store: h.Store}
		var mu sync.Mutex
		calls := map[j17.Tenant]int{}
		s := h.set(feed.Kind{Batch: page, Do: func(ctx context.Context, b *feed.Batch) error {
			mu.Lock()
			calls[b.Tenant]++
			n := calls[b.Tenant]
			mu.Unlock()
			if n == 1100/page+2 {
				return feed.Later{For: time.Minute} // in the second page of the feed
			}
			return g.take(ctx, b)
		}}, func(o *feed.Options) { o.Store = way })
		var all []j17.Tenant
		for n := range tenants {
			all = append(all, j17.Tenant(fmt.Sprintf("ins_a%02d/prod", n)))
			h.append(all[n], 3200)
		}
		stop := h.run(s)
		defer stop()
		for _, tenant := range all {
			h.subscribe(s, tenant, "x", feed.Beginning())
		}
		pass(t, 500*time.Millisecond)
		if n := way.open.Load(); n != most {
			t.Errorf("pages are read ahead for %d environments, want %d", n, most)
		}
		pass(t, 3*time.Minute)
		for _, tenant := range all {
			same(t, "what is handed out", h.all(tenant), g.of(tenant, "x"))
		}
		if n := way.open.Load(); n != 0 {
			t.Errorf("%d readings are under way at the end", n)
		}
	})
}
