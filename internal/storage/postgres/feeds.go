package postgres

import (
	"context"
	"iter"

	"j17"
	"j17/internal/storage/store"
)

// feeds is the store in the role of store.Feed.
type feeds struct{ *core }

// ReadFeed is part of store.Feed.
func (f *feeds) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	return none[*j17.Event]
}

// ReadTagged is part of store.Feed.
func (f *feeds) ReadTagged(
	ctx context.Context, t j17.Tenant, of store.Tagged, after j17.StreamID, limit int,
	looked func(steps int, upTo j17.StreamID) (more bool),
) iter.Seq2[*j17.Event, error] {
	return none[*j17.Event]
}

// ReadChanges is part of store.Feed.
func (f *feeds) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return none[store.Entry]
}

// ReadNames is part of store.Feed.
func (f *feeds) ReadNames(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return none[store.Entry]
}

// ReadLeaves is part of store.Feed.
func (f *feeds) ReadLeaves(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Leaf, error] {
	return none[store.Leaf]
}

// ReadOthers is part of store.Feed.
func (f *feeds) ReadOthers(
	t j17.Tenant, after j17.StreamID, types []string, limit int,
) (leaves []store.Leaf, more bool) {
	return nil, true
}

// CountRecent is part of store.Feed.
func (f *feeds) CountRecent(
	t j17.Tenant, after j17.StreamID, types []string,
) (n uint64, last, upTo j17.StreamID, ok bool) {
	return 0, after, after, false
}
