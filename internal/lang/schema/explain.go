package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// step is one step from a container to its part: a member or an item, counted from 0 as it stands in the document.
type step struct {
	position int
	key      string
	isItem   bool
}

// finding is a failure and where in the document it belongs.
type finding struct {
	place []int
	Failure
}

// explainer finds out why a value does not fit. It visits the same schemas as the check, but goes on after a failure,
// and applies no schema twice to the same part.
type explainer struct {
	run
	path []step
	// part is the number of the part that the path leads to, parts the last number given. Only parts that have schemas
	// with other schemas in them need a number.
	part  int
	parts map[partKey]int
	seen  map[visit]struct{}
	found []finding
	limit int
	// last is the place of the last finding that will be kept, nil while there are fewer than limit.
	last []int
	// nested is set while reasons for another failure are looked for.
	nested bool
	// hints is how many more misspelt names are compared with those that are known.
	hints int
}

// partKey is a step from a part of the value to one of its own parts.
type partKey struct{ part, position int }

// visit is a schema and a part of the value that it was applied to.
type visit struct {
	node *node
	part int
}

func newExplainer(r run, limit int) *explainer {
	return &explainer{run: r, parts: map[partKey]int{}, seen: map[visit]struct{}{}, limit: limit, hints: limit}
}

// failures returns what was found in the order of the document.
func (e *explainer) failures() []Failure {
	e.trim()
	out := make([]Failure, len(e.found))
	for i := range e.found {
		out[i] = e.found[i].Failure
	}
	return out
}

// trim sorts what was found, drops repetitions, and keeps the first ones.
func (e *explainer) trim() {
	slices.SortStableFunc(e.found, func(a, b finding) int { return slices.Compare(a.place, b.place) })
	kept := e.found[:0]
	for _, f := range e.found {
		repeated := false
		for i := len(kept) - 1; i >= 0 && !repeated && kept[i].Pointer == f.Pointer; i-- {
			repeated = kept[i].Constraint == f.Constraint && kept[i].Message == f.Message
		}
		if !repeated && len(kept) < e.limit {
			kept = append(kept, f)
		}
	}
	e.found = kept
	if len(kept) == e.limit {
		e.last = kept[len(kept)-1].place
	}
}

func (e *explainer) place() []int {
	place := make([]int, len(e.path))
	for i := range e.path {
		place[i] = e.path[i].position
	}
	return place
}

// add records a failure of what the path leads to.
func (e *explainer) add(f Failure) { e.addAt(e.place(), f) }

// How many units it takes to apply a schema in the second pass, to make a failure, and to look for the name that was
// meant; and how many bytes of a path are copied for a failure, which keeps the path, in the time of one unit.
const (
	visitCost = 8
	addCost   = 128
	hintCost  = 1 << 14
	pathShare = 4
)

// late reports whether what the path leads to comes after everything that will be kept.
func (e *explainer) late() bool {
	return e.last != nil && e.spend(len(e.path)/visitCost) && slices.Compare(e.place(), e.last) > 0
}

func (e *explainer) addAt(place []int, f Failure) {
	cost := addCost
	for i := range e.path {
		cost += 1 + len(e.path[i].key)/pathShare
	}
	if !e.spend(cost) {
		return
	}
	f.Path, f.Pointer = dotted(e.path), pointer(e.path)
	f.Received = Abridged(f.Received)
	e.found = append(e.found, finding{place, f})
	if len(e.found) >= 8*e.limit {
		e.trim()
	}
}

func dotted(path []step) string {
	var b strings.Builder
	for i, s := range path {
		switch {
		case s.isItem:
			fmt.Fprintf(&b, "[%s]", s.key)
		case !isPlainName(s.key):
			b.WriteString("[" + value.StringValue(s.key).String() + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.key)
		}
	}
	return b.String()
}

// isPlainName reports whether a key can stand in a dotted path as it is.
func isPlainName(key string) bool { return key != "" && !strings.ContainsAny(key, ".[]\" ") }

func pointer(path []step) string {
	var p diag.Pointer
	for _, s := range path {
		p = p.Key(s.key)
	}
	return string(p)
}

// at runs f with the path one step longer.
func (e *explainer) at(s step, f func()) {
	e.path = append(e.path, s)
	f()
	e.path = e.path[:len(e.path)-1]
}

func (e *explainer) member(i int, m value.Member, n *node, keyword string) {
	e.explainPart(step{position: i, key: m.Key}, n, m.Value, keyword)
}

func (e *explainer) item(i int, v value.Value, n *node, keyword string) {
	e.explainPart(step{position: i, key: strconv.Itoa(i), isItem: true}, n, v, keyword)
}

// explainPart adds the failures of v, one step further, under n.
func (e *explainer) explainPart(s step, n *node, v value.Value, keyword string) {
	outer := e.part
	if n.leadsOn() {
		key := partKey{outer, s.position}
		part, known := e.parts[key]
		if !known {
			part = len(e.parts) + 1
			e.parts[key] = part
		}
		e.part = part
	}
	e.at(s, func() { e.explain(n, v, keyword) })
	e.part = outer
}

// leadsOn reports whether n has other schemas in it.
func (n *node) leadsOn() bool { return n.array != nil || n.object != nil || n.same != nil }

// explain adds the failures of v under n, which stands under keyword.
func (e *explainer) explain(n *node, v value.Value, keyword string) {
	// A schema is explained once for a value, however many ways lead to it.
	if !e.spend(visitCost) || e.late() {
		return
	}
	if n.leadsOn() {
		if _, done := e.seen[visit{n, e.part}]; done {
			return
		}
		e.seen[visit{n, e.part}] = struct{}{}
	}

	// What holds for a value of every kind.
	if n.never {
		e.never(v, keyword)
		return
	}
	if n.types != 0 && !e.hasType(n.types, v) && !e.givenUp() {
		e.add(Failure{Constraint: "type", Expected: n.types.value(), Received: v, Message: typeMessage(n.types, v)})
		return // what else the schema says is about other values
	}
	if n.enum != nil && !e.oneOf(n.enum, v) && !e.givenUp() {
		expected := abridgedList(n.enum.values)
		if n.enum.keyword == "const" {
			expected = Abridged(n.enum.values[0])
		}
		e.add(Failure{Constraint: n.enum.keyword, Expected: expected, Received: v, Message: enumMessage(n.enum)})
	}

	// What holds for values of its kind.
	switch v.Kind() {
	case value.Number:
		if n.number != nil {
			e.number(n.number, v)
		}
	case value.String:
		if n.text != nil {
			e.text(n.text, v)
		}
	case value.Array:
		if n.array != nil {
			e.array(n.array, v)
		}
	case value.Object:
		if n.object != nil {
			e.object(n.object, v)
		}
	case value.Missing, value.Null, value.Bool:
	}

	if n.same != nil {
		e.same(n.same, v)
	}
}

func (e *explainer) never(v value.Value, keyword string) {
	f := Failure{
		Constraint: keyword, Expected: value.BoolValue(false), Received: v, Message: "No value is allowed here.",
	}
	if keyword == "" {
		f.Constraint = "false"
	}
	if len(e.path) > 0 {
		if last := e.path[len(e.path)-1]; last.isItem {
			f.Message = fmt.Sprintf("No item is allowed at index %s.", last.key)
		} else {
			f.Message = fmt.Sprintf("The field %s is not allowed.", shortened(value.StringValue(last.key)))
		}
	}
	e.add(f)
}

func (e *explainer) number(n *numberRule, v value.Value) {
	check := func(fits bool, keyword string, bound value.Value, demand string) {
		if !bound.IsMissing() && !fits && !e.givenUp() {
			e.add(Failure{
				Constraint: keyword, Expected: Abridged(bound), Received: v, Message: boundMessage(demand, bound, v),
				Quotes: true,
			})
		}
	}
	check(e.compare(v, n.minimum) >= 0, "minimum", n.minimum, "at least")
	check(e.compare(v, n.maximum) <= 0, "maximum", n.maximum, "at most")
	check(e.compare(v, n.exclusiveMinimum) > 0, "exclusiveMinimum", n.exclusiveMinimum, "greater than")
	check(e.compare(v, n.exclusiveMaximum) < 0, "exclusiveMaximum", n.exclusiveMaximum, "less than")
	if !n.multipleOf.IsMissing() {
		fits := e.spend(value.CompareEffort(v, n.multipleOf)) && v.MultipleOf(n.multipleOf)
		check(fits, "multipleOf", n.multipleOf, "a multiple of")
	}
}

func (e *explainer) text(t *textRule, v value.Value) {
	s := v.Str()
	if !e.fitsLength(t, s) && e.spend(len(s)/work.BytesPerUnit) {
		e.textLength(t, v)
	}
	if t.format.Valid != nil && e.spend(t.format.Effort(len(s))) && !t.format.Valid(s) {
		e.add(Failure{
			Constraint: "format", Expected: value.StringValue(t.formatName), Received: v,
			Message: "The text must be " + t.format.Phrase + ".",
		})
	}
	if t.pattern != nil && !t.pattern.Match(s, e.budget) && !e.givenUp() {
		e.add(Failure{
			Constraint: "pattern", Expected: value.StringValue(t.pattern.String()), Received: v,
			Message: fmt.Sprintf("The text must match the pattern %s.", t.pattern),
		})
	}
}

// textLength adds the failures of a text that is too short or too long.
func (e *explainer) textLength(t *textRule, v value.Value) {
	n := utf8.RuneCountInString(v.Str())
	if n < t.minLength {
		e.add(Failure{
			Constraint: "minLength", Expected: value.Int(int64(t.minLength)), Received: v,
			Message: sizeMessage("text", "character", true, t.minLength, n),
		})
	}
	if t.maxLength != unlimited && n > t.maxLength {
		e.add(Failure{
			Constraint: "maxLength", Expected: value.Int(int64(t.maxLength)), Received: v,
			Message: sizeMessage("text", "character", false, t.maxLength, n),
		})
	}
}

func (e *explainer) array(a *arrayRule, v value.Value) {
	elems := v.Elems()
	if len(elems) < a.minItems {
		e.size("minItems", a.minItems, len(elems), sizeMessage("list", "item", true, a.minItems, len(elems)))
	}
	if a.maxItems != unlimited && len(elems) > a.maxItems {
		e.size("maxItems", a.maxItems, len(elems), sizeMessage("list", "item", false, a.maxItems, len(elems)))
	}
	if a.contains != nil {
		e.contains(a, elems)
	}
	for i, elem := range elems {
		switch {
		case i < len(a.prefix):
			e.item(i, elem, a.prefix[i], "prefixItems")
		case a.items != nil:
			e.item(i, elem, a.items, "items")
		}
	}
	if !a.unique {
		return
	}
	if first, second, found := e.duplicates(elems); found {
		e.at(step{position: second, key: strconv.Itoa(second), isItem: true}, func() {
			e.add(Failure{
				Constraint: "uniqueItems", Expected: value.BoolValue(true), Received: elems[second],
				Message: fmt.Sprintf("The items at index %d and %d are equal, but all items must be different.", first, second),
			})
		})
	}
}

// size adds a failure that is about a number of parts.
func (e *explainer) size(keyword string, bound, n int, message string) {
	e.add(Failure{
		Constraint: keyword, Expected: value.Int(int64(bound)), Received: value.Int(int64(n)), Message: message,
	})
}

func (e *explainer) contains(a *arrayRule, elems []value.Value) {
	n := 0
	for i := range elems {
		if e.accepts(a.contains, elems[i]) {
			n++
		}
	}
	switch {
	case e.givenUp():
	case n < a.minContains && a.minContains == 1:
		e.size("contains", 1, n, `The list must have an item that fits the schema under "contains", but none does.`)
	case n < a.minContains:
		e.size("minContains", a.minContains, n, fmt.Sprintf(`The list must have at least %s for the schema under "contains", but it has %d.`, j17.Count(a.minContains, "item"), n))
	case a.maxContains != unlimited && n > a.maxContains:
		e.size("maxContains", a.maxContains, n, fmt.Sprintf(`The list must have at most %s for the schema under "contains", but it has %d.`, j17.Count(a.maxContains, "item"), n))
	}
}

func (e *explainer) object(o *objectRule, v value.Value) {
	// How many members there are.
	members := v.Members()
	if len(members) < o.minFields {
		e.size(
			"minProperties", o.minFields, len(members), sizeMessage("object", "field", true, o.minFields, len(members)),
		)
	}
	if o.maxFields != unlimited && len(members) > o.maxFields {
		e.size(
			"maxProperties", o.maxFields, len(members),
			sizeMessage("object", "field", false, o.maxFields, len(members)),
		)
	}

	// The required ones.
	for i := range o.fields {
		if f := &o.fields[i]; f.required && !e.has(v, f.name) && !e.givenUp() {
			e.missing(f.name, "required", fmt.Sprintf("The field %s is missing.", shortened(value.StringValue(f.name))))
		}
	}
	for _, need := range o.needs {
		if !e.has(v, need.name) {
			continue
		}
		for _, name := range need.required {
			if !e.has(v, name) && !e.givenUp() {
				e.missing(name, "dependentRequired", fmt.Sprintf("The field %s is missing, which is required because the field %s is there.",
					shortened(value.StringValue(name)), shortened(value.StringValue(need.name))))
			}
		}
	}

	// The ones that exist, each by itself and with the fields that its presence requires.
	for i, m := range members {
		e.field(o, i, m)
	}
	for _, d := range o.dependents {
		if e.has(v, d.name) {
			e.explain(d.schema, v, "dependentSchemas")
		}
	}
}

// missing adds the failure of a field that is not there. It belongs to the place of its object.
func (e *explainer) missing(name, keyword, message string) {
	place := e.place()
	e.at(step{key: name}, func() {
		e.addAt(place, Failure{Constraint: keyword, Expected: value.BoolValue(true), Message: message})
	})
}

// field adds the failures of one member of an object.
func (e *explainer) field(o *objectRule, i int, m value.Member) {
	if !e.spend(1 + len(m.Key)/work.BytesPerUnit) {
		return
	}

	// What is declared by name or by pattern has its own schemas; the rest has the schema for the rest.
	declared := false
	if at := o.find(m.Key, 0); at >= 0 && o.fields[at].schema != nil {
		declared = true
		e.member(i, m, o.fields[at].schema, "properties")
	}
	for _, p := range o.patterns {
		if p.pattern.Match(m.Key, e.budget) {
			declared = true
			e.member(i, m, p.schema, "patternProperties")
		}
	}
	if e.givenUp() {
		return
	}
	if !declared && o.additional != nil {
		if o.additional.never {
			e.at(step{position: i, key: m.Key}, func() { e.undeclared(o, m) })
		} else {
			e.member(i, m, o.additional, "additionalProperties")
		}
	}

	// The name itself may be wrong.
	if name := value.StringValue(m.Key); o.names != nil && !e.accepts(o.names, name) && !e.givenUp() {
		e.at(step{position: i, key: m.Key}, func() {
			if e.late() {
				return
			}
			inner := e.reasons(o.names, name)
			f := Failure{Constraint: "propertyNames", Expected: value.BoolValue(false), Received: name}
			f.Message = fmt.Sprintf("The name %s is not allowed for a field.", shortened(name))
			if len(inner) > 0 && !o.names.never {
				f.Expected = inner[0].Expected
				f.Message += " " + inner[0].Message
			}
			e.add(f)
		})
	}
}

// maxCompared bounds the fields that a misspelt name is compared with.
const maxCompared = 500

// undeclared adds the failure of a member that additionalProperties forbids.
func (e *explainer) undeclared(o *objectRule, m value.Member) {
	if e.late() {
		return
	}
	message := fmt.Sprintf("The field %s is not allowed.", shortened(value.StringValue(m.Key)))
	if near := e.nearest(o, m.Key); near != "" {
		message += fmt.Sprintf(" Did you mean %s?", shortened(value.StringValue(near)))
	}
	e.add(Failure{
		Constraint: "additionalProperties", Expected: value.BoolValue(false), Received: m.Value, Message: message,
	})
}

// nearest returns the field that was most likely meant by a name, "" where none is close. It searches only for the
// first names, and only where there are not too many fields.
func (e *explainer) nearest(o *objectRule, name string) string {
	if e.hints == 0 || len(o.fields) > maxCompared || !e.spend(hintCost) {
		return ""
	}
	e.hints--
	names := make([]string, 0, len(o.fields))
	for i := range o.fields {
		if o.fields[i].schema != nil {
			names = append(names, o.fields[i].name)
		}
	}
	return diag.Nearest(name, names)
}

func (e *explainer) same(s *sameRule, v value.Value) {
	// Schemas that have to fit as well.
	if s.ref != nil {
		e.explain(s.ref, v, "$ref")
	}
	for _, n := range s.allOf {
		e.explain(n, v, "allOf")
	}

	// Combinations, of which some number has to fit.
	if s.anyOf != nil && !e.acceptsAny(s.anyOf, v) && !e.givenUp() {
		e.alternatives("anyOf", s.anyOf, v)
	}
	if s.oneOf != nil {
		var fitting []string
		for i, n := range s.oneOf {
			if e.accepts(n, v) {
				fitting = append(fitting, strconv.Itoa(i+1))
			}
		}
		switch {
		case e.givenUp():
		case len(fitting) == 0:
			e.alternatives("oneOf", s.oneOf, v)
		case len(fitting) > 1:
			e.add(Failure{
				Constraint: "oneOf", Expected: value.Int(1), Received: value.Int(int64(len(fitting))),
				Message: fmt.Sprintf("The value must fit exactly one of the %d alternatives, but it fits %d of them: numbers %s.",
					len(s.oneOf), len(fitting), strings.Join(fitting[:min(len(fitting), maxValuesShown)], ", ")),
			})
		}
	}

	if s.not != nil && e.accepts(s.not, v) && !e.givenUp() {
		e.add(Failure{Constraint: "not", Received: v, Message: `The value must not fit the schema under "not", but it does.`})
	}

	if s.condition != nil {
		branch, keyword := s.ifFalse, "else"
		if e.accepts(s.condition, v) {
			branch, keyword = s.ifTrue, "then"
		}
		if branch != nil {
			e.explain(branch, v, keyword)
		}
	}
}

// maxAlternativesShown is the number of alternatives whose failures a message repeats.
const maxAlternativesShown = 3

// alternatives adds the failure of a value that fits none of several schemas.
func (e *explainer) alternatives(keyword string, nodes []*node, v value.Value) {
	if e.late() || !e.spend(len(nodes)) {
		return
	}
	f := Failure{Constraint: keyword, Received: v}
	if types, ok := otherTypes(nodes, v); ok {
		f.Expected, f.Message = types.value(), typeMessage(types, v)
		e.add(f)
		return
	}
	if values, ok := e.onlyValues(nodes); ok {
		f.Expected, f.Message = abridgedList(values), enumMessage(&enumRule{values: values})
		e.add(f)
		return
	}
	f.Message = fmt.Sprintf("The value fits none of the %d alternatives.", len(nodes))
	for i, n := range nodes[:min(len(nodes), maxAlternativesShown)] {
		if e.nested {
			break
		}
		if inner := e.reasons(n, v); len(inner) > 0 {
			reason := inner[0].Message
			if inner[0].Path != dotted(e.path) {
				reason = inner[0].Path + ": " + reason
			}
			f.Message += fmt.Sprintf(" %d: %s", i+1, reason)
			f.Quotes = f.Quotes || inner[0].Quotes
		}
	}
	e.add(f)
}

// otherTypes returns the types of all nodes, if v has none of them.
func otherTypes(nodes []*node, v value.Value) (typeSet, bool) {
	var types typeSet
	for _, n := range nodes {
		if n.types == 0 || n.types.accepts(v) {
			return 0, false
		}
		types |= n.types
	}
	return types, true
}

// onlyValues returns the values that all nodes list, if they do nothing else.
func (e *explainer) onlyValues(nodes []*node) ([]value.Value, bool) {
	var values []value.Value
	for _, n := range nodes {
		if n.enum == nil || n.same != nil || !e.spend(len(n.enum.values)/enumShare) {
			return nil, false
		}
		values = append(values, n.enum.values...)
	}
	return values, true
}

// reasons returns the first failure of v under n, which it does not add.
func (e *explainer) reasons(n *node, v value.Value) []Failure {
	inner := newExplainer(e.run, 1)
	inner.path, inner.nested = slices.Clip(e.path), true
	inner.explain(n, v, "")
	e.run = inner.run
	return inner.failures()
}
