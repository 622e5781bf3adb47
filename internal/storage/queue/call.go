package queue

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Call is one call that waits for the committer: units to append, or an operation that commits alone.
type Call[B any] struct {
	Tenant  j17.Tenant
	Units   []store.Append
	Results []store.Result

	// done is the number of units that were decided, split reports that they are not all in the same batch.
	done  int
	split bool
	op    func(B) error
	need  Need
	// In a shared queue, number is the number of the call, large reports that it shares no batch, and since is when it
	// was queued.
	number uint64
	large  bool
	since  time.Time

	err      error
	state    atomic.Int32
	answered chan struct{}
}

// Need is how urgent a call is when space for data is low.
type Need uint8

const (
	// Ordinary calls wait for space.
	Ordinary Need = iota
	// Freeing calls make room, or have to be stored before others can: they go on while there is some reserve.
	Freeing
	// Always calls go on without any reserve: the store cannot do without them.
	Always
)

// NeedOf returns the need of a call with some units.
func NeedOf(units []store.Append) Need {
	if slices.ContainsFunc(units, func(u store.Append) bool { return !u.Frees() }) {
		return Ordinary
	}
	return Freeing
}

// The states of a call. The side that changes it from queued, caller or committer, decides whether it is executed.
const (
	queued int32 = iota
	taken
	cancelled
)

// Need returns the call's need.
func (c *Call[B]) Need() Need { return c.need }

// Waiting returns the units that are not decided yet; nil for an operation.
func (c *Call[B]) Waiting() []store.Append { return c.Units[c.done:] }

// Op returns the operation, nil where the call appends units.
func (c *Call[B]) Op() func(B) error { return c.op }

// Progress returns how many units were decided, and whether they are in several batches.
func (c *Call[B]) Progress() (done int, split bool) { return c.done, c.split }

// Rewind goes back to an earlier Progress: the batch with the units after it was not written, so they are decided
// again.
func (c *Call[B]) Rewind(done int, split bool) { c.done, c.split, c.err = done, split, nil }

// Complete reports whether all units of the call are decided, or the call has an error.
func (c *Call[B]) Complete() bool { return c.err != nil || c.done == len(c.Units) }

// Fail sets the call's error, which Finish passes on when the batch is durable.
func (c *Call[B]) Fail(err error) {
	c.err = err
	if err != nil && c.split {
		c.err = Unknown(err) // an earlier batch holds some units
	}
}

// Err returns the call's error so far.
func (c *Call[B]) Err() error { return c.err }

// Finish answers the call with its own error.
func (c *Call[B]) Finish() { c.Answer(c.err) }

// Answer ends the wait of the caller.
func (c *Call[B]) Answer(err error) {
	c.err = err
	c.answered <- struct{}{}
}

// Stage decides the units of the call one after the other. It reports false if the batch is full before the last unit:
// the others go into the next batch.
func (c *Call[B]) Stage(full func() bool, decide func(u *store.Append, r *store.Result) error) bool {
	for ; c.done < len(c.Units); c.done++ {
		if full() {
			c.split = c.done > 0
			return false
		}
		u, r := &c.Units[c.done], &c.Results[c.done]
		if slices.ContainsFunc(u.After, func(n int) bool { return c.Results[n].Outcome != store.Committed }) {
			*r = store.Result{Outcome: store.Conflict}
			continue
		}
		if c.err = decide(u, r); c.err != nil {
			if c.done > 0 && errors.Is(c.err, store.ErrBusy) {
				c.err = Unknown(c.err) // ErrBusy promises that nothing was written, but earlier units may be
			}
			return true
		}
	}
	return true
}
