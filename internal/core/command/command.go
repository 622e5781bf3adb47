// Package command has the typed form of requests to write, and reads it from the JSON of requests (read.go) and from
// files of events (file.go). It compares nothing with a spec, a stream or a store: package decider does that.
package command

import (
	"j17"
	"j17/internal/base/value"
)

// Command asks for events, all or none. Code inside the server fills one in; Read makes one from the body of a request.
type Command struct {
	// Writes are the writes in order, one for each aggregate. Several reports that the caller sent them as a list, so
	// that an error names the number of its write.
	Writes  []Write
	Several bool
	// Actor is the agent that causes the events, Target the agent that they concern, nil for none.
	Actor  j17.Agent
	Target *j17.Agent
	// Trusted lets the actor be one of the platform's own.
	Trusted bool
	// Conditions name events that must not have happened.
	Conditions []Condition
	// SkipOCC turns off the check of lengths, which only some event types allow.
	SkipOCC bool
	Cause

	// step is the step of the check at which fault, a fault of the form that was found in reading, is reported.
	step  Step
	fault error
}

// Write asks for one or more events on one aggregate.
type Write struct {
	// Type and ID name the aggregate as the caller wrote them. ID may be one of its public names.
	Type, ID string
	// New asks for an aggregate that does not exist yet; ID is "" until it is chosen (Named). As is the name by which
	// later writes refer to it, "" for none.
	New bool
	As  string
	// Events are the events in order. Batch reports that the caller sent them as a list, so that an error names the
	// number of its event.
	Events []Event
	Batch  bool
	// Length is the number of events that the aggregate must have, nil for any.
	Length *uint64
}

// One returns the writes of a command of the server itself that asks for one event, with data of a generation of its
// type, or of the Newest.
func One(aggregateType, id, eventType string, data value.Value, generation int) []Write {
	return []Write{{Type: aggregateType, ID: id, Events: []Event{{Type: eventType, Data: data, Unsaid: generation}}}}
}

// Newest stands for the newest generation of an event type.
const Newest = -1

// Event is one event of a command.
type Event struct {
	Type string
	// Data is the payload. It must not be missing.
	Data value.Value
	// Generation is what the caller says of the generation of Data, missing where nothing is said. GenerationPath is
	// where it says so.
	Generation     value.Value
	GenerationPath string
	// Unsaid is the generation of Data where nothing is said: Newest for the newest one, and 0 for the one that the
	// spec assumes. One that is given here may be closed.
	Unsaid int
}

// Fault returns a fault of the event that can be found without a spec, nil for none.
func (e *Event) Fault() error {
	if e.Data.IsMissing() {
		return j17.Errorf(j17.CodeMissingField, "Missing 'data': the event's payload, {} if it has none").At("data")
	}
	return nil
}

// Cause describes the origin of a command. It is kept in the metadata of events.
type Cause struct {
	// CorrelationID is kept with every event that the command causes, "" for none.
	CorrelationID string
	// Members are kept with the command's own events, after all other members of their metadata.
	Members []value.Member
}

// Step is a point in the order in which a command is checked. A fault of its form is reported at its step and not
// before, so that of several faults the first in that order is reported, whether or not finding it needs a spec.
type Step uint8

// The steps.
const (
	// AtEvents is after the types of the events that were read, and before the aggregate's key.
	AtEvents Step = iota + 1
	// AtActor is before the actor, AtTarget before the target, and AtExpected after both.
	AtActor
	AtTarget
	AtExpected
)

// FaultAt returns the fault of the command's form if it belongs to that step, else nil.
func (c *Command) FaultAt(s Step) error {
	if c.step != s {
		return nil
	}
	return c.fault
}

// Fault returns the fault of the command's form, nil for none.
func (c *Command) Fault() error { return c.fault }

// wrong keeps the first fault.
func (c *Command) wrong(s Step, err error) {
	if c.fault == nil {
		c.step, c.fault = s, err
	}
}
