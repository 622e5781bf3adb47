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

// Saga is the stored state of a saga.
type Saga struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Version is the version of the spec deployed when the saga was triggered, which defines it.
	Version int     `json:"version"`
	Status  Status  `json:"status"`
	Trigger Trigger `json:"trigger"`
	// StartedAt is when it began to run, in Unix seconds; 0 before that.
	StartedAt int64  `json:"started_at,omitempty"`
	Steps     []Step `json:"steps"`
	// Error is why it failed, or is about to.
	Error *Failure `json:"error,omitempty"`
	// Timeline is its history, the oldest entry first.
	Timeline []Entry `json:"timeline"`

	// Phase is what it does now, and At the number of its present step. FailedAt is the step that has failed.
	Phase    Phase `json:"phase,omitempty"`
	At       int   `json:"at"`
	FailedAt int   `json:"failed_at,omitempty"`
	// Attempts counts the refusals of the present compensation, or of the last event.
	Attempts int `json:"attempts,omitempty"`
	// Prev is the position of the event that $prev means, "" for none.
	Prev string `json:"prev,omitempty"`
	// Waits is the key of the aggregate that the present step waits for, "" for none.
	Waits string `json:"waits,omitempty"`
	// Woken is the value of the work item that a saga had not processed when it was given up, nil for none.
	Woken []byte `json:"woken,omitempty"`
	// Erased reports that its trigger was erased: it has ended, and cannot be retried.
	Erased bool `json:"erased,omitempty"`
	// Depth is the number of sagas before it in the chain, each triggered by an event of the one before.
	Depth int `json:"depth,omitempty"`
	// Order is its place in lists.
	Order string `json:"order"`

	// stored is the status under which it is listed, "" for a new saga.
	stored Status
}

// Status is the status of a saga.
type Status string

// The statuses of a saga.
const (
	Queued       Status = "queued"
	Running      Status = "running"
	Completed    Status = "completed"
	Failed       Status = "failed"
	DeadLettered Status = "dead_lettered"
)

// Statuses returns all statuses of sagas.
func Statuses() []Status { return []Status{Queued, Running, Completed, Failed, DeadLettered} }

// Phase is the part of its definition that a saga carries out; "" after its end.
type Phase string

// The phases, by their names in metadata.
const (
	Stepping     Phase = "step"
	Compensating Phase = "compensation"
	Completing   Phase = "completed"
	Failing      Phase = "failed"
)

// Trigger is the event that started a saga.
type Trigger struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
	StreamID  string `json:"stream_id"`
}

// Step is the state of a step.
type Step struct {
	Name   string     `json:"name"`
	Status StepStatus `json:"status"`
	// WaitingSince and CompletedAt are Unix seconds, 0 for never.
	WaitingSince int64 `json:"waiting_since,omitempty"`
	CompletedAt  int64 `json:"completed_at,omitempty"`
	// Result is the position of the event that $context has for the step, "" for none.
	Result string `json:"result,omitempty"`
}

// StepStatus is the status of a step.
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
	// Code is that of the API, or awaitTimeout; "" if it was not stored, or the server has failed. Requirement is the
	// code that the spec gives to the guard that has refused an event, "" for none.
	Code        string `json:"code,omitempty"`
	Requirement string `json:"requirement,omitempty"`
	// Message is for operators: it includes places in the spec.
	Message string `json:"message"`
}

// Entry is one entry of a saga's timeline.
type Entry struct {
	// At is the time in Unix seconds.
	At   int64  `json:"at"`
	What What   `json:"what"`
	Step string `json:"step,omitempty"`
	// StreamID is the position of the trigger, of the event that was written, or of the answer.
	StreamID string `json:"stream_id,omitempty"`
	Error    string `json:"error,omitempty"`
}

// What is the kind of a timeline entry.
type What string

// The kinds of entries.
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

// CurrentStep returns the name of the step that the saga carries out or compensates, "" if it does neither.
func (g *Saga) CurrentStep() string {
	if (g.Phase == Stepping || g.Phase == Compensating) && g.At < len(g.Steps) {
		return g.Steps[g.At].Name
	}
	return ""
}

// wakes returns the write that continues a saga at a time.
func (g *Saga) wakes(at time.Time) store.Side {
	side := store.Side{Op: store.Put, Space: workSpace, Key: g.ID, Value: []byte(goesOn), Due: at}
	if g.Woken != nil {
		side.Value = g.Woken
	}
	return side
}

// clone returns a copy that shares nothing mutable.
func (g *Saga) clone() *Saga {
	next := *g
	next.Steps, next.Timeline = slices.Clone(g.Steps), slices.Clone(g.Timeline)
	return &next
}

// stamped stands for the position of an event that is about to be written, which the store puts in front of the value.
const stamped = "@"

// encode returns the stored form of the saga, without the position in front.
func (g *Saga) encode() ([]byte, error) { return json.Marshal(g) }

// decode decodes a stored saga.
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

// stamp replaces stamped by the position of the event that the saga was stored with.
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

// isAbsent reports whether an error means that an item does not exist.
func isAbsent(err error) bool { return errors.Is(err, store.ErrNotFound) }
