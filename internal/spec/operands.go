package spec

import (
	"j17/internal/spec/outline"
	"j17/internal/value"
)

// reading says how an operand of the handler language is read.
type reading uint8

const (
	// asValue: strings that look like paths are paths, all others texts.
	asValue reading = iota
	// asNumber: a value that has to be a number.
	asNumber
	// asArray: a value that has to be an array, where a string without a prefix is a state path.
	asArray
	// asPath: a path of any sort.
	asPath
	asPredicate
	// asMatch: a predicate, or fields and their values.
	asMatch
	// asChanges: operations on an element, which "@" stands for there.
	asChanges
	asOperations
)

// operand is a member of an operation or of a predicate. Names, and targets, are none.
type operand struct {
	key string
	reading
}

// operationRow says what an operation does to its target.
type operationRow struct {
	name string
	// on is what the target has to be, 0 where it may be anything.
	on outline.Kinds
	// makes tells that the operation makes a target that is missing.
	makes    bool
	operands []operand
}

// operationNamed returns what is known of an operation. The zero row stands for one that has no target.
func operationNamed(name string) operationRow {
	number, value := outline.Number, operand{"value", asValue}
	for _, row := range []operationRow{
		{name: "set", makes: true, operands: []operand{value}},
		{name: "merge", on: outline.Object, makes: true, operands: []operand{value}},
		{name: "append", on: outline.Array, makes: true, operands: []operand{value}},
		{name: "append_unique", on: outline.Array, makes: true, operands: []operand{value}},
		{name: "upsert", on: outline.Array, makes: true, operands: []operand{value, {"match", asMatch}}},
		{name: "increment", on: number, makes: true, operands: []operand{{"by", asNumber}, {"value", asNumber}}},
		{name: "decrement", on: number, makes: true, operands: []operand{{"by", asNumber}, {"value", asNumber}}},
		{name: "remove", on: outline.Array, operands: []operand{value, {"where", asMatch}, {"match", asMatch}}},
		{name: "filter", on: outline.Array, operands: []operand{{"keep", asPredicate}}},
		{name: "map", on: outline.Array, operands: []operand{{"apply", asChanges}}},
		{name: "update_where", on: outline.Array, operands: []operand{{"match", asMatch}, {"merge", asValue}}},
		{name: "set_at", on: outline.Object, makes: true, operands: []operand{{"key", asValue}, value}},
		{name: "merge_at", on: outline.Object, makes: true, operands: []operand{{"key", asValue}, value}},
		{name: "remove_at", on: outline.Object, operands: []operand{{"key", asValue}}},
		{name: "increment_at", on: outline.Object, makes: true, operands: []operand{{"key", asValue}, {"by", asNumber}, {"value", asNumber}}},
	} {
		if row.name == name {
			return row
		}
	}
	return operationRow{}
}

// predicateOperands returns the operands of a predicate: by position where keys are empty. A key that is missing from the
// result is no predicate.
func predicateOperands(name string) (list []operand, ok bool) {
	switch name {
	case "equals", "eq", "not_equals", "gt", "gte", "lt", "lte":
		return []operand{{"", asValue}, {"", asValue}}, true
	case "in", "not_in":
		return []operand{{"", asValue}, {"", asArray}}, true
	case "includes":
		return []operand{{"array", asArray}, {"value", asValue}}, true
	case "minItems":
		return []operand{{"array", asArray}, {"min", asNumber}}, true
	case "maxItems":
		return []operand{{"array", asArray}, {"max", asNumber}}, true
	case "expired":
		return []operand{{"timestamp", asNumber}, {"maxAgeSeconds", asNumber}, {"now", asNumber}}, true
	case "every", "some":
		return []operand{{"in", asArray}, {"match", asPredicate}}, true
	case "subset_of":
		return []operand{{"items", asArray}, {"array", asArray}}, true
	case "exists", "and", "or", "not":
		return nil, true
	default:
		return nil, false
	}
}

// isPredicate reports whether the object of a match is a predicate rather than fields and their values.
func isPredicate(v value.Value) bool {
	if v.Len() != 1 {
		return false
	}
	m := v.Members()[0]
	list, ok := predicateOperands(m.Key)
	switch {
	case !ok:
		return false
	case m.Key == "exists":
		return m.Value.Kind() == value.String && m.Value.Str() != "" && (m.Value.Str()[0] == '$' || m.Value.Str()[0] == '@')
	case m.Key == "and" || m.Key == "or" || len(list) > 0 && list[0].key == "":
		return m.Value.Kind() == value.Array
	default:
		return m.Value.Kind() == value.Object
	}
}
