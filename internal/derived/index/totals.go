package index

import (
	"context"
	"errors"
	"maps"
	"slices"

	"j17/internal/storage/store"
)

// Totals sums up the indexes that a process knows.
type Totals struct {
	// Rows, Entries and Bytes are the sums of those of Status.
	Rows, Entries, Bytes uint64
	// Behind is the largest Lag of an index, in events, whether they concern it or not.
	Behind uint64
}

// Totals sums up the indexes whose definitions this process knows. It takes a few reads for each of them.
func (s *Service) Totals(ctx context.Context) (all Totals, err error) {
	s.mu.Lock()
	known := slices.Collect(maps.Keys(s.known))
	s.mu.Unlock()
	for _, at := range known {
		status, err := s.Status(ctx, at.tenant, at.name)
		if errors.Is(err, store.ErrNotFound) {
			continue // another process has removed it
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return all, err
		}
		all.Rows, all.Entries, all.Bytes = all.Rows+status.Rows, all.Entries+status.Entries, all.Bytes+status.Bytes
		all.Behind = max(all.Behind, status.Lag)
	}
	return all, nil
}
