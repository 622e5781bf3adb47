package lint

import (
	"maps"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
)

// saga looks at the events that a saga writes. Its paths lead into the event that triggers it, and into those that
// finished its steps.
func (l *linter) saga(v value.Value, at diag.Pointer) {
	trigger := v.Get("trigger")
	l.comes(trigger, trigger.Get("event_type"), at.Key("trigger").Key("event_type"))
	r := reader{linter: l, schema: l.dataSchema(l.event(trigger, trigger.Get("event_type").Str()))}
	steps := v.Get("steps").Elems()
	each := l.finished(steps)
	r.bound = map[string]bound{"prev": {}, "context": {}}
	if each != nil {
		r.bound["context"] = bound{schema: l.schema(closedObject(each...))}
	}
	ended, failed := r, r
	failed.bound = maps.Clone(r.bound)
	failed.bound["error"] = bound{
		schema: l.schema(closedObject(text("code"), textOrNull("requirement"), text("step"), text("message"))),
	}

	// The next step finds the event that finished a step in "$prev". A skipped step leaves "$prev" as it was, and
	// before the first step there is nothing in it.
	before := []value.Value{value.ObjectValue(value.Member{Key: "type", Value: value.StringValue("null")})}
	for i, step := range steps {
		at := at.Key("steps").Index(i)
		if each != nil {
			// "$context" has the results of the steps before this one, and of no others.
			r.bound = map[string]bound{"prev": {}, "context": {}}
			if l.spend(len(before) + i) {
				r.bound["prev"] = bound{schema: l.schema(oneOf(before)), nothing: i == 0}
				r.bound["context"] = bound{schema: l.schema(closedObject(each[:i]...))}
			}
		}
		r.conditions(step, at)
		r.emit(step.Get("emit"), at.Key("emit"))
		failed.emit(step.Get("compensate"), at.Key("compensate"))
		r.id(step.Get("await").Get("id"), at.Key("await").Key("id"))
		r.time(step.Get("await").Get("until"), at.Key("await").Key("until"))
		for j, event := range step.Get("await").Get("event_types").Elems() {
			l.comes(step.Get("await"), event, at.Key("await").Key("event_types").Index(j))
		}

		if each == nil {
			continue
		}
		if !maySkip(step) {
			before = nil
		}
		before = append(before, each[i].Value)
	}
	if each != nil && l.spend(len(before)) {
		ended.bound = maps.Clone(ended.bound)
		ended.bound["prev"] = bound{schema: l.schema(oneOf(before))}
	}
	ended.conditions(v.Get("on_complete"), at.Key("on_complete"))
	ended.emit(v.Get("on_complete"), at.Key("on_complete"))
	failed.conditions(v.Get("on_failed"), at.Key("on_failed"))
	failed.emit(v.Get("on_failed"), at.Key("on_failed"))
	l.dataPaths(v, r.schema, at)
}

// maySkip reports whether a step may be skipped: by its condition, or by an optional path.
func maySkip(step value.Value) bool {
	return !step.Get("condition").IsMissing() || !step.Get("when").IsMissing() ||
		strings.Contains(step.Get("emit").String(), `?"`)
}

// event returns the definition of an event type of the aggregate type that v names.
func (l *linter) event(v value.Value, name string) value.Value {
	return l.root.Get("aggregate_types").Get(v.Get("aggregate_type").Str()).Get("events").Get(name)
}

// finished returns the members of "$context" with their schemas: one for each step, which is its answer or the event
// that it wrote; nil where the budget does not suffice.
func (l *linter) finished(steps []value.Value) []value.Member {
	if !l.spend(outline.MaxSchemas) { // that may be gone through to follow a reference in it
		return nil
	}
	var members []value.Member
	for i, step := range steps {
		of, names := step.Get("emit"), []value.Value{step.Get("emit").Get("event_type")}
		if await := step.Get("await"); !await.IsMissing() {
			of, names = await, await.Get("event_types").Elems()
		}
		if !l.spend(1 + len(names)) {
			return nil
		}
		data := make([]value.Value, len(names))
		for j, name := range names {
			data[j] = resource(l.event(of, name.Str()).Get("schema"), strconv.Itoa(i)+"/"+strconv.Itoa(j))
		}
		members = append(members, value.Member{Key: step.Get("name").Str(), Value: closedObject(
			text("key"), text("id"), text("type"), value.Member{Key: "data", Value: oneOf(data)},
			value.Member{Key: "metadata", Value: value.BoolValue(true)},
		)})
	}
	return members
}

// schema reads a schema that was put together of those of events.
func (l *linter) schema(v value.Value) outline.Schema { return outline.Of(v, l.root.Get("$defs")) }

// oneOf is the schema of what fits one of some schemas.
func oneOf(schemas []value.Value) value.Value {
	if len(schemas) == 1 {
		return schemas[0]
	}
	return value.ObjectValue(value.Member{Key: "anyOf", Value: value.ArrayValue(schemas...)})
}

// resource returns a schema that stands in another document by itself: its references lead into it.
func resource(schema value.Value, name string) value.Value {
	if schema.Kind() != value.Object {
		return value.BoolValue(true)
	}
	if !schema.Get("$id").IsMissing() {
		return schema
	}
	id := value.Member{Key: "$id", Value: value.StringValue("urn:j17:" + name)}
	return value.ObjectValue(append([]value.Member{id}, schema.Members()...)...)
}

// closedObject is the schema of an object with these members and no others.
func closedObject(members ...value.Member) value.Value {
	return value.ObjectValue(
		value.Member{Key: "type", Value: value.StringValue("object")},
		value.Member{Key: "properties", Value: value.ObjectValue(members...)},
		value.Member{Key: "additionalProperties", Value: value.BoolValue(false)},
	)
}

// text is a member that is a text.
func text(name string) value.Member {
	return value.Member{
		Key: name, Value: value.ObjectValue(value.Member{Key: "type", Value: value.StringValue("string")}),
	}
}

// textOrNull is a member that is a text or null.
func textOrNull(name string) value.Member {
	return value.Member{Key: name, Value: value.ObjectValue(value.Member{
		Key: "type", Value: value.ArrayValue(value.StringValue("string"), value.StringValue("null")),
	})}
}
