package engine

import (
	"context"
	"iter"

	"j17"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
)

// holding returns who holds unique values, as a writer with that view sees it; nil where the engine knows of none.
func (e *Engine) holding(d *deployed, v *view) part.Holding {
	if e.hooks.unique == nil {
		return nil
	}
	h := e.hooks.unique(d.env.tenant, d.Decider, d.fences)
	if v == nil {
		return h
	}
	return &holdingInTurn{h, v}
}

// holdingInTurn shows what aggregates hold by the writes of those who had their turn before, stored or not.
type holdingInTurn struct {
	part.Holding
	v *view
}

// Held returns what an aggregate holds.
func (h *holdingInTurn) Held(ctx context.Context, set *spec.UniqueSet, key j17.Key) (value [32]byte, ok bool, err error) {
	own, known := h.v.heldBy(set, key)
	if !known {
		return h.Holding.Held(ctx, set, key)
	}
	if err := h.Saw(ctx, set, key, own); err != nil || own == nil {
		return value, false, err
	}
	return *own, true, nil
}

// hold adds to a plan what makes those hold unique values who do in the end.
func (p *plan) hold(h part.Holding) {
	if h == nil || p.unique == nil {
		return
	}
	more := h.Effects(p.unique)
	p.unit.Side, p.unit.Fences = append(p.unit.Side, more.Side...), append(p.unit.Fences, more.Fences...)
}

// keepers yields the aggregates of which it was looked at what unique values they hold. Some may come more than once.
func (p *plan) keepers() iter.Seq[j17.Key] {
	return func(yield func(j17.Key) bool) {
		if p.unique == nil {
			return
		}
		for _, key := range p.unique.Keepers() {
			if !yield(key) {
				return
			}
		}
	}
}

// looked yields the aggregates on which the plan was decided. Some may come more than once.
func (p *plan) looked() iter.Seq[j17.Key] {
	return func(yield func(j17.Key) bool) {
		for key := range p.keepers() {
			if !yield(key) {
				return
			}
		}
		for key := range p.before {
			if !yield(key) {
				return
			}
		}
	}
}

// holds returns what aggregates hold after the plan, in the sets that were looked at.
func (p *plan) holds() map[j17.Key]map[*spec.UniqueSet]*[32]byte {
	if p.unique == nil {
		return nil
	}
	all := map[j17.Key]map[*spec.UniqueSet]*[32]byte{}
	for set, key := range p.unique.Keepers() {
		if all[key] == nil {
			all[key] = map[*spec.UniqueSet]*[32]byte{}
		}
		all[key][set], _ = p.unique.Held(set, key)
	}
	return all
}
