package spec

import (
	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/spec/outline"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// formOf says what an object stands for in one of the languages of values.
type formOf func(value.Value) (tick.Form, value.Value)

// kindsAt returns the kinds of what a path leads to, as far as schemas and handlers say, which is never too little.
func (r reader) kindsAt(p jsonpath.Path) outline.Kinds {
	if p.Entries {
		return outline.Array | outline.Null
	}
	if inState, steps := stateSteps(p); inState {
		if r.element && p.Root == jsonpath.Current {
			return outline.Any
		}
		return r.state.kindsAt(steps)
	}
	if of, steps := r.read(p); of.state != nil {
		return of.state.kindsAt(steps)
	}
	if p.Root == jsonpath.Binding {
		return r.schemaAt(r.bound[p.Name], p.Steps).Kinds() | outline.Null
	}
	if len(p.Steps) == 0 {
		return outline.Any
	}
	switch p.Steps[0].Key {
	case "key", "id", "type":
		return outline.String | outline.Null
	case "data":
		return r.schemaAt(r.schema, p.Steps[1:]).Kinds() | outline.Null
	case "metadata":
		return metadataKinds(p.Steps[1:])
	default:
		return outline.Any
	}
}

// metadataKinds returns the kinds of what stands in the metadata of every event.
func metadataKinds(steps []value.Step) outline.Kinds {
	switch text := jsonpath.StepsText(steps); text {
	case ".timestamp":
		return outline.Integer | outline.Null
	case ".actor", ".target":
		return outline.Object | outline.Null
	case ".actor.type", ".actor.id", ".target.type", ".target.id":
		return outline.String | outline.Null
	}
	return outline.Any
}

// kindsAt returns the kinds of what steps lead to in a state, everything where it cannot be told.
func (w *written) kindsAt(steps []value.Step) outline.Kinds {
	if w == nil || len(steps) == 0 {
		return outline.Any
	}
	place, _, _ := w.at(steps)
	if place == nil {
		return outline.Any
	}
	k := place.put | place.made
	if place.open || len(place.members) > 0 {
		k |= outline.Object
	}
	if k == 0 {
		return outline.Any
	}
	return k | outline.Null
}

// kinds returns the kinds of what a value can be.
func (r reader) kinds(v value.Value, form formOf) outline.Kinds {
	if v.Kind() == value.String && jsonpath.IsPath(v.Str()) {
		p, err := jsonpath.Parse(v.Str())
		if err != nil {
			return outline.Any
		}
		if _, ok := r.calculated(v.Str()); ok {
			return outline.Any // there is a warning already
		}
		return r.kindsAt(p)
	}
	if r.pathMeant(v.Str()) != "" {
		return outline.Any // the same
	}
	switch form, operand := form(v); form {
	case tick.Literal:
		return outline.KindOf(operand)
	case tick.Text:
		return outline.String
	case tick.Merged:
		return outline.Object
	case tick.Followed:
		return r.kinds(operand, tick.HandlerForm)
	case tick.Numeric:
		return outline.Number
	case tick.Whole:
		return outline.Integer
	case tick.Scalar:
		return outline.Number | outline.String
	case tick.Computed:
		return outline.Any
	case tick.Plain:
	}
	return outline.KindOf(v)
}

// comparison looks at a predicate that compares two values: whether they can be of kinds that are comparable.
func (r reader) comparison(v value.Value, at diag.Pointer) {
	if v.Len() != 1 {
		return
	}
	m := v.Members()[0]
	ordered := false
	switch m.Key {
	case "gt", "gte", "lt", "lte":
		ordered = true
	case "equals", "eq", "not_equals":
	default:
		return
	}
	left, right := r.kinds(m.Value.Index(0), tick.HandlerForm), r.kinds(m.Value.Index(1), tick.HandlerForm)
	both := left & right
	if left&outline.Number != 0 && right&outline.Number != 0 {
		both |= outline.Number
	}
	if ordered {
		both &= outline.Number | outline.String
	}
	if both != 0 || r.left <= 0 {
		return
	}

	// The finding is at the path, of two at the second.
	at, i := at.Key(m.Key), 1
	if !jsonpath.IsPath(m.Value.Index(1).Str()) {
		i = 0
	}
	if ordered && jsonpath.IsPath(m.Value.Index(0).Str()) && left&outline.Number == 0 {
		i = 0
	}
	r.c.neverComparable(at.Index(i), m.Key, left, right)
}
