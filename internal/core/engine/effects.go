package engine

import (
	"context"
	"slices"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// derive adds to a plan the derived data of its events.
func (p *plan) derive(ctx context.Context, d *deployed, events []decider.Event) error {
	sides, entering, err := d.derived(ctx, events)
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

// derived returns the derived data of events, with the fences and callbacks that parts have registered.
func (d *deployed) derived(
	ctx context.Context, events []decider.Event,
) (sides []store.Side, entering *part.Entering, err error) {
	entering = &part.Entering{Tenant: d.env.tenant, Decider: d.Decider, Fences: d.fences, Events: events}
	for _, of := range d.env.e.hooks.derived {
		more, err := of(ctx, entering)
		if err != nil {
			return nil, entering, store.UserError(err)
		}
		if sides == nil {
			sides = more
		} else {
			sides = append(sides, more...)
		}
	}
	return sides, entering, nil
}

// Deployed returns what is deployed to a tenant, and fences that hold as long as it is; the error is CodeNoSpec if
// nothing is.
func (e *Engine) Deployed(t j17.Tenant) (*decider.Decider, []store.Fence, error) {
	d, err := e.deployed(t)
	if err != nil {
		return nil, nil, err
	}
	return d.Decider, d.fences, nil
}

// effects adds to a plan what its command and its events cause apart from other events.
func (x *execution) effects(ctx context.Context, p *plan) error {
	// Add the command's own side writes, and collect the functions that return further effects.
	p.side = x.c.Side
	if len(x.c.Side) > 0 {
		p.unit.Side = slices.Concat(p.unit.Side, x.c.Side)
	}
	all := x.e.hooks.effects
	if x.c.Effects != nil {
		all = append(slices.Clip(all), x.c.Effects)
	}
	if len(all) == 0 {
		return nil
	}

	// Call each of them with the decision.
	decided := &part.Decided{
		Tenant: x.c.Tenant, Decider: x.d.Decider, Events: p.events, Timestamp: p.unit.Timestamp, Scheduled: p.scheduled,
		Asked: x.c.Side, CorrelationID: x.c.CorrelationID, Depth: x.c.Depth, Work: x.b, Tried: p.tried,
	}
	for _, of := range all {
		more, err := of(ctx, decided)
		if x.b.Err() != nil {
			return usedUp(x.b, "what follows from its events")
		}
		if err != nil {
			return err
		}
		p.unit.Side = append(p.unit.Side, more.Side...)
		if err := p.chargeItems(x.b); err != nil {
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
