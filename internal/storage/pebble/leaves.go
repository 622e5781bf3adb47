package pebble

import (
	"context"
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"sort"

	"j17"
	"j17/internal/storage/store"
)

const (
	// mostLeaves is how many leaf hashes of the latest events of all tenants are kept in memory.
	mostLeaves = 3 << 16
	// pieceLeaves is how many leaf hashes of a tenant are released together; more if one commit has more.
	pieceLeaves = 256
)

// recentLeaves has the leaf hashes of the latest events, so that a tree over a feed that is nearly up to date can be
// extended without reading recent events. It is guarded by core.mu.
type recentLeaves struct {
	// seed is the seed of the hashes of types.
	seed maphash.Seed
	// most is how many hashes are kept, held how many the pieces in queue have.
	most, held int
	// queue has the pieces of all tenants, the oldest first.
	queue []*leafPiece
}

// leafPiece has consecutive leaf hashes of a tenant, in the order of the feed. It only grows.
type leafPiece struct {
	of     *tenant
	leaves []keptLeaf
}

// keptLeaf is a leaf hash, with a hash of the event's aggregate type. It has no pointers, so that the garbage collector
// does not scan it.
type keptLeaf struct {
	store.Leaf

	typ uint64
}

// tenantLeaves has the leaf hashes of all events of a tenant after from. events is the number of all its events,
// including those before; nothing is known if it is 0. noted is the position of the last note after from, zero if there
// is none.
type tenantLeaves struct {
	from, noted j17.StreamID
	events      uint64
	pieces      []*leafPiece
}

// add keeps the leaf hashes of the events that a commit has added to a tenant.
func (r *recentLeaves) add(t *tenant) {
	kept := &t.leaves
	if kept.events == 0 || kept.events+uint64(len(t.added)) != t.next.Events {
		// Earlier events were not all added here, so begin after the last one.
		*kept = tenantLeaves{from: t.next.Last, events: t.next.Events}
		return
	}
	if t.noted != (j17.StreamID{}) {
		kept.noted = t.noted
	}
	if len(t.added) == 0 {
		return
	}
	kept.events = t.next.Events
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

	// Release the oldest.
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

// behind returns the leaf hashes of the events of a tenant after a position: of all of them, or of more than limit. ok
// is false if they are not all kept.
func (k *tenantLeaves) behind(after j17.StreamID, limit int) (some [][]keptLeaf, ok bool) {
	if k.events == 0 || after.Compare(k.from) < 0 {
		return nil, false
	}
	first := sort.Search(len(k.pieces), func(i int) bool {
		leaves := k.pieces[i].leaves
		return leaves[len(leaves)-1].Position.Compare(after) > 0
	})
	n := 0
	for _, piece := range k.pieces[first:] {
		leaves := piece.leaves
		if n == 0 {
			leaves = leaves[sort.Search(
				len(leaves), func(i int) bool { return leaves[i].Position.Compare(after) > 0 },
			):]
		}
		if some, n = append(some, leaves), n+len(leaves); n > limit {
			break
		}
	}
	return some, true
}

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
		var all [][]keptLeaf
		kept := false
		if of := s.tenants[t]; of != nil && !s.closed {
			all, kept = of.leaves.behind(after, limit)
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
		for _, leaves := range all {
			if err := s.interrupted(ctx, 0); err != nil {
				yield(store.Leaf{}, err)
				return
			}
			for _, leaf := range leaves {
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
) (leaves []store.Leaf, more bool) {
	all, kept := s.leavesBehind(t, after, limit)
	if !kept {
		return nil, true
	}

	// Two types may have the same hash. An event may then end the reading too early, which is safe.
	end := s.leaves.hashes(types)
	for _, piece := range all {
		for i := range piece {
			leaf := &piece[i]
			if len(leaves) == limit || slices.Contains(end, leaf.typ) {
				return leaves, true
			}
			leaves = append(leaves, leaf.Leaf)
		}
	}
	return leaves, false
}

// CountRecent counts events of some types. See store.Feed.
func (s *feeds) CountRecent(
	t j17.Tenant, after j17.StreamID, types []string,
) (n uint64, last, upTo j17.StreamID, ok bool) {
	last, upTo = after, after
	all, ok := s.leavesBehind(t, after, math.MaxInt)
	wanted := s.leaves.hashes(types)
	for _, piece := range all {
		for i := range piece {
			leaf := &piece[i]
			if upTo = leaf.Position; slices.Contains(wanted, leaf.typ) {
				n, last = n+1, leaf.Position
			}
		}
	}
	return n, last, upTo, ok
}

// leavesBehind returns the kept leaf hashes of all events of a tenant after a position, or of more than limit. ok is
// false if they are not all kept or there is a note after the position.
func (s *feeds) leavesBehind(t j17.Tenant, after j17.StreamID, limit int) (some [][]keptLeaf, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.tenants[t]
	if of == nil || s.closed || of.leaves.noted.Compare(after) > 0 {
		return nil, false
	}
	return of.leaves.behind(after, limit)
}

// hashes returns the hashes of names of types.
func (r *recentLeaves) hashes(types []string) []uint64 {
	all := make([]uint64, len(types))
	for i, name := range types {
		all[i] = r.hash(name)
	}
	return all
}

// hash returns the hash of the name of a type.
func (r *recentLeaves) hash(name string) uint64 { return maphash.String(r.seed, name) }
