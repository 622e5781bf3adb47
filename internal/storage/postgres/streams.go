package postgres

import (
	"context"
	"iter"

	"j17"
)

// streams is the store in the role of store.Aggregates, but for heads.
type streams struct {
	*core

	lookups *lookups
}

// ReadStream is part of store.Aggregates.
func (s *streams) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	return none[*j17.Event]
}

func none[T any](yield func(T, error) bool) { var zero T; yield(zero, errNotYet("this")) }

// ReadStreams is part of store.Aggregates.
func (s *streams) ReadStreams(
	ctx context.Context, t j17.Tenant, keys []j17.Key, most uint64,
) iter.Seq2[*j17.Event, error] {
	return none[*j17.Event]
}

// VersionAfter is part of store.Aggregates.
func (s *streams) VersionAfter(ctx context.Context, t j17.Tenant, key j17.Key, after j17.StreamID) (uint64, error) {
	return 0, errNotYet("this")
}

// Streams is part of store.Aggregates.
func (s *streams) Streams(ctx context.Context, t j17.Tenant, aggregateType, after string, limit int) ([]string, error) {
	return nil, errNotYet("this")
}
