package queue

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

// TestCancelledCallsAreLetGo gives up a call while the committer takes none: nothing of it waits on.
func TestCancelledCallsAreLetGo(t *testing.T) {
	t.Parallel()
	q := New[struct{}](nil)
	waiting := func() int {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting)
	}
	other := q.get()
	if err := q.push(other); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- q.submit(ctx, q.get()) }()
	for waiting() < 2 {
		runtime.Gosched()
	}
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	if n := waiting(); n != 1 || q.waiting[0] != other {
		t.Errorf("%d calls wait, one was not given up", n)
	}
}

// TestWaits measures how long calls of a shared queue wait until they are taken.
func TestWaits(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	q := NewShared[struct{}](nil, 2, 1, func() time.Time { return at })
	for range 2 {
		if err := q.push(q.get()); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
	}
	for i, want := range []time.Duration{2 * time.Second, 6 * time.Second} {
		if calls := q.Take(nil); len(calls) != 1 {
			t.Fatalf("%d calls are taken, want 1", len(calls))
		}
		if taken, waited := q.Waits(); taken != uint64(i)+1 || waited != want {
			t.Errorf("%d calls have waited %s, want %d and %s", taken, waited, i+1, want)
		}
		q.Release("")
		at = at.Add(3 * time.Second)
	}
}
