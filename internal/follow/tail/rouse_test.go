package tail_test

import (
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/follow/tail"
	"j17/internal/storage/testopen"
)

// TestManyReadersAreWokenInBatches has an event for many readers of one filter, and for one of another: the one is
// woken at once, the others so many at a time, the next of them when these have come or were waited for. Nobody misses
// the event.
func TestManyReadersAreWokenInBatches(t *testing.T) {
	const many, batch = 1000, 128
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t)
		var readers []*tail.Reader
		for range many {
			readers = append(readers, f.open(t, tail.Filter{}, j17.StreamID{}))
		}
		alone := f.open(t, tail.Filter{Key: noteKey(1)}, j17.StreamID{})
		f.write(t, "note:n1", "was_made", 1, 1, `{}`)

		// come lets all come that were woken, and returns how many these were.
		woken := map[*tail.Reader]bool{}
		come := func() (n int) {
			synctest.Wait()
			for _, r := range append([]*tail.Reader{alone}, readers...) {
				select {
				case <-r.Ready():
					n++
					if woken[r] {
						t.Error("a reader was woken twice for one event")
					}
					woken[r] = true
					if got := take(t, r, 1<<20); len(got) != 1 {
						t.Errorf("%d events", len(got))
					}
				default:
				}
			}
			return n
		}
		batches := 0
		for len(woken) <= many {
			before := len(woken)
			n := come()
			if n > batch || n == 0 {
				t.Fatalf("%d were woken together behind %d", n, before)
			}
			if before == 0 && !woken[alone] {
				t.Error("the only reader of a filter was not among the first")
			}
			batches++
			pass(t, time.Millisecond) // between two batches
		}
		if want := (many + 1 + batch - 1) / batch; batches != want || f.Stats().Batches != uint64(want) {
			t.Errorf("%d batches, counted as %d, want %d", batches, f.Stats().Batches, want)
		}

		// Those that do not come are not waited for without end, nor those that have ended.
		f.write(t, "note:n2", "was_made", 1, 1, `{}`)
		synctest.Wait()
		for _, r := range readers[:batch] {
			r.Close()
		}
		pass(t, time.Second)
		last := readers[many-1]
		select {
		case <-last.Ready():
		default:
			t.Error("a reader was not woken since others have not come")
		}
		for _, r := range append(readers[batch:], alone) {
			r.Close()
		}
	})
}

// pass lets the time of a bubble pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	if err := (clock.System{}).Wait(t.Context(), time.Now().Add(d)); err != nil {
		t.Error(err)
	}
}
