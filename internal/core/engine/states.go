package engine

import (
	"context"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/fold"
	"j17/internal/core/groupcommit"
	"j17/internal/storage/store"
)

// look returns the present state of an aggregate, as the writer sees it. For a large state that is not cached the
// command reserves memory, and does not keep the state while it waits for that.
func (x *execution) look(ctx context.Context, key j17.Key) (*decider.State, error) {
	for waited := false; ; waited = true {
		if x.view != nil {
			if f, err := x.view.State(ctx, key); f != nil || err != nil {
				return f, err
			}
		}
		f, err := x.storedState(ctx, key)
		if err != nil || waited || len(f.JSON) <= fold.InlineBytes {
			return f, err
		}
		k := fold.StateKey{Tenant: x.d.env.tenant, Key: key}
		if x.e.states.Peek(k) == f { // the cache is charged for it
			return f, nil
		}
		size := fold.Measure(f)
		if x.b.TryHold(x.e.looked, string(k.Tenant), size) {
			return f, nil
		}
		if err := x.b.Hold(x.e.looked, string(k.Tenant), size, "memory for what such a write looks at"); err != nil {
			return nil, err
		}
	}
}

// length returns the present number of events of an aggregate, as the writer sees it.
func (x *execution) length(ctx context.Context, key j17.Key) (uint64, error) {
	if x.view != nil {
		if f, err := x.view.State(ctx, key); err != nil {
			return 0, err
		} else if f != nil {
			return f.Length, nil
		}
	}
	heads, err := x.e.store.Heads(ctx, x.d.env.tenant, []j17.Key{key})
	if err != nil {
		return 0, store.UserError(err)
	}
	return heads[0].Length, nil
}

// storedState returns the present state of an aggregate, without pending appends.
func (x *execution) storedState(ctx context.Context, key j17.Key) (*decider.State, error) {
	heads, err := x.e.store.Heads(ctx, x.d.env.tenant, []j17.Key{key})
	if err != nil {
		return nil, store.UserError(err)
	}
	if heads[0].Length == 0 {
		return x.d.Program(key.Type).First(), nil
	}
	of := fold.Version{Length: heads[0].Length, Generation: heads[0].Generation}
	f, err := x.e.states.State(ctx, x.d.env.tenant, x.d.Program(key.Type), key, of, false, false)
	return f, store.UserError(err)
}

// statesLeft computes the states after a plan of the streams that it writes under an exclusive lock, and returns them
// with the unique values that the aggregates then hold.
func (x *execution) statesLeft(ctx context.Context, p *plan) []groupcommit.State {
	var after []groupcommit.State
	held := p.holds()
	for _, c := range x.view.Locks() {
		if !c.Exclusive || !p.touches(c.Key) {
			continue
		}
		state := groupcommit.State{Key: c.Key, Held: held[c.Key]}
		for _, known := range p.after {
			if known.Key == c.Key {
				state.State = &known.State
			}
		}
		if state.State == nil {
			state.State = x.stateLeft(ctx, p, c.Key)
		}
		after = append(after, state)
	}
	return after
}

func (p *plan) touches(key j17.Key) bool {
	for i := range p.unit.Events {
		if p.unit.Events[i].Key == key {
			return true
		}
	}
	return false
}

// stateLeft computes the state of a stream after a plan; nil if the state before it is not in memory or an event cannot
// be applied.
func (x *execution) stateLeft(ctx context.Context, p *plan, key j17.Key) *decider.State {
	// Find the state before it.
	typ := x.d.Program(key.Type)
	base := p.before[key]
	if base == nil {
		// The plan has not read the stream, and does not wait for a state that only later writers need.
		if last, pending := x.view.Peek(key); pending {
			base = last
		} else if heads, err := x.e.store.Heads(ctx, x.d.env.tenant, []j17.Key{key}); err == nil {
			if f := x.cached(key, typ, heads[0]); f != nil && f.Length == heads[0].Length {
				base = f
			} else if heads[0].Length == 0 {
				base = typ.First()
			}
		}
	}
	if base == nil {
		return nil
	}

	// Apply the events to it.
	f, ed, b := *base, value.NewEditor(), work.New(ctx, work.Replay)
	for i := range p.events {
		o := &p.events[i]
		if o.Key != key {
			continue
		}
		b.Renew(work.Replay)
		if err := typ.Apply(ctx, &f, ed, o.Stored(p.unit.Timestamp), b, nil); err != nil {
			return nil
		}
		f.Loose += len(o.JSON)
	}
	return &f
}

// cached returns the cached state of a stream if it has at least the events of a head, else nil.
func (x *execution) cached(key j17.Key, typ *decider.Program, head store.Head) *decider.State {
	k := fold.StateKey{Tenant: x.d.env.tenant, Key: key}
	return x.e.states.Cached(k, typ, fold.Version{Length: head.Length, Generation: head.Generation}, false)
}
