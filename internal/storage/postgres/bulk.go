package postgres

import (
	"context"

	"j17"
	"j17/internal/storage/store"
)

// bulk is the store in the role of store.Archives.
type bulk struct {
	*core

	moments *moments
}

// Archive is part of store.Archives.
func (b *bulk) Archive(ctx context.Context, t j17.Tenant) (store.Archive, error) {
	return nil, errNotYet("this")
}
