package engine

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Outlook is the result that a command would have if it was carried out now.
type Outlook struct {
	// Refusals are why it would be refused, each a *j17.Error: the first is the error that Execute would return; all
	// failed guards are listed. Without refusals it would be carried out.
	Refusals []error
	// Events are all events that would be written, in order, as far as the command was decided. Their causes are
	// indexes in this list.
	Events []decider.Event
	// States are the resulting states of all aggregates with such events, in the order of their first events; none if
	// it would be refused.
	States []StateAfter
	// Truncated reports that some states have no JSON because they are too many, too large or too much work.
	Truncated bool
	// Repeated reports that a command with the same idempotency key was carried out before, so that nothing would
	// happen.
	Repeated bool
	part.Consequences
}

// StateAfter is the state that an aggregate would have. JSON is nil if the outlook is truncated.
type StateAfter struct {
	Key    j17.Key
	Length uint64
	JSON   []byte
}

// The limits of the states in an outlook: their number, and their bytes together.
const (
	maxStatesAfter     = 1000
	maxStateBytesAfter = 8 << 20
)

// DryRun decides a command as Execute does, but stores and caches nothing. Errors are *j17.Error: the form of the
// command is wrong, or the server cannot decide it now. The reasons why the command would be refused are in the
// outlook.
func (e *Engine) DryRun(ctx context.Context, c *Command) (*Outlook, error) {
	b := work.New(ctx, work.Command)
	defer b.Release()
	x := &execution{e: e, c: c, b: b}
	for range maxPlanning {
		b.Renew(work.Command)
		o, err := x.foresee(ctx)
		if !errors.Is(err, errOvertaken) {
			return o, err
		}
	}
	return nil, j17.Errorf(j17.CodeBusy, "Others have written to what this dry run looks at %d times in a row. Try again.", maxPlanning)
}

// foresee is one try of DryRun. The error is errOvertaken if the data that it was decided on has changed meanwhile.
func (x *execution) foresee(ctx context.Context) (*Outlook, error) {
	// Check what Execute checks before it decides.
	var err error
	if x.d, err = x.e.deployed(x.c.Tenant); err != nil {
		return nil, err
	}
	first, err := x.admit(ctx)
	switch {
	case first != nil:
		if _, err := x.replay(ctx, first); err != nil {
			return nil, err
		}
		return &Outlook{Repeated: true}, nil
	case err != nil && x.a != nil:
		return refusing(x.a.Events, err)
	case err != nil:
		return nil, err
	}

	// The plan is made as if there were no other writers, and never stored. It has the same budget as one that is
	// stored.
	x.b.Renew(work.Command)
	unnamed := *x.c
	unnamed.IdempotencyKey = ""
	tried := *x
	tried.c, tried.tried = &unnamed, true
	p, err := tried.plan(ctx)
	if p == nil {
		return refusing(x.a.Events, err)
	}
	if late := x.overtaken(ctx, p); late != nil {
		err = late
	}
	if err == nil {
		err = x.bounded(ctx, p)
	}
	if err != nil {
		o, err := refusing(p.events, err)
		if o != nil && len(p.refusals) > 0 && j17.CodeOf(o.Refusals[0]) == j17.CodeRequirementFailed {
			o.Refusals = p.refusals
		}
		return o, err
	}
	o := &Outlook{Events: p.events, Consequences: p.consequences}
	return o, x.statesAfter(ctx, p, o)
}

// refusing returns the outlook of a command that would be refused, or the error itself if it is not about the command.
func refusing(events []decider.Event, err error) (*Outlook, error) {
	refused, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return nil, err
	}
	switch refused.Code { //nolint:exhaustive // all others are about the command
	case j17.CodeInternal, j17.CodeCorruption, j17.CodeUnavailable, j17.CodeBusy, j17.CodeStateNotReady,
		j17.CodeIndexNotReady, j17.CodeStorageFull,
		j17.CodeNoSpec, j17.CodeOutcomeUnknown:
		return nil, err
	}
	return &Outlook{Refusals: []error{err}, Events: events}, nil
}

// bounded returns the error of a plan whose additions would bring an item beyond its bound, as the commit would find.
func (x *execution) bounded(ctx context.Context, p *plan) error {
	if err := p.unit.Validate(); err != nil {
		return store.UserError(err)
	}
	var r store.Result
	for i := range p.unit.Side {
		s := &p.unit.Side[i]
		if s.Op != store.Add || s.Most == 0 {
			continue
		}
		n, err := store.Counter(ctx, x.e.store, x.c.Tenant, s.Space, s.Key)
		if err != nil {
			return store.UserError(err)
		}
		if more, err := strconv.ParseInt(string(s.Value), 10, 64); err == nil && n+more > s.Most {
			r.Sides = append(r.Sides, store.SideConflict{Space: s.Space, Key: s.Key, Full: true})
		}
	}
	return p.refusedFull(&r)
}

// statesAfter adds the states after a plan to the outlook.
func (x *execution) statesAfter(ctx context.Context, p *plan, o *Outlook) error {
	// Collect the aggregates, in the order of their first events.
	of := map[j17.Key][]*decider.Event{}
	var keys []j17.Key
	for i := range p.events {
		ev := &p.events[i]
		if of[ev.Key] == nil {
			keys = append(keys, ev.Key)
		}
		of[ev.Key] = append(of[ev.Key], ev)
	}
	heads, err := x.e.store.Heads(ctx, x.c.Tenant, keys)
	if err != nil {
		return store.UserError(err)
	}

	// Compute their states, as far as the limits and the budget allow.
	own, bytes := *x, 0
	own.b = work.New(ctx, work.Command)
	defer own.b.Release()
	for i, key := range keys {
		after := StateAfter{Key: key, Length: heads[i].Length + uint64(len(of[key]))}
		if i < maxStatesAfter && bytes < maxStateBytesAfter && own.b.Err() == nil {
			f, err := own.stateAfter(ctx, p, key, of[key])
			switch {
			case err == nil:
				after.Length, after.JSON = f.Length, f.JSON
			case j17.CodeOf(err) != j17.CodeWorkLimit:
				return err
			}
			own.b.Release()
		}
		if bytes += len(after.JSON); bytes > maxStateBytesAfter {
			after.JSON = nil
		}
		o.Truncated = o.Truncated || after.JSON == nil
		o.States = append(o.States, after)
	}
	return nil
}

// stateAfter returns the state of an aggregate after a plan.
func (x *execution) stateAfter(
	ctx context.Context, p *plan, key j17.Key, events []*decider.Event,
) (*decider.State, error) {
	for _, known := range p.after {
		if known.Key == key {
			f := known.State
			return &f, f.Finish(key.String())
		}
	}
	before := p.before[key]
	if before == nil {
		var err error
		if before, err = x.look(ctx, key); err != nil {
			return nil, err
		}
	}
	f, ed := *before, value.NewEditor()
	for _, ev := range events {
		if err := x.d.Program(key.Type).Apply(ctx, &f, ed, ev.Stored(p.unit.Timestamp), x.b, nil); err != nil {
			return nil, err
		}
	}
	return &f, cmp.Or(f.Finish(key.String()), x.b.Err())
}
