package spec

import (
	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// reading returns what the reads of an event type stand for, by their names.
func (l *looks) reading(event value.Value) map[string]held {
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
func (l *looks) stateOf(aggregateType string) *written {
	if l.states[aggregateType] == nil {
		l.states[aggregateType] = l.state(l.c.root.Get("aggregate_types").Get(aggregateType).Get("events"))
	}
	return l.states[aggregateType]
}

// decisions looks at what decides whether an event is written. Tags and unique values see no state.
func (r reader) decisions(event value.Value, at diag.Pointer) {
	for _, m := range event.Get("reads").Members() {
		if id := m.Value.Get("id"); jsonpath.IsPath(id.Str()) {
			r.path(id.Str(), at.Key("reads").Key(m.Key).Key("id"), tick.AsValue)
		}
	}
	for i, guard := range event.Get("requires").Elems() {
		at := at.Key("requires").Index(i)
		r.predicate(guard.Get("that"), at.Key("that"))
		r.value(guard.Get("message"), at.Key("message"), tick.AsValue)
	}
	r.state, r.reads = nil, nil
	for _, m := range event.Get("unique").Members() {
		for _, key := range []string{"value", "scope"} {
			r.value(m.Value.Get(key), at.Key("unique").Key(m.Key).Key(key), tick.AsValue)
		}
	}
}

// read returns what a path that starts with "$.reads" stands for, and the steps from there.
func (r reader) read(p jsonpath.Path) (of held, steps []value.Step) {
	if p.Root != jsonpath.Document || len(p.Steps) < 2 || p.Steps[0].Key != "reads" {
		return held{}, nil
	}
	return r.reads[p.Steps[1].Key], p.Steps[2:]
}

// neverWrittenBy warns of a path into a state of another type that nothing is ever written to, and reports whether it is one.
func (l *looks) neverWrittenBy(of held, text string, steps []value.Step, at diag.Pointer) bool {
	name, members := l.lacks(of.state, steps)
	if name == "" {
		return false
	}
	l.c.neverWrittenBy(at, text, of.aggregateType, name, members)
	return true
}

// beforeTheFirst warns of a path into the state before an event that is always the first of its aggregate, and reports whether it is one.
func (r reader) beforeTheFirst(p jsonpath.Path, steps []value.Step, at diag.Pointer) bool {
	if r.of == nil || r.of.Creates != CreatesOnly || len(steps) == 0 || r.left <= 0 {
		return false
	}
	r.c.noStateYet(at, p.Text, r.of.Name)
	return true
}

// alwaysThere warns of an emit to the event's own aggregate, which has at least that event, of an event that has to be the first.
func (r reader) alwaysThere(aggregateType, event, id string, at diag.Pointer) {
	to := r.c.out.EventType(aggregateType, event)
	if r.of == nil || r.of.AggregateType != aggregateType || id != "$.key" && id != "$.id" || to == nil || to.Creates != CreatesOnly || r.left <= 0 {
		return
	}
	r.c.neverFirst(at, r.of.Name, event)
}
