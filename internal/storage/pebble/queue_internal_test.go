package pebble

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// TestCancelledCallsAreLetGo gives up a call while the committer takes none: nothing of it waits on.
func TestCancelledCallsAreLetGo(t *testing.T) {
	t.Parallel()
	s := &Store{queue: newQueue(), disk: &disk{}}
	waiting := func() int {
		s.queue.mu.Lock()
		defer s.queue.mu.Unlock()
		return len(s.queue.waiting)
	}
	other := s.queue.get()
	if err := s.queue.push(other); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.submit(ctx, s.queue.get()) }()
	for waiting() < 2 {
		runtime.Gosched()
	}
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	if n := waiting(); n != 1 || s.queue.waiting[0] != other {
		t.Errorf("%d calls wait, one was not given up", n)
	}
}
