package decider

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// maxWaits bounds the events that one command schedules, together with the events that cancel them. They are written in
// one commit, for which others wait.
const maxWaits = 10_000

// Scheduled is an event for later. Its data is checked against the schema when it is due.
type Scheduled struct {
	// Cause is the number of the event that schedules it.
	Cause int
	// Key and Type name the event, Data and JSON are its payload.
	Key  j17.Key
	Type string
	Data value.Value
	JSON []byte
	// Generation is that of the payload: the newest one of its type, if that is not the first.
	Generation int
	// Delay is the time from its cause to the event, unless it is Timed: then it comes at Time, in Unix seconds, or at
	// once if that is past.
	Delay time.Duration
	Timed bool
	Time  int64
	// CancelOn lists the events that cancel it if they come earlier, each once.
	CancelOn []Awaited
	// At is the implication's place in the spec.
	At diag.Pointer
}

// FireAt returns when the event comes if its cause happens at a time, both in Unix seconds.
func (s *Scheduled) FireAt(at int64) int64 {
	if s.Timed {
		return max(s.Time, at)
	}
	return at + int64((s.Delay+time.Second-1)/time.Second)
}

// Awaited names an event of one aggregate.
type Awaited struct {
	Key  j17.Key
	Type string
}

// schedule evaluates the templates of an event for later. Invalid ids are refused now, since they would never become
// valid.
func (s *scene) schedule(what *spec.Schedule) error {
	due, ok, err := s.due(what)
	if err != nil || !ok {
		return err
	}
	o, id, err := s.template(what.Emit)
	if err != nil || o == nil {
		return err
	}
	if err := s.name(&o.Key, id, "the scheduled event"); err != nil {
		return s.refuse(o, err)
	}
	if err := s.flat(o); s.Work.Err() != nil {
		return s.Work.Err()
	} else if err != nil {
		return s.refuse(o, err)
	}
	later := Scheduled{
		Cause: s.cause, Key: o.Key, Type: o.Type, Data: o.Data, Delay: what.Delay, Timed: what.At != nil, Time: due,
		At: o.At,
	}

	// The events that cancel it.
	for i := range what.CancelOn {
		m := &what.CancelOn[i]
		id, ok, err := s.id(&m.ID)
		if err != nil {
			return err
		}
		if !ok {
			continue // an optional path without a value: there is no such aggregate
		}
		await := Awaited{
			j17.Key{Type: m.AggregateType, ID: idText(id, s.Events[s.cause].Key.Type, m.AggregateType)}, m.EventType,
		}
		if err := s.name(&await.Key, id, "an event of cancel_on"); err != nil {
			return s.refuse(o, j17.At(err, fmt.Sprintf("cancel_on[%d].id", i)))
		}
		if !slices.Contains(later.CancelOn, await) {
			later.CancelOn = append(later.CancelOn, await)
		}
	}

	// Check the limits of the number of events and of all data together.
	if s.waits += 1 + len(later.CancelOn); s.waits > maxWaits {
		return s.limit(o, fmt.Sprintf("One write schedules more than %d events, those that cancel them included", maxWaits), maxWaits)
	}
	if !s.Work.Start(work.Scheduled, 1+len(later.CancelOn), 0) {
		return s.Work.Err()
	}
	if err := s.encode(o); err != nil {
		return err
	}
	later.JSON = o.JSON
	if o.Spec.Generation > 1 {
		later.Generation = o.Spec.Generation
	}
	s.Scheduled = append(s.Scheduled, later)
	return nil
}

// due computes the time of an event, in Unix seconds, if the schedule has one. ok is false if that is an optional path
// without a value: then nothing is scheduled.
func (s *scene) due(what *spec.Schedule) (seconds int64, ok bool, err error) {
	if what.At == nil {
		return 0, true, nil
	}
	if err := s.needState(what.At.ReadsState()); err != nil {
		return 0, false, err
	}
	seconds, ok, err = what.At.Eval(s.env)
	seconds += int64(what.Offset / time.Second)
	misfit, unfit := errors.AsType[*tick.OperandError](err)
	if err == nil && ok && seconds > s.Timestamp+int64(spec.MaxAhead/time.Second) {
		misfit, unfit = &tick.OperandError{Pointer: what.At.Pointer, Message: "the time is more than ten years ahead"},
			true
	}
	if !unfit {
		return seconds, ok, err
	}
	refusal := j17.Errorf(j17.CodeInvalidOperand, "The time at which %s %s is to come cannot be told: %s.", what.Emit.AggregateType, what.Emit.EventType, misfit.Message)
	refusal.Details = operandDetails{Pointer: misfit.Pointer}
	refusal.Plain = true // names of the spec, and what is wrong
	return 0, false, s.refuseAt(what.At.Pointer, refusal)
}
