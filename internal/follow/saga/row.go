package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Saga is what is known of one saga.
type Saga struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Version is that of the spec which was deployed when the saga was triggered: its definition.
	Version int     `json:"version"`
	Status  Status  `json:"status"`
	Trigger Trigger `json:"trigger"`
	// StartedAt is when it began to run, in Unix seconds; 0 while it has not.
	StartedAt int64  `json:"started_at,omitempty"`
	Steps     []Step `json:"steps"`
	// Error is why it failed, or is about to.
	Error *Failure `json:"error,omitempty"`
	// Timeline is what has happened to it, the oldest first.
	Timeline []Entry `json:"timeline"`

	// Phase is what it does now, and At the number of the step that it does it with. FailedAt is the step that has
	// failed.
	Phase    Phase `json:"phase,omitempty"`
	At       int   `json:"at"`
	FailedAt int   `json:"failed_at,omitempty"`
	// Attempts counts how often the present compensation, or the last event, was refused.
	Attempts int `json:"attempts,omitempty"`
	// Prev is the position of what $prev stands for, "" for nothing.
	Prev string `json:"prev,omitempty"`
	// Waits is the key of the aggregate that the present step waits for, "" for none.
	Waits string `json:"waits,omitempty"`
	// Woken is what a saga was woken by that was given up before that was taken in, nil for nothing.
	Woken []byte `json:"woken,omitempty"`
	// Erased reports that its trigger was erased: it is over, and cannot be retried.
	Erased bool `json:"erased,omitempty"`
	// Depth is how many sagas have led to it, each triggered by an event of the one before.
	Depth int `json:"depth,omitempty"`
	// Order is its place in lists.
	Order string `json:"order"`

	// stored is the status under which lists have it, "" for a new one.
	stored Status
}

// Status is how far a saga is.
type Status string

// The statuses of a saga.
const (
	Queued       Status = "queued"
	Running      Status = "running"
	Completed    Status = "completed"
	Failed       Status = "failed"
	DeadLettered Status = "dead_lettered"
)

// Statuses lists the statuses of sagas.
func Statuses() []Status { return []Status{Queued, Running, Completed, Failed, DeadLettered} }

// Phase is which part of its definition a saga carries out; "" once it is over.
type Phase string

// The phases, by the names that metadata have for them.
const (
	Stepping     Phase = "step"
	Compensating Phase = "compensation"
	Completing   Phase = "completed"
	Failing      Phase = "failed"
)

// Trigger is the event that a saga was started by.
type Trigger struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
	StreamID  string `json:"stream_id"`
}

// Step is how far a step is.
type Step struct {
	Name   string     `json:"name"`
	Status StepStatus `json:"status"`
	// WaitingSince and CompletedAt are Unix seconds, 0 for never.
	WaitingSince int64 `json:"waiting_since,omitempty"`
	CompletedAt  int64 `json:"completed_at,omitempty"`
	// Result is the position of what $context has of the step, "" for nothing.
	Result string `json:"result,omitempty"`
}

// StepStatus is how far a step is.
type StepStatus string

// The statuses of a step.
const (
	StepPending            StepStatus = "pending"
	StepWaiting            StepStatus = "waiting"
	StepCompleted          StepStatus = "completed"
	StepSkipped            StepStatus = "skipped"
	StepFailed             StepStatus = "failed"
	StepCompensated        StepStatus = "compensated"
	StepCompensationFailed StepStatus = "compensation_failed"
)

// Failure is why a saga has failed.
type Failure struct {
	Step string `json:"step"`
	// Code is that of the API, or awaitTimeout; "" where it was not kept, or what has failed is the server. Requirement
	// is the code that the spec gives the guard which has refused an event, "" for none.
	Code        string `json:"code,omitempty"`
	Requirement string `json:"requirement,omitempty"`
	// Message is for operators: it has places in the spec.
	Message string `json:"message"`
}

// Entry is one thing that has happened to a saga.
type Entry struct {
	// At is when, in Unix seconds.
	At   int64  `json:"at"`
	What What   `json:"what"`
	Step string `json:"step,omitempty"`
	// StreamID is the position of the trigger, of the event that was written, or of the answer.
	StreamID string `json:"stream_id,omitempty"`
	Error    string `json:"error,omitempty"`
}

// What says what has happened.
type What string

// All that may happen to a saga.
const (
	WasQueued              What = "queued"
	WasStarted             What = "started"
	WasEmitted             What = "emitted"
	WasAnswered            What = "answered"
	WasSkipped             What = "skipped"
	HasTimedOut            What = "timed_out"
	WasRefused             What = "refused"
	WasCompensated         What = "compensated"
	CompensationWasRefused What = "compensation_refused"
	HasCompleted           What = "completed"
	HasFailed              What = "failed"
	WasDeadLettered        What = "dead_lettered"
	WasRetried             What = "retried"
)

// CurrentStep returns the name of the step that the saga carries out or undoes, "" where it does neither.
func (g *Saga) CurrentStep() string {
	if (g.Phase == Stepping || g.Phase == Compensating) && g.At < len(g.Steps) {
		return g.Steps[g.At].Name
	}
	return ""
}

// wakes returns the write that lets a saga go on at a time.
func (g *Saga) wakes(at time.Time) store.Side {
	side := store.Side{Op: store.Put, Space: workSpace, Key: g.ID, Value: []byte(goesOn), Due: at}
	if g.Woken != nil {
		side.Value = g.Woken
	}
	return side
}

// clone returns a copy that shares nothing which changes.
func (g *Saga) clone() *Saga {
	next := *g
	next.Steps, next.Timeline = slices.Clone(g.Steps), slices.Clone(g.Timeline)
	return &next
}

// stamped stands for the position of an event that is about to be written: the store puts it in front of the value.
const stamped = "@"

// encode returns the saga as it is stored, without the position in front.
func (g *Saga) encode() ([]byte, error) { return json.Marshal(g) }

// decode reads a stored saga.
func decode(value []byte) (*Saga, error) {
	at, text, err := store.ReadStamp(value)
	if err != nil {
		return nil, err
	}
	g := new(Saga)
	if err := json.Unmarshal(text, g); err != nil {
		return nil, &store.CorruptionError{Where: string(rowSpace), Err: err}
	}
	if g.At < 0 || g.At > len(g.Steps) || g.FailedAt < 0 || g.FailedAt >= len(g.Steps) {
		return nil,
			&store.CorruptionError{Where: string(rowSpace), Err: fmt.Errorf("the saga %s has no step %d", g.ID, g.At)}
	}
	g.stamp(at)
	g.stored = g.Status
	return g, nil
}

// stamp fills in the position of the event that the saga was stored with.
func (g *Saga) stamp(at j17.StreamID) {
	fill := func(into *string) {
		if *into == stamped {
			*into = at.String()
		}
	}
	fill(&g.Trigger.StreamID)
	fill(&g.Prev)
	for i := range g.Steps {
		fill(&g.Steps[i].Result)
	}
	for i := range g.Timeline {
		fill(&g.Timeline[i].StreamID)
	}
}

// isAbsent reports whether an error says that there is no such item.
func isAbsent(err error) bool { return errors.Is(err, store.ErrNotFound) }
