package spec

import (
	"time"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

const (
	maxStepTimeout          = maxDelay
	defaultStepTimeout      = 30 * time.Second
	maxCompensationAttempts = 3
)

// sagaCompiler reads sagas.
type sagaCompiler struct{ resolver }

func (c sagaCompiler) saga(name string, v value.Value, at diag.Pointer) *Saga {
	c.name(name, at, "a saga")
	s := &Saga{Name: name, MaxCompensationAttempts: maxCompensationAttempts}
	if !c.object(v, at, shape{
		what: "a saga", required: []string{"trigger", "steps"},
		optional: []string{"on_complete", "on_failed", "max_compensation_attempts"},
	}) {
		return s
	}
	if t := v.Get("trigger"); !t.IsMissing() {
		c.trigger(s, t, at.Key("trigger"))
	}

	// Steps see the results of the steps before them; compensations see the reason for compensating.
	in := tick.Scope{Bindings: []string{"prev", "context"}, Members: []string{"key", "id", "type", "data", "metadata"}}
	failed := in.With("error")
	steps := v.Get("steps")
	if steps.Kind() == value.Array && steps.Len() == 0 {
		c.Report(at.Key("steps"), noSteps, "a saga")
	}
	named := map[string]bool{}
	c.elems(steps, at.Key("steps"), "the steps of a saga", maxSagaSteps, func(_ int, v value.Value, at diag.Pointer) {
		step := c.step(v, at, in, failed)
		if named[step.Name] && step.Name != "" {
			c.Report(at.Key("name"), stepTwice, step.Name)
		}
		named[step.Name] = true
		s.Steps = append(s.Steps, step)
	})

	// What follows the steps.
	s.OnComplete = c.ending(v.Get("on_complete"), at.Key("on_complete"), in)
	s.OnFailed = c.ending(v.Get("on_failed"), at.Key("on_failed"), failed)
	s.MaxCompensationAttempts = int(c.integer(v.Get("max_compensation_attempts"), at.Key("max_compensation_attempts"),
		"max_compensation_attempts", maxCompensationAttempts, maxCompensationAttempts))
	return s
}

func (c sagaCompiler) trigger(s *Saga, v value.Value, at diag.Pointer) {
	if c.object(v, at, shape{what: "the trigger of a saga", required: []string{"aggregate_type", "event_type"}}) {
		s.TriggerAggregate, _ = c.aggregateTypeRef(v.Get("aggregate_type"), at.Key("aggregate_type"))
		s.TriggerEvent = c.eventTypeRef(v.Get("event_type"), at.Key("event_type"), s.TriggerAggregate)
	}
}

func (c sagaCompiler) optionalEmit(v value.Value, at diag.Pointer, s tick.Scope) *Emit {
	if v.IsMissing() {
		return nil
	}
	return c.emit(v, at, s)
}

// ending compiles the last event of a saga, nil for none.
func (c sagaCompiler) ending(v value.Value, at diag.Pointer, s tick.Scope) *Ending {
	if v.IsMissing() {
		return nil
	}
	return &Ending{Emit: c.emit(v, at, s, "condition", "when"), Condition: c.condition(v, at, s)}
}

func (c sagaCompiler) step(v value.Value, at diag.Pointer, in, failed tick.Scope) Step {
	var step Step
	if !c.object(v, at, shape{
		what: "a step of a saga", required: []string{"name", "emit"},
		optional: []string{"condition", "when", "await", "compensate", "timeout_ms"},
	}) {
		return step
	}
	if name, ok := c.text(v.Get("name"), at.Key("name"), "a step's name"); ok &&
		c.name(name, at.Key("name"), "a step") {
		step.Name = name
	}
	step.Condition = c.condition(v, at, in)
	step.Emit = c.optionalEmit(v.Get("emit"), at.Key("emit"), in)
	step.Compensate = c.optionalEmit(v.Get("compensate"), at.Key("compensate"), failed)

	await, timeout := v.Get("await"), v.Get("timeout_ms")
	if !await.IsMissing() {
		step.Await = c.await(await, at.Key("await"), in)
		if a, e := step.Await, step.Emit; a.ID == nil && a.AggregateType != "" && e != nil && e.AggregateType != "" &&
			a.AggregateType != e.AggregateType {
			c.Report(at.Key("await"), awaitOfAnother, a.AggregateType, e.AggregateType)
		}
	}
	switch {
	case !await.Get("until").IsMissing():
		if !timeout.IsMissing() {
			c.Report(at.Key("timeout_ms"), untilAndTimeout)
		}
		return step
	case !await.IsMissing() && timeout.IsMissing():
		c.Report(at.Key("await"), awaitWithoutTimeout, defaultStepTimeout.Milliseconds())
		step.Timeout = defaultStepTimeout
		return step
	case await.IsMissing() && !timeout.IsMissing():
		c.Report(at.Key("timeout_ms"), timeoutWithoutAwait)
	}
	ms := c.integer(timeout, at.Key("timeout_ms"), "timeout_ms", maxStepTimeout.Milliseconds(), 0)
	step.Timeout = time.Duration(ms) * time.Millisecond
	return step
}

func (c sagaCompiler) await(v value.Value, at diag.Pointer, s tick.Scope) *Await {
	a := &Await{}
	if !c.object(v, at, shape{
		what: "an await", required: []string{"aggregate_type", "event_types"}, optional: []string{"id", "until"},
	}) {
		return a
	}
	a.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate_type"), at.Key("aggregate_type"))
	types := v.Get("event_types")
	if types.Kind() == value.Array && types.Len() == 0 {
		c.Report(at.Key("event_types"), empty, "event_types")
	}
	c.elems(types, at.Key("event_types"), "event_types", maxAwaited, func(_ int, v value.Value, at diag.Pointer) {
		a.EventTypes = append(a.EventTypes, c.eventTypeRef(v, at, a.AggregateType))
	})
	if id := v.Get("id"); !id.IsMissing() {
		ref := c.id(id, at.Key("id"), a.AggregateType, s)
		a.ID = &ref
	}
	a.Until = tick.CompileTime(v.Get("until"), at.Key("until"), "until", s, c.List)
	return a
}

// endlessSaga reports a circle of sagas. certain reports that only the bound on how deep sagas trigger each other can
// end it.
func (c decoder) endlessSaga(at diag.Pointer, name string, circle []eventName, certain bool) {
	report := c.Warnf
	if certain && !c.Stored {
		report = c.Errorf
	}
	report(at, "the saga %s starts itself again with nothing to end that: %s", diag.Quote(name), shownCircle(circle)).
		Hintf("write another event, give the step a condition, let a step before it await an answer, or put a schedule in between")
}
