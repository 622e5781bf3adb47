package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
	"j17/internal/core/groupcommit"
	"j17/internal/storage/store"
)

// A write is stored in one of three ways.
//
// Optimistic: it is planned from stored data, without a lock, and the commit checks that this has not changed. That is
// enough for a write without contention.
//
// Locked: a write that was overtaken, or that needs streams with recent contention, is planned under the locks of these
// streams, on the states that earlier writers leave there, and is stored in a group with others.
//
// Blind: events without further effects, for which no lock could be had in time, are appended without reading any
// state.

// maxPlanning bounds the work of repeated planning, in budgets of one write.
const maxPlanning = 8

// errOvertaken is returned if the data that a plan was made from has changed.
var errOvertaken = errors.New("engine: what the write was decided on has changed")

// errNoLock is returned by a locked write whose locks could not be had in time, or whose events have no further effects
// and were overtaken.
var errNoLock = errors.New("engine: the locks could not be had in time")

// write plans the command and stores its events, or finds that they are stored already. The error is errRedeployed if
// another spec was deployed meanwhile.
func (x *execution) write(ctx context.Context) (*plan, store.Result, error) {
	var want groupcommit.Locks
	for i := range x.a.Writes {
		if key := x.a.Writes[i].Key; x.d.env.commits.Contended(key) {
			want = want.With(key, true)
		}
	}
	if want == nil {
		var p *plan
		var r store.Result
		var err error
		if p, r, want, err = x.writeOptimistic(ctx); want == nil {
			return p, r, err
		}
	}

	p, r, err := x.writeLocked(ctx, want)
	x.view = nil
	switch {
	case !errors.Is(err, errNoLock):
		return p, r, err
	case x.a.Reacts():
		x.e.counts.busy.Add(1)
		return nil, r, j17.Errorf(j17.CodeBusy, "Others write to what this write looks at, and its turn has not come within %s. Nothing was written. Try again.", x.e.writeWait)
	default:
		return x.writeBlind(ctx)
	}
}

// writeOptimistic is write without locks. If there is contention, want has the locks under which the command has to be
// written.
func (x *execution) writeOptimistic(ctx context.Context) (p *plan, r store.Result, want groupcommit.Locks, err error) {
	for {
		// Plan it.
		x.b.Renew(work.Command)
		p, err = x.plan(ctx)
		if err != nil {
			final, failure := x.refusedAtOneMoment(ctx, p)
			if failure != nil {
				return nil, store.Result{}, nil, failure
			}
			if final {
				return p, store.Result{}, nil, err
			}
			want, _ = p.locks(x.d.env.commits)
			return nil, store.Result{}, want, nil
		}
		want, contended := p.locks(x.d.env.commits)
		if contended {
			return nil, store.Result{}, want, nil
		}

		// Store it.
		if r, err = x.d.append(ctx, &p.unit); err != nil {
			return nil, store.Result{}, nil, err
		}
		switch r.Outcome {
		case store.Committed, store.Duplicate:
			return p, r, nil, nil
		case store.Conflict:
			if err := p.refusal(&r); err != nil {
				x.e.counts.conflicts.Add(1)
				return nil, store.Result{}, nil, err
			}
		case store.TooEarly: // the time has moved on
		}
		x.e.counts.replanned.Add(1)
		if r.Outcome != store.TooEarly {
			return nil, store.Result{}, want, nil
		}
	}
}

// writeBlind is write for events without further effects. No state was read, so nothing can overtake them.
func (x *execution) writeBlind(ctx context.Context) (*plan, store.Result, error) {
	for try := 1; ; try++ {
		x.b.Renew(work.Command)
		p, err := x.plan(ctx)
		if err != nil {
			return nil, store.Result{}, err
		}
		r, err := x.d.append(ctx, &p.unit)
		if err != nil || r.Outcome != store.Conflict && r.Outcome != store.TooEarly {
			return p, r, err
		}
		if r.Outcome == store.Conflict {
			if err := p.refusal(&r); err != nil {
				x.e.counts.conflicts.Add(1)
				return nil, store.Result{}, err
			}
		}
		if try == maxPlanning {
			// Generated names were taken, or the entity tag "*" was compared with a stream that has many writers.
			x.e.counts.busy.Add(1)
			return nil, store.Result{}, j17.Errorf(j17.CodeBusy, "Others have been faster %s in a row. Nothing was written. Try again.", j17.Count(try, "time"))
		}
	}
}

// writeLocked is write under locks. The error is errNoLock if they could not be had in time, or if events without
// further effects were overtaken.
func (x *execution) writeLocked(ctx context.Context, want groupcommit.Locks) (*plan, store.Result, error) {
	// Waiting is limited by time, and planning by its cost.
	queue := x.d.env.commits
	deadline := x.e.clock.Now().Add(x.e.writeWait)
	waiting, stop := clock.Until(ctx, x.e.clock, deadline)
	defer stop()
	spent := int64(0)
	for waited := false; ; {
		// Check the clock too: the context ends slightly later.
		late := waiting.Err() != nil || !x.e.clock.Now().Before(deadline)
		if spent > maxPlanning*work.Command || late && ctx.Err() == nil {
			return nil, store.Result{}, errNoLock
		}

		// Take the locks, and decide.
		x.b.Rest() // a writer that holds the locks may wait for a processor
		x.b.Release()
		had, err := queue.Lock(waiting, want)
		if err != nil {
			return nil, store.Result{}, cmp.Or(ctx.Err(), errNoLock)
		}
		if had && !waited {
			waited = true
			x.e.counts.waited.Add(1)
		}
		x.view = queue.View(want)
		x.b.Renew(work.Command)
		p, a, more, err := func() (*plan, *groupcommit.Append, groupcommit.Locks, error) {
			defer queue.Unlock(want) // even after a panic
			return x.planLocked(ctx)
		}()
		spent += x.b.Spent()
		switch {
		case more != nil:
			want = more
			continue
		case err != nil:
			final, failure := x.refusedAtOneMoment(ctx, p)
			if final {
				return p, store.Result{}, err
			}
			if failure = cmp.Or(failure, ctx.Err()); failure != nil {
				return nil, store.Result{}, failure
			}
			continue
		case a == nil:
			x.e.counts.replanned.Add(1)
			continue
		}

		// Wait for the outcome.
		switch err := queue.Await(ctx, a); {
		case errors.Is(err, groupcommit.ErrStale):
			return nil, store.Result{}, errRedeployed
		case err != nil && !errors.Is(err, groupcommit.ErrOvertaken):
			return nil, store.Result{}, err
		}
		r := a.Result()
		switch r.Outcome {
		case store.Committed, store.Duplicate:
			return p, *r, nil
		case store.Conflict:
			if err := p.refusal(r); err != nil {
				x.e.counts.conflicts.Add(1)
				return nil, store.Result{}, err
			}
		case store.TooEarly:
		}
		x.e.counts.replanned.Add(1)
		if !x.a.Reacts() {
			return nil, store.Result{}, errNoLock
		}
	}
}

// planLocked plans the command from what the view shows, and adds the plan to the pending appends. more has all locks
// that it needs if it does not hold some of them; a is nil if an append that it was decided on has failed meanwhile.
func (x *execution) planLocked(
	ctx context.Context,
) (p *plan, a *groupcommit.Append, more groupcommit.Locks, err error) {
	p, err = x.plan(ctx)
	if err != nil {
		if p != nil && (x.view.ShowsPending() || len(p.before) > 1 || p.unique != nil) {
			// The command was refused on several states, or on some that are not stored: all must be of one moment.
			more = x.missing(p)
		}
		if more != nil {
			return nil, nil, more, nil
		}
		return p, nil, nil, err
	}

	// The writer needs the locks of everything that it has read.
	if more = x.missing(p); more != nil {
		return nil, nil, more, nil
	}
	if err := p.unit.Validate(); err != nil {
		return p, nil, nil, store.UserError(err)
	}

	// The next writer decides on the states after this plan.
	left := x.statesLeft(ctx, p)
	unit := p.unit
	unit.Fences = x.d.fence(unit.Fences)
	a = groupcommit.NewAppend(x.d, unit, x.view, left)
	if !x.d.env.commits.Add(ctx, a) {
		return nil, nil, nil, nil
	}
	return p, a, nil, nil
}

// missing returns the locks that the writer holds and those that it needs for a plan, nil if it holds all that it
// needs.
func (x *execution) missing(p *plan) groupcommit.Locks {
	want, _ := p.locks(x.d.env.commits)
	held := x.view.Locks()
	if held.Cover(want) {
		return nil
	}
	for _, c := range held {
		want = want.With(c.Key, c.Exclusive)
	}
	return want
}

// refusedAtOneMoment reports whether the refusal of a plan holds for data that was stored at one moment. States that
// were read one after the other need not have existed together, and pending appends of others may never be stored.
func (x *execution) refusedAtOneMoment(ctx context.Context, p *plan) (bool, error) {
	if x.view != nil && !x.view.Stored(ctx) {
		return false, nil
	}
	if p == nil || x.view != nil && x.view.ShowsPending() {
		return true, nil // the locks have kept the states consistent, and they are stored now
	}

	// The caller's expectations are not data that was read: they need not hold, and mostly are the reason for the
	// refusal.
	looked := *p
	looked.writes, looked.unit.Pre = nil, slices.Clone(p.lengths)
	for i := range p.unit.Pre {
		if p.unit.Pre[i].Looked {
			looked.unit.Pre = append(looked.unit.Pre, p.unit.Pre[i])
		}
	}
	if len(looked.unit.Pre)+len(looked.unit.Fences) < 2 {
		return true, nil
	}
	err := x.overtaken(ctx, &looked)
	if errors.Is(err, errOvertaken) {
		return false, nil
	}
	return err == nil, err
}
