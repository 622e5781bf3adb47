package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// erasures has one item, which changes with each erasure: states that were folded before are not kept any more by whoever had read it
// before.
const (
	erasures store.Space = "engine.erasures"

	erasuresKey = "latest"
)

// ofStreams are the spaces of the states of streams, as they are and as they were.
func ofStreams() []store.Declared {
	return []store.Declared{
		{Space: snapshots, OfStreams: true}, {Space: pastSnapshots, OfStreams: true}, {Space: pastIndex, OfStreams: true},
	}
}

// Erase removes the states of streams that were rewritten, on disk and in memory, the results of the commands that wrote their events, but that
// they were carried out, and what is kept of writes that failed because of them, which has no values. A state that is folded at this moment is kept by nobody.
func (e *Engine) Erase(ctx context.Context, t j17.Tenant, er part.Erased) error {
	// From here on nobody keeps a state of before.
	begin := store.Side{Op: store.Put, Space: erasures, Key: erasuresKey, Value: []byte(er.TombstoneID)}
	if err := e.store.Write(ctx, t, []store.Side{begin}); err != nil {
		return err
	}

	// The states.
	for _, key := range er.Keys {
		held, err := store.HeldBy(ctx, e.store, t, ofStreams(), key)
		if err != nil {
			return err
		}
		sides := make([]store.Side, len(held))
		for i, item := range held {
			sides[i] = store.Side{Op: store.Delete, Space: item.Space, Key: item.Key}
		}
		if len(sides) > 0 {
			if err := e.store.Write(ctx, t, sides); err != nil {
				return err
			}
		}
		e.cache.drop(stateKey{t, key})
		e.flights.drop(stateKey{t, key})
	}

	gone := er.Gone()
	parts := make([]store.StreamPart, len(er.Keys))
	for i, key := range er.Keys {
		parts[i] = store.StreamPart{Key: key, UpTo: gone[key.String()].Own}
	}
	if err := e.store.ForgetCommands(ctx, t, parts); err != nil {
		return err
	}
	return e.eraseFailures(ctx, t, er.Keys)
}

// writeStates writes states of a stream of one generation, unless it was erased since, which is a *store.SideConflict: what was erased would
// come back, and nobody would look for it.
func (e *Engine) writeStates(ctx context.Context, of stateKey, generation uint64, sides []store.Side) error {
	fence := store.Fence{Space: erasures, Key: erasuresKey}
	it, err := e.store.Get(ctx, of.tenant, erasures, erasuresKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	fence.Rev = it.Rev
	heads, err := e.store.Heads(ctx, of.tenant, []j17.Key{of.key})
	if err != nil {
		return err
	}
	if heads[0].Generation != generation {
		return &store.SideConflict{Space: erasures, Key: erasuresKey, Rev: it.Rev}
	}
	return e.store.Write(ctx, of.tenant, sides, fence)
}

// drop forgets a state.
func (c *cache) drop(k stateKey) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if el := s.byKey[k]; el != nil {
		s.remove(el)
	}
}

// drop forgets the states of a stream that wait for being fetched.
func (s *flights) drop(k stateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fl := range slices.Clone(s.finished) {
		if fl.stateKey == k {
			s.forget(fl)
		}
	}
}

// eraseFailures removes what is kept of writes that failed, of events of some aggregates or because of them.
func (e *Engine) eraseFailures(ctx context.Context, t j17.Tenant, keys []j17.Key) error {
	gone := make(map[string]bool, len(keys))
	for _, key := range keys {
		gone[key.String()] = true
	}
	of := func(raw []byte) (bool, error) {
		var f decider.ImplicationFailure
		if err := json.Unmarshal(raw, &f); err != nil {
			return false, &store.CorruptionError{Where: string(failedImplications), Err: err}
		}
		return gone[f.Trigger.Key] || slices.ContainsFunc(f.Chain, func(l decider.Link) bool { return gone[l.Key] }), nil
	}

	const page = 1000
	for keys := (store.Range{}); ; {
		items, err := e.store.Scan(ctx, t, failedImplications, keys, page)
		if err != nil {
			return err
		}
		var sides []store.Side
		for _, it := range items {
			keys = keys.After(it.Key)
			is, err := of(it.Value)
			if err != nil {
				return err
			}
			if is {
				sides = append(sides, store.Side{Op: store.Delete, Space: failedImplications, Key: it.Key})
			}
		}
		if len(sides) > 0 {
			if err := e.store.Write(ctx, t, sides); err != nil {
				return err
			}
		}
		if len(items) < page {
			return nil
		}
	}
}
