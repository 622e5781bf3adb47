// Package engine turns commands into committed events and streams into states. It is the only writer of events: other
// packages send commands to it.
//
// Writing: Execute (execute.go) admits a command, plans one atomic append (plan.go) and stores it (write.go), under
// contention in a group with others (package groupcommit). Reading: Load (read.go) folds streams (package fold). A
// state is served only if it was folded up to the durable head of its stream under the spec that is deployed at that
// moment.
//
// The decisions behind it are in docs/internals/core.md.
package engine

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/fold"
	"j17/internal/core/upcast"
	"j17/internal/lang/spec"
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
	// CacheBytes bounds the cache of states, in bytes; 0 means 64 MiB.
	CacheBytes int64
	// LookedBytes bounds the memory, in bytes, for large states that writes read and that are not cached; 0 means 128
	// MiB.
	LookedBytes int64
	// MaxDepth bounds the length of a chain of implied events, MaxImplied the number of events that one event implies;
	// 0 means 5 and 100.
	MaxDepth, MaxImplied int
	// SnapshotEvery is the number of events after which a stream gets a new snapshot; 0 means 1000.
	SnapshotEvery uint64
	// WriteWait is how long a write waits for the locks of streams that others write to, before it is refused
	// with CodeBusy; 0 means DefaultWriteWait.
	WriteWait time.Duration
	// ReadWait is how long a read waits for a state that takes long to fold, before it is refused with
	// CodeStateNotReady; 0 means DefaultReadWait.
	ReadWait time.Duration
}

// Engine executes commands and answers reads for all tenants of one store.
type Engine struct {
	store  Storage
	clock  clock.Clock
	logger *slog.Logger
	mint   *ident.Minter
	// every is the number of events after which a stream gets a new snapshot.
	every uint64
	// maxDepth and maxImplied are those of the options.
	maxDepth, maxImplied int

	// workOfConditions is the budget for the conditions of a command, in units of package work.
	workOfConditions int64

	writeWait time.Duration
	hooks     hooks

	environments sync.Map // of *environment by j17.Tenant

	names  *names
	shown  *upcast.Reader
	states *fold.Loader
	// looked is the memory for large states that writes read.
	looked *work.Pool
	failed *failureLog
	counts counters
}

// Stats counts what an engine has done since it was made.
type Stats struct {
	fold.Stats

	Events    uint64 // events committed, implied ones included
	Conflicts uint64 // commands refused with a conflict
	Waited    uint64 // writes that waited for a lock
	Replanned uint64 // plans made again because another write was stored first
	Busy      uint64 // writes refused because they got no lock in time
}

type counters struct {
	events, conflicts, waited, replanned, busy atomic.Uint64
	older                                      older
}

const (
	defaultCacheBytes  = 64 << 20
	defaultLookedBytes = 128 << 20
	// defaultSnapshotEvery is the number of events from one snapshot to the next. Folding a thousand events in the
	// background costs about a microsecond per write.
	defaultSnapshotEvery = 1000
)

// DefaultWriteWait is the default of Options.WriteWait.
const DefaultWriteWait = 5 * time.Second

// DefaultReadWait is the default of Options.ReadWait.
const DefaultReadWait = 2 * time.Second

// New returns an engine. It makes snapshots and keeps states warm only while Run is running.
func New(o Options) *Engine {
	// Fill in the defaults.
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

		maxDepth: o.MaxDepth, maxImplied: o.MaxImplied, writeWait: o.WriteWait,

		workOfConditions: workOfConditions,

		names:  &names{o.Store},
		looked: work.NewPool(o.LookedBytes, o.LookedBytes*3/4),
		failed: newFailureLog(o.Store, o.Clock, o.Logger),
	}
	e.shown = upcast.NewReader(func(t j17.Tenant) (*spec.Compiled, *upcast.Tried) {
		if d := e.present(t); d != nil {
			return d.Compiled, d.Tried
		}
		return nil, nil
	})
	e.states = fold.New(fold.Options{
		Store: o.Store, Clock: o.Clock, Logger: o.Logger, CacheBytes: o.CacheBytes, SnapshotEvery: o.SnapshotEvery,
		ReadWait: o.ReadWait,
		Program: func(t j17.Tenant, aggregateType string) *decider.Program {
			if d := e.present(t); d != nil && d.Types[aggregateType] != nil {
				return d.Program(aggregateType)
			}
			return nil
		},
		Names: e.names.of,
	})
	return e
}

// Run makes snapshots and keeps states warm until the context ends. It then ends the folds that no caller waits for,
// and returns when no background work is under way.
func (e *Engine) Run(ctx context.Context) error { return e.states.Run(ctx) }

// Shown returns what shows stored events as the deployed specs read them.
func (e *Engine) Shown() *upcast.Reader { return e.shown }

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	return Stats{
		Stats:     e.states.Stats(),
		Events:    e.counts.events.Load(),
		Conflicts: e.counts.conflicts.Load(),
		Waited:    e.counts.waited.Load(),
		Replanned: e.counts.replanned.Load(),
		Busy:      e.counts.busy.Load(),
	}
}
