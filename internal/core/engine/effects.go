package engine

import (
	"context"
	"slices"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// Decided is what a command comes to, while it is decided.
type Decided struct {
	Tenant j17.Tenant
	// Decider is what is deployed to the tenant.
	Decider *decider.Decider
	// Events are all that is about to be written, the command's own first, in the order of the unit. They happen at Timestamp, in
	// Unix seconds.
	Events    []decider.Event
	Timestamp int64
	// Scheduled are the events that are to come later, in the order in which they were scheduled.
	Scheduled []decider.Scheduled
	// Command is what was asked for, and Work what all of it is charged to.
	Command *Command
	Work    *work.Budget
	// Tried tells that nothing will be stored, and somebody wants to know of the consequences.
	Tried bool
}

// Effects are what events bring about beside events: items that are scheduled, started or moved on in the commit of their cause.
// A store.Side may hold the positions that the events get (Stamps).
type Effects struct {
	Side []store.Side
	// Fences are on the items that were looked at. Where one of them, or a condition of Side, does not hold any more, the command
	// is decided anew.
	Fences []store.Fence
	// Full returns why the command is refused where an addition of Side would bring its item beyond the bound; nil where that does
	// not refuse it, so that it is decided anew.
	Full func(*store.SideConflict) error
	// Changed, if not nil, is called with each item of Fences and Side that was another one when it was to be stored: whoever keeps what
	// it has read lets go of it, before the command is decided anew.
	Changed func(*store.SideConflict)
	// Committed, if not nil, is called once when all of it is stored, with the positions of the events.
	Committed func(ids []j17.StreamID)
	// Consequences say what all this does, where the command is tried only.
	Consequences Consequences
}

// EffectsOf says what is to be written in one commit with events. It is asked each time a command is decided. An error of it
// refuses the command.
type EffectsOf func(context.Context, *Decided) (Effects, error)

// Entering is events that are about to be stored, whoever brings them.
type Entering struct {
	Tenant j17.Tenant
	// Decider is what is deployed to the tenant, and Fences hold as long as it is.
	Decider *decider.Decider
	Fences  []store.Fence
	// Events are all of a unit, in its order.
	Events []decider.Event

	// stored are called when the events are, and changed where one of fences does not hold.
	stored  []func()
	fences  []store.Fence
	changed []func(*store.SideConflict)
}

// WhenStored has something called once the events are stored, and not where they never are: the command is refused, decided anew, or only tried.
func (e *Entering) WhenStored(tell func()) { e.stored = append(e.stored, tell) }

// Require has the events stored only where a fence holds. Where it does not, changed is called, and the command is decided anew.
func (e *Entering) Require(f store.Fence, changed func()) {
	e.fences = append(e.fences, f)
	e.changed = append(e.changed, func(c *store.SideConflict) {
		if c.Space == f.Space && c.Key == f.Key {
			changed()
		}
	})
}

// DerivedOf says what is kept of events beside them, in their own commit. Unlike effects it follows from the events alone, so that it is
// asked about those that happened before as well.
type DerivedOf func(context.Context, *Entering) ([]store.Side, error)

// derive adds to a plan what is kept of its events.
func (e *Engine) derive(ctx context.Context, d *deployed, p *plan, events []decider.Event) error {
	sides, entering, err := e.derived(ctx, d, events)
	if len(entering.fences) > 0 {
		p.unit.Fences, p.changed = append(p.unit.Fences, entering.fences...), append(p.changed, entering.changed...)
	}
	p.entered = entering.stored
	if len(p.unit.Side) == 0 {
		p.unit.Side = sides
	} else {
		p.unit.Side = append(p.unit.Side, sides...)
	}
	return err
}

// derived returns what is kept of events, and what else whoever keeps it has asked for.
func (e *Engine) derived(ctx context.Context, d *deployed, events []decider.Event) (sides []store.Side, entering *Entering, err error) {
	entering = &Entering{Tenant: d.env.tenant, Decider: d.Decider, Fences: d.fences, Events: events}
	for _, of := range e.derivedOf {
		more, err := of(ctx, entering)
		if err != nil {
			return nil, entering, StorageError(err)
		}
		if sides == nil {
			sides = more
		} else {
			sides = append(sides, more...)
		}
	}
	return sides, entering, nil
}

// Deployed returns what is deployed to a tenant, and what holds in the store as long as it is; CodeNoSpec where there is nothing.
func (e *Engine) Deployed(t j17.Tenant) (*decider.Decider, []store.Fence, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, nil, err
	}
	return d.Decider, d.fences, nil
}

// effects adds to a plan what its command and its events bring about beside events, at the cost of b.
func (e *Engine) effects(ctx context.Context, d *deployed, c *Command, p *plan, b *work.Budget) error {
	// What the command writes itself, and who is asked for more.
	p.side = c.Side
	if len(c.Side) > 0 {
		p.unit.Side = slices.Concat(p.unit.Side, c.Side)
	}
	all := e.effectsOf
	if c.Effects != nil {
		all = append(slices.Clip(all), c.Effects)
	}
	if len(all) == 0 {
		return nil
	}

	// Each sees what was decided.
	decided := &Decided{
		Tenant: c.Tenant, Decider: d.Decider, Events: p.events, Timestamp: p.unit.Timestamp, Scheduled: p.scheduled, Command: c, Tried: p.tried, Work: b,
	}
	for _, of := range all {
		more, err := of(ctx, decided)
		if b.Err() != nil {
			return usedUp(b, "what follows from its events")
		}
		if err != nil {
			return err
		}
		p.unit.Side = append(p.unit.Side, more.Side...)
		if err := p.chargeItems(b); err != nil {
			return err
		}
		if p.unit.Fences == nil {
			p.unit.Fences = slices.Clip(more.Fences)
		} else {
			p.unit.Fences = append(p.unit.Fences, more.Fences...)
		}
		p.unit.Decided = p.unit.Decided || len(more.Side) > 0
		if p.tried {
			p.consequences.add(&more.Consequences)
		}
		if more.Full != nil {
			p.full = append(p.full, more.Full)
		}
		if more.Changed != nil {
			p.changed = append(p.changed, more.Changed)
		}
		if more.Committed != nil {
			p.stored = append(p.stored, more.Committed)
		}
	}
	return nil
}

// refusedFull returns why a command is refused whose effects have no room, nil where that does not refuse it.
func (p *plan) refusedFull(r *store.Result) error {
	if slices.ContainsFunc(r.Sides, func(c store.SideConflict) bool { return !c.Full }) {
		return nil // it was decided on what has changed meanwhile, and there may be room by that
	}
	for i := range r.Sides {
		if !r.Sides[i].Full {
			continue
		}
		for _, full := range p.full {
			if err := full(&r.Sides[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// refusedSide returns the conflict of a side write that the caller has asked for, nil where there is none.
func (p *plan) refusedSide(r *store.Result) *store.SideConflict {
	for i := range r.Sides {
		conflict := &r.Sides[i]
		if slices.ContainsFunc(p.side, func(s store.Side) bool {
			return (s.Cond != store.Always || conflict.Full && s.Most != 0) && s.Space == conflict.Space && s.Key == conflict.Key
		}) {
			return conflict
		}
	}
	return nil
}
