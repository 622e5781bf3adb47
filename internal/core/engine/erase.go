package engine

import (
	"context"

	"j17"
	"j17/internal/core/fold"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Erase removes what the engine keeps of streams that were rewritten: their states, on disk and in memory; the results
// of the commands that wrote their events, though not the fact that these were carried out; and the rejections that
// name them, which contain no values. A state that is being folded meanwhile is not kept.
func (e *Engine) Erase(ctx context.Context, t j17.Tenant, er part.Erased) error {
	// From here on no state from before the erasure is kept.
	if err := e.states.BeginErasure(ctx, t, &er); err != nil {
		return err
	}

	// Remove the states.
	for _, key := range er.Keys {
		held, err := store.HeldBy(ctx, e.store, t, fold.Spaces(), key)
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
		e.states.Drop(fold.StateKey{Tenant: t, Key: key})
	}

	gone := er.Gone()
	parts := make([]store.StreamPart, len(er.Keys))
	for i, key := range er.Keys {
		parts[i] = store.StreamPart{Key: key, UpTo: gone[key.String()].Own}
	}
	if err := e.store.ForgetCommands(ctx, t, parts); err != nil {
		return err
	}
	return e.failed.erase(ctx, t, er.Keys)
}
