package pebble

import (
	"context"
	"iter"
	"slices"

	"j17"
	"j17/internal/store"
)

const (
	// mostLeaves is how many leaf hashes are kept in memory of the latest events of all tenants.
	mostLeaves = 1 << 16
	// pieceLeaves is how many leaf hashes of a tenant are let go of at a time, or those of one commit.
	pieceLeaves = 256
)

// recentLeaves has the leaf hashes of the latest events, so that whoever keeps a tree over a feed close to it need not read what was just
// written. It is guarded by Store.mu.
type recentLeaves struct {
	// most is how many are kept, held how many pieces in the queue have.
	most, held int
	// queue has the pieces of all tenants, the oldest first.
	queue []*leafPiece
}

// leafPiece is some leaf hashes of a tenant, in the order of the feed. It only grows.
type leafPiece struct {
	of     *tenant
	leaves []store.Leaf
}

// tenantLeaves is what is kept of a tenant: the leaf hashes of all events greater than from, of which there are events in all with those
// before. Nothing is known where events is 0.
type tenantLeaves struct {
	from   j17.StreamID
	events uint64
	pieces []*leafPiece
}

// add keeps the leaf hashes of the events that a commit has added to a tenant.
func (r *recentLeaves) add(t *tenant) {
	kept := &t.leaves
	if kept.events == 0 || kept.events+uint64(len(t.added)) != t.next.events {
		// What there is now has not all come this way: from here on it does.
		*kept = tenantLeaves{from: t.next.last, events: t.next.events}
		return
	}
	if len(t.added) == 0 {
		return
	}
	kept.events = t.next.events
	if n := len(kept.pieces); n == 0 || len(kept.pieces[n-1].leaves)+len(t.added) > pieceLeaves {
		piece := &leafPiece{of: t}
		kept.pieces, r.queue = append(kept.pieces, piece), append(r.queue, piece)
	}
	piece := kept.pieces[len(kept.pieces)-1]
	if piece.leaves == nil {
		piece.leaves = t.added
	} else {
		piece.leaves = append(piece.leaves, t.added...)
	}
	r.held += len(t.added)

	// The oldest go.
	for r.held > r.most {
		oldest := r.queue[0]
		r.queue[0], r.queue = nil, r.queue[1:]
		r.held -= len(oldest.leaves)
		if of := &oldest.of.leaves; len(of.pieces) > 0 && of.pieces[0] == oldest {
			of.from = oldest.leaves[len(oldest.leaves)-1].Position
			of.pieces[0], of.pieces = nil, of.pieces[1:]
		}
	}
}

// behind returns the leaf hashes of all events of a tenant greater than a position; not ok where they are not all kept.
func (k *tenantLeaves) behind(after j17.StreamID) (all [][]store.Leaf, ok bool) {
	if k.events == 0 || after.Compare(k.from) < 0 {
		return nil, false
	}
	for _, piece := range slices.Backward(k.pieces) {
		leaves := piece.leaves
		at, found := slices.BinarySearchFunc(leaves, after, func(l store.Leaf, id j17.StreamID) int { return l.Position.Compare(id) })
		if found {
			at++
		}
		if at < len(leaves) {
			all = append(all, leaves[at:])
		}
		if at > 0 {
			break
		}
	}
	slices.Reverse(all)
	return all, true
}

// ReadLeaves yields the leaf hashes of events. See store.Feed.
func (s *Store) ReadLeaves(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[store.Leaf, error] {
	return func(yield func(store.Leaf, error) bool) {
		if err := store.ValidTenant(t); err != nil {
			yield(store.Leaf{}, err)
			return
		}

		// What is kept.
		s.mu.Lock()
		var all [][]store.Leaf
		kept := false
		if of := s.tenants[t]; of != nil && !s.closed {
			all, kept = of.leaves.behind(after)
		}
		s.mu.Unlock()

		// Otherwise the events are read.
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
		for _, leaves := range all {
			if err := s.interrupted(ctx, 0); err != nil {
				yield(store.Leaf{}, err)
				return
			}
			for _, leaf := range leaves {
				if n == limit || !yield(leaf, nil) {
					return
				}
				n++
			}
		}
	}
}
