package postgres

import (
	"context"

	"j17"
	"j17/internal/storage/store"
)

// eraser is the store in the roles of store.Erasure and store.Retagging.
type eraser struct{ *core }

// Rewrite is part of store.Erasure.
func (e *eraser) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (store.Result, error) {
	return store.Result{}, errNotYet("this")
}

// Purge is part of store.Erasure.
func (e *eraser) Purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName,
) error {
	return errNotYet("this")
}

// Retag is part of store.Retagging.
func (e *eraser) Retag(ctx context.Context, t j17.Tenant, events []store.Retagged, fences ...store.Fence) error {
	return errNotYet("this")
}

// ForgetCommands is part of store.Events.
func (e *eraser) ForgetCommands(ctx context.Context, t j17.Tenant, of []store.StreamPart) error {
	return errNotYet("this")
}
