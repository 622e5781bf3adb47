package postgres

import (
	"context"

	"j17"
	"j17/internal/storage/store"
)

// moments is the store in the role of store.Moments.
type moments struct {
	*core

	// open has an element for each moment that is open.
	open chan struct{}
}

// Moment is part of store.Moments.
func (m *moments) Moment(ctx context.Context, t j17.Tenant) (store.Moment, error) {
	return nil, errNotYet("this")
}
