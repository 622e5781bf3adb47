// Package worker runs all background work: loops (Kit.Every), and items that become due (Queue), with leases, attempts
// and back-off. All of it sleeps on the injected clock, continues after errors and panics, logs a series of equal
// errors once, and is counted by name.
package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"j17/internal/base/clock"
)

// Kit starts the background work of a server. It is safe for concurrent use.
type Kit struct {
	clock  clock.Clock
	logger *slog.Logger

	mu     sync.Mutex
	counts map[string]*counter
}

// New returns a kit whose work sleeps on c and reports to logger.
func New(c clock.Clock, logger *slog.Logger) *Kit {
	return &Kit{clock: c, logger: logger, counts: map[string]*counter{}}
}

// Counts is what one kind of work has done since the start of the process.
type Counts struct {
	// Name is that of the loop or queue.
	Name string
	// Done counts rounds of a loop and items of a queue that went well, Failed those that did not.
	Done, Failed uint64
	// Dead counts the items that were given up, Lost those whose lease was over before they were finished.
	Dead, Lost uint64
	// Running is the number of rounds or items under way.
	Running int64
}

type counter struct {
	done, failed, dead, lost atomic.Uint64
	running                  atomic.Int64
}

// Counts returns what all work has done so far, by name.
func (k *Kit) Counts() []Counts {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Counts, 0, len(k.counts))
	for name, c := range k.counts {
		all = append(all, Counts{name, c.done.Load(), c.failed.Load(), c.dead.Load(), c.lost.Load(), c.running.Load()})
	}
	slices.SortFunc(all, func(a, b Counts) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (k *Kit) counter(name string) *counter {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.counts[name]
	if c == nil {
		c = &counter{}
		k.counts[name] = c
	}
	return c
}

// Backoff determines how long to wait after failures and how often to try.
type Backoff struct {
	// First is the pause after the first failure; 0 means a second.
	First time.Duration
	// Factor is what each pause is multiplied by to get the next one; 0 means 2.
	Factor int
	// Longest caps the pauses; 0 means a minute, or First where that is longer.
	Longest time.Duration
	// Attempts is how often an item of a queue is tried in all; 0 means that it is never given up. Loops never give up.
	Attempts int
}

// After returns the pause after the given number of failures in a row, counted from 1.
func (b Backoff) After(failures int) time.Duration {
	pause := int64(cmp.Or(b.First, time.Second))
	longest := cmp.Or(int64(b.Longest), max(pause, int64(time.Minute)))
	factor := int64(cmp.Or(b.Factor, 2))
	for ; failures > 1 && factor > 1; failures-- {
		if pause >= longest/factor {
			return time.Duration(longest)
		}
		pause *= factor
	}
	return time.Duration(min(pause, longest))
}

// Loop is work that is done again and again.
type Loop struct {
	// Name identifies the loop in the log and in metrics, such as "usage_flush".
	Name string
	// Every is the pause between rounds; the first one comes at once. With 0, rounds wait for Wake; without a Wake they
	// follow each other at once, for a Do that waits by itself.
	Every time.Duration
	// Jitter is the part of each pause, from 0 to 1, that is random, so that many servers do not call the same one at
	// once.
	Jitter float64
	// Wake, if not nil, ends a pause when it is signalled.
	Wake <-chan struct{}
	// Retry says how long the loop waits after rounds that failed; a signal ends these pauses if Eager is set.
	Retry Backoff
	Eager bool
	// Do is one round. Its context is that of the loop.
	Do func(context.Context) error
	// Final makes Do run once more when the loop's context has ended, with a context that has not.
	Final bool
}

// Every runs loops concurrently until the context ends, and returns when their last rounds have ended. A loop continues
// after a round that fails or panics: the first failure of a series is logged, and so are a different error and the end
// of the series.
func (k *Kit) Every(ctx context.Context, loops ...Loop) {
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(func() { k.every(ctx, l) })
	}
	running.Wait()
}

func (k *Kit) every(ctx context.Context, l Loop) {
	k.repeat(ctx, l, l.Every == 0 && l.Wake != nil, func(ctx context.Context) (time.Duration, error) {
		return l.Every, l.Do(ctx)
	})
	if l.Final {
		final := context.WithoutCancel(ctx)
		_, err := k.try(
			final, k.counter(l.Name), func(ctx context.Context) (time.Duration, error) { return 0, l.Do(ctx) },
		)
		if err != nil {
			k.warn(final, l.Name, err)
		}
	}
}

// repeat runs a loop whose rounds return the pause before the next one: 0 means until a signal of Wake, or no pause
// without a Wake. If wait is set, the first round waits for a signal too.
func (k *Kit) repeat(ctx context.Context, l Loop, wait bool, round func(context.Context) (time.Duration, error)) {
	c := k.counter(l.Name)
	if wait {
		k.rest(ctx, 0, l.Wake)
	}
	failures, told := 0, ""
	for ctx.Err() == nil {
		pause, err := k.try(ctx, c, round)

		// A success ends a series of failures.
		if err == nil {
			if failures > 0 {
				k.logger.LogAttrs(
					ctx, slog.LevelInfo, "background work goes on", slog.String("work", l.Name),
					slog.Int("failures", failures),
				)
			}
			failures, told = 0, ""
			k.rest(ctx, k.spread(pause, l.Jitter), l.Wake)
			continue
		}

		// An error because the loop ends is not a failure.
		if ctx.Err() != nil {
			return
		}
		if failures++; told != err.Error() {
			told = err.Error()
			k.warn(ctx, l.Name, err)
		}
		wake := l.Wake
		if !l.Eager {
			wake = nil
		}
		k.rest(ctx, k.spread(l.Retry.After(failures), l.Jitter), wake)
	}
}

// try does one round and turns a panic into an error.
func (k *Kit) try(
	ctx context.Context, c *counter, round func(context.Context) (time.Duration, error),
) (pause time.Duration, err error) {
	c.running.Add(1)
	defer func() {
		c.running.Add(-1)
		if p := recover(); p != nil {
			err = k.panicked(ctx, p)
		}
		if err == nil {
			c.done.Add(1)
		} else if ctx.Err() == nil {
			c.failed.Add(1)
		}
	}()
	return round(ctx)
}

// panicked logs a panic with its stack, and returns an error without the stack.
func (k *Kit) panicked(ctx context.Context, p any) error {
	k.logger.LogAttrs(
		ctx, slog.LevelError, "background work panicked", slog.Any("panic", p),
		slog.String("stack", string(debug.Stack())),
	)
	return fmt.Errorf("panic: %v", p)
}

func (k *Kit) warn(ctx context.Context, name string, err error) {
	k.logger.LogAttrs(ctx, slog.LevelWarn, "background work failed; it is tried again", slog.String("work", name), slog.Any("error", err))
}

// spread shortens a pause by a random part of it, at most jitter.
func (k *Kit) spread(pause time.Duration, jitter float64) time.Duration {
	if jitter == 0 {
		return pause
	}
	//nolint:gosec // G404: spreads load, protects nothing
	return pause - time.Duration(float64(pause)*jitter*rand.Float64())
}

// rest waits until a pause is over, a signal comes or the context ends. A pause of 0 never ends by itself; without a
// wake it returns at once.
func (k *Kit) rest(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	switch {
	case wake == nil && pause == 0:
	case wake == nil:
		_ = k.clock.Wait(ctx, k.clock.Now().Add(pause)) // The caller sees the end of the context.
	case pause == 0:
		select {
		case <-wake:
		case <-ctx.Done():
		}
	default:
		clock.Either(ctx, k.clock, k.clock.Now().Add(pause), wake)
	}
}
