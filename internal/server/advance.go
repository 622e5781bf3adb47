package server

import (
	"context"
	"errors"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// stepper moves a clock from one due time to the next, so that each piece of work sees its own time.
type stepper struct {
	clock *clock.Movable
	feed  store.Feed
	works []part.Work
	// move is called before the clock is moved by a duration; an error stops the move.
	move func(by time.Duration) error
	// gate admits the writes of clients.
	gate *turnstile
	// busy has room for one: the request that moves the clock.
	busy chan struct{}
}

// advance moves the clock forward by a duration and does the work that becomes due on the way. When the context ends
// the clock stays where it is. It also stays where the work of one moment keeps making more work for the same moment:
// that is CodeWorkLimit.
func (s *stepper) advance(ctx context.Context, by time.Duration) (time.Time, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	moving, over := context.WithCancel(ctx)
	defer over()
	s.gate.begin(moving)
	for {
		err := s.settle(ctx)
		now := s.clock.Now()
		if errors.Is(err, worker.ErrUnsettled) {
			return time.Time{}, j17.Errorf(j17.CodeWorkLimit, "The clock has stopped at %s: what is done then makes more to do at the same moment, and there is still more after %d rounds. "+
				"Look for a saga that starts itself again. If all of it is meant, move the clock once more to go on.", now.UTC().Format(time.RFC3339), worker.MaxRounds)
		}
		if err != nil {
			return time.Time{}, err
		}
		if by <= 0 {
			return now, nil
		}

		// To the next moment at which something is due, or to the end.
		step := by
		for _, w := range s.works {
			at, err := w.NextDue(ctx)
			if err != nil {
				return time.Time{}, err
			}
			if at.After(now) {
				step = min(step, at.Sub(now))
			}
		}
		if err := s.move(step); err != nil {
			return time.Time{}, err
		}
		s.clock.Advance(step)
		s.gate.next()
		by -= step
	}
}

// maxRounds bounds how often all work is done at one moment: work that is due but cannot be done would otherwise repeat
// forever.
const maxRounds = 100

// settle does all work that is due at this moment, including work that only becomes due by doing so, until none is
// left.
func (s *stepper) settle(ctx context.Context) error {
	seen, err := s.changes(ctx, 0)
	for range maxRounds {
		if err != nil {
			return err
		}
		for _, w := range s.works {
			if err := w.Settle(ctx); err != nil {
				return err
			}
		}
		due, failed := s.anyDue(ctx)
		if failed != nil {
			return failed
		}
		var last uint64
		if last, err = s.changes(ctx, seen); err == nil && last == seen && !due {
			return ctx.Err()
		}
		seen = last
	}
	return err
}

// anyDue reports whether something is due now.
func (s *stepper) anyDue(ctx context.Context) (bool, error) {
	for _, w := range s.works {
		at, err := w.NextDue(ctx)
		if err != nil || !at.IsZero() && !at.After(s.clock.Now()) {
			return err == nil, err
		}
	}
	return false, nil
}

// changes returns the number of the latest feed change after since in any environment, or since where there is none.
func (s *stepper) changes(ctx context.Context, since uint64) (uint64, error) {
	for {
		const page = 1000
		changed, err := s.feed.Changed(ctx, since, page)
		for _, c := range changed {
			since = max(since, c.Number)
		}
		if err != nil || len(changed) < page {
			return since, err
		}
	}
}
