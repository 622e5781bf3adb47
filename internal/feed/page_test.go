package feed_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/feed"
	"j17/internal/store"
)

// readings is a way to the store that counts the readings of the feed under way, and those that were begun.
type readings struct {
	store.Store
	open, begun atomic.Int32
}

func (r *readings) ReadChanges(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		r.begun.Add(1)
		r.open.Add(1)
		defer r.open.Add(-1)
		r.Store.ReadChanges(ctx, t, after, limit)(yield)
	}
}

// TestWhatIsReadAheadIsAsItIsNow erases an event of a page that was read while the one before was at work: what is handed out is the marker.
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
		same(t, "what is handed out", append(before[:erased/page*page:erased/page*page], now[erased/page*page:]...), g.of(shop, "x"))
		if status := h.status(s, "x"); status.Lag != 0 || status.Failures != 0 || s.Counts().Gaps != 0 {
			t.Errorf("%+v %+v", status, s.Counts())
		}
	})
}

// TestReadingAhead lets a subscription catch up that is quick, at first: its feed is read in one go while it is, and nothing is held for it
// when it is not.
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

// TestTheEndOfWhatIsReadAhead appends an event while the last page is at work, of which it is known by then that nothing follows it: the event is
// handed out.
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
