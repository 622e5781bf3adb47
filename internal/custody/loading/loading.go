// Package loading moves whole files of events: exports, imports of history, and test data that happen now.
package loading

import (
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/storage/store"
)

// Loader loads and exports the events of environments. It reads the store, and writes through the engine.
type Loader struct {
	Engine *engine.Engine
	Store  Storage
	// Log signs what whole exports end with; nil where nobody does.
	Log Log
	// Loaded, if not nil, is called with the number of events that were stored without the engine, and their size.
	Loaded func(t j17.Tenant, events, bytes int64)
	// Memory is how many bytes of memory this process may use, 0 where nobody knows. A fourth of it may be what is
	// remembered of the aggregates of files.
	Memory int64

	mu sync.Mutex
	// starts are the instances that have a cold start under way.
	starts map[string]bool
	// remembered is how much there is room for that is remembered of the unique values of all files, holders and
	// keepers counted by themselves.
	remembered atomic.Int64
	// followed is the same for aggregates and their names.
	followed atomic.Int64
	// most, if not 0, is for tests: in the place of wholeEvents.
	most int
}

// Storage is what a loader reads.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
	store.Archives
}
