package fold

import (
	"context"
	"errors"
	"fmt"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/core/decider"
	"j17/internal/core/upcast"
	"j17/internal/lang/tick"
	"j17/internal/storage/store"
)

// State returns the state after the first events of a stream, given by a length and a generation. past is set if the
// stream has more events; such states are not cached. replay folds from the first event, whatever is cached. If events
// are rewritten meanwhile, the state is that of their new generation.
func (l *Loader) State(
	ctx context.Context, t j17.Tenant, typ *decider.Program, key j17.Key, of Version, past, replay bool,
) (*decider.State, error) {
	k := sharedKey{StateKey: StateKey{t, key}, fingerprint: typ.Fingerprint, generation: of.Generation, replay: replay}
	if !replay {
		if f := l.Cached(k.StateKey, typ, of, past); f != nil {
			l.counts.hits.Add(1)
			return f, nil
		}
	}
	if past || replay {
		k.length = of.Length
	}
	return l.foldTo(ctx, k, typ, of.Length, false)
}

// Cached returns the cached state of the type's present handlers and of the generation with at least of.Length events;
// with past, exactly that many.
func (l *Loader) Cached(k StateKey, typ *decider.Program, of Version, past bool) *decider.State {
	f := l.cache.get(k)
	if f == nil || f.Fingerprint != typ.Fingerprint || f.Generation != of.Generation || f.Length < of.Length ||
		past && of.Length > 0 && f.Length != of.Length {
		return nil
	}
	return f
}

const (
	// eventWork is the cost of reading an event, apart from its bytes, and codeWork that of a call of custom code: a
	// guess, since that is not measured in the same units.
	eventWork = 32
	codeWork  = 1 << 17
	// ContextEvery is how many events a fold applies between two checks of its context.
	ContextEvery = 256
)

// bound limits one portion of a fold: it ends once it has cost work, or when the state and the next event together have
// more than bytes.
type bound struct {
	work  int64
	bytes int
}

// advance applies events after base up to length, or until the portion is full. It returns the cost in units of package
// work. The state has no JSON until it is finished, unless it is base.
func (l *Loader) advance(
	ctx context.Context, t j17.Tenant, typ *decider.Program, key j17.Key, base *decider.State, length uint64,
	most bound,
) (*decider.State, int64, error) {
	if base.Length == length {
		return base, 0, nil
	}

	// Work on a copy of the state: other readers have the original.
	x := l.steps(ctx, typ)
	x.begin(key, base)
	done := false
	for ev, err := range l.store.ReadStream(ctx, t, key, base.Length+1, length) {
		if err != nil {
			return nil, x.cost, err
		}
		if x.f.Length%ContextEvery == 0 && ctx.Err() != nil {
			return nil, x.cost, ctx.Err()
		}

		// The portion is full at either limit.
		if done = x.cost > most.work || x.f.Data.Size()+len(ev.Data) > most.bytes; done {
			break
		}
		if err := x.apply(ev); err != nil {
			return nil, x.cost, err
		}
	}
	f, cost, name := x.f, x.cost, x.te.Key

	if f.Length == base.Length && done {
		return base, cost, nil
	}

	l.counts.folded.Add(f.Length - base.Length)
	if f.Length != length && !done {
		return nil, cost, &store.CorruptionError{Where: name, Err: fmt.Errorf("%d events were found where %d should be", f.Length, length)}
	}
	return &f, cost, nil
}

// steps applies events to a state.
type steps struct {
	ctx    context.Context //nolint:containedctx // the context of one call of the engine
	typ    *decider.Program
	stored *upcast.Stream
	ed     *value.Editor
	budget *work.Budget
	f      decider.State
	cost   int64
	te     tick.Event // reused: allocated for each event, it would be a quarter of all that a replay allocates
}

// steps returns steps for the aggregates of a type.
func (l *Loader) steps(ctx context.Context, typ *decider.Program) *steps {
	return &steps{
		ctx: sandbox.ForReplay(ctx), typ: typ, stored: upcast.NewStream(typ.AggregateType, typ.Tried),
		budget: work.New(ctx, work.Replay),
	}
}

// begin begins with a state of an aggregate. It has no JSON until it is finished.
func (x *steps) begin(key j17.Key, base *decider.State) {
	x.f, x.ed, x.cost = *base, value.NewEditor(), 0
	x.f.JSON = nil
	x.te.Key = key.String()
}

// apply applies the next event.
func (x *steps) apply(ev *j17.Event) error {
	x.budget.Renew(work.Replay)
	if err := x.stored.Read(ev, &x.te, x.budget); err != nil {
		return err
	}
	if err := x.typ.Apply(x.ctx, &x.f, x.ed, &x.te, x.budget, nil); err != nil {
		if _, is := errors.AsType[*tick.Misfit](err); is {
			// An event that was tried does not fit: the comparison that was left out says where.
			x.budget.Renew(work.Replay)
			_, err = upcast.Read(x.typ.AggregateType, ev, x.te.Key, x.budget)
			return err
		}
		return decider.ReplayFailed(err, &x.te, x.f.Length+1)
	}

	// Count the cost, for the cache and for snapshots.
	x.f.Loose += len(ev.Data)
	x.f.Since += len(ev.Data) + len(ev.Metadata)
	x.cost += x.budget.Spent() + eventWork + int64(len(ev.Data))/work.BytesPerUnit
	if et := x.typ.Events[x.te.Type]; et != nil && et.Code != nil {
		x.cost += codeWork
	}
	return nil
}
