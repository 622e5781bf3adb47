// Package fold folds streams into states: with the handlers of a spec, from the first event on, from a snapshot, or
// from a state in the cache. A fold with several callers is shared, and one that takes long goes on in the background.
//
// A Loader serves a state only if it was folded from all requested events, with the requested handlers, and of the
// stream's present generation: caches and snapshots only save work.
package fold

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Storage has the roles of a store that a Loader needs.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
}

// Options configures a Loader. All fields are required.
type Options struct {
	Store  Storage
	Clock  clock.Clock
	Logger *slog.Logger
	// CacheBytes bounds the memory for states of aggregates.
	CacheBytes int64
	// SnapshotEvery is the number of events after which a stream gets a new snapshot.
	SnapshotEvery uint64
	// ReadWait is how long a read waits for a shared fold before it is refused with CodeStateNotReady.
	ReadWait time.Duration
	// Program returns the deployed handlers of an aggregate type, nil for none: a refresh folds with them.
	Program func(t j17.Tenant, aggregateType string) *decider.Program
	// Names returns the names of an aggregate.
	Names func(ctx context.Context, t j17.Tenant, d *decider.Decider, key j17.Key) (j17.Names, error)
}

// Loader loads the states of aggregates of all tenants of one store. It is safe for concurrent use.
type Loader struct {
	store    Storage
	clock    clock.Clock
	logger   *slog.Logger
	every    uint64
	readWait time.Duration
	program  func(t j17.Tenant, aggregateType string) *decider.Program
	names    func(ctx context.Context, t j17.Tenant, d *decider.Decider, key j17.Key) (j17.Names, error)

	cache     *cache
	snapshots *snapshots
	shared    sharedFolds
	refresh   refreshQueue
	counts    struct{ reads, hits, folded, background, notReady atomic.Uint64 }
}

// New returns a loader. Snapshots and background folds of states need Run.
func New(o Options) *Loader {
	return &Loader{
		store: o.Store, clock: o.Clock, logger: o.Logger, every: o.SnapshotEvery, readWait: o.ReadWait,
		program: o.Program, names: o.Names,
		cache:     newCache(o.CacheBytes),
		snapshots: &snapshots{store: o.Store, logger: o.Logger, every: o.SnapshotEvery},
		shared:    sharedFolds{byKey: map[sharedKey]*sharedFold{}, queue: map[j17.Tenant][]*sharedFold{}},
		refresh:   newRefreshQueue(),
	}
}

// Stats counts what a loader has done since it was made.
type Stats struct {
	Reads       uint64 // states served
	CacheHits   uint64 // states served without folding an event
	Folded      uint64 // events folded
	Snapshots   uint64 // snapshots written
	CacheBytes  int64  // memory that cached states are charged for
	CacheStates int    // states in the cache
	Background  uint64 // folds that went on in the background
	NotReady    uint64 // reads and writes refused because a state was not folded in time
}

// Stats returns the counters.
func (l *Loader) Stats() Stats {
	bytes, states := l.cache.size()
	return Stats{
		Reads:       l.counts.reads.Load(),
		CacheHits:   l.counts.hits.Load(),
		Folded:      l.counts.folded.Load(),
		Snapshots:   l.snapshots.written.Load(),
		CacheBytes:  bytes,
		CacheStates: states,
		Background:  l.counts.background.Load(),
		NotReady:    l.counts.notReady.Load(),
	}
}

// CountRead counts a state that is served.
func (l *Loader) CountRead() { l.counts.reads.Add(1) }

// Peek returns the cached state of an aggregate, whatever handlers and events it was folded with; nil for none.
func (l *Loader) Peek(k StateKey) *decider.State { return l.cache.get(k) }

// Spaces lists the spaces in which states of streams are kept.
func Spaces() []store.Declared {
	return []store.Declared{
		{Space: snapshotSpace, OfStreams: true},
		{Space: pastSpace, OfStreams: true},
		{Space: pastIndexSpace, OfStreams: true},
	}
}

// BeginErasure ensures that states folded before are not stored from now on.
func (l *Loader) BeginErasure(ctx context.Context, t j17.Tenant, er *part.Erased) error {
	begin := store.Side{Op: store.Put, Space: Erasures, Key: erasuresKey, Value: []byte(er.TombstoneID)}
	return l.store.Write(ctx, t, []store.Side{begin})
}

// Drop removes the states of an aggregate from memory.
func (l *Loader) Drop(k StateKey) {
	l.cache.drop(k)
	l.shared.drop(k)
}

// Keep caches a state that was computed while a write was planned.
func (l *Loader) Keep(k StateKey, f *decider.State) {
	kept := *f
	if err := kept.Finish(k.Key.String()); err == nil {
		l.cache.put(k, &kept)
	}
}

// State is the state of an aggregate.
type State struct {
	// Key is the aggregate's key in canonical form, Names its other names.
	Key j17.Key
	j17.Names
	// Data is the state, JSON its encoding. Both are immutable.
	Data value.Value
	JSON []byte
	// Length is the number of events that were folded.
	Length uint64
	// EntityTag changes whenever the state can have changed. It includes the quotes.
	EntityTag string
}
