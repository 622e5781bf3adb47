package wire

import (
	"encoding/json"
	"time"
)

// NewTombstone asks for the erasure of an aggregate.
type NewTombstone struct {
	// LegalBasis and RequestID are for the operator's records: why the aggregate is erased, and the number of the
	// request.
	LegalBasis *string `json:"legal_basis,omitempty"`
	RequestID  *string `json:"request_id,omitempty"`
	// RequestedBy is an object that identifies the person who has asked for it.
	RequestedBy json.RawMessage `json:"requested_by,omitempty"`
	// GracePeriodDays is how long it can be cancelled; 3 by default, which is also the least.
	GracePeriodDays *int `json:"grace_period_days,omitempty"`
	// Again asks for another erasure of an aggregate that was erased and has been written to since.
	Again bool `json:"again,omitempty"`
}

// ExecuteTombstone asks for the execution of a tombstone.
type ExecuteTombstone struct {
	// Force executes it before its time.
	Force bool `json:"force,omitempty"`
}

// Tombstone is what is known of an erasure. Times are RFC 3339.
type Tombstone struct {
	ID  string `json:"id"`
	Key string `json:"key"`
	// Status is one of pending, executing, completed and cancelled.
	Status       string          `json:"status"`
	LegalBasis   *string         `json:"legal_basis"`
	RequestID    *string         `json:"request_id"`
	RequestedBy  json.RawMessage `json:"requested_by"`
	CreatedAt    time.Time       `json:"created_at"`
	ExecutableAt time.Time       `json:"executable_at"`
	// ExecutedAt is when the execution began that has completed it.
	ExecutedAt *time.Time `json:"executed_at"`
	// CompletedAt is the time since which nothing of the data is left on disk.
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	// Forced reports that it was executed before its time.
	Forced bool `json:"forced"`
	// PreTombstoneRoot and PreTombstoneSize are those of the environment's log directly before the execution.
	PreTombstoneRoot *string `json:"pre_tombstone_root"`
	PreTombstoneSize *uint64 `json:"pre_tombstone_size"`
	// AffectedStreams are the streams that were rewritten, the first of them where there are very many; AffectedCount
	// is how many there are then, AffectedRoot the root of the tree over all of them, one leaf a line of
	// tombstones/{id}/streams.
	AffectedStreams []AffectedStream `json:"affected_streams"`
	AffectedCount   uint64           `json:"affected_count,omitempty"`
	AffectedRoot    string           `json:"affected_root,omitempty"`
	// Progress is that of the execution, Error why its last try failed.
	Progress *TombstoneProgress `json:"progress,omitempty"`
	Error    *string            `json:"error,omitempty"`
}

// TombstoneProgress is the progress of an execution.
type TombstoneProgress struct {
	// Phase is what is being done: root, find, rewrite, purge or certify.
	Phase string `json:"phase"`
	// Done and Total count streams; Total is 0 until all are found.
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
	// EventsDone and EventsTotal count events of these in the same way: those that are replaced.
	EventsDone  uint64 `json:"events_done"`
	EventsTotal uint64 `json:"events_total"`
	// WaitsFor is what the removal of the old bytes is waiting for, where others share it. It begins at Until at the
	// latest; without Until it has begun.
	WaitsFor string     `json:"waits_for,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	// Attempts is how many tries have failed since the last success.
	Attempts int `json:"attempts,omitempty"`
}

// AffectedStream is a stream that an erasure reaches.
type AffectedStream struct {
	Key        string `json:"key"`
	EventCount uint64 `json:"event_count"`
	// Action is what becomes of it: tombstoned.
	Action string `json:"action"`
	// RootBefore and RootAfter are those of the stream's own tree; a dry run has none.
	RootBefore string `json:"root_before,omitempty"`
	RootAfter  string `json:"root_after,omitempty"`
}

// TombstoneShown has one tombstone.
type TombstoneShown struct {
	Tombstone Tombstone `json:"tombstone"`
}

// TombstoneDryRun is what an erasure would reach now.
type TombstoneDryRun struct {
	DryRun          bool             `json:"dry_run"`
	AffectedStreams []AffectedStream `json:"affected_streams"`
	// More reports that there are more than are shown.
	More bool `json:"more,omitempty"`
}

// Tombstones are a page of a list.
type Tombstones struct {
	Tombstones []Tombstone `json:"tombstones"`
	// Next is the offset of the page after this one, null where there is none.
	Next *int `json:"next"`
}

// AffectedStreams are a page of the streams that an erasure has reached.
type AffectedStreams struct {
	Streams []AffectedStream `json:"streams"`
	// Next is the start of the page after this one, null where there is none.
	Next *string `json:"next"`
}
