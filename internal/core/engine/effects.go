package engine

import (
	"context"
	"slices"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// derive adds to a plan what is kept of its events.
func (e *Engine) derive(ctx context.Context, d *deployed, p *plan, events []decider.Event) error {
	sides, entering, err := e.derived(ctx, d, events)
	if len(entering.Required) > 0 {
		p.unit.Fences, p.changed = append(p.unit.Fences, entering.Required...), append(p.changed, entering.Changed...)
	}
	p.entered = entering.Stored
	if len(p.unit.Side) == 0 {
		p.unit.Side = sides
	} else {
		p.unit.Side = append(p.unit.Side, sides...)
	}
	return err
}

// derived returns what is kept of events, and what else whoever keeps it has asked for.
func (e *Engine) derived(ctx context.Context, d *deployed, events []decider.Event) (sides []store.Side, entering *part.Entering, err error) {
	entering = &part.Entering{Tenant: d.env.tenant, Decider: d.Decider, Fences: d.fences, Events: events}
	for _, of := range e.hooks.derived {
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
	all := e.hooks.effects
	if c.Effects != nil {
		all = append(slices.Clip(all), c.Effects)
	}
	if len(all) == 0 {
		return nil
	}

	// Each sees what was decided.
	decided := &part.Decided{
		Tenant: c.Tenant, Decider: d.Decider, Events: p.events, Timestamp: p.unit.Timestamp, Scheduled: p.scheduled,
		Asked: c.Side, CorrelationID: c.CorrelationID, Depth: c.Depth, Work: b, Tried: p.tried,
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
			p.consequences.Add(&more.Consequences)
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
