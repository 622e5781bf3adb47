package build

import (
	"context"
	"errors"
	"slices"
	"sync"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/storage/store"
)

// Adoption keeps what a kind of derived data has for the deployed spec of each tenant, such as the slots of its
// definitions.
type Adoption[T any] struct {
	engine *engine.Engine
	adopt  AdoptSpec[T]
	all    sync.Map // of *adopted[T] by j17.Tenant
}

// AdoptSpec returns what a kind has for a spec, and stores what is missing, if the fences hold: they do as long as the
// spec is deployed. It is called again after a conflict.
type AdoptSpec[T any] func(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence) (T, error)

type adopted[T any] struct {
	decider *decider.Decider
	of      T
}

// NewAdoption returns the Adoption of a kind that has adopted no spec yet.
func NewAdoption[T any](e *engine.Engine, adopt AdoptSpec[T]) *Adoption[T] {
	return &Adoption[T]{engine: e, adopt: adopt}
}

// Of returns what the kind has for a spec, which it adopts if it has not yet. It has to be called before anything else
// is stored under a deployed spec, so that no event is missed, however often the spec changes back and forth. If
// another spec is deployed by now, so that the caller's writes will be refused, the result is not kept.
func (a *Adoption[T]) Of(ctx context.Context, t j17.Tenant, d *decider.Decider, fences []store.Fence) (T, error) {
	if found, ok := a.all.Load(t); ok {
		if known, _ := found.(*adopted[T]); known.decider == d {
			return known.of, nil
		}
	}
	for {
		of, err := a.adopt(ctx, t, d, fences)
		conflict, is := errors.AsType[*store.SideConflict](err)
		switch {
		case err == nil:
			a.all.Store(t, &adopted[T]{d, of})
			return of, nil
		case !is:
			return of, err
		case slices.ContainsFunc(
			fences, func(f store.Fence) bool { return f.Space == conflict.Space && f.Key == conflict.Key },
		):
			return of, nil
		}
	}
}

// Present is Of for the deployed spec of a tenant, with the fences that hold as long as it is deployed.
func (a *Adoption[T]) Present(ctx context.Context, t j17.Tenant) (of T, fences []store.Fence, err error) {
	d, fences, err := a.engine.Deployed(t)
	if err != nil {
		return of, nil, err
	}
	of, err = a.Of(ctx, t, d, fences)
	return of, fences, store.UserError(err)
}

// Forget drops what is known of a tenant.
func (a *Adoption[T]) Forget(t j17.Tenant) { a.all.Delete(t) }

// Tenants returns the tenants of which something is known, in order.
func (a *Adoption[T]) Tenants() (all []j17.Tenant) {
	for t := range a.all.Range {
		tenant, _ := t.(j17.Tenant)
		all = append(all, tenant)
	}
	slices.Sort(all)
	return all
}
