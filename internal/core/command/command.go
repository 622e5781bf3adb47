// Package command holds what somebody asks to be written, in typed form, and reads it from the JSON of requests
// (read.go) and from files of events (file.go). Nothing in it was compared with a spec, a stream or a store: package
// decider does that.
package command

import (
	"j17"
	"j17/internal/base/value"
)

// Command asks for events, all or none. Whoever writes from inside the server fills one in; Read makes one of the body
// of a request.
type Command struct {
	// Writes are what is to happen, in order: one write for each aggregate. Several tells that the caller sent them as
	// a list, so that an error names the number of its write.
	Writes  []Write
	Several bool
	// Actor is who causes the events, Target whom they concern, nil for nobody.
	Actor  j17.Agent
	Target *j17.Agent
	// Trusted lets the actor be one of the platform's own.
	Trusted bool
	// Conditions say what must not have happened.
	Conditions []Condition
	// SkipOCC says that lengths do not matter, which only some event types allow to be said.
	SkipOCC bool
	Cause

	// step is where fault, which is wrong with the form of what was read, comes up.
	step  Step
	fault error
}

// Write asks for one or more events on one aggregate.
type Write struct {
	// Type and ID name the aggregate as the caller wrote them. ID may be one of its public names.
	Type, ID string
	// New asks for an aggregate that does not exist yet; ID is "" then, until it is chosen (Named). As is what later
	// writes call that by, "" for nothing.
	New bool
	As  string
	// Events are what is to happen, in order. Batch tells that the caller sent them as a list, so that an error names
	// the number of its event.
	Events []Event
	Batch  bool
	// Length is the number of events that the aggregate has to have; nil: any.
	Length *uint64
}

// One returns the writes of a command that asks for one event.
func One(aggregateType, id, eventType string, data value.Value) []Write {
	return []Write{{Type: aggregateType, ID: id, Events: []Event{{Type: eventType, Data: data}}}}
}

// Event is one event of a command.
type Event struct {
	Type string
	// Data is the payload. One that is missing is refused.
	Data value.Value
}

// Fault returns what is wrong with the event before it is compared with a spec, nil for nothing.
func (e *Event) Fault() error {
	if e.Data.IsMissing() {
		return j17.Errorf(j17.CodeMissingField, "Missing 'data': the event's payload, {} if it has none").At("data")
	}
	return nil
}

// Cause tells where a command comes from. It is kept in the metadata of events.
type Cause struct {
	// CorrelationID is kept with every event that the command causes, "" for none.
	CorrelationID string
	// Members are kept with the command's own events, behind all other members of their metadata.
	Members []value.Member
}

// Step is a point in the order in which a command is checked. Its form is found wrong there and not before, so that a
// request with several faults is told of the first in that order, whether finding it takes a spec or not.
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

// FaultAt returns what is wrong with the form of the command and comes up at that step, nil for nothing.
func (c *Command) FaultAt(s Step) error {
	if c.step != s {
		return nil
	}
	return c.fault
}

// Fault returns what is wrong with the form of the command, nil for nothing.
func (c *Command) Fault() error { return c.fault }

// wrong keeps the first fault.
func (c *Command) wrong(s Step, err error) {
	if c.fault == nil {
		c.step, c.fault = s, err
	}
}
