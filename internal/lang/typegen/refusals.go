package typegen

import (
	"slices"

	"j17/internal/base/value"
)

// maxRefusing bounds how many event types, and how many codes, the refusals of one event are gathered from. Beyond it,
// the code can be any text.
const maxRefusing = 200

// eventName names an event type.
type eventName struct{ aggregateType, event string }

// eventsOf returns the definitions of all event types of a spec.
func eventsOf(root value.Value) map[eventName]value.Value {
	all := map[eventName]value.Value{}
	for _, t := range root.Get("aggregate_types").Members() {
		for _, e := range t.Value.Get("events").Members() {
			all[eventName{t.Key, e.Key}] = e.Value
		}
	}
	return all
}

// refusals declares the codes of the refusals of an event, where guards have codes: its own guards, and those of the
// events that it implies.
func (m *model) refusals(prefix string, name eventName, declared map[eventName]value.Value) {
	texts, whole := refusing(name, declared)
	if len(texts) == 0 && whole {
		return
	}
	codes := &typ{kind: text}
	if whole {
		codes = &typ{kind: literal}
		for _, code := range texts {
			codes.values = append(codes.values, value.StringValue(code))
		}
	}
	d := m.declare(prefix+"Refusal", "what details.requirement is where a guard refuses "+name.aggregateType+"."+name.event+", or an event that it implies", codes)
	for _, code := range texts {
		if whole {
			d.constants = append(d.constants, namedText{m.take(d.name+pascal(code), d), code})
		}
	}
}

// refusing gathers the codes of an event type's guards, and then those of the events that it implies. It reports false
// where there are too many, or where custom code decides what is implied. Events that come later, by schedules and
// sagas, cannot refuse the write of this event.
func refusing(name eventName, declared map[eventName]value.Value) (codes []string, whole bool) {
	next := []eventName{name}
	seen := map[eventName]bool{name: true}
	emits := func(emit value.Value) {
		to := eventName{emit.Get("aggregate_type").Str(), emit.Get("event_type").Str()}
		if !emit.IsMissing() && !seen[to] && len(next) <= maxRefusing {
			seen[to] = true
			next = append(next, to)
		}
	}
	known := map[string]bool{}
	for i := 0; i < len(next); i++ {
		event := declared[next[i]]
		for _, guard := range event.Get("requires").Elems() {
			if code := guard.Get("code"); !code.IsMissing() && !known[code.Str()] {
				known[code.Str()] = true
				codes = append(codes, code.Str())
			}
		}
		if len(next) > maxRefusing || len(codes) > maxRefusing {
			return nil, false
		}
		implied := slices.Clone(event.Get("implications").Elems())
		for len(implied) > 0 {
			v := implied[0]
			if emitsByCode(v) {
				return nil, !anyRefusal(declared)
			}
			implied = append(implied[1:], v.Get("pipeline").Elems()...)
			emits(v.Get("emit"))
			emits(v.Get("map").Get("emit"))
		}
	}
	return codes, true
}

// emitsByCode reports whether an implication, or a step of a pipeline, is custom code that emits events, whose types
// only the code knows.
func emitsByCode(v value.Value) bool {
	return slices.ContainsFunc([]string{"wasm", "binary_container", "runtime_container"}, func(kind string) bool {
		code := v.Get(kind)
		return !code.IsMissing() && code.Get("mode").Str() != "transform"
	})
}

// anyRefusal reports whether a guard of any event type has a code.
func anyRefusal(declared map[eventName]value.Value) bool {
	for _, event := range declared {
		if slices.ContainsFunc(
			event.Get("requires").Elems(), func(guard value.Value) bool { return !guard.Get("code").IsMissing() },
		) {
			return true
		}
	}
	return false
}
