package groupcommit

import (
	"context"
	"errors"
	"slices"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

var (
	// ErrOvertaken is the error of an append that was not stored because one that it depends on was not.
	ErrOvertaken = errors.New("groupcommit: what the write was decided on was not stored")
	// ErrStale is the error of an append whose basis is no longer valid.
	ErrStale = errors.New("groupcommit: what the write was decided with is no longer valid")
)

// Basis is what an append was decided with: a deployed spec.
type Basis interface {
	// Current reports whether the basis is still valid. If it is not, the append is not stored.
	Current() bool
	// RefusedBy reports whether a unit was refused because the basis is no longer valid in the store.
	RefusedBy(r *store.Result) bool
}

// Append is a unit that was decided under locks and waits to be stored.
type Append struct {
	Basis Basis
	Unit  store.Append
	// Needs are the appends on whose events the unit was decided.
	Needs []*Append
	// After has the states that the unit leaves in streams whose locks its writer held alone.
	After []State

	// done is closed when the outcome, result or err, is known. Committer.mu guards state, and the other fields until
	// then.
	done   chan struct{}
	state  appendState
	result store.Result
	err    error
	// displaced is set if the unit was stored behind other events, so that the states computed with it never existed.
	displaced bool
}

// State is the state of one stream after an append, nil if unknown, and the unique values that the aggregate holds in
// the sets that its writer has read.
type State struct {
	Key   j17.Key
	State *decider.State
	Held  map[*spec.UniqueSet]*[32]byte
}

type appendState uint8

const (
	waiting appendState = iota
	grouped
	stored
	// failed: the append was not stored and will not be.
	failed
)

// NewAppend returns an append that depends on the appends that a view has shown.
func NewAppend(basis Basis, unit store.Append, v *View, after []State) *Append {
	return &Append{Basis: basis, Unit: unit, Needs: v.needs, After: after, done: make(chan struct{})}
}

// Result returns the result of an append for which Await has returned.
func (a *Append) Result() *store.Result { return &a.result }

// open reports whether the outcome of the append is not known yet. The caller holds Committer.mu.
func (a *Append) open() bool { return a.state == waiting || a.state == grouped }

// exact reports whether a state computed with the append is the one that its events have left: an event without a
// precondition may be stored behind events of writers that hold no lock.
func (a *Append) exact(after State, r *store.Result) bool {
	for i, length := range slices.Backward(r.Lengths) {
		if a.Unit.Events[i].Key == after.Key {
			return length == after.State.Length
		}
	}
	return false
}

// View is what a writer that holds locks sees: the states that earlier writers leave, stored or not. It records which
// appends it has shown.
type View struct {
	c     *Committer
	held  Locks
	needs []*Append
}

// View returns the view of a writer that holds locks.
func (c *Committer) View(held Locks) *View { return &View{c: c, held: held} }

// Locks returns the locks that the writer holds.
func (v *View) Locks() Locks { return v.held }

// ShowsPending reports whether the view has shown data that was not stored yet.
func (v *View) ShowsPending() bool { return len(v.needs) > 0 }

// State returns the state that the last writer of a stream leaves, nil if everything is stored.
func (v *View) State(ctx context.Context, key j17.Key) (*decider.State, error) {
	if _, ok := v.held.Find(key); !ok {
		return nil, nil
	}
	p := v.c.pendingOf(key)
	switch {
	case p == nil:
		return nil, nil
	case p.state == nil:
		return nil, v.Settle(ctx, key)
	}
	v.needs = append(v.needs, p.by)
	return p.state, nil
}

// Peek returns the state that the last writer of a stream leaves, without waiting for it. pending is false if
// everything is stored.
func (v *View) Peek(key j17.Key) (state *decider.State, pending bool) {
	p := v.c.pendingOf(key)
	if p == nil {
		return nil, false
	}
	v.needs = append(v.needs, p.by)
	return p.state, true
}

// Settle waits until nothing of a stream is pending. A nil view, or one that does not hold the lock of the stream, does
// not wait.
func (v *View) Settle(ctx context.Context, key j17.Key) error {
	if v == nil {
		return nil
	}
	if _, ok := v.held.Find(key); !ok {
		return nil
	}
	for p := v.c.pendingOf(key); p != nil; p = v.c.pendingOf(key) {
		select {
		case <-p.by.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Held returns what an aggregate holds in a set, nil for nothing, once the earlier appends are stored; known is false
// if the answer is in the store.
func (v *View) Held(set *spec.UniqueSet, key j17.Key) (own *[32]byte, known bool) {
	if _, ok := v.held.Find(key); !ok {
		return nil, false
	}
	p := v.c.heldIn(key, set)
	if p.by == nil {
		return nil, false
	}
	v.needs = append(v.needs, p.by)
	return p.own, true
}

// Stored waits for the outcomes of the appends that the view has shown, and reports whether all were stored as they
// were shown.
func (v *View) Stored(ctx context.Context) bool {
	for _, a := range v.needs {
		select {
		case <-a.done:
		case <-ctx.Done():
			return false
		}
		if a.result.Outcome != store.Committed || a.displaced {
			return false
		}
	}
	return true
}

// pendingOf returns the pending state of a stream, nil for none.
func (c *Committer) pendingOf(key j17.Key) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.locks[key]; l != nil {
		return l.pending
	}
	return nil
}

// heldIn returns what an aggregate holds in a set by a write that is not stored yet; by is nil if there is none.
func (c *Committer) heldIn(key j17.Key, set *spec.UniqueSet) pendingValue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.locks[key]; l != nil && l.pending != nil {
		if v, ok := l.pending.held[set]; ok && v.by.open() {
			return v
		}
	}
	return pendingValue{}
}
