package engine

import (
	"context"

	"j17"
	"j17/internal/core/groupcommit"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
)

// holding returns the holders of unique values, as a writer with the view sees them; nil if no part provides them.
func (d *deployed) holding(v *groupcommit.View) part.Holding {
	if d.env.e.hooks.unique == nil {
		return nil
	}
	h := d.env.e.hooks.unique(d.env.tenant, d.Decider, d.fences)
	if v == nil {
		return h
	}
	return &pendingHolding{h, v}
}

// pendingHolding is a Holding that includes the values held by writes that are decided but not stored yet.
type pendingHolding struct {
	part.Holding
	v *groupcommit.View
}

// Held returns the value that an aggregate holds in a set; ok is false if it holds none.
func (h *pendingHolding) Held(
	ctx context.Context, set *spec.UniqueSet, key j17.Key,
) (value [32]byte, ok bool, err error) {
	own, known := h.v.Held(set, key)
	if !known {
		return h.Holding.Held(ctx, set, key)
	}
	if err := h.Saw(ctx, set, key, own); err != nil || own == nil {
		return value, false, err
	}
	return *own, true, nil
}

// hold adds to a plan the writes that store the final holders of unique values, and their fences.
func (p *plan) hold(h part.Holding) {
	if h == nil || p.unique == nil {
		return
	}
	more := h.Effects(p.unique)
	p.unit.Side, p.unit.Fences = append(p.unit.Side, more.Side...), append(p.unit.Fences, more.Fences...)
}
