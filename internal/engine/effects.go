package engine

import (
	"context"
	"slices"

	"j17"
	"j17/internal/decider"
	"j17/internal/store"
)

// Effects are what events bring about beside events: items that are scheduled, started or moved on in the commit of their cause.
type Effects struct {
	Side []store.Side
	// Fences are on the items that were looked at. Where one of them, or a condition of Side, does not hold any more, the command
	// is decided anew.
	Fences []store.Fence
}

// EffectsOf says what is to be written in one commit with events that are about to be written, all of which happen at timestamp, in
// Unix seconds. It is asked each time a command is decided. An error of it refuses the command.
type EffectsOf func(ctx context.Context, t j17.Tenant, events []decider.Event, timestamp int64) (Effects, error)

// effects adds to a plan what its command and its events bring about beside events.
func (e *Engine) effects(ctx context.Context, c *Command, p *plan) error {
	p.side = c.Side
	p.unit.Side = slices.Clip(c.Side)
	if e.effectsOf == nil {
		return nil
	}
	more, err := e.effectsOf(ctx, c.Tenant, p.events, p.unit.Timestamp)
	if err != nil {
		return err
	}
	p.unit.Side, p.unit.Fences = append(p.unit.Side, more.Side...), more.Fences
	p.unit.Decided = p.unit.Decided || len(more.Side) > 0
	return nil
}

// refusedSide returns the conflict of a side write that the caller has asked for, nil where there is none.
func (p *plan) refusedSide(r *store.Result) *store.SideConflict {
	for i := range r.Sides {
		conflict := &r.Sides[i]
		if slices.ContainsFunc(p.side, func(s store.Side) bool {
			return s.Cond != store.Always && s.Space == conflict.Space && s.Key == conflict.Key
		}) {
			return conflict
		}
	}
	return nil
}
