package postgres

import (
	"context"
	"iter"
	"math"

	"j17"
	"j17/internal/storage/leaves"
	"j17/internal/storage/store"
)

// ReadLeaves is part of store.Feed.
func (f *feeds) ReadLeaves(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Leaf, error] {
	return store.Sequence(func(yield func(store.Leaf) bool) error {
		if err := f.admits(t); err != nil {
			return err
		}
		some, _, kept := f.leavesBehind(t, after, limit)
		if !kept {
			p := f.pager(t, "the feed")
			return f.readFeed(ctx, p, selectEvents, after, limit, func(e *pageEntry) (bool, error) {
				return yield(store.Leaf{Position: e.StreamID, Hash: e.Leaf()}), nil
			})
		}
		n := 0
		for _, part := range some {
			if err := f.interrupted(ctx, 0); err != nil {
				return err
			}
			for i := range part {
				if n == limit || !yield(part[i].Leaf) {
					return nil
				}
				n++
			}
		}
		return nil
	})
}

// ReadOthers is part of store.Feed.
func (f *feeds) ReadOthers(
	t j17.Tenant, after j17.StreamID, types []string, limit int,
) (others []store.Leaf, more bool) {
	some, noted, kept := f.leavesBehind(t, after, limit)
	if !kept || noted {
		return nil, true
	}
	return f.leaves.Others(some, types, limit)
}

// CountRecent is part of store.Feed.
func (f *feeds) CountRecent(
	t j17.Tenant, after j17.StreamID, types []string,
) (n uint64, last, upTo j17.StreamID, ok bool) {
	some, noted, kept := f.leavesBehind(t, after, math.MaxInt)
	if !kept || noted {
		return 0, after, after, false
	}
	n, last, upTo = f.leaves.Count(some, after, types)
	return n, last, upTo, true
}

// leavesBehind returns the leaf hashes of the events after a position if they are in memory. They are not where other
// stores may write. noted reports whether there may be notes among them.
func (f *feeds) leavesBehind(t j17.Tenant, after j17.StreamID, limit int) (some leaves.Some, noted, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.tenants[t]
	if of == nil || f.isClosed() || f.o.Shared || f.works() != nil {
		return nil, false, false
	}
	return of.leaves.Behind(after, limit)
}
