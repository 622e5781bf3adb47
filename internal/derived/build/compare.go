package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Difference is the first deviation of derived data from the events that they follow from.
type Difference struct {
	// ID is that of the aggregate, "" if stored data cannot be read. What describes the difference.
	ID, What string
	// Unreadable reports that stored data are damaged. What is then an error for the log.
	Unreadable bool
}

// Pages compares a page of derived data with events: the items after a key, "" at the beginning. It returns the last
// key of the page, "" at the end, the number of items that it compared, and the first difference, nil for none.
type Pages func(ctx context.Context, after string) (last string, n int, found *Difference, err error)

// Pause is called before each page of a comparison, with the number of items of the page before it.
type Pause func(n int) error

// errEvents marks errors in computing from events. They are no fault of derived data, which could not be rebuilt
// either.
var errEvents = errors.New("derived data cannot be computed from events")

// EventsError returns the error of a comparison that cannot compute what events give.
func EventsError(err error) error { return fmt.Errorf("%w: %w", errEvents, err) }

// Compare compares derived data with events, up to the first difference, which it returns, nil for none. Damage to the
// data is a difference. Data that differ are replaced: taken out of use and built again.
func Compare(
	ctx context.Context, pause Pause, replace func(context.Context, *Difference) error, all ...Pages,
) (*Difference, error) {
	found, err := compare(ctx, pause, all)
	if damage, is := errors.AsType[*store.CorruptionError](err); is && !errors.Is(err, errEvents) {
		found, err = &Difference{What: damage.Error(), Unreadable: true}, nil
	}
	if found == nil || err != nil {
		return nil, err
	}
	return found, replace(context.WithoutCancel(ctx), found)
}

// compare is Compare without replacing anything.
func compare(ctx context.Context, pause Pause, all []Pages) (*Difference, error) {
	n := 0
	for _, pages := range all {
		for after, more := "", true; more; more = after != "" {
			if err := pause(n); err != nil {
				return nil, err
			}
			var found *Difference
			var err error
			if after, n, found, err = pages(ctx, after); found != nil || err != nil {
				return found, err
			}
		}
	}
	return nil, nil
}

// InTurns returns the pause of a comparison that somebody waits for. It has no limit, but takes turns with others: an
// item costs some units of work. progress is called with the number of items compared.
func InTurns(ctx context.Context, cost int, progress func(done uint64)) Pause {
	b := work.New(ctx, math.MaxInt64)
	done := uint64(0)
	return func(n int) error {
		done += uint64(n)
		progress(done)
		if !b.Spend((n + 1) * cost) {
			return b.Err()
		}
		return ctx.Err()
	}
}

const (
	// scrubEvery is the interval between checks of all data of a kind unless its options set it, scrubPause the pause
	// before each page of them.
	scrubEvery = 6 * time.Hour
	scrubPause = 50 * time.Millisecond
)

// Scrub calls check at intervals until the context ends, with the pause of its comparisons. An interval of 0 means six
// hours. The name identifies the loop.
func (s *Service) Scrub(
	ctx context.Context, c clock.Clock, name string, every time.Duration, check func(context.Context, Pause) error,
) error {
	s.o.Worker.Every(ctx, worker.Loop{Name: name, Do: func(ctx context.Context) error {
		if err := c.Wait(ctx, c.Now().Add(cmp.Or(every, scrubEvery))); err != nil {
			return err
		}
		return check(ctx, func(int) error { return c.Wait(ctx, c.Now().Add(scrubPause)) })
	}})
	return nil
}

// Comparisons has the comparisons under way that somebody waits for.
type Comparisons struct {
	mu  sync.Mutex
	all map[compared]*wire.Verification
	// turns limits the comparisons, each of which keeps a processor busy.
	turns *work.Pool
}

// compared identifies what is compared.
type compared struct {
	tenant j17.Tenant
	name   string
}

// NewComparisons returns a register for up to most comparisons at a time, of one tenant up to shared.
func NewComparisons(most, shared int64) *Comparisons {
	return &Comparisons{all: map[compared]*wire.Verification{}, turns: work.NewPool(most, shared)}
}

// Begin registers the comparison of what has a name until over is called. move sets its progress. The error is underway
// if the same is being compared already, and many if as many comparisons are under way as may be.
func (c *Comparisons) Begin(
	t j17.Tenant, name string, underway, many error,
) (move func(done, total uint64), over func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := compared{t, name}
	if c.all[of] != nil {
		return nil, nil, underway
	}
	taken, ok := c.turns.TryTake(string(t), 1)
	if !ok {
		return nil, nil, many
	}
	c.all[of] = &wire.Verification{}
	return func(done, total uint64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			*c.all[of] = wire.Verification{Done: done, Total: max(done, total)}
		}, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.all, of)
			c.turns.Give(string(t), taken)
		}, nil
}

// Of returns the progress of a comparison, nil if it is not under way.
func (c *Comparisons) Of(t j17.Tenant, name string) *wire.Verification {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[compared{t, name}] == nil {
		return nil
	}
	return new(*c.all[compared{t, name}])
}
