// Package loading moves whole files of events: exports, imports of history, and test data that happen now.
package loading

import (
	"j17/internal/engine"
	"j17/internal/store"
)

// Loader loads and exports the events of environments. It reads the store, and writes through the engine.
type Loader struct {
	Engine *engine.Engine
	Store  Storage
	// Log signs what whole exports end with; nil where nobody does.
	Log Log
}

// Storage is what a loader reads.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
}
