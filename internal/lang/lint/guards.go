package lint

import (
	"slices"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// reading returns what the reads of an event type stand for, by their names.
func (l *linter) reading(event value.Value) map[string]held {
	var found map[string]held
	for _, m := range event.Get("reads").Members() {
		if found == nil {
			found = map[string]held{}
		}
		name := m.Value.Get("aggregate_type").Str()
		found[m.Key] = held{aggregateType: name, state: l.stateOf(name)}
	}
	return found
}

// stateOf returns what the handlers of an aggregate type write, which it finds out once.
func (l *linter) stateOf(aggregateType string) *written {
	if l.states[aggregateType] == nil {
		l.states[aggregateType] = l.state(l.root.Get("aggregate_types").Get(aggregateType).Get("events"))
	}
	return l.states[aggregateType]
}

// decisions checks what decides whether an event is written. Tags and unique values read no state.
func (r reader) decisions(event value.Value, at diag.Pointer) {
	for _, m := range event.Get("reads").Members() {
		r.id(m.Value.Get("id"), at.Key("reads").Key(m.Key).Key("id"))
	}
	for i, guard := range event.Get("requires").Elems() {
		at := at.Key("requires").Index(i)
		r.guard(guard.Get("that"), at.Key("that"))
		r.value(guard.Get("message"), at.Key("message"), tick.AsText)
	}
	r.unused(at.Key("reads"))
	r.state, r.reads = nil, nil
	for _, m := range event.Get("unique").Members() {
		at := at.Key("unique").Key(m.Key)
		for _, key := range []string{"value", "scope"} {
			r.value(m.Value.Get(key), at.Key(key), tick.AsValue)
		}
		taken := m.Value.Get("value")
		if form, _ := tick.TemplateForm(taken); form != tick.Literal && r.constant(taken, tick.AsValue) &&
			r.constant(m.Value.Get("scope"), tick.AsValue) {
			r.Report(at.Key("value"), sameForAll)
		}
	}
}

// guard checks the predicate of a guard: the whole, and the predicates that it is composed of.
func (r reader) guard(v value.Value, at diag.Pointer) {
	if r.comparison(v, at) || r.settled(v, at) {
		return
	}
	for _, name := range []string{"and", "or", "not"} {
		if of := v.Get(name); !of.IsMissing() {
			for _, part := range tick.PredicateParts(v, at) {
				r.guard(part.Value, part.At)
			}
			return
		}
	}
	r.predicate(v, at)
}

// unused warns of reads that nothing refers to.
func (r reader) unused(at diag.Pointer) {
	if r.of == nil || len(r.of.Reads) == 0 {
		return
	}
	looked := impliedReads(r.of.Implications)
	for _, g := range r.of.Requires {
		looked |= g.That.ReadsOf() | g.Message.ReadsOf()
	}
	for i, read := range r.of.Reads {
		if looked&(1<<i) == 0 && r.spend(1) {
			r.Report(at.Key(read.Name), unusedRead, read.Name, "$.reads."+read.Name)
		}
	}
}

// impliedReads returns a bit for each read that implications look at.
func impliedReads(all []*spec.Implication) (looked uint16) {
	emit := func(e *spec.Emit) {
		if e != nil {
			looked |= e.ID.Path.ReadsOf() | e.Data.ReadsOf()
		}
	}
	for _, i := range all {
		looked |= i.Condition.ReadsOf() | impliedReads(i.Pipeline)
		emit(i.Emit)
		if i.Map != nil {
			looked |= i.Map.In.ReadsOf() | i.Map.Condition.ReadsOf()
			emit(i.Map.Emit)
		}
		if i.Schedule != nil {
			emit(i.Schedule.Emit)
			looked |= i.Schedule.At.ReadsOf()
			for _, match := range i.Schedule.CancelOn {
				looked |= match.ID.Path.ReadsOf()
			}
		}
	}
	return looked
}

// settled warns of a guard's predicate that has the same result for all events, since it reads none of them, and
// reports whether it is one. In handlers and conditions a comparison of literals may be intended, as a switch.
func (r reader) settled(v value.Value, at diag.Pointer) bool {
	if v.Kind() != value.Object || !r.decided(v) {
		return false
	}
	var errors diag.List
	p := tick.CompilePredicate(v, at, tick.Scope{}, &errors)
	if p == nil || errors.Errors() > 0 {
		return false
	}
	b := work.Counted(int64(r.left))
	env := tick.NewEnv(b)
	env.Renew(&tick.Event{})
	holds, ok, err := p.Test(env)
	if !r.spend(int(b.Spent())) || err != nil {
		return false
	}
	says := "never"
	if holds && ok {
		says = "always"
	}
	r.Report(at, settled, says)
	return true
}

// decided reports whether the result of a predicate does not depend on the event or the state.
func (r reader) decided(v value.Value) bool {
	if !r.spend(1) || !v.Get("expired").IsMissing() && v.Get("expired").Get("now").IsMissing() {
		return false
	}
	return !slices.ContainsFunc(tick.PredicateParts(v, ""), r.varies)
}

// varies reports whether a part of a predicate or an operator depends on the event or the state.
func (r reader) varies(part tick.Part) bool {
	if part.Reading == tick.AsPredicate {
		return !r.decided(part.Value)
	}
	return !r.constant(part.Value, part.Reading)
}

// constant reports whether nothing in a value is a path, spelt like one, or computed of anything but literals.
func (r reader) constant(v value.Value, as tick.Reading) bool {
	if !r.spend(1) {
		return false
	}
	switch v.Kind() {
	case value.String:
		if as == tick.AsArray || as == tick.AsPath || jsonpath.IsPath(v.Str()) || r.pathMeant(v.Str()) != "" {
			return false
		}
		_, is := r.calculated(v.Str())
		return !is
	case value.Array:
		for _, e := range v.Elems() {
			if !r.constant(e, tick.AsValue) {
				return false
			}
		}
	case value.Object:
		form, operand := tick.HandlerForm(v)
		parts, operator := tick.OperatorParts(v, "")
		switch {
		case form == tick.Literal:
			return true
		case form == tick.Followed:
			return r.constant(operand, tick.AsPath)
		case !v.Get("$now").IsMissing():
			return false
		case operator:
			return !slices.ContainsFunc(parts, r.varies)
		}
		for _, m := range v.Members() {
			if !r.constant(m.Value, tick.AsValue) {
				return false
			}
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return true
}

// read returns what a path that starts with "$.reads" stands for, and the steps from there.
func (r reader) read(p jsonpath.Path) (of held, steps []value.Step) {
	if p.Root != jsonpath.Document || len(p.Steps) < 2 || p.Steps[0].Key != "reads" {
		return held{}, nil
	}
	return r.reads[p.Steps[1].Key], p.Steps[2:]
}

// neverWrittenBy warns of a path into a state of another type that nothing is ever written to, and reports whether it
// is one.
func (l *linter) neverWrittenBy(of held, text string, steps []value.Step, at diag.Pointer) bool {
	name, members := l.lacks(of.state, steps)
	if name == "" {
		return false
	}
	typ := l.spec.Types[of.aggregateType]
	if typ != nil && len(steps) == 1 && (name == "handle" && typ.Handle != "" || name == "public_id" && typ.Sequence) {
		l.Report(at, nameOutsideState, text, of.aggregateType, name)
	} else {
		l.Suggest(l.Report(at, neverWrittenBy, text, of.aggregateType, name), name, members)
	}
	return true
}

// beforeTheFirst warns of a path into the state before an event that is always the first of its aggregate, and reports
// whether it is one.
func (r reader) beforeTheFirst(p jsonpath.Path, steps []value.Step, at diag.Pointer) bool {
	if r.of == nil || r.of.Creates != spec.CreatesOnly || len(steps) == 0 || r.left <= 0 {
		return false
	}
	r.Report(at, noStateYet, p.Text, r.of.Name)
	return true
}

// alwaysThere warns of an emit that has to be the first event of its aggregate and goes to the event's own aggregate,
// which has at least that event.
func (r reader) alwaysThere(aggregateType, event, id string, at diag.Pointer) {
	to := r.spec.EventType(aggregateType, event)
	if r.of == nil || r.of.AggregateType != aggregateType || id != "$.key" && id != "$.id" || to == nil ||
		to.Creates != spec.CreatesOnly || r.left <= 0 {
		return
	}
	r.Report(at, neverFirst, event, r.of.Name)
}
