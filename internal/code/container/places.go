package container

import (
	"context"
	"fmt"
	"time"

	"j17/internal/code/sandbox"
)

// tryPlace takes a place for a worker if there is one and no other call is waiting for it.
func (r *Runner) tryPlace() bool {
	if r.wanting.Load() > 0 {
		return false
	}
	select {
	case r.places <- struct{}{}:
		return true
	default:
		return false
	}
}

// place takes a place for a worker, which the worker gives back when it ends. Where there is none, the worker of any
// function that has been idle longest is ended, and where all have calls, the first one that has answered.
func (r *Runner) place(ctx context.Context) error {
	if r.tryPlace() {
		return nil
	}
	// From here on, workers that have answered do not wait for more calls.
	r.wanting.Add(1)
	defer r.wanting.Add(-1)
	select {
	case r.places <- struct{}{}: // a place that was kept for a call that no longer waits
		return nil
	default:
	}
	if w := r.longestIdle(); w != nil {
		w.end(caller)
	}
	waiting, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	select {
	case r.places <- struct{}{}:
		return nil
	case <-r.life.Done():
		return errClosed
	case <-waiting.Done():
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &sandbox.Fault{
			Kind: sandbox.Busy, Detail: fmt.Sprintf("all %d processes that the server has for custom code were busy with other calls for %v", r.opts.Processes, busyTimeout),
			Hint: "Try again; if it happens often, make the calls shorter.",
		}
	}
}

// longestIdle takes the worker that has been idle longest from the waiting ones; nil where all have calls.
func (r *Runner) longestIdle() *worker {
	for {
		r.mu.Lock()
		all := make([]*worker, 0, len(r.workers))
		for w := range r.workers {
			all = append(all, w)
		}
		r.mu.Unlock()
		var longest *worker
		var since time.Time
		for _, w := range all {
			if idle, ok := w.idleSince(); ok && (longest == nil || idle.Before(since)) {
				longest, since = w, idle
			}
		}
		if longest == nil || longest.function.take(longest) {
			return longest
		}
	}
}
