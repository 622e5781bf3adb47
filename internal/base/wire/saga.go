package wire

// Saga is a saga as lists show it.
type Saga struct {
	SagaID string `json:"saga_id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	// CurrentStep is the step that is carried out or undone, null where none is.
	CurrentStep *string `json:"current_step"`
	// StartedAt is in Unix seconds, null while the saga is queued for the first time.
	StartedAt *int64      `json:"started_at"`
	Trigger   SagaTrigger `json:"trigger"`
	Steps     []SagaStep  `json:"steps"`
	Error     *SagaError  `json:"error,omitempty"`
	// SpecVersion is that of the spec which defines the saga.
	SpecVersion int `json:"spec_version"`
}

// SagaDetail is a saga with all that has happened to it, the oldest first.
type SagaDetail struct {
	Saga
	Timeline []SagaEntry `json:"timeline"`
}

// SagaTrigger is the event that started a saga.
type SagaTrigger struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
	StreamID  string `json:"stream_id"`
}

// SagaStep is the progress of a step of a saga. Times are in Unix seconds.
type SagaStep struct {
	Name         string `json:"name"`
	Status       string `json:"status"`
	WaitingSince int64  `json:"waiting_since,omitempty"`
	CompletedAt  int64  `json:"completed_at,omitempty"`
}

// SagaError is why a saga has failed. Code is that of the API, or "await_timeout"; Requirement is the code of the guard
// that has refused an event.
type SagaError struct {
	Step        string `json:"step"`
	Code        string `json:"code,omitempty"`
	Requirement string `json:"requirement,omitempty"`
	Message     string `json:"message"`
}

// SagaEntry is one thing that has happened to a saga, at a time in Unix seconds.
type SagaEntry struct {
	At       int64  `json:"at"`
	What     string `json:"what"`
	Step     string `json:"step,omitempty"`
	StreamID string `json:"stream_id,omitempty"`
	Error    string `json:"error,omitempty"`
}
