package engine

import (
	"bytes"
	"context"
	"math"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// Adopt makes a state that was folded before a base for folds of its aggregate: in the cache if it is the present one, and, where it is
// long enough for a snapshot, the latest one or among those along the way. What is no state of the deployed handlers and of the present
// generation of the stream is left out without a word.
func (e *Engine) Adopt(ctx context.Context, t j17.Tenant, key j17.Key, f *decider.State, generation uint64) error {
	d, err := e.deployed(t)
	if err != nil {
		return err
	}
	if d.Types[key.Type] == nil || d.Program(key.Type).Fingerprint != f.Fingerprint {
		return nil
	}
	typ := d.Program(key.Type)
	heads, err := e.store.Heads(ctx, t, []j17.Key{key})
	if err != nil {
		return StorageError(err)
	}
	if heads[0].Length < f.Length || heads[0].Generation != generation {
		return nil
	}

	// The tree is made of the text, as of a snapshot.
	own := *f
	own.JSON, own.Generation = bytes.Clone(f.JSON), generation
	if own.Data, err = value.ParseStored(string(own.JSON)); err != nil {
		return StorageError(&store.CorruptionError{Where: "the state of " + key.String(), Err: err})
	}
	job := stateKey{t, key}
	if heads[0].Length == f.Length && e.cached(job, typ, Version{f.Length, generation}, false) == nil {
		e.cache.put(job, &own)
	}

	// Events that are few are folded as fast as a snapshot is found.
	if f.Length < e.every {
		return nil
	}
	known, err := e.snapshot(ctx, t, typ, key, Version{heads[0].Length, generation}, math.MaxInt)
	switch {
	case err != nil:
		return StorageError(err)
	case known == nil || known.Length < f.Length:
		_, err = e.keepSnapshot(ctx, job, &own)
	default:
		own.Cost = pastWork // it is asked for: whatever it has cost, it is kept
		err = e.keepPast(ctx, t, key, &own)
	}
	return StorageError(err)
}
