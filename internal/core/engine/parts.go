package engine

import (
	"context"
	"errors"

	"j17"
	"j17/internal/core/fold"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// hooks are the functions of parts that the engine calls, in the order of the parts. At most one part has a renew,
// tagged or unique; these are nil if none has.
type hooks struct {
	effects []part.EffectsOf
	derived []part.DerivedOf
	mend    []func(ctx context.Context, t j17.Tenant, damaged store.ItemName) bool
	forget  []func(t j17.Tenant)

	renew  func(ctx context.Context, t j17.Tenant) error
	tagged part.TaggedOf
	unique part.HoldingOf
}

// Use registers the hooks of the program's parts and returns the engine. It is called once, before anything is
// deployed.
func (e *Engine) Use(parts ...part.Part) *Engine {
	for i := range parts {
		p := &parts[i]
		if of := p.Commit.Effects; of != nil {
			e.hooks.effects = append(e.hooks.effects, of)
		}
		if of := p.Commit.Derive; of != nil {
			e.hooks.derived = append(e.hooks.derived, of)
		}
		if mend := p.Commit.Mend; mend != nil {
			e.hooks.mend = append(e.hooks.mend, mend)
		}
		if forget := p.Deploy.Forget; forget != nil {
			e.hooks.forget = append(e.hooks.forget, forget)
		}
		if renew := p.Deploy.Renew; renew != nil {
			e.hooks.renew = renew
		}
		if tagged := p.Commit.Tagged; tagged != nil {
			e.hooks.tagged = tagged
		}
		if unique := p.Commit.Unique; unique != nil {
			e.hooks.unique = unique
		}
	}
	return e
}

// mended reports whether err is about a damaged side item that a part is rebuilding, so that the unit may be tried
// again.
func (env *environment) mended(ctx context.Context, err error) bool {
	damage, is := errors.AsType[*store.CorruptionError](err)
	if !is || damage.Item == (store.ItemName{}) {
		return false
	}
	for _, mend := range env.e.hooks.mend {
		if mend(ctx, env.tenant, damage.Item) {
			return true
		}
	}
	return false
}

// Part returns the engine as a part of the program.
func (e *Engine) Part() part.Part {
	spaces := part.Spaces(fold.Erasures, handles, handleIndex, numbers, numberIndex)
	for _, d := range fold.Spaces() {
		spaces = append(spaces, part.Space{Declared: d, Derived: true})
	}
	spaces = append(spaces, part.Space{Declared: store.Declared{Space: failedImplications, Whole: true}})
	return part.Part{
		Name: "engine", Spaces: spaces,
		Erase:   part.Erase{Streams: e.Erase},
		Work:    part.Work{Run: e.Run},
		Metrics: metrics(e),
	}
}
