package saga

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/lang/spec"
)

// drawn is a definition that a test has drawn.
func drawn(t *rapid.T) *spec.Saga {
	def := &spec.Saga{Name: "drawn", MaxCompensationAttempts: rapid.IntRange(1, 3).Draw(t, "attempts")}
	emit := &spec.Emit{}
	maybe := func(what string) *spec.Emit {
		if rapid.Bool().Draw(t, what) {
			return emit
		}
		return nil
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
		step := spec.Step{Name: fmt.Sprint("s", i), Emit: emit, Compensate: maybe("compensate")}
		if rapid.Bool().Draw(t, "await") {
			step.Await = &spec.Await{EventTypes: []string{"answered"}}
		}
		def.Steps = append(def.Steps, step)
	}
	ending := func(what string) *spec.Ending {
		if e := maybe(what); e != nil {
			return &spec.Ending{Emit: e}
		}
		return nil
	}
	def.OnComplete, def.OnFailed = ending("on_complete"), ending("on_failed")
	return def
}

// deeds is what a saga has done.
type deeds struct {
	// done are the steps that are done and not undone, in their order.
	done []int
}

// TestMachine draws definitions and what happens to their sagas, retries included, and checks after each step that the
// saga is what a plain list of what it has written says.
func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		def := drawn(t)
		m := &machine{Saga: begin("sag_1", 1, def, Trigger{}), def: def, now: 1000}
		m.start()
		var d deeds
		retries := 0
		for moves := 0; ; moves++ {
			if moves > 500 {
				t.Fatal("it does not end")
			}
			m.now += int64(rapid.IntRange(-3, 60).Draw(t, "seconds"))
			if m.Status != Running {
				d.ended(t, m)
				if m.Status == Completed || retries == 3 {
					return
				}
				retries++
				m.retry()
				m.start()
				continue
			}
			d.move(t, m)
			d.check(t, m)
		}
	})
}

// move lets one thing happen to a saga that runs.
func (d *deeds) move(t *rapid.T, m *machine) {
	if m.Waits != "" {
		if rapid.IntRange(0, 2).Draw(t, "answer") > 0 {
			d.done = append(d.done, m.At)
			m.answered("1706789012345-1", m.now)
		} else {
			m.timedOut()
		}
		return
	}
	task, ok := m.task()
	if !ok {
		t.Fatalf("a running saga has nothing to do: %+v", m.Saga)
	}
	at := m.At
	switch rapid.SampledFrom([]string{"write", "write", "write", "refuse", "skip"}).Draw(t, "what") {
	case "write":
		waits := ""
		if task.await != nil {
			waits = "a:b"
		}
		m.emitted(waits)
		switch {
		case task.phase == Stepping && waits == "":
			d.done = append(d.done, at)
		case task.phase == Compensating:
			d.undone(t, m, at)
		}
	case "refuse":
		again := m.refused(Failure{Message: "no"})
		if again && (task.phase == Stepping || m.Attempts >= m.def.MaxCompensationAttempts) {
			t.Fatalf("%s is tried again after %d attempts", task.phase, m.Attempts)
		}
	case "skip":
		m.skipped()
		if task.phase == Compensating {
			d.undone(t, m, at)
		}
	}
}

// undone checks that a step is the last one that was done and can be undone.
func (d *deeds) undone(t *rapid.T, m *machine, at int) {
	for i, done := range slices.Backward(d.done) {
		if m.def.Steps[done].Compensate == nil {
			continue
		}
		if done != at {
			t.Fatalf("step %d is undone before step %d", at, done)
		}
		d.done = slices.Delete(d.done, i, i+1)
		return
	}
	t.Fatalf("step %d is undone though it was not done", at)
}

// check compares what the saga shows with what it has done.
func (d *deeds) check(t *rapid.T, m *machine) {
	for i := 1; i < len(m.Timeline); i++ {
		if m.Timeline[i].At < m.Timeline[i-1].At {
			t.Fatalf("time runs backward: %+v", m.Timeline)
		}
	}
	if m.Phase == Stepping && m.Status == Running {
		for i, s := range m.Steps[m.At:] {
			if i > 0 && s.Status != StepPending {
				t.Fatalf("step %s is %s before its turn", s.Name, s.Status)
			}
		}
	}
	if (m.Waits != "") != (m.Phase == Stepping && m.Steps[min(m.At, len(m.Steps)-1)].Status == StepWaiting) {
		t.Fatalf("it waits for %q: %+v", m.Waits, m.Saga)
	}
	raw, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	g, err := decode(append(make([]byte, 12), raw...))
	if err != nil ||
		fmt.Sprint(g.Status, g.At, g.Phase, len(g.Timeline)) != fmt.Sprint(m.Status, m.At, m.Phase, len(m.Timeline)) {
		t.Fatalf("it is not read as it was written: %v", err)
	}
}

// ended checks a saga that is over.
func (d *deeds) ended(t *rapid.T, m *machine) {
	if _, ok := m.task(); ok {
		t.Fatalf("a saga that is %s has something to do", m.Status)
	}
	switch m.Status {
	case Completed:
		for _, s := range m.Steps {
			if s.Status != StepCompleted && s.Status != StepSkipped && s.Status != StepCompensated {
				t.Fatalf("it has completed with step %s %s", s.Name, s.Status)
			}
		}
		if m.Error != nil {
			t.Fatalf("it has completed with an error: %+v", m.Error)
		}
	case Failed:
		if m.Error == nil || m.Steps[m.FailedAt].Status != StepFailed {
			t.Fatalf("it has failed without a step: %+v", m.Saga)
		}
		for _, i := range d.done {
			if i < m.FailedAt && m.def.Steps[i].Compensate != nil {
				t.Fatalf("step %d was not undone", i)
			}
		}
	case DeadLettered:
		if m.Error == nil || m.Attempts != m.def.MaxCompensationAttempts {
			t.Fatalf("it was given up after %d attempts: %+v", m.Attempts, m.Error)
		}
	case Queued, Running:
		t.Fatalf("a saga that is %s is not over", m.Status)
	}
}

// TestTimelineIsBounded retries a saga without end.
func TestTimelineIsBounded(t *testing.T) {
	def := &spec.Saga{Name: "s", Steps: []spec.Step{{Name: "one", Emit: &spec.Emit{}}}, MaxCompensationAttempts: 3}
	m := &machine{Saga: begin("sag_1", 1, def, Trigger{}), def: def}
	m.start()
	for range 2 * maxTimeline {
		m.now++
		m.refused(Failure{Message: "no"})
		m.retry()
		m.start()
	}
	last := m.Timeline[len(m.Timeline)-1]
	if len(m.Timeline) != maxTimeline || m.Timeline[0].What != WasStarted || last.What != WasRetried ||
		last.At != m.now {
		t.Errorf("%d entries from %+v to %+v", len(m.Timeline), m.Timeline[0], last)
	}
}
