package wire

import "encoding/json"

// Scheduled is an event that is to come later, or what became of it. Times are RFC 3339 in whole seconds.
type Scheduled struct {
	ScheduledID string `json:"scheduled_id"`
	// Status is one of pending, fired, canceled, refused and dead_letter.
	Status string `json:"status"`
	FireAt string `json:"fire_at"`
	Emit   Emit   `json:"emit"`
	// CancelOn lists the events that cancel it.
	CancelOn  []EventName `json:"cancel_on"`
	ImpliedBy Cause       `json:"implied_by"`
	// Attempts counts the tries that failed, LastError says why the last one did.
	Attempts  int     `json:"attempts"`
	LastError *string `json:"last_error"`
	CreatedAt string  `json:"created_at"`
}

// Emit is an event that is to be written.
type Emit struct {
	EventName

	Data json.RawMessage `json:"data"`
}

// EventName names an event of an aggregate.
type EventName struct {
	AggregateType string `json:"aggregate_type"`
	ID            string `json:"id"`
	EventType     string `json:"event_type"`
}

// Cause names the event that brought something about.
type Cause struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
}

// ScheduledEvents are a page of a list.
type ScheduledEvents struct {
	Scheduled []Scheduled `json:"scheduled"`
	// Next is the offset of the page after this one, null where there is none.
	Next *int `json:"next"`
}

// ScheduledEvent has one of them.
type ScheduledEvent struct {
	Scheduled Scheduled `json:"scheduled"`
}
