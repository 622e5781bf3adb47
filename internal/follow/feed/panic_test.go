package feed_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// faulty is the real store, of which one kind of call panics some times.
type faulty struct {
	store.Store
	mu   sync.Mutex
	call string
	left int
}

// meet panics where it is the call's turn.
func (f *faulty) meet(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.call == call && f.left > 0 {
		f.left--
		panic("a fault")
	}
}

// set lets the next calls of one kind panic, and returns how many of those before are left.
func (f *faulty) set(call string, times int) (left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left = f.left
	f.call, f.left = call, times
	return left
}

func (f *faulty) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	f.meet("Get")
	return f.Store.Get(ctx, t, space, key)
}

func (f *faulty) Scan(
	ctx context.Context, t j17.Tenant, space store.Space, r store.Range, limit int,
) ([]store.Item, error) {
	f.meet("Scan")
	return f.Store.Scan(ctx, t, space, r, limit)
}

func (f *faulty) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	f.meet("Write")
	return f.Store.Write(ctx, t, sides, fences...)
}

func (f *faulty) Extent(ctx context.Context, t j17.Tenant) (store.Extent, error) {
	f.meet("Extent")
	return f.Store.Extent(ctx, t)
}

func (f *faulty) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	f.meet("ReadChanges")
	return f.Store.ReadChanges(ctx, t, after, limit)
}

// TestPanicsHoldUpNothing lets each call of the store panic that a set makes, and the question whether a subscription
// rests, wherever it comes: on the goroutines of the set, of a tenant, of a subscription, or of who reads ahead. All is
// handed out in the end, and nothing ends or hangs.
func TestPanicsHoldUpNothing(t *testing.T) {
	for _, call := range []string{"Get", "Scan", "Write", "Extent", "ReadChanges", "Rest"} {
		for _, times := range []int{1, 3} {
			t.Run(call, func(t *testing.T) {
				inBubble(t, func(t *testing.T, h *house) {
					t.Helper()
					f := &faulty{Store: h.Store}
					h.append(shop, 1300)
					var g heard
					kind := feed.Kind{
						Batch: 7, Do: g.take,
						Rest: func(j17.Tenant, string, uint64, j17.StreamID) time.Duration {
							f.meet("Rest")
							return 0
						},
					}
					s := h.set(kind, func(o *feed.Options) { o.Store = f })
					h.subscribe(s, shop, "x", feed.Beginning())
					stop := h.run(s)
					for range 5 {
						left := f.set(call, times)
						h.append(shop, 3)
						pass(t, time.Minute)
						if left > 0 {
							t.Errorf("%d panics were not met", left)
						}
					}
					f.set("", 0)
					pass(t, time.Hour)
					got, want := slices.Compact(slices.Sorted(slices.Values(g.of(shop, "x")))), h.all(shop)
					if len(got) != len(want) {
						t.Errorf("%d of %d events were handed out", len(got), len(want))
					}
					stop()
				})
			})
		}
	}
}

// faultyAhead is the real store, which panics once while changes behind the beginning are read.
type faultyAhead struct {
	store.Store
	met atomic.Bool
}

func (f *faultyAhead) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	if !after.IsZero() && f.met.CompareAndSwap(false, true) {
		panic("a fault")
	}
	return f.Store.ReadChanges(ctx, t, after, limit)
}

// TestAPanicAheadIsLogged lets the reading of a page panic that nobody waits for yet: it is logged, and all is handed
// out.
func TestAPanicAheadIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var log strings.Builder
		h.append(shop, 10_000)
		var g heard
		s := h.set(feed.Kind{Batch: 100, Do: g.take}, func(o *feed.Options) {
			o.Store, o.Logger = &faultyAhead{Store: h.Store}, slog.New(slog.NewTextHandler(&log, nil))
		})
		h.subscribe(s, shop, "x", feed.Beginning())
		stop := h.run(s)
		pass(t, time.Hour)
		stop()
		if got, want := len(g.of(shop, "x")), len(h.all(shop)); got != want {
			t.Errorf("%d of %d events were handed out", got, want)
		}
		if got := strings.Count(log.String(), `work="reading a feed ahead"`); got != 1 {
			t.Errorf("a panic ahead is logged %d times:\n%s", got, log.String())
		}
	})
}

// TestPanicsBesideFailures lets a handler fail, and then what takes that down, and what takes that down in turn: all is
// handed out in the end.
func TestPanicsBesideFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		f := &faulty{Store: h.Store}
		h.append(shop, 30)
		var g heard
		failed := false
		s := h.set(feed.Kind{Batch: 7, Do: func(ctx context.Context, b *feed.Batch) error {
			if !failed {
				failed = true
				f.set("Get", 2)
				return errors.New("it does not go")
			}
			return g.take(ctx, b)
		}}, func(o *feed.Options) { o.Store = f })
		h.subscribe(s, shop, "x", feed.Beginning())
		stop := h.run(s)
		pass(t, time.Hour)
		stop()
		if got, want := len(g.of(shop, "x")), len(h.all(shop)); got != want || f.set("", 0) > 0 {
			t.Errorf("%d of %d events were handed out", got, want)
		}
	})
}
