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
// Optimistic: it is planned from what is stored, without a lock, and the commit checks that this has not changed. A
// write that nobody is in the way of needs no more.
//
// Locked: a write that was overtaken, or that comes to streams where writers have been in each other's way lately, is
// planned under the locks of the streams that it needs, on what earlier writers leave behind there, and is stored in a
// group with others.
//
// Blind: events that bring about nothing more, for which no lock could be had in time, are appended without a look at
// any state.

// maxPlanning is how many times its budget a write may use for planning again.
const maxPlanning = 8

// errOvertaken is returned where what a plan was made of has changed.
var errOvertaken = errors.New("engine: what the write was decided on has changed")

// errNoLock is returned by a locked write whose locks could not be had in time, or whose events bring about nothing and
// were overtaken.
var errNoLock = errors.New("engine: the locks could not be had in time")

// write plans the command and stores its events, or finds that they are stored already. The error is errRedeployed
// where another spec was deployed meanwhile.
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

// writeOptimistic is write without locks. want is not nil where others are in the way: then it is to be written under
// these locks.
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

// writeBlind is write for events that bring about nothing more. No state was looked at, so that nobody can overtake
// them.
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
			// Names that were made up are taken, or the entity tag "*" is of a stream that many write to.
			x.e.counts.busy.Add(1)
			return nil, store.Result{}, j17.Errorf(j17.CodeBusy, "Others have been faster %s in a row. Nothing was written. Try again.", j17.Count(try, "time"))
		}
	}
}

// writeLocked is write under locks. The error is errNoLock where they could not be had in time, or where an event that
// brings about nothing was overtaken.
func (x *execution) writeLocked(ctx context.Context, want groupcommit.Locks) (*plan, store.Result, error) {
	// Waiting ends by the clock, and planning by what it has cost.
	queue := x.d.env.commits
	deadline := x.e.clock.Now().Add(x.e.writeWait)
	waiting, stop := clock.Until(ctx, x.e.clock, deadline)
	defer stop()
	spent := int64(0)
	for waited := false; ; {
		// The clock is asked too: the context ends a little later.
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
			defer queue.Unlock(want) // also where it panics
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

// planLocked plans the command from what the view shows, and adds the plan to the pending appends. more is not nil
// where it needs locks that it does not hold; the append is nil where what it was decided on has failed meanwhile.
func (x *execution) planLocked(
	ctx context.Context,
) (p *plan, a *groupcommit.Append, more groupcommit.Locks, err error) {
	p, err = x.plan(ctx)
	if err != nil {
		if p != nil && (x.view.ShowsPending() || len(p.before) > 1 || p.unique != nil) {
			// It was refused on several states, or on some that are not stored: all have to be of one moment.
			more = x.missing(p)
		}
		if more != nil {
			return nil, nil, more, nil
		}
		return p, nil, nil, err
	}

	// It needs the locks of everything that it looked at.
	if more = x.missing(p); more != nil {
		return nil, nil, more, nil
	}
	if err := p.unit.Validate(); err != nil {
		return p, nil, nil, store.UserError(err)
	}

	// The next writer decides on what it leaves behind.
	left := x.statesLeft(ctx, p)
	unit := p.unit
	unit.Fences = x.d.fence(unit.Fences)
	a = groupcommit.NewAppend(x.d, unit, x.view, left)
	if !x.d.env.commits.Add(ctx, a) {
		return nil, nil, nil, nil
	}
	return p, a, nil, nil
}

// missing returns the locks that the writer needs for a plan together with those that it holds, nil where it holds all
// that it needs.
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

// refusedAtOneMoment reports whether the refusal of a plan holds for what was stored at one moment. States that were
// looked at one after the other need not have existed together, and what others are about to store may never be.
func (x *execution) refusedAtOneMoment(ctx context.Context, p *plan) (bool, error) {
	if x.view != nil && !x.view.Stored(ctx) {
		return false, nil
	}
	if p == nil || x.view != nil && x.view.ShowsPending() {
		return true, nil // the locks have kept together what is stored by now
	}

	// What the caller expects was not looked at: it need not be so, and mostly is what the command is refused for.
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
