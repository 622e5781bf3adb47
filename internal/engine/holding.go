package engine

import (
	"context"

	"j17"
	"j17/internal/decider"
	"j17/internal/spec"
	"j17/internal/store"
)

// Holding says who holds unique values while one command is decided, and what is to be written for what that has come to.
type Holding interface {
	decider.Holders
	// Effects returns the writes after which those hold values who do in the end, and fences on what was only looked at.
	Effects(after *decider.Values) Effects
	// Exchanged returns the writes after which an aggregate has exchanged a value for what it has held so far, nil for nothing. They have no
	// conditions, and remove nothing: who loads a whole environment past the engine makes sure of the rest.
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

// holdingInTurn waits until what aggregates hold is stored by those who had their turn before.
type holdingInTurn struct {
	Holding
	v *view
}

// Held returns what an aggregate holds.
func (h *holdingInTurn) Held(ctx context.Context, set *spec.UniqueSet, key j17.Key) (value [32]byte, ok bool, err error) {
	if err := h.v.settled(ctx, key); err != nil {
		return value, false, err
	}
	return h.Holding.Held(ctx, set, key)
}

// hold adds to a plan what makes those hold unique values who do in the end.
func (p *plan) hold(h Holding, after *decider.Values) {
	if h == nil || after == nil {
		return
	}
	more := h.Effects(after)
	p.unit.Side, p.unit.Fences = append(p.unit.Side, more.Side...), append(p.unit.Fences, more.Fences...)
}
