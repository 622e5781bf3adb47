package spec

import (
	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/spec/outline"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// implications looks at what an event brings about.
func (r reader) implications(v value.Value, at diag.Pointer) {
	for i, implication := range v.Elems() {
		r.implication(implication, at.Index(i))
	}
}

func (r reader) implication(v value.Value, at diag.Pointer) {
	if !r.spend(1) {
		return
	}
	r.conditions(v, at)
	r.emit(v.Get("emit"), at.Key("emit"))
	if m := v.Get("map"); !m.IsMissing() {
		at := at.Key("map")
		r.value(m.Get("in"), at.Key("in"), tick.AsArray)
		r.conditions(m, at)
		r.emit(m.Get("emit"), at.Key("emit"))
	}
	r.emit(v.Get("schedule").Get("emit"), at.Key("schedule").Key("emit"))
	r.implications(v.Get("pipeline"), at.Key("pipeline"))
}

func (r reader) conditions(v value.Value, at diag.Pointer) {
	for _, key := range []string{"condition", "when"} {
		r.parts(tick.PredicateParts(v.Get(key), at.Key(key)))
	}
}

// emit looks at the template of an event, and whether what it makes can fit the event's schema.
func (r reader) emit(v value.Value, at diag.Pointer) {
	if v.IsMissing() || !r.spend(1) {
		return
	}
	typ, event := v.Get("aggregate_type").Str(), v.Get("event_type").Str()
	if id := v.Get("id"); jsonpath.IsPath(id.Str()) {
		r.path(id.Str(), at.Key("id"), tick.AsValue)
	}
	data := v.Get("data")
	r.value(data, at.Key("data"), tick.AsValue)
	schema := outline.Of(r.c.root.Get("aggregate_types").Get(typ).Get("events").Get(event).Get("schema"))
	if data.IsMissing() {
		data = value.ObjectValue()
	} else {
		at = at.Key("data")
	}
	r.fits(data, at, schema, typ+":"+event, "data")
}

// fits warns where a template can never make what a schema lets through, and reports whether it can. It looks at what
// holds whatever else the schema says: types, choices, required and closed properties. path is where the data is.
func (r reader) fits(v value.Value, at diag.Pointer, schema outline.Schema, event, path string) bool {
	if !r.spend(1) || schema.Kind() != value.Object {
		return true
	}
	k, allowed := r.made(v), schema.Kinds()
	form, operand := tick.TemplateForm(v)
	if form == tick.Literal {
		v, form = operand, tick.Plain
	}
	if k&allowed == 0 {
		r.c.neverFits(at, event, path, k, allowed)
		return false
	}
	if !r.chosen(v, at, schema, event, path) {
		return false
	}
	switch {
	case v.Kind() == value.Array && schema.Get("prefixItems").IsMissing():
		for i, e := range v.Elems() {
			if !r.fits(e, at.Index(i), schema.Member("items"), event, path+diagIndex(i)) {
				return false
			}
		}
	case v.Kind() == value.Object && form == tick.Plain:
		return r.objectFits(v, at, schema, event, path)
	}
	return true
}

// chosen looks at a text, a number or a boolean that the schema may not have among its choices.
func (r reader) chosen(v value.Value, at diag.Pointer, schema outline.Schema, event, path string) bool {
	values, limited := schema.Values()
	if !limited || v.Kind() == value.Array || v.Kind() == value.Object || jsonpath.IsPath(v.Str()) {
		return true
	}
	if !r.spend(len(values)) || contained([]value.Value{v}, values) {
		return true
	}
	r.c.neverChosen(at, event, path, v)
	return false
}

func (r reader) objectFits(v value.Value, at diag.Pointer, schema outline.Schema, event, path string) bool {
	required := schema.Get("required").Elems()
	if !r.spend(len(required)) {
		return true
	}
	for _, name := range required {
		if v.Get(name.Str()).IsMissing() {
			r.c.neverComplete(at, event, dataPath(path, name.Str()))
			return false
		}
	}
	closed := schema.Closed()
	for _, m := range v.Members() {
		sub := schema.Property(m.Key)
		if sub.IsMissing() && closed {
			r.c.neverAllowed(at.Key(m.Key), event, dataPath(path, m.Key))
			return false
		}
		if !r.fits(m.Value, at.Key(m.Key), sub, event, dataPath(path, m.Key)) {
			return false
		}
	}
	return true
}

// made returns the kinds of what a template can make.
func (r reader) made(v value.Value) outline.Kinds {
	if v.Kind() == value.String && jsonpath.IsPath(v.Str()) {
		p, err := jsonpath.Parse(v.Str())
		if err != nil {
			return outline.Any
		}
		return r.kindsAt(p)
	}
	if r.pathMeant(v.Str()) != "" {
		return outline.Any // there is a warning already
	}
	switch form, operand := tick.TemplateForm(v); form {
	case tick.Literal:
		return outline.KindOf(operand)
	case tick.Text:
		return outline.String
	case tick.Merged:
		return outline.Object
	case tick.Computed, tick.Followed:
		return outline.Any
	case tick.Plain:
	}
	return outline.KindOf(v)
}

// saga looks at the events that a saga writes. What its trigger's data may be is not looked at.
func (l *looks) saga(v value.Value, at diag.Pointer) {
	r := reader{looks: l}
	for i, step := range v.Get("steps").Elems() {
		at := at.Key("steps").Index(i)
		r.conditions(step, at)
		r.emit(step.Get("emit"), at.Key("emit"))
		r.emit(step.Get("compensate"), at.Key("compensate"))
	}
	for _, key := range []string{"on_complete", "on_failed"} {
		r.emit(v.Get(key), at.Key(key))
	}
}
