package engine

import (
	"context"
	"iter"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Holding says who holds unique values while one command is decided, and what is to be written for what that has come to.
type Holding interface {
	decider.Holders
	// Saw is told what an aggregate holds in a set, nil for nothing, by writes that are not stored yet. Held is not asked then.
	Saw(ctx context.Context, set *spec.UniqueSet, key j17.Key, own *[32]byte) error
	// Effects returns the writes after which those hold values who do in the end, and fences on what was only looked at.
	Effects(after *decider.Values) Effects
	// Exchanged returns the writes after which an aggregate has exchanged a value for what it has held so far, nil for nothing. They have no
	// conditions: who loads a whole environment past the engine makes sure of the rest.
	Exchanged(ctx context.Context, key j17.Key, x *decider.Exchange, own *[32]byte) ([]store.Side, error)
}

// HoldingOf returns who holds the unique values of a tenant, for one command that is decided with what is deployed as long as the fences hold.
type HoldingOf func(t j17.Tenant, d *decider.Decider, fences []store.Fence) Holding

// holding returns who holds unique values, as a writer with that view sees it; nil where the engine knows of none.
func (e *Engine) holding(d *deployed, v *view) Holding {
	if e.uniqueOf == nil {
		return nil
	}
	h := e.uniqueOf(d.env.tenant, d.Decider, d.fences)
	if v == nil {
		return h
	}
	return &holdingInTurn{h, v}
}

// holdingInTurn shows what aggregates hold by the writes of those who had their turn before, stored or not.
type holdingInTurn struct {
	Holding
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
func (p *plan) hold(h Holding) {
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
