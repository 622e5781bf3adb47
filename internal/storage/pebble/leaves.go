package pebble

import (
	"context"
	"iter"
	"math"

	"j17"
	"j17/internal/storage/leaves"
	"j17/internal/storage/store"
)

// ReadLeaves yields the leaf hashes of events. See store.Feed.
func (s *feeds) ReadLeaves(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Leaf, error] {
	return func(yield func(store.Leaf, error) bool) {
		if err := store.ValidTenant(t); err != nil {
			yield(store.Leaf{}, err)
			return
		}

		// Take the kept hashes.
		s.mu.Lock()
		var all leaves.Some
		kept := false
		if of := s.tenants[t]; of != nil && !s.closed {
			all, _, kept = of.leaves.Behind(after, limit)
		}
		s.mu.Unlock()

		// Otherwise read the events.
		if !kept {
			for e, err := range s.ReadFeed(ctx, t, after, limit) {
				leaf := store.Leaf{}
				if err == nil {
					leaf = store.Leaf{Position: e.StreamID, Hash: e.Leaf()}
				}
				if !yield(leaf, err) || err != nil {
					return
				}
			}
			return
		}

		n := 0
		for _, part := range all {
			if err := s.interrupted(ctx, 0); err != nil {
				yield(store.Leaf{}, err)
				return
			}
			for _, leaf := range part {
				if n == limit || !yield(leaf.Leaf, nil) {
					return
				}
				n++
			}
		}
	}
}

// ReadOthers returns the leaf hashes of events of other types. See store.Feed.
func (s *feeds) ReadOthers(
	t j17.Tenant, after j17.StreamID, types []string, limit int,
) (others []store.Leaf, more bool) {
	all, kept := s.leavesBehind(t, after, limit)
	if !kept {
		return nil, true
	}
	return s.leaves.Others(all, types, limit)
}

// CountRecent counts events of some types. See store.Feed.
func (s *feeds) CountRecent(
	t j17.Tenant, after j17.StreamID, types []string,
) (n uint64, last, upTo j17.StreamID, ok bool) {
	all, ok := s.leavesBehind(t, after, math.MaxInt)
	n, last, upTo = s.leaves.Count(all, after, types)
	return n, last, upTo, ok
}

// leavesBehind returns the kept leaf hashes of all events of a tenant after a position, or of more than limit. ok is
// false if they are not all kept or there is a note after the position.
func (s *feeds) leavesBehind(t j17.Tenant, after j17.StreamID, limit int) (some leaves.Some, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[t]
	if of == nil || s.closed {
		return nil, false
	}
	some, noted, ok := of.leaves.Behind(after, limit)
	return some, ok && !noted
}
