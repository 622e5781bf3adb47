package wire

import "time"

// NewCheckpoint asks for one: of the aggregate with a key, of all of a type, or without both of the environment.
type NewCheckpoint struct {
	Name          *string `json:"name,omitempty"`
	Key           *string `json:"key,omitempty"`
	AggregateType *string `json:"aggregate_type,omitempty"`
	// Wait is false to be answered at once; the checkpoint is then made in the background.
	Wait *bool `json:"wait,omitempty"`
}

// Checkpoint is a set of states of aggregates that are kept.
type Checkpoint struct {
	ID   string  `json:"id"`
	Name *string `json:"name"`
	// Scope is one of aggregate, type and environment; Key or AggregateType says which.
	Scope         string `json:"scope"`
	Key           string `json:"key,omitempty"`
	AggregateType string `json:"aggregate_type,omitempty"`
	// Status is one of running, completed and failed.
	Status string `json:"status"`
	// Position is that of the last event that the states have.
	Position   string `json:"position"`
	Aggregates uint64 `json:"aggregates"`
	// StateHash is the SHA-256 of the export of these aggregates at the position.
	StateHash string    `json:"state_hash"`
	CreatedAt time.Time `json:"created_at"`
	// Progress is how far the checkpoint is while it is being made, Error why it has failed.
	Progress *CheckpointProgress `json:"progress,omitempty"`
	Error    string              `json:"error,omitempty"`
	// Restoring is the progress of a restoration of it, while there is one: each aggregate is first compared and then
	// used, so that it counts twice.
	Restoring *CheckpointProgress `json:"restoring,omitempty"`
}

// CheckpointProgress is how many of the aggregates have been gone through.
type CheckpointProgress struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

// CheckpointMade has one.
type CheckpointMade struct {
	Checkpoint Checkpoint `json:"checkpoint"`
}

// CheckpointRestored has the number of aggregates whose states are a base of replays.
type CheckpointRestored struct {
	Restored   uint64     `json:"restored"`
	Checkpoint Checkpoint `json:"checkpoint"`
}

// NewRootCheckpoint asks for one; with an aggregate type, its aggregates are counted and no others.
type NewRootCheckpoint struct {
	AggregateType *string `json:"aggregate_type,omitempty"`
}

// RootCheckpoint is the root of an environment's log at a position.
type RootCheckpoint struct {
	ID string `json:"id"`
	// Reason is one of manual, auto and tombstone.
	Reason string `json:"reason"`
	// Position is that of the last event, Size the number of events and Root the root of their tree.
	Position      string    `json:"position"`
	Size          uint64    `json:"size"`
	Root          string    `json:"root"`
	AggregateType *string   `json:"aggregate_type"`
	Aggregates    uint64    `json:"aggregates"`
	CreatedAt     time.Time `json:"created_at"`
}

// RootCheckpointMade has one.
type RootCheckpointMade struct {
	RootCheckpoint RootCheckpoint `json:"root_checkpoint"`
}

// RootCheckpointSettings say when root checkpoints are made automatically, and how many of these are kept.
type RootCheckpointSettings struct {
	Enabled     bool   `json:"enabled"`
	EveryEvents uint64 `json:"every_events"`
	EveryHours  uint64 `json:"every_hours"`
	Keep        uint64 `json:"keep"`
}

// RootCheckpointSettingsChange has the settings that are to change.
type RootCheckpointSettingsChange struct {
	Enabled     *bool   `json:"enabled,omitempty"`
	EveryEvents *uint64 `json:"every_events,omitempty"`
	EveryHours  *uint64 `json:"every_hours,omitempty"`
	Keep        *uint64 `json:"keep,omitempty"`
}

// RootCheckpointSettingsShown has the settings.
type RootCheckpointSettingsShown struct {
	Settings RootCheckpointSettings `json:"settings"`
}
