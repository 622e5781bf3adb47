package engine

import (
	"context"
	"errors"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/fold"
	"j17/internal/core/groupcommit"
	"j17/internal/storage/store"
)

// The store accepts in one unit as many events as one command may write.
const _ = uint(store.MaxUnitEvents - decider.MaxEvents)

// Execute writes the events of a command. When it returns without an error they are durable. Errors are *j17.Error.
func (e *Engine) Execute(ctx context.Context, c *Command) (Receipt, error) {
	for {
		d, err := e.deployed(c.Tenant)
		if err != nil {
			return Receipt{}, err
		}
		r, err := (&execution{e: e, d: d, c: c}).run(ctx)
		if !errors.Is(err, errRedeployed) {
			return r, err
		}
		if err := d.renew(ctx); err != nil {
			return Receipt{}, err
		}
	}
}

// execution carries out one command under one spec. It is for one goroutine.
type execution struct {
	e *Engine
	d *deployed
	c *Command
	// a is the command once it is admitted.
	a *decider.Admitted
	// b is the budget for all work.
	b *work.Budget
	// view is what a writer that holds locks sees, nil for one that holds none.
	view *groupcommit.View
	// tried is set for a dry run: nothing will be stored.
	tried bool
}

// run executes the command. The error is errRedeployed if another spec was deployed meanwhile.
func (x *execution) run(ctx context.Context) (Receipt, error) {
	x.b = work.New(ctx, work.Command)
	defer x.b.Release()
	first, err := x.admit(ctx)
	switch {
	case err != nil:
		return Receipt{}, err
	case first != nil:
		return x.replay(ctx, first)
	}

	// Decide the command and store the result.
	p, r, err := x.write(ctx)
	if err == nil {
		return x.done(ctx, p, &r)
	}

	// Another try of the same command may have been stored meanwhile, and be the reason for the refusal.
	if first, failure := x.first(ctx); first != nil {
		return x.replay(ctx, first)
	} else if failure != nil {
		err = failure
	}
	return Receipt{}, x.refused(ctx, p, err)
}

// first returns the result of an earlier try of the command, nil if there is none.
func (x *execution) first(ctx context.Context) (*store.Result, error) {
	if x.c.IdempotencyKey == "" {
		return nil, nil
	}
	first, err := x.e.store.Command(ctx, x.c.Tenant, commandID(x.c.IdempotencyKey))
	return first, store.UserError(err)
}

// admit checks the command. first is not nil if it was carried out before.
func (x *execution) admit(ctx context.Context) (first *store.Result, err error) {
	x.a = nil
	if first, err = x.first(ctx); first != nil || err != nil {
		return first, err
	}
	named := x.c.Named(func() string { return mintID(x.e.mint, x.d) })
	x.a, err = x.d.Admit(&named, x.d.env.now(), x.b, func(w *command.Write) (j17.Key, error) {
		if w.New {
			return x.d.Key(w.Type, w.ID)
		}
		return x.e.names.resolve(ctx, x.c.Tenant, x.d, w.Type, w.ID)
	})
	return nil, err
}

// done does what has to follow a plan that is stored, now or before, and returns its receipt.
func (x *execution) done(ctx context.Context, p *plan, r *store.Result) (Receipt, error) {
	if r.Outcome == store.Duplicate {
		return x.replay(ctx, r)
	}
	for _, tell := range p.stored {
		tell(r.IDs)
	}
	x.d.committed(p, r)
	receipt, values := p.receipt(r), r.Assigned
	for i := range receipt.Writes {
		w := &receipt.Writes[i]
		w.Names, values = x.d.assigned(w.Key.Type, values)
	}
	return receipt, nil
}

// refused records the failure of an implication, if that was the cause, and returns err.
func (x *execution) refused(ctx context.Context, p *plan, err error) error {
	if p != nil && p.failure != nil {
		x.e.failed.keep(context.WithoutCancel(ctx), x.c.Tenant, p.failure)
	}
	return err
}

// committed does what has to follow a write: it counts it, caches the known states, and requests the snapshots and warm
// states that are due.
func (d *deployed) committed(p *plan, r *store.Result) {
	e, t := d.env.e, d.env.tenant
	e.counts.events.Add(uint64(len(r.IDs)))
	for i := range p.events {
		if typ, generation, is := p.events[i].Sent(); is {
			e.counts.older.add(sentIn{typ, generation})
		}
	}
	for _, tell := range p.entered {
		tell()
	}
	for _, c := range p.after {
		e.states.Keep(fold.StateKey{Tenant: t, Key: c.Key}, &c.State)
	}
	for i := range p.writes {
		w := &p.writes[i]
		last := r.Lengths[w.To-1]
		due := last/e.every != (last-uint64(w.To-w.From))/e.every
		if due || d.Types[w.Key.Type].Cache {
			e.states.Refresh(fold.StateKey{Tenant: t, Key: w.Key})
		}
	}
	for i := p.own; i < len(r.Lengths); i++ {
		if key := p.unit.Events[i].Key; r.Lengths[i]%e.every == 0 || d.Types[key.Type].Cache {
			e.states.Refresh(fold.StateKey{Tenant: t, Key: key})
		}
	}
}
