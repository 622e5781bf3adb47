package fold

import (
	"context"
	"slices"
	"strings"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// Learn applies events to the cached states right before them, so that the next read need not read the events again.
// events are consecutive in the feed; rewrites is the count of rewrites before they were read. It is only an
// optimisation: if a state is not cached or the work would be large, the next read folds.
func (m *Moment) Learn(ctx context.Context, events []*j17.Event, rewrites uint64) error {
	if !m.present {
		return nil // states for a spec that is not deployed are not cached
	}

	// Group the events by aggregates with a cached state.
	var keys []j17.Key
	of := map[j17.Key][]*j17.Event{}
	for _, ev := range events {
		if some := of[ev.Key]; some != nil {
			of[ev.Key] = append(some, ev)
		} else if m.d.Types[ev.Key.Type] != nil && m.l.cache.get(StateKey{m.tenant, ev.Key}) != nil {
			// The key outlives the event.
			key := j17.Key{Type: strings.Clone(ev.Key.Type), ID: strings.Clone(ev.Key.ID)}
			keys, of[key] = append(keys, key), []*j17.Event{ev}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	heads, err := m.l.store.Heads(ctx, m.tenant, keys)
	if err != nil {
		return store.UserError(err)
	}

	// Compute the new states.
	states := make([]*decider.State, len(keys))
	for i, key := range keys {
		typ := m.d.Program(key.Type)
		base := m.l.Cached(StateKey{m.tenant, key}, typ, Version{0, heads[i].Generation}, false)
		if base == nil {
			continue
		}
		later := slices.DeleteFunc(of[key], func(ev *j17.Event) bool { return ev.Version <= base.Length })
		states[i] = m.advanced(ctx, typ, key, base, later)
	}

	// After a rewrite since the events were read, they may not match the states.
	if m.l.store.Rewrites() != rewrites {
		return nil
	}
	for i, f := range states {
		if f == nil {
			continue
		}
		k := StateKey{m.tenant, keys[i]}
		m.l.cache.put(k, f)
		if f.Length-f.Snapshot >= m.l.every {
			m.l.Refresh(k)
		}
	}
	return nil
}

// advanced returns the state after a base and events, nil if these do not follow it directly, or are much work.
func (m *Moment) advanced(
	ctx context.Context, typ *decider.Program, key j17.Key, base *decider.State, events []*j17.Event,
) *decider.State {
	if len(events) == 0 || base.Data.IsMissing() {
		return nil
	}
	x := m.l.steps(ctx, typ)
	x.begin(key, base)
	for _, ev := range events {
		et := typ.Events[ev.Type]
		heavy := et != nil && et.Code != nil || x.cost > inlineWork || x.f.Data.Size()+len(ev.Data) > InlineBytes
		if heavy || ev.Version != x.f.Length+1 || x.apply(ev) != nil {
			return nil
		}
	}
	f := x.f
	if f.Finish(x.te.Key) != nil {
		return nil
	}
	m.l.counts.folded.Add(uint64(len(events)))
	return &f
}
