package fold

import (
	"bytes"
	"context"
	"math"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// Adopt makes a state that was folded before, with the handlers of typ, a base for folds of its aggregate: in the cache
// if it is the present one, and, where it is long enough for a snapshot, the latest one or among those along the way. A
// state that is not of the present generation of the stream is ignored.
func (l *Loader) Adopt(
	ctx context.Context, t j17.Tenant, typ *decider.Program, key j17.Key, f *decider.State, generation uint64,
) error {
	if typ.Fingerprint != f.Fingerprint {
		return nil
	}
	heads, err := l.store.Heads(ctx, t, []j17.Key{key})
	if err != nil {
		return store.UserError(err)
	}
	if heads[0].Length < f.Length || heads[0].Generation != generation {
		return nil
	}

	// The tree is made of the text, as of a snapshot.
	own := *f
	own.JSON, own.Generation = bytes.Clone(f.JSON), generation
	if own.Data, err = value.ParseStored(string(own.JSON)); err != nil {
		return store.UserError(&store.CorruptionError{Where: "the state of " + key.String(), Err: err})
	}
	job := StateKey{t, key}
	if heads[0].Length == f.Length && l.Cached(job, typ, Version{f.Length, generation}, false) == nil {
		l.cache.put(job, &own)
	}

	// Events that are few are folded as fast as a snapshot is found.
	if f.Length < l.every {
		return nil
	}
	known, err := l.snapshots.load(ctx, t, typ, key, Version{heads[0].Length, generation}, math.MaxInt)
	switch {
	case err != nil:
		return store.UserError(err)
	case known == nil || known.Length < f.Length:
		_, err = l.snapshots.keep(ctx, job, &own)
	default:
		own.Cost = pastWork // it is asked for: whatever it has cost, it is kept
		err = l.snapshots.keepPast(ctx, t, key, &own)
	}
	return store.UserError(err)
}
