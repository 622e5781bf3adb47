package saga

import (
	"cmp"
	"strings"
	"time"

	"j17"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// machine is the state machine of a saga. It is pure: each method records something that has happened at a moment, and
// task returns what to do next.
type machine struct {
	*Saga
	def *spec.Saga
	// now is the present moment, in Unix seconds.
	now int64
}

// task is the next action of a saga: it writes an event, under a condition if there is one.
type task struct {
	phase Phase
	// step is the name of the step that the event belongs to, "" for the last event of a saga.
	step      string
	condition *tick.Predicate
	emit      *spec.Emit
	await     *spec.Await
	timeout   time.Duration
	// awaited is the aggregate whose answer is awaited, the zero key for the one that is written to; until is when the
	// wait ends, the zero time if timeout says it.
	awaited j17.Key
	until   time.Time
}

const (
	// maxTimeline bounds the timeline of a saga that is retried repeatedly: the first entry and the latest ones are
	// kept.
	maxTimeline = 1000
	// maxMessage bounds the text of a stored error.
	maxMessage = 1000
	// attemptPause is the pause after a refused compensation.
	attemptPause = time.Minute
)

// begin returns a new saga.
func begin(id string, version int, def *spec.Saga, trigger Trigger) *Saga {
	g := &Saga{ID: id, Type: def.Name, Version: version, Trigger: trigger, Status: Queued, Phase: Stepping}
	for i := range def.Steps {
		g.Steps = append(g.Steps, Step{Name: def.Steps[i].Name, Status: StepPending})
	}
	return g
}

// queue records that the saga has to wait for room.
func (m *machine) queue() {
	m.Status = Queued
	m.note(Entry{What: WasQueued, StreamID: m.Trigger.StreamID})
}

// start starts a saga, for the first time or again.
func (m *machine) start() {
	m.Status = Running
	if m.StartedAt == 0 {
		m.StartedAt = m.now
		m.note(Entry{What: WasStarted, StreamID: m.Trigger.StreamID})
	}
}

// task returns what to do next; false if the saga has ended or waits.
func (m *machine) task() (task, bool) {
	t := task{phase: m.Phase}
	switch m.Phase {
	case Stepping:
		step := &m.def.Steps[m.At]
		t.step, t.condition, t.emit, t.await, t.timeout = step.Name, step.Condition, step.Emit, step.Await, step.Timeout
	case Compensating:
		t.step, t.emit = m.def.Steps[m.At].Name, m.def.Steps[m.At].Compensate
	case Completing:
		t.end(m.def.OnComplete)
	case Failing:
		t.end(m.def.OnFailed)
	}
	return t, m.Status == Running && m.Waits == "" && t.emit != nil
}

// ends returns when a wait that begins now ends. A wait until a time in the past ends at once.
func (t *task) ends(now time.Time) time.Time {
	switch {
	case t.until.IsZero():
		return now.Add(t.timeout)
	case t.until.Before(now):
		return now
	default:
		return t.until
	}
}

// end makes the task that of the last event of a saga, nil for none.
func (t *task) end(e *spec.Ending) {
	if e != nil {
		t.condition, t.emit = e.Condition, e.Emit
	}
}

// emitted records that the event of the present task is written. waits is the key of the aggregate whose answer is
// awaited, "" if none is.
func (m *machine) emitted(waits string) {
	switch m.Phase {
	case Stepping:
		step := &m.Steps[m.At]
		m.note(Entry{What: WasEmitted, Step: step.Name, StreamID: stamped})
		if waits != "" {
			step.Status, step.WaitingSince, step.CompletedAt, m.Waits = StepWaiting, m.now, 0, waits
			return
		}
		step.Status, step.CompletedAt, step.Result, m.Prev = StepCompleted, m.now, stamped, stamped
		m.advance()
	case Compensating:
		step := &m.Steps[m.At]
		step.Status = StepCompensated
		m.note(Entry{What: WasCompensated, Step: step.Name, StreamID: stamped})
		m.unwind()
	case Completing:
		m.end(Completed, stamped)
	case Failing:
		m.end(Failed, stamped)
	}
}

// answered records the answer of the present step: its position and when it was written.
func (m *machine) answered(position string, at int64) {
	step := &m.Steps[m.At]
	step.Status, step.CompletedAt, step.Result, m.Prev, m.Waits = StepCompleted, at, position, position, ""
	m.now = max(m.now, at)
	m.noteAt(at, Entry{What: WasAnswered, Step: step.Name, StreamID: position})
	m.advance()
}

// timedOut records that no answer has come.
func (m *machine) timedOut() {
	step := &m.def.Steps[m.At]
	m.fail(HasTimedOut, Failure{Code: awaitTimeout, Message: "No " + strings.Join(
		step.Await.EventTypes, " and no ",
	) + " of " + m.Waits + " has come " + within(step) + "."})
}

// within describes how long a step waits.
func within(step *spec.Step) string {
	if step.Await.Until != nil {
		return "by the time until which the step waits"
	}
	return "within " + step.Timeout.String()
}

// skipped records that the present task has nothing to write: its condition does not hold, or its template leaves the
// event out.
func (m *machine) skipped() {
	switch m.Phase {
	case Stepping:
		m.Steps[m.At].Status = StepSkipped
		m.note(Entry{What: WasSkipped, Step: m.Steps[m.At].Name})
		m.advance()
	case Compensating:
		m.Steps[m.At].Status = StepCompensated
		m.note(Entry{What: WasSkipped, Step: m.Steps[m.At].Name})
		m.unwind()
	case Completing:
		m.end(Completed, "")
	case Failing:
		m.end(Failed, "")
	}
}

// refused records that the event of the present task is refused, and why. again reports that the task is to be tried
// again, after attemptPause.
func (m *machine) refused(why Failure) (again bool) {
	why.Message = cut(why.Message)
	if m.Phase == Stepping {
		m.fail(WasRefused, why)
		return false
	}
	what := WasRefused
	if m.Phase == Compensating {
		what = CompensationWasRefused
	}
	m.note(Entry{What: what, Step: m.CurrentStep(), Error: why.Message})
	if m.Attempts++; m.Attempts < m.def.MaxCompensationAttempts {
		return true
	}

	// That was the last attempt.
	if m.Phase == Compensating {
		m.Steps[m.At].Status = StepCompensationFailed
	}
	m.deadLetter(why)
	return false
}

// deadLetter gives the saga up in its present state.
func (m *machine) deadLetter(why Failure) {
	step := m.CurrentStep()
	if m.Error == nil {
		m.Error = &why
		m.Error.Step = cmp.Or(step, lastStep)
	}
	m.Status = DeadLettered
	m.note(Entry{What: WasDeadLettered, Step: step, Error: why.Message})
}

// erased records that the trigger was erased. A saga that has not ended fails, without compensation. Its errors are
// removed, since they may quote the erased event.
func (m *machine) erased() {
	for i := range m.Timeline {
		m.Timeline[i].Error = ""
	}
	if m.Error != nil {
		m.Error = &Failure{Step: m.Error.Step, Message: wasErased}
	}
	m.Erased, m.Woken = true, nil
	switch m.Status {
	case Queued, Running, DeadLettered:
		step := m.CurrentStep()
		if (m.Phase == Stepping || m.Phase == Compensating) && m.At < len(m.Steps) &&
			m.Steps[m.At].Status == StepWaiting {
			m.Steps[m.At].Status = StepFailed
		}
		if m.Error == nil {
			m.Error = &Failure{Step: cmp.Or(step, lastStep), Message: wasErased}
		}
		m.FailedAt, m.Waits = min(m.At, len(m.Steps)-1), ""
		m.end(Failed, "")
	case Completed, Failed:
	}
}

// gaveUp records that the saga cannot be continued after all tries. woken is the value of the work item that is left.
func (m *machine) gaveUp(woken []byte, message string) {
	if m.Waits != "" {
		m.Woken = woken
	}
	m.deadLetter(Failure{Message: cut(message)})
}

// lastStep is the step named in the error of a saga whose last event is refused.
const lastStep = "on_complete"

// retry continues a saga that has failed, or was given up.
func (m *machine) retry() {
	m.note(Entry{What: WasRetried})
	m.Attempts = 0
	switch {
	case m.Status == Failed:
		m.Phase, m.At, m.Error = Stepping, m.FailedAt, nil
		m.Steps[m.At].Status, m.Steps[m.At].WaitingSince = StepPending, 0
	case m.Phase == Compensating:
		m.Steps[m.At].Status = StepCompleted
	case m.Phase == Stepping, m.Phase == Completing:
		m.Error = nil
	}
}

// advance moves to the next step.
func (m *machine) advance() {
	if m.At++; m.At < len(m.Steps) {
		return
	}
	m.Phase = Completing
	if m.def.OnComplete == nil {
		m.end(Completed, "")
	}
}

// fail ends the present step and begins to compensate those before it.
func (m *machine) fail(what What, why Failure) {
	step := &m.Steps[m.At]
	step.Status, m.Waits = StepFailed, ""
	why.Step = step.Name
	m.Error, m.FailedAt = &why, m.At
	m.note(Entry{What: what, Step: step.Name, Error: why.Message})
	m.Phase = Compensating
	m.unwind()
}

// unwind moves back to the last step before the present one that has a compensation to carry out.
func (m *machine) unwind() {
	m.Attempts = 0
	for m.At--; m.At >= 0; m.At-- {
		if m.Steps[m.At].Status == StepCompleted && m.def.Steps[m.At].Compensate != nil {
			return
		}
	}
	m.At, m.Phase = m.FailedAt, Failing
	if m.def.OnFailed == nil {
		m.end(Failed, "")
	}
}

// end ends the saga; position is that of its last event.
func (m *machine) end(s Status, position string) {
	m.Status, m.Phase = s, ""
	what := HasCompleted
	if s == Failed {
		what = HasFailed
	}
	m.note(Entry{What: what, StreamID: position})
}

func (m *machine) note(e Entry) { m.noteAt(m.now, e) }

// noteAt adds to the timeline, whose times never decrease.
func (m *machine) noteAt(at int64, e Entry) {
	if n := len(m.Timeline); n > 0 {
		at = max(at, m.Timeline[n-1].At)
	}
	e.At = at
	if len(m.Timeline) == maxTimeline {
		m.Timeline = append(m.Timeline[:1:1], m.Timeline[2:]...)
	}
	m.Timeline = append(m.Timeline, e)
}

// cut shortens a message to maxMessage.
func cut(message string) string {
	message = cmp.Or(message, "The event was refused.")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	return message
}
