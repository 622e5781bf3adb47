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

// maxWaits bounds the events that one command schedules, with the events that cancel them. All of it is one commit,
// which others wait for.
const maxWaits = 10_000

// Scheduled is an event that is to come later. Its data is checked against the schema when it does.
type Scheduled struct {
	// Cause is the number of the event that schedules it.
	Cause int
	// Key and Type name the event, Data and JSON are its payload.
	Key  j17.Key
	Type string
	Data value.Value
	JSON []byte
	// Delay is how long after its cause it comes, unless it is Timed: then it comes at Time, in Unix seconds, or at
	// once where that is over.
	Delay time.Duration
	Timed bool
	Time  int64
	// CancelOn lists the events that cancel it if they come earlier, each once.
	CancelOn []Awaited
	// At is the implication's place in the spec.
	At diag.Pointer
}

// FireAt is when it comes if its cause happens at a time, both in Unix seconds.
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

// schedule resolves the templates of an event that is to come later. Ids that are none are refused now: they would
// never do.
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

	// What cancels it.
	for i := range what.CancelOn {
		m := &what.CancelOn[i]
		id, ok, err := s.id(&m.ID)
		if err != nil {
			return err
		}
		if !ok {
			continue // an optional path that leads nowhere: there is no such aggregate
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

	// It must not be one too many, and all data together have a limit.
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
	s.Scheduled = append(s.Scheduled, later)
	return nil
}

// due computes the time at which an event is to come, in Unix seconds, if the schedule has one. It is not ok where it
// is an optional path that leads nowhere: then nothing is scheduled.
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
