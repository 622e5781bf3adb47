// Package loading moves whole files of events: exports, imports of history, and test data that happens now.
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
	// Log signs the ends of whole exports; nil for none.
	Log Log
	// Loaded, if not nil, is called with the number of events that were stored without the engine, and their size.
	Loaded func(t j17.Tenant, events, bytes int64)
	// Memory is how many bytes of memory this process may use, 0 if unknown. A fourth of it may be used to remember the
	// aggregates of files.
	Memory int64

	mu sync.Mutex
	// starts are the instances with a cold start in progress.
	starts map[string]bool
	// remembered is how many entries for unique values are reserved by all files; holders and keepers count separately.
	remembered atomic.Int64
	// followed is the same for aggregates and their names.
	followed atomic.Int64
	// most, if not 0, replaces wholeEvents in tests.
	most int
}

// Storage is what a loader needs of a store.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
	store.Archives
}
