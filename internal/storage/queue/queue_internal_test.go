package queue

import (
	"context"
	"errors"
	"runtime"
	"testing"
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
