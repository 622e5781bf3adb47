package worker

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Queues are the queues of one service.
type Queues []*Queue

// Run hands out the items of all of them until the context ends, and returns when nothing is under way any longer.
func (all Queues) Run(ctx context.Context) error {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, q := range all {
		running.Go(func() { errs[i] = q.Run(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// Settle handles the items that are due now, one queue after the other.
func (all Queues) Settle(ctx context.Context) error {
	for _, q := range all {
		if err := q.Settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// NextDue returns when the next item of any queue is due; the zero time if none has a due time.
func (all Queues) NextDue(ctx context.Context) (next time.Time, err error) {
	for _, q := range all {
		due, err := q.NextDue(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	return next, nil
}
