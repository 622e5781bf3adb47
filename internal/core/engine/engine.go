// Package engine turns commands into committed events and streams into states. It is the only writer of events:
// whatever else wants to write one sends a command here.
//
// Writing: Execute admits a command (admit.go), plans one atomic append (write.go) and hands it to the store.
// Reading: Load and At fold a stream with the handlers of the deployed spec (fold.go), starting from the state
// cache (cache.go) or the last snapshot (snapshot.go). A state is served only when it was folded up to the durable
// head of its stream under the spec that is deployed at that moment.
//
// The decisions behind it are in docs/internals/core.md.
package engine

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// Storage is what an engine needs of a store.
type Storage interface {
	store.Events
	store.Aggregates
	store.Feed
	store.Sides
}

// Options configures an engine.
type Options struct {
	Store  Storage
	Clock  clock.Clock
	Logger *slog.Logger
	// CacheBytes bounds the memory for states of aggregates; 0 means 64 MiB.
	CacheBytes int64
	// LookedBytes bounds the memory for large states that writes look at and that are not among those of CacheBytes; 0 means 128 MiB.
	LookedBytes int64
	// MaxDepth and MaxImplied bound what one event may imply: how long the chains and how many the events are; 0 means 5
	// and 100.
	MaxDepth, MaxImplied int
	// SnapshotEvery is the number of events after which a stream gets a new snapshot; 0 means 1000.
	SnapshotEvery uint64
	// WriteWait is how long a write waits for its turn among others that look at the same states, before it is refused
	// with CodeBusy; 0 means DefaultWriteWait.
	WriteWait time.Duration
	// ReadWait is how long a read waits for a state that takes long to fold, before it is refused with CodeStateNotReady; 0 means
	// DefaultReadWait.
	ReadWait time.Duration
}

// Engine executes commands and answers reads for all tenants of one store.
type Engine struct {
	store  Storage
	clock  clock.Clock
	logger *slog.Logger
	mint   *ident.Minter
	every  uint64
	// maxDepth and maxImplied are those of the options.
	maxDepth, maxImplied int
	// failures numbers the rejections that are kept.
	failures atomic.Uint32

	// workOfConditions is what the conditions of a command may take.
	workOfConditions int64

	writeWait, readWait time.Duration
	hooks               hooks

	environments sync.Map // of *environment by j17.Tenant

	cache *cache
	// looked is the memory for large states that writes look at.
	looked  *work.Pool
	flights flights
	failed  failureLog
	refresh refreshQueue
	counts  counters
}

// Stats counts what an engine has done since it was made.
type Stats struct {
	Events      uint64 // events committed, implied ones included
	Reads       uint64 // states served
	CacheHits   uint64 // states served without folding an event
	Folded      uint64 // events folded
	Conflicts   uint64 // commands refused with a conflict
	Snapshots   uint64 // snapshots written
	CacheBytes  int64  // memory that cached states are charged for
	CacheStates int    // states in the cache
	Turns       uint64 // writes that waited for their turn behind others
	Replanned   uint64 // plans of writes that others had overtaken
	Busy        uint64 // writes refused because their turn did not come in time
	Flights     uint64 // folds that went on in the background
	NotReady    uint64 // reads and writes refused because a state was not folded in time
}

type counters struct {
	events, reads, hits, folded, conflicts, snapshots, turns, replanned, busy, flights, notReady atomic.Uint64
}

const (
	defaultCacheBytes  = 64 << 20
	defaultLookedBytes = 128 << 20
	// defaultSnapshotEvery is the distance of snapshots in events. Folding a thousand in the background costs about a microsecond a write.
	defaultSnapshotEvery = 1000
)

// DefaultWriteWait is how long a write waits for its turn where the options do not say.
const DefaultWriteWait = 5 * time.Second

// DefaultReadWait is how long a read waits for a state where the options do not say.
const DefaultReadWait = 2 * time.Second

// New returns an engine. Run must be called for snapshots and warm states to be made.
func New(o Options) *Engine {
	// Defaults.
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.LookedBytes == 0 {
		o.LookedBytes = defaultLookedBytes
	}
	if o.SnapshotEvery == 0 {
		o.SnapshotEvery = defaultSnapshotEvery
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = decider.DefaultMaxDepth
	}
	if o.MaxImplied == 0 {
		o.MaxImplied = decider.DefaultMaxImplied
	}
	if o.WriteWait == 0 {
		o.WriteWait = DefaultWriteWait
	}
	if o.ReadWait == 0 {
		o.ReadWait = DefaultReadWait
	}

	e := &Engine{
		store:  o.Store,
		clock:  o.Clock,
		logger: o.Logger,
		mint:   ident.NewMinter(o.Clock.Now),
		every:  o.SnapshotEvery,

		maxDepth: o.MaxDepth, maxImplied: o.MaxImplied, writeWait: o.WriteWait, readWait: o.ReadWait,

		workOfConditions: workOfConditions,

		cache:   newCache(o.CacheBytes),
		looked:  work.NewPool(o.LookedBytes, o.LookedBytes*3/4),
		flights: flights{byKey: map[flightKey]*flight{}, queue: map[j17.Tenant][]*flight{}},
		refresh: newRefreshQueue(),
		failed:  failureLog{waiting: map[j17.Tenant][]store.Side{}, writing: map[j17.Tenant]bool{}},
	}
	return e
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	bytes, states := e.cache.size()
	return Stats{
		Events:      e.counts.events.Load(),
		Reads:       e.counts.reads.Load(),
		CacheHits:   e.counts.hits.Load(),
		Folded:      e.counts.folded.Load(),
		Conflicts:   e.counts.conflicts.Load(),
		Snapshots:   e.counts.snapshots.Load(),
		CacheBytes:  bytes,
		CacheStates: states,
		Turns:       e.counts.turns.Load(),
		Replanned:   e.counts.replanned.Load(),
		Busy:        e.counts.busy.Load(),
		Flights:     e.counts.flights.Load(),
		NotReady:    e.counts.notReady.Load(),
	}
}
