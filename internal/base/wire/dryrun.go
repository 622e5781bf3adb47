package wire

import (
	"encoding/json"

	"j17"
)

// WriteDryRun is what a write would do. The write would be accepted if there are no refusals.
type WriteDryRun struct {
	DryRun   bool `json:"dry_run"`
	Accepted bool `json:"accepted"`
	// Refusals are why it would be refused: the first is the one that the write would be answered with; of guards, all
	// that do not hold are listed.
	Refusals []Refusal `json:"refusals"`
	// Events are those of the request, each with what it implies.
	Events []TriedEvent `json:"events"`
	// States are those of all aggregates with such events afterwards.
	States []TriedState `json:"states"`
	// Truncated reports that some of the events and states are listed without their data, because all of it is too
	// much.
	Truncated bool `json:"truncated,omitempty"`
	// Scheduled are the events that would come later, Canceled those that would no longer come, and Sagas those that
	// would begin or go on.
	Scheduled []TriedLater `json:"scheduled,omitempty"`
	Canceled  []TriedLater `json:"cancelled,omitempty"`
	Sagas     []TriedSaga  `json:"sagas,omitempty"`
}

// Refusal is an error with which a write would be answered.
type Refusal struct {
	Status     int              `json:"status"`
	Code       j17.Code         `json:"code"`
	Error      string           `json:"error"`
	Path       string           `json:"path,omitempty"`
	EventIndex *int             `json:"event_index,omitempty"`
	WriteIndex *int             `json:"write_index,omitempty"`
	Details    any              `json:"details,omitempty"`
	Errors     []j17.FieldError `json:"errors,omitempty"`
}

// TriedEvent is an event that would be written. Implied are the events that it implies, each a TriedEvent itself: some
// tools cannot read documents of the API in which a shape refers to itself.
type TriedEvent struct {
	Key     string            `json:"key"`
	Type    string            `json:"type"`
	Data    json.RawMessage   `json:"data,omitempty"`
	Implied []json.RawMessage `json:"implied"`
}

// TriedState is what the events of an aggregate would amount to.
type TriedState struct {
	Key    string          `json:"key"`
	Length uint64          `json:"length"`
	Data   json.RawMessage `json:"data,omitempty"`
}

// TriedLater is an event that would come later, or would no longer come. It has an id where it is scheduled already.
type TriedLater struct {
	ScheduledID string      `json:"scheduled_id,omitempty"`
	FireAt      string      `json:"fire_at"`
	Emit        Emit        `json:"emit"`
	CancelOn    []EventName `json:"cancel_on"`
	ImpliedBy   Cause       `json:"implied_by"`
}

// TriedSaga is a saga that would begin, or one with an id that would go on.
type TriedSaga struct {
	SagaID string `json:"saga_id,omitempty"`
	Type   string `json:"type"`
	// Status is what it would be: queued or running.
	Status string `json:"status"`
	// By is the event with which it would begin or go on.
	By Cause `json:"by"`
}
