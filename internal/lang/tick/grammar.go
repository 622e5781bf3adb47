package tick

import (
	"iter"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// Reading says how a part of an operation or of a predicate is read.
type Reading uint8

// The readings.
const (
	// AsValue: strings that look like paths are paths, all others texts.
	AsValue Reading = iota
	// AsNumber: a value that has to be a number.
	AsNumber
	// AsArray: a value that has to be an array, where a string without a prefix is a state path.
	AsArray
	// AsPath: a path of any sort.
	AsPath
	AsPredicate
	// AsOperations: operations on an element, which "@" stands for there.
	AsOperations
	// AsText: a value that has to be a text.
	AsText
	// AsObject: a value that has to be an object.
	AsObject
	// AsTime: a value that has to be a number or a text, such as a time.
	AsTime
	// asObjects: an array of objects.
	asObjects
	// asNumbers: an array of numbers, or a value that is one; asValues: an array of values, or a value that is one.
	asNumbers
	asValues
	// asMatch: a predicate, or fields and their values.
	asMatch
	// asPredicates: an array of predicates.
	asPredicates
	// asPairs: an array of arrays of two values.
	asPairs
)

// operandForm is where a part is: a member, or that of the member called within; without a key, the element at an index
// of an array, or the whole body where the index is whole.
type operandForm struct {
	key     string
	reading Reading
	within  string
	place   int
	// bound reports that the part is about an element, which has a name there.
	bound bool
}

// whole is the place of an operand that is all there is.
const whole = -1

// Part is a part of an operation or a predicate: what it says, where it stands and how it is read.
type Part struct {
	Reading Reading
	Value   value.Value
	At      diag.Pointer
	// Bound reports that the part is about each element of Operation.Over. Field is the field of the element that it is
	// compared with, "" where it is part of something else.
	Bound bool
	Field string
}

// parts appends the parts of an operand that the body at a place has.
func (o operandForm) parts(body value.Value, at diag.Pointer, out []Part) []Part {
	if o.within != "" {
		body, at = body.Get(o.within), at.Key(o.within)
	}
	v := body
	switch {
	case o.key != "":
		v, at = body.Get(o.key), at.Key(o.key)
	case o.place != whole:
		v, at = body.Index(o.place), at.Index(o.place)
	}
	switch {
	case v.IsMissing():
	case o.reading == asPredicates || o.reading == asObjects:
		as := AsPredicate
		if o.reading == asObjects {
			as = AsObject
		}
		for i, e := range v.Elems() {
			out = append(out, Part{Reading: as, Value: e, At: at.Index(i), Bound: o.bound})
		}
	case o.reading == asPairs:
		for i, pair := range v.Elems() {
			for j, e := range pair.Elems() {
				out = append(out, Part{Value: e, At: at.Index(i).Index(j)})
			}
		}
	case (o.reading == asNumbers || o.reading == asValues) && v.Kind() != value.Array:
		out = append(out, Part{Reading: AsArray, Value: v, At: at, Bound: o.bound})
	case o.reading == asNumbers || o.reading == asValues:
		as := AsValue
		if o.reading == asNumbers {
			as = AsNumber
		}
		for i, e := range v.Elems() {
			out = append(out, Part{Reading: as, Value: e, At: at.Index(i), Bound: o.bound})
		}
	case o.reading == asMatch && IsPredicate(v):
		out = append(out, Part{Reading: AsPredicate, Value: v, At: at, Bound: o.bound})
	case o.reading == asMatch:
		for _, m := range v.Members() {
			out = append(out, Part{Reading: AsValue, Value: m.Value, At: at.Key(m.Key), Field: m.Key})
		}
	default:
		out = append(out, Part{Reading: o.reading, Value: v, At: at, Bound: o.bound})
	}
	return out
}

// Effect says what an operation writes.
type Effect uint8

// The effects. What is put or merged is Operation.Written.
const (
	// Nothing: it takes away, binds a name or decides.
	Nothing Effect = iota
	// Puts: the target becomes the value.
	Puts
	// Merges: the members of the value become members of the target.
	Merges
	// Counts: the target becomes a number.
	Counts
	// PutsElement: the value becomes an element of the target.
	PutsElement
	// MergesElements: the members of the value become members of elements.
	MergesElements
	// ChangesElements: the value is operations, which each element goes through; ChangesValues: which each value of an
	// object goes through.
	ChangesElements
	ChangesValues
	// PutsMember, MergesMember and CountsMember do to a member of the target, whose key comes from data, what Puts,
	// Merges and Counts do to a target.
	PutsMember
	MergesMember
	CountsMember
	// Moves: what is at Operation.From comes to the target.
	Moves
	// Drops: the target goes.
	Drops
	// Fills: the target becomes the value where there is none.
	Fills
)

// operationForm describes an operation: a row of the one table of operations.
type operationForm struct {
	// on is what the target has to be, Missing where it may be anything or there is none.
	on value.Kind
	// makes reports that the operation makes a target that is missing.
	makes bool
	// effect is what the operation writes, from the member that has it.
	effect   Effect
	from     string
	operands []operandForm
	// compile compiles the body v, which stands at the place at; nil for "if", which has no body.
	compile func(c operationCompiler, b base, v value.Value, at diag.Pointer) operation
}

// operationNames lists the operations by their keys.
func operationNames() []string {
	return []string{
		"set", "merge", "append", "remove", "increment", "decrement", "filter", "map", "update_where", "upsert",
		"append_unique", "set_at", "merge_at", "remove_at", "increment_at", "decrement_at", "move", "drop", "default",
		"map_values", "if", "let",
	}
}

// operationNamed returns the row of an operation. It reports false for a name that is none.
func operationNamed(name string) (operationForm, bool) {
	val, object, key := operandForm{key: "value"}, operandForm{key: "value", reading: AsObject},
		operandForm{key: "key", reading: AsText}
	match, by, alias := operandForm{key: "match", reading: asMatch, bound: true},
		operandForm{key: "by", reading: AsNumber}, operandForm{key: "value", reading: AsNumber}
	var f operationForm
	switch name {
	// What adds to its target, and makes it where there is none.
	case "set":
		f = operationForm{
			makes: true, effect: Puts, from: "value", operands: []operandForm{val}, compile: operationCompiler.simple,
		}
	case "merge":
		f = operationForm{
			on: value.Object, makes: true, effect: Merges, from: "value", operands: []operandForm{object},
			compile: operationCompiler.simple,
		}
	case "append":
		f = operationForm{
			on: value.Array, makes: true, effect: PutsElement, from: "value", operands: []operandForm{val},
			compile: operationCompiler.simple,
		}
	case "append_unique":
		f = operationForm{
			on: value.Array, makes: true, effect: PutsElement, from: "value", operands: []operandForm{val},
			compile: operationCompiler.appendUnique,
		}
	case "upsert":
		f = operationForm{
			on: value.Array, makes: true, effect: PutsElement, from: "value", operands: []operandForm{val, match},
			compile: operationCompiler.upsert,
		}
	case "increment", "decrement":
		f = operationForm{
			on: value.Number, makes: true, effect: Counts, operands: []operandForm{by, alias},
			compile: operationCompiler.increment,
		}
	// What goes through the elements of an array.
	case "remove":
		f = operationForm{
			on: value.Array, operands: []operandForm{val, {key: "where", reading: asMatch, bound: true}, match},
			compile: operationCompiler.remove,
		}
	case "filter":
		f = operationForm{
			on: value.Array, operands: []operandForm{{key: "keep", reading: AsPredicate, bound: true}},
			compile: operationCompiler.filter,
		}
	case "map":
		f = operationForm{
			on: value.Array, effect: ChangesElements, from: "apply", operands: []operandForm{
				{key: "apply", reading: AsOperations, bound: true},
			}, compile: operationCompiler.mapping,
		}
	case "map_values":
		f = operationForm{
			on: value.Object, effect: ChangesValues, from: "apply", operands: []operandForm{
				{key: "apply", reading: AsOperations, bound: true},
			}, compile: operationCompiler.mapping,
		}
	case "update_where":
		f = operationForm{
			on: value.Array, effect: MergesElements, from: "merge", operands: []operandForm{
				match, {key: "merge", reading: AsObject, bound: true},
			}, compile: operationCompiler.updateWhere,
		}
	// What reaches a member by a name that is computed.
	case "set_at":
		f = operationForm{
			on: value.Object, makes: true, effect: PutsMember, from: "value", operands: []operandForm{key, val},
			compile: operationCompiler.dynamic,
		}
	case "merge_at":
		f = operationForm{
			on: value.Object, makes: true, effect: MergesMember, from: "value", operands: []operandForm{key, object},
			compile: operationCompiler.dynamic,
		}
	case "remove_at":
		f = operationForm{on: value.Object, operands: []operandForm{key}, compile: operationCompiler.dynamic}
	case "increment_at", "decrement_at":
		f = operationForm{
			on: value.Object, makes: true, effect: CountsMember, operands: []operandForm{key, by, alias},
			compile: operationCompiler.dynamic,
		}
	// What changes where members are, or whether they are there.
	case "move":
		f = operationForm{makes: true, effect: Moves, compile: operationCompiler.move}
	case "drop":
		f = operationForm{effect: Drops, compile: operationCompiler.drop}
	case "default":
		f = operationForm{
			makes: true, effect: Fills, from: "value", operands: []operandForm{val},
			compile: operationCompiler.defaulting,
		}
	// What only says what others see, or whether they are carried out.
	case "if":
		f = operationForm{operands: []operandForm{{key: "if", reading: AsPredicate}}}
	case "let":
		f = operationForm{
			operands: []operandForm{
				{key: "in", reading: AsArray, within: "find"},
				{key: "where", reading: asMatch, within: "find", bound: true},
				{key: "find_target", reading: AsArray},
				{key: "find_value"},
			},
			compile: operationCompiler.let,
		}
	default:
		return f, false
	}
	return f, true
}

// predicateForm describes a predicate: a row of the one table of predicates.
type predicateForm struct {
	// takes is the kind of JSON that the predicate takes.
	takes    value.Kind
	operands []operandForm
	// compile compiles what the predicate called name takes.
	compile func(c predicateCompiler, name string, v value.Value, at diag.Pointer) predicate
}

// predicateNames lists the predicates.
func predicateNames() []string {
	return []string{
		"equals", "not_equals", "gt", "gte", "lt", "lte", "in", "not_in", "exists", "includes", "minItems", "maxItems",
		"expired", "every", "some", "subset_of", "and", "or", "not", "eq",
	}
}

// predicateNamed returns the row of a predicate. It reports false for a name that is none.
func predicateNamed(name string) (predicateForm, bool) {
	array := operandForm{key: "array", reading: AsArray}
	var f predicateForm
	switch name {
	// Two values.
	case "equals", "eq", "not_equals", "gt", "gte", "lt", "lte":
		f = predicateForm{value.Array, []operandForm{{place: 0}, {place: 1}}, predicateCompiler.comparison}
	case "in", "not_in":
		f = predicateForm{
			value.Array, []operandForm{{place: 0}, {place: 1, reading: AsArray}}, predicateCompiler.comparison,
		}
	// Other predicates.
	case "and", "or":
		f = predicateForm{
			value.Array, []operandForm{{place: whole, reading: asPredicates}}, predicateCompiler.predicateList,
		}
	case "not":
		f = predicateForm{value.Object, []operandForm{{place: whole, reading: AsPredicate}}, predicateCompiler.negation}
	// What is there, how much of it, and since when.
	case "exists":
		f = predicateForm{value.String, []operandForm{{place: whole, reading: AsPath}}, predicateCompiler.exists}
	case "includes":
		f = predicateForm{value.Object, []operandForm{array, {key: "value"}}, predicateCompiler.includes}
	case "minItems":
		f = predicateForm{
			value.Object, []operandForm{array, {key: "min", reading: AsNumber}}, predicateCompiler.counting,
		}
	case "maxItems":
		f = predicateForm{
			value.Object, []operandForm{array, {key: "max", reading: AsNumber}}, predicateCompiler.counting,
		}
	case "expired":
		f = predicateForm{value.Object, []operandForm{
			{key: "timestamp", reading: AsNumber},
			{key: "maxAgeSeconds", reading: AsNumber},
			{key: "now", reading: AsNumber},
		}, predicateCompiler.expired}
	// All elements of an array.
	case "every", "some":
		f = predicateForm{
			value.Object,
			[]operandForm{{key: "in", reading: AsArray}, {key: "match", reading: AsPredicate}},
			predicateCompiler.elements,
		}
	case "subset_of":
		f = predicateForm{
			value.Object, []operandForm{{key: "items", reading: AsArray}, array}, predicateCompiler.subset,
		}
	default:
		return f, false
	}
	return f, true
}

// IsPredicate reports whether a value, such as that of a match, is a predicate rather than fields and their values: its
// only key names one, and has the kind of JSON that the predicate takes.
func IsPredicate(v value.Value) bool {
	return v.Kind() == value.Object && v.Len() == 1 && isPredicate(v.Members()[0])
}

func isPredicate(m value.Member) bool {
	f, ok := predicateNamed(m.Key)
	return ok && m.Value.Kind() == f.takes && (f.takes != value.String || jsonpath.IsPath(m.Value.Str()))
}

// PredicateParts returns the parts of a predicate that compiles.
func PredicateParts(v value.Value, at diag.Pointer) []Part {
	if v.Len() != 1 {
		return nil
	}
	m := v.Members()[0]
	f, _ := predicateNamed(m.Key)
	var out []Part
	for _, o := range f.operands {
		out = o.parts(m.Value, at.Key(m.Key), out)
	}
	return out
}

// Operation is an operation of a handler as it stands in a spec.
type Operation struct {
	Name string
	// At is the place of the body, of the whole operation for "if".
	At     diag.Pointer
	Effect Effect
	// Written is what is put or merged, or the operations on each element; missing for other effects.
	Written value.Value
	// Target is the place in the state that the operation works on, TargetAt where it is named. On is the kind that it
	// has to have, Missing where any will do or there is no target. Makes reports that the operation makes it where it
	// is missing.
	Target   jsonpath.Path
	TargetAt diag.Pointer
	On       value.Kind
	Makes    bool
	// From is the place that something is moved from, FromAt where it is named.
	From   jsonpath.Path
	FromAt diag.Pointer
	// Over is the path to the array that parts refer to the elements of, or to the object that they refer to the values
	// of; "" where they refer to none. As is the name of an element there, "" for "$item".
	Over, As string

	body     value.Value
	operands []operandForm
}

// Parts returns the parts of the operation beside its target and names.
func (o *Operation) Parts() []Part {
	var out []Part
	for _, operand := range o.operands {
		out = operand.parts(o.body, o.At, out)
	}
	return out
}

// Operations goes through the operations of a handler that compiles, or of an operation's Written: in their order, both
// branches of an "if" after it. Operations on elements are not visited.
func Operations(v value.Value, at diag.Pointer) iter.Seq[*Operation] {
	return func(yield func(*Operation) bool) { visit(v, at, yield) }
}

// visit is Operations, and reports whether to go on.
func visit(v value.Value, at diag.Pointer, yield func(*Operation) bool) bool {
	if v.Kind() == value.Array {
		for i, op := range v.Elems() {
			if !visit(op, at.Index(i), yield) {
				return false
			}
		}
		return true
	}
	if v.Len() == 0 {
		return true
	}
	o := &Operation{Name: "if", At: at, body: v}
	decides := !v.Get("if").IsMissing()
	if !decides {
		m := v.Members()[0]
		o.Name, o.At, o.body = m.Key, at.Key(m.Key), m.Value
	}
	f, _ := operationNamed(o.Name)
	o.Effect, o.On, o.Makes, o.operands = f.effect, f.on, f.makes, f.operands
	if f.from != "" {
		o.Written = o.body.Get(f.from)
	}
	if target := o.body.Get("target"); !decides && !target.IsMissing() {
		o.Target, _ = jsonpath.ParseState(target.Str())
		o.TargetAt = o.At.Key("target")
	}
	if o.Effect == Moves {
		o.From, _ = jsonpath.ParseState(o.body.Get("from").Str())
		o.FromAt = o.At.Key("from")
		o.Target, _ = jsonpath.ParseState(o.body.Get("to").Str())
		o.TargetAt = o.At.Key("to")
	}
	switch find := o.body.Get("find"); {
	case o.Name == "append_unique" && !o.body.Get("uniqueField").IsMissing():
		o.operands = []operandForm{{key: "value", reading: AsObject}} // which has the field
		fallthrough
	case o.On == value.Array || o.Effect == ChangesValues:
		o.Over, o.As = o.body.Get("target").Str(), o.body.Get("as").Str()
	case o.Name == "let":
		o.Over, o.As = find.Get("in").Str(), find.Get("as").Str()
	}
	if !yield(o) {
		return false
	}
	return !decides || visit(v.Get("then"), at.Key("then"), yield) && visit(v.Get("else"), at.Key("else"), yield)
}
