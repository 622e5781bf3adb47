// Package groupcommit lets the writers of one tenant that read the same streams decide one after the other, each on the
// states that the one before it leaves, and stores their units in groups, each with one commit.
//
// A stream has a lock from the first contention of writers until there has been none for a while; streams without a
// lock cost nothing. A writer holds locks while it decides, not while its events are stored. A unit that was decided
// but is not stored yet is a pending append: the next writer decides on the state that it leaves, and its own append is
// stored in the same group or a later one, and only if those that it depends on were. So the number of writers per sync
// of a stream is not limited.
package groupcommit

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// MaxUnits and MaxBytes bound one group. The last append may exceed the bytes.
const (
	MaxUnits = 256
	MaxBytes = 4 << 20
)

// Options configures a Committer. All fields are required.
type Options struct {
	// Commit stores units in one commit.
	Commit func(ctx context.Context, units []store.Append) ([]store.Result, error)
	// Keep caches the state that the last append of a group has left in a stream.
	Keep   func(key j17.Key, state *decider.State)
	Logger *slog.Logger
}

// Committer has the locks and the pending appends of one tenant. It is safe for concurrent use.
type Committer struct {
	o Options
	// count is the number of locks, for a quick check that there are none.
	count atomic.Int64

	mu    sync.Mutex
	locks map[j17.Key]*streamLock
	// unused has the locks that no writer needs at the moment, those longest unused first.
	unused list.List // of *lock
	// pending has the appends that wait for a group, in order. committing is set while a goroutine stores appends.
	pending    []*Append
	committing bool
}

// New returns a committer without locks and appends.
func New(o Options) *Committer { return &Committer{o: o, locks: map[j17.Key]*streamLock{}} }

// Add queues an append behind the others, and puts the states that it leaves into the locks, which the caller holds. It
// returns false if an append that it depends on has failed.
func (c *Committer) Add(ctx context.Context, a *Append) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(a.Needs, func(n *Append) bool { return n.state == failed }) {
		return false
	}
	c.pending = append(c.pending, a)
	for _, after := range a.After {
		l := c.lock(after.Key)
		l.pending = &pending{by: a, state: after.State, held: l.holds(a, after.Held)}
	}
	if !c.committing {
		c.committing = true
		go c.commitAll(context.WithoutCancel(ctx))
	}
	return true
}

// Await waits until an append was stored or has failed. An append that is not in a group yet when ctx ends is given up.
func (c *Committer) Await(ctx context.Context, a *Append) error {
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	if a.state == waiting {
		c.end(a, failed, ctx.Err())
	}
	c.mu.Unlock()
	<-a.done
	return a.err
}

// end records the outcome of an append. The caller holds mu.
func (c *Committer) end(a *Append, state appendState, err error) {
	a.state, a.err, a.Needs = state, err, nil // the outcomes of the appends that it needed are known
	for _, after := range a.After {
		if l := c.locks[after.Key]; l != nil && l.pending != nil && l.pending.by == a {
			l.pending = nil
			c.settle(l)
		}
	}
	close(a.done)
}

// commitAll stores pending appends until there are none.
func (c *Committer) commitAll(ctx context.Context) {
	for {
		// Let writers that are about to add an append get into the same group.
		for known := -1; ; runtime.Gosched() {
			n := c.length()
			if n == known || n >= MaxUnits {
				break
			}
			known = n
		}
		if !c.commitGroup(ctx) {
			return
		}
	}
}

func (c *Committer) length() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

// commitGroup stores as many appends as one group takes. It returns false if there were none.
func (c *Committer) commitGroup(ctx context.Context) bool {
	group, units := c.nextGroup()
	if group == nil {
		return false
	}
	if len(units) == 0 {
		return true
	}

	// Store it.
	var results []store.Result
	committing := true
	err := panics.Caught(func() (err error) {
		results, err = c.o.Commit(ctx, units)
		committing = false
		return err
	})
	if committing {
		results, err = nil, fmt.Errorf("%w: %w", store.ErrUnknown, err) // it panicked
	}
	err = ErrorOfEach(err, len(units))

	// Cache the states, and wake the writers.
	fault := panics.Caught(func() error {
		c.keepLast(group, results)
		return nil
	})
	if fault != nil {
		c.o.Logger.LogAttrs(ctx, slog.LevelError, "what a write left behind could not be cached", slog.Any("error", fault))
	}
	c.endGroup(group, results, err)
	return true
}

// nextGroup takes the next appends. Appends whose basis is no longer valid, or that depend on one that was not stored,
// fail here. group is nil if there were no appends at all; committing is then over.
func (c *Committer) nextGroup() (group []*Append, units []store.Append) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		c.committing, c.pending = false, nil
		return nil, nil
	}

	// Each is placed after those that it was decided on.
	group = []*Append{}
	n, size := 0, 0
	for _, a := range c.pending {
		if len(units) >= MaxUnits || size >= MaxBytes {
			break
		}
		n++
		switch {
		case a.state == failed: // given up
			continue
		case !a.Basis.Current():
			c.end(a, failed, ErrStale)
			continue
		case slices.ContainsFunc(a.Needs, func(n *Append) bool { return n.state == failed }):
			c.end(a, failed, ErrOvertaken)
			continue
		}
		unit := a.Unit
		for _, need := range a.Needs {
			if i := slices.Index(group, need); i >= 0 {
				unit.After = append(unit.After, i)
			}
		}
		a.state = grouped
		group, units = append(group, a), append(units, unit)
		size += UnitBytes(&unit)
	}
	c.pending = slices.Delete(c.pending, 0, n)
	return group, units
}

// endGroup records the outcomes of the appends of a group.
func (c *Committer) endGroup(group []*Append, results []store.Result, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, a := range group {
		switch {
		case err != nil:
			c.end(a, failed, store.UserError(err))
		case results[i].Outcome == store.Committed:
			a.result = results[i]
			for _, after := range a.After {
				a.displaced = a.displaced || after.State != nil && !a.exact(after, &results[i])
			}
			c.end(a, stored, nil)
		case a.Basis.RefusedBy(&results[i]):
			c.end(a, failed, ErrStale)
		default:
			a.result = results[i]
			c.end(a, failed, nil)
		}
	}
}

// keepLast caches the last state of each stream that the appends of a group have left.
func (c *Committer) keepLast(group []*Append, results []store.Result) {
	if results == nil {
		return
	}
	kept := map[j17.Key]bool{}
	for i, a := range slices.Backward(group) {
		if results[i].Outcome != store.Committed {
			continue
		}
		for _, after := range a.After {
			if !kept[after.Key] && after.State != nil && a.exact(after, &results[i]) {
				kept[after.Key] = true
				c.o.Keep(after.Key, after.State)
			}
		}
	}
}

// UnitBytes returns the size of the events of a unit.
func UnitBytes(u *store.Append) int {
	size := 0
	for i := range u.Events {
		size += len(u.Events[i].Data) + len(u.Events[i].Metadata)
	}
	return size
}

// ErrorOfEach returns the error that each unit of a commit gets for the error of the commit.
func ErrorOfEach(err error, units int) error {
	if err != nil && units > 1 && !refusedWhole(err) {
		// The error is that of one unit; units before it may be stored.
		err = fmt.Errorf("%w: %v", store.ErrUnknown, err) //nolint:errorlint // the wrapped error concerns another write
	}
	return err
}

// refusedWhole reports whether an error of a commit applies to all its units.
func refusedWhole(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrFailed) ||
		errors.Is(err, store.ErrUnknown) ||
		errors.Is(err, store.ErrClock)
}
