package tail_test

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/follow/tail"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// faulty is the real store, whose feed panics where it is told to.
type faulty struct {
	store.Store
	panics atomic.Bool
}

// ReadChanges implements store.Feed.
func (f *faulty) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	if f.panics.Load() {
		panic("a fault")
	}
	return f.Store.ReadChanges(ctx, t, after, limit)
}

// TestAPanicIsToldToReaders lets the reading of a feed panic, on the goroutine that reads for all who follow it: they
// are told, and who comes later follows it again.
func TestAPanicIsToldToReaders(t *testing.T) {
	s := testopen.Open(t, clock.System{})
	f := &faulty{Store: s}
	all := &fixture{Tail: tail.New(f, nil), store: &counted{Store: s}}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	all.write(t, "order:a", "was_made", 1, 1, "{}")
	r := all.open(t, tail.Filter{}, j17.StreamID{})
	defer r.Close()
	take(t, r, 1<<20)
	f.panics.Store(true)
	all.write(t, "order:a", "was_made", 1, 1, "{}")
	var err error
	for p := new(tail.Piece); err == nil; {
		select {
		case <-r.Ready():
			err = r.Take(ctx, p, 1<<20)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if !strings.Contains(err.Error(), "panic: a fault") {
		t.Errorf("a reader is told %v", err)
	}
	f.panics.Store(false)
	again := all.open(t, tail.Filter{}, j17.StreamID{})
	defer again.Close()
	if got := take(t, again, 1<<20); len(got) != 2 {
		t.Errorf("a reader who comes later has %v", got)
	}
}
