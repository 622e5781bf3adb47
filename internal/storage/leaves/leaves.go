// Package leaves keeps the leaf hashes of the latest events in memory, so that a tree over a feed that is nearly up to
// date can be extended, and a reader of few types can pass over other events, without reading recent events. All
// engines use it. An engine must guard everything in it by one lock.
package leaves

import (
	"hash/maphash"
	"slices"
	"sort"

	"j17"
	"j17/internal/storage/store"
)

const (
	// most is how many leaf hashes of all tenants are kept.
	most = 3 << 16
	// pieceLeaves is how many leaf hashes of a tenant are released together; more if one commit has more.
	pieceLeaves = 256
)

// Latest has the leaf hashes of the latest events of all tenants.
type Latest struct {
	// seed is the seed of the hashes of types.
	seed maphash.Seed
	// most is how many hashes are kept, held how many the pieces in queue have.
	most, held int
	// queue has the pieces of all tenants, the oldest first.
	queue []*piece
}

// New returns an empty memory.
func New() *Latest { return &Latest{seed: maphash.MakeSeed(), most: most} }

// Leaf is a leaf hash, with a hash of the event's aggregate type. It has no pointers, so that the garbage collector
// does not scan it.
type Leaf struct {
	store.Leaf

	typ uint64
}

// Leaf returns the leaf hash of an event of an aggregate type in the form in which it is kept. It needs no lock.
func (l *Latest) Leaf(at j17.StreamID, hash [32]byte, typ string) Leaf {
	return Leaf{store.Leaf{Position: at, Hash: hash}, maphash.String(l.seed, typ)}
}

// piece has consecutive leaf hashes of a tenant, in the order of the feed. It only grows.
type piece struct {
	of     *Kept
	leaves []Leaf
}

// Kept has the leaf hashes of all events of a tenant after some position. The zero Kept knows nothing. It must not
// be copied.
type Kept struct {
	// from is that position, last that of the last event or note, and noted that of the last note after from, zero if
	// there is none.
	from, last, noted j17.StreamID
	// events is the number of all events, including those up to from; nothing is known if it is 0.
	events uint64
	pieces []*piece
}

// Forget discards the leaf hashes of a tenant.
func (k *Kept) Forget() { *k = Kept{} }

// Add keeps the leaf hashes of the events that a commit has added to a tenant. last is then the tenant's last event or
// note, events its number of events. The slice added belongs to l from then on.
func (l *Latest) Add(k *Kept, added []Leaf, last j17.StreamID, events uint64) {
	if k.events == 0 || k.events+uint64(len(added)) != events {
		// Earlier events were not all added here, so begin after the last one.
		*k = Kept{from: last, last: last, events: events}
		return
	}
	if last != k.last && (len(added) == 0 || added[len(added)-1].Position != last) {
		k.noted = last
	}
	k.last = last
	if len(added) == 0 {
		return
	}
	k.events = events
	if n := len(k.pieces); n == 0 || len(k.pieces[n-1].leaves)+len(added) > pieceLeaves {
		p := &piece{of: k}
		k.pieces, l.queue = append(k.pieces, p), append(l.queue, p)
	}
	p := k.pieces[len(k.pieces)-1]
	if p.leaves == nil {
		p.leaves = added
	} else {
		p.leaves = append(p.leaves, added...)
	}
	l.held += len(added)

	// Release the oldest.
	for l.held > l.most {
		oldest := l.queue[0]
		l.queue[0], l.queue = nil, l.queue[1:]
		l.held -= len(oldest.leaves)
		if of := oldest.of; len(of.pieces) > 0 && of.pieces[0] == oldest {
			of.from = oldest.leaves[len(oldest.leaves)-1].Position
			of.pieces[0], of.pieces = nil, of.pieces[1:]
		}
	}
}

// Some has consecutive leaf hashes of a tenant. Its content no longer changes, so it needs no lock.
type Some [][]Leaf

// Behind returns the leaf hashes of the events after a position: of all of them, or of somewhat more than limit. ok is
// false if they are not all kept. noted reports that there may be a note among the events or after them.
func (k *Kept) Behind(after j17.StreamID, limit int) (some Some, noted, ok bool) {
	if k.events == 0 || after.Compare(k.from) < 0 {
		return nil, false, false
	}
	first := sort.Search(len(k.pieces), func(i int) bool {
		leaves := k.pieces[i].leaves
		return leaves[len(leaves)-1].Position.Compare(after) > 0
	})
	n := 0
	for _, p := range k.pieces[first:] {
		leaves := p.leaves
		if n == 0 {
			leaves = leaves[sort.Search(
				len(leaves), func(i int) bool { return leaves[i].Position.Compare(after) > 0 },
			):]
		}
		if some, n = append(some, leaves), n+len(leaves); n > limit {
			break
		}
	}
	return some, k.noted.Compare(after) > 0, true
}

// Others returns the first leaf hashes, up to limit, before the first event of one of the types. more reports that it
// has left out something.
func (l *Latest) Others(some Some, types []string, limit int) (leaves []store.Leaf, more bool) {
	// Two types may have the same hash. An event may then end the reading too early, which is safe.
	end := l.hashes(types)
	for _, part := range some {
		for i := range part {
			leaf := &part[i]
			if len(leaves) == limit || slices.Contains(end, leaf.typ) {
				return leaves, true
			}
			leaves = append(leaves, leaf.Leaf)
		}
	}
	return leaves, false
}

// Count counts the events of some types; see CountRecent of store.Feed.
func (l *Latest) Count(some Some, after j17.StreamID, types []string) (n uint64, last, upTo j17.StreamID) {
	last, upTo = after, after
	wanted := l.hashes(types)
	for _, part := range some {
		for i := range part {
			leaf := &part[i]
			if upTo = leaf.Position; slices.Contains(wanted, leaf.typ) {
				n, last = n+1, leaf.Position
			}
		}
	}
	return n, last, upTo
}

// hashes returns the hashes of names of types.
func (l *Latest) hashes(types []string) []uint64 {
	all := make([]uint64, len(types))
	for i, name := range types {
		all[i] = maphash.String(l.seed, name)
	}
	return all
}
