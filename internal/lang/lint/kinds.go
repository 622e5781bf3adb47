package lint

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/tick"
)

// formOf says what an object stands for in one of the languages of values.
type formOf func(value.Value) (tick.Form, value.Value)

// kindsAt returns the kinds of what a path leads to, as far as schemas and handlers show; it never leaves out a kind.
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
	if b := r.bound[p.Name]; p.Root == jsonpath.Binding && b.held.state != nil {
		return b.held.state.kindsAt(p.Steps)
	} else if p.Root == jsonpath.Binding {
		return r.schemaAt(b.schema, p.Steps).Kinds() | outline.Null
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

// kindsAt returns the kinds of what steps lead to in a state, all kinds where that is not known.
func (w *written) kindsAt(steps []value.Step) outline.Kinds {
	if w == nil || len(steps) == 0 {
		return outline.Any
	}
	place, _, _ := w.at(steps)
	if place == nil {
		return outline.Any
	}
	return place.kinds() | outline.Null
}

// kinds returns the kinds of what is written to a place, all kinds where that is not known.
func (w *written) kinds() outline.Kinds {
	k := w.put | w.made
	if w.open || len(w.members) > 0 {
		k |= outline.Object
	}
	if k == 0 {
		return outline.Any
	}
	return k
}

// kinds returns the kinds that a value can have.
func (r reader) kinds(v value.Value, formOf formOf) outline.Kinds {
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
	switch form, operand := formOf(v); form {
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
		return r.scalar(v, operand)
	case tick.Computed:
		return r.firstOf(operand)
	case tick.Chosen:
		return r.eitherOf(v, formOf)
	case tick.Cased:
		return r.anyOf(tick.Cases(v), formOf)
	case tick.Texts:
		if v.Get("part").IsMissing() {
			return outline.Array
		}
		return outline.String | outline.Null
	case tick.Plain:
	}
	return outline.KindOf(v)
}

// eitherOf returns the kinds of the two values of an $if, of which the second is null where there is none.
func (r reader) eitherOf(v value.Value, form formOf) outline.Kinds {
	return r.anyOf([]value.Value{v.Get("then"), v.Get("else").OrNull()}, form)
}

// anyOf returns the kinds of one of some values.
func (r reader) anyOf(values []value.Value, form formOf) outline.Kinds {
	if !r.spend(1 + len(values)) {
		return outline.Any
	}
	var k outline.Kinds
	for _, v := range values {
		k |= r.kinds(v, form)
	}
	return k
}

// scalar returns the kinds of what an operator yields that keeps the kind of what it takes: the smallest, the largest,
// a time.
func (r reader) scalar(v, operand value.Value) outline.Kinds {
	const known = outline.Number | outline.String
	var k outline.Kinds
	switch {
	case operand.Str() == "seconds" && !v.Get("$now").IsMissing():
		return outline.Integer
	case !v.Get("$now").IsMissing():
		return outline.String
	case !v.Get("$date_trunc").IsMissing():
		k = r.kinds(operand, tick.HandlerForm)
	case !v.Get("$add_duration").IsMissing():
		k = r.kinds(operand.Index(0), tick.HandlerForm)
	case r.spend(operand.Len()):
		for _, e := range operand.Elems() {
			k |= r.kinds(e, tick.HandlerForm)
		}
	}
	if k&known == 0 {
		return known // an array that a path leads to, or what has a warning of its own
	}
	return k & known
}

// firstOf returns the kinds of the first of some values that is not null.
func (r reader) firstOf(operand value.Value) outline.Kinds {
	if operand.Kind() != value.Array || !r.spend(operand.Len()) {
		return outline.Any
	}
	var k outline.Kinds
	for _, e := range operand.Elems() {
		k |= r.kinds(e, tick.TemplateForm)
	}
	return k | outline.Null
}

// wanted returns the kinds that a value read in this way has to have.
func wanted(as tick.Reading) outline.Kinds {
	switch as {
	case tick.AsNumber:
		return outline.Number
	case tick.AsText:
		return outline.String
	case tick.AsArray:
		return outline.Array
	case tick.AsObject:
		return outline.Object
	case tick.AsTime:
		return outline.Number | outline.String
	case tick.AsValue, tick.AsPath, tick.AsPredicate, tick.AsOperations:
	}
	return outline.Any
}

// operator looks at an operator and its operands.
func (r reader) operator(v value.Value, at diag.Pointer, parts []tick.Part) {
	for _, name := range []string{"$sum", "$count"} {
		if in := v.Get(name); !in.IsMissing() {
			if name == "$sum" && v.Get("of").IsMissing() {
				r.elements(in, at.Key(name), outline.Number)
			}
			r.each(parts, in, v.Get("as"))
			return
		}
	}
	for _, name := range []string{"$add", "$multiply"} {
		r.elements(v.Get(name), at.Key(name), outline.Number)
	}
	for _, name := range []string{"$min", "$max"} {
		r.elements(v.Get(name), at.Key(name), outline.Number|outline.String)
		r.alike(v.Get(name), at.Key(name), name)
	}
	r.elements(v.Get("$join"), at.Key("$join"), outline.Number|outline.String|outline.Boolean)
	r.parts(parts)
}

// alike checks operands that all have to be numbers, or all texts. The finding is at the first one that does not match
// those before it.
func (r reader) alike(v value.Value, at diag.Pointer, name string) {
	left := outline.Number | outline.String
	for i, e := range v.Elems() {
		var both outline.Kinds
		k := r.kinds(e, tick.HandlerForm)
		for _, kind := range []outline.Kinds{outline.Number, outline.String} {
			if k&kind != 0 && left&kind != 0 {
				both |= kind
			}
		}
		if both == 0 && r.left > 0 {
			r.Report(at.Index(i), operandsUnlike, name, known(k), left.Phrase())
			return
		}
		left = both
	}
}

// elements looks at a path to an array whose elements are operands.
func (r reader) elements(v value.Value, at diag.Pointer, want outline.Kinds) {
	p, err := jsonpath.Parse(v.Str())
	if err != nil {
		return
	}
	k := r.schemaOf(p).Follow([]value.Step{{IsIndex: true}}).Kinds()
	if k&want == 0 && r.left > 0 {
		r.Report(at, elementsOfKind, v.Str(), want.Phrase(), known(k))
	}
}

// each looks at the parts of what is done with the elements of an array, which are bound to a name.
func (r reader) each(parts []tick.Part, in, as value.Value) {
	inner := r.binding(in.Str(), as.Str())
	for _, part := range parts {
		if part.Reading == tick.AsArray {
			r.parts([]tick.Part{part})
		} else {
			inner.parts([]tick.Part{part})
		}
	}
}

// binding returns the reader of what is done with each element of the array that a path leads to. Elements are called
// "$item" where they have no other name.
func (r reader) binding(in, as string) reader {
	var element bound
	if p, err := jsonpath.ParseAny(in); err == nil && !p.Entries {
		element = bound{schema: r.schemaOf(p).Follow([]value.Step{{IsIndex: true}}), held: r.elementsOf(p)}
	}
	return r.named(as, element)
}

// named returns the reader in which something has a name.
func (r reader) named(as string, element bound) reader {
	if r.bound = maps.Clone(r.bound); r.bound == nil {
		r.bound = map[string]bound{}
	}
	r.bound[elementName(as)] = element
	return r
}

// elementName returns what an element is called without its "$", where it may have no name of its own.
func elementName(as string) string { return strings.TrimPrefix(cmp.Or(as, "$item"), "$") }

// elementsOf returns what handlers write to the elements of an array, to which a path into a state, or into an element
// of one, leads.
func (r reader) elementsOf(p jsonpath.Path) held {
	of, steps := r.read(p)
	if p.Root == jsonpath.Binding {
		of, steps = r.bound[p.Name].held, p.Steps
	} else if inState, within := stateSteps(p); inState && (p.Root == jsonpath.Document || !r.element) {
		of, steps = held{state: r.state}, within
	}
	if of.state == nil || !r.spend(1+len(steps)) {
		return held{}
	}
	of.state, _, _ = of.state.at(append(slices.Clip(steps), value.Step{IsIndex: true}))
	return of
}

// choices checks a value in the spec, or the elements of an array of them, that a path is compared with: whether it is
// among the choices that the schema allows there. It reports whether one is not. Handlers also process older events,
// whose schema may have had other choices.
func (r reader) choices(predicate string, operands value.Value, at diag.Pointer) (found bool) {
	path, other, place := operands.Index(0), operands.Index(1), at.Index(1)
	if jsonpath.IsPath(other.Str()) && predicate != "in" && predicate != "not_in" {
		path, other, place = other, path, at.Index(0)
	}
	p, err := jsonpath.Parse(path.Str())
	if err != nil || !jsonpath.IsPath(path.Str()) || r.of == nil {
		return false
	}
	known := r.choicesAt(p)
	if len(known) == 0 || !r.spend(len(known)) {
		return false
	}
	look := func(v value.Value, at diag.Pointer) {
		if v.Kind() == value.String && !jsonpath.IsPath(v.Str()) && r.pathMeant(v.Str()) == "" &&
			!outline.Contained([]value.Value{v}, known) && r.left > 0 {
			r.Suggest(r.Report(at, neverAmong, path.Str(), v.Str()), v.Str(), texts(known))
			found = true
		}
	}
	if predicate != "in" && predicate != "not_in" {
		look(other, place)
		return found
	}
	for i, v := range other.Elems() {
		look(v, place.Index(i))
	}
	return found
}

// texts returns those of some values that are texts.
func texts(values []value.Value) []string {
	var out []string
	for _, v := range values {
		if v.Kind() == value.String {
			out = append(out, v.Str())
		}
	}
	return out
}

// choicesAt returns the values that can stand where a path into the data, or into an element, leads: those of its
// schema.
func (r reader) choicesAt(p jsonpath.Path) []value.Value {
	known, limited := r.schemaOf(p).Values()
	if !limited {
		return nil
	}
	return known
}

// comparison looks at a predicate that compares two values, and reports whether they are of kinds that are never
// comparable.
func (r reader) comparison(v value.Value, at diag.Pointer) bool {
	if v.Len() != 1 {
		return false
	}
	m := v.Members()[0]
	ordered := false
	switch m.Key {
	case "gt", "gte", "lt", "lte":
		ordered = true
	case "equals", "eq", "not_equals":
		if r.choices(m.Key, m.Value, at.Key(m.Key)) {
			return true
		}
	case "in", "not_in":
		return r.choices(m.Key, m.Value, at.Key(m.Key))
	default:
		return false
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
		return false
	}

	// The finding is at the path, of two at the second.
	at, i := at.Key(m.Key), 1
	if !jsonpath.IsPath(m.Value.Index(1).Str()) {
		i = 0
	}
	if ordered && jsonpath.IsPath(m.Value.Index(0).Str()) && left&outline.Number == 0 {
		i = 0
	}
	holds := "never"
	if m.Key == "not_equals" {
		holds = "always"
	}
	r.Report(at.Index(i), neverComparable, m.Key, holds, known(left), known(right))
	return true
}
