package saga

import (
	"cmp"
	"strings"
	"time"

	"j17"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// machine moves a saga on. It is pure: each method takes in something that has happened at a moment, and what to do
// next is a task.
type machine struct {
	*Saga
	def *spec.Saga
	// now is when it happens, in Unix seconds.
	now int64
}

// task is what a saga does next: it writes an event, under a condition if there is one.
type task struct {
	phase Phase
	// step is the name of the step that the event is for, "" for the last event of a saga.
	step      string
	condition *tick.Predicate
	emit      *spec.Emit
	await     *spec.Await
	timeout   time.Duration
	// awaited is the aggregate that an answer is awaited of, the zero key for the one that is written to; until is when
	// the wait ends, the zero time where timeout says it.
	awaited j17.Key
	until   time.Time
}

const (
	// maxTimeline bounds the timeline of a saga that is retried again and again: the oldest entries behind the first
	// go.
	maxTimeline = 1000
	// maxMessage bounds the text of an error that is kept.
	maxMessage = 1000
	// attemptPause is how long a saga waits after a compensation that was refused.
	attemptPause = time.Minute
)

// begin makes a saga of a definition that nothing has happened to yet.
func begin(id string, version int, def *spec.Saga, trigger Trigger) *Saga {
	g := &Saga{ID: id, Type: def.Name, Version: version, Trigger: trigger, Status: Queued, Phase: Stepping}
	for i := range def.Steps {
		g.Steps = append(g.Steps, Step{Name: def.Steps[i].Name, Status: StepPending})
	}
	return g
}

// queue notes that the saga has to wait for room.
func (m *machine) queue() {
	m.Status = Queued
	m.note(Entry{What: WasQueued, StreamID: m.Trigger.StreamID})
}

// start lets a saga run, for the first time or again.
func (m *machine) start() {
	m.Status = Running
	if m.StartedAt == 0 {
		m.StartedAt = m.now
		m.note(Entry{What: WasStarted, StreamID: m.Trigger.StreamID})
	}
}

// task returns what to do next; false for a saga that is over or waits.
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

// ends returns when the wait for an answer ends that begins now. One until a time that is over ends at once.
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

// emitted takes in that the event of the present task is written. waits is the key of the aggregate that it awaits an
// answer of, "" where it awaits none.
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

// answered takes in the answer that the present step has waited for: its position and when it was written.
func (m *machine) answered(position string, at int64) {
	step := &m.Steps[m.At]
	step.Status, step.CompletedAt, step.Result, m.Prev, m.Waits = StepCompleted, at, position, position, ""
	m.now = max(m.now, at)
	m.noteAt(at, Entry{What: WasAnswered, Step: step.Name, StreamID: position})
	m.advance()
}

// timedOut takes in that no answer has come.
func (m *machine) timedOut() {
	step := &m.def.Steps[m.At]
	m.fail(HasTimedOut, Failure{Code: awaitTimeout, Message: "No " + strings.Join(
		step.Await.EventTypes, " and no ",
	) + " of " + m.Waits + " has come " + within(step) + "."})
}

// within says how long a step waits.
func within(step *spec.Step) string {
	if step.Await.Until != nil {
		return "by the time until which the step waits"
	}
	return "within " + step.Timeout.String()
}

// skipped takes in that the present task has nothing to write: its condition does not hold, or its template leaves the
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

// refused takes in that the event of the present task is refused, and why. again reports that the same task is to be
// tried once more, after attemptPause.
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

// deadLetter gives the saga up where it is.
func (m *machine) deadLetter(why Failure) {
	step := m.CurrentStep()
	if m.Error == nil {
		m.Error = &why
		m.Error.Step = cmp.Or(step, lastStep)
	}
	m.Status = DeadLettered
	m.note(Entry{What: WasDeadLettered, Step: step, Error: why.Message})
}

// erased takes in that the trigger was erased. A saga that is not over ends as one that has failed, and nothing is
// undone. What was said of its errors may be of the erased event.
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

// gaveUp takes in that the saga cannot be carried on, whatever was tried. woken is what it was woken by.
func (m *machine) gaveUp(woken []byte, message string) {
	if m.Waits != "" {
		m.Woken = woken
	}
	m.deadLetter(Failure{Message: cut(message)})
}

// lastStep is what the error of a saga names whose last event is refused.
const lastStep = "on_complete"

// retry lets a saga go on that has failed, or was given up.
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

// advance goes on to the next step.
func (m *machine) advance() {
	if m.At++; m.At < len(m.Steps) {
		return
	}
	m.Phase = Completing
	if m.def.OnComplete == nil {
		m.end(Completed, "")
	}
}

// fail ends the present step and begins to undo those before it.
func (m *machine) fail(what What, why Failure) {
	step := &m.Steps[m.At]
	step.Status, m.Waits = StepFailed, ""
	why.Step = step.Name
	m.Error, m.FailedAt = &why, m.At
	m.note(Entry{What: what, Step: step.Name, Error: why.Message})
	m.Phase = Compensating
	m.unwind()
}

// unwind goes back to the last step before the present one that is to be undone.
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

// noteAt adds to the timeline, whose times never run backward.
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

// cut shortens a message to what is kept.
func cut(message string) string {
	message = cmp.Or(message, "The event was refused.")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	return message
}
