// Package tail hands out the events of environments as they come, to any number of readers: a Walk goes through the
// present events, a Reader continues with later ones, and a Watch is notified which aggregates have changed (watch.go).
//
// While an environment has readers, its feed is read once for all of them (hub.go), and only readers whose filter
// selects an event are woken. A reader that is too late for the kept entries reads the store itself until it has caught
// up, so that it misses nothing and holds up no other reader.
package tail

import (
	"context"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/storage/store"
)

// Storage is what a Tail reads.
type Storage interface {
	store.Feed
	store.Aggregates
}

// Tail hands out events. It is safe for concurrent use.
type Tail struct {
	store Storage
	// shown shows events that are stored in older generations.
	shown *upcast.Reader
	// kept is how many bytes all hubs keep for readers.
	kept atomic.Int64
	// turns are for batches of readers that are woken (rouse.go); batches counts them.
	turns   *work.Pool
	batches atomic.Uint64
	// told numbers the notifications of the watches of all hubs.
	told atomic.Uint64

	mu   sync.Mutex
	hubs map[j17.Tenant]*hub
}

// New returns a Tail of the events of a store, as a reader shows them.
func New(s Storage, shown *upcast.Reader) *Tail {
	return &Tail{store: s, shown: shown, hubs: map[j17.Tenant]*hub{}, turns: newTurns()}
}

// Head returns the present end of the feed of an environment.
func (t *Tail) Head(ctx context.Context, tenant j17.Tenant) (j17.StreamID, error) {
	extent, err := t.store.Extent(ctx, tenant)
	return extent.Last, err
}

// Stats is a snapshot of the present load.
type Stats struct {
	// Followed is the number of environments whose feeds are followed, KeptBytes the memory kept for readers.
	Followed  int
	KeptBytes int64
	// Batches is how many batches of readers were woken, for events that concern very many.
	Batches uint64
}

// Stats returns the present load.
func (t *Tail) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Followed: len(t.hubs), KeptBytes: t.kept.Load(), Batches: t.batches.Load()}
}
