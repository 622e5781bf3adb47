package outline

import (
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Kinds is a set of the types that JSON Schema distinguishes.
type Kinds uint8

// The kinds.
const (
	Null Kinds = 1 << iota
	Boolean
	Object
	Array
	String
	Integer
	// Fraction is a number that is no integer.
	Fraction

	Any Kinds = 1<<iota - 1
	// Number is any number.
	Number = Integer | Fraction
)

// word is what a set of kinds is called, by itself and in a sentence.
type word struct {
	set            Kinds
	name, sentence string
}

// words returns what is said of the kinds, the widest first.
func (k Kinds) words() []word {
	var found []word
	for _, w := range []word{
		{Object, "object", "an object"},
		{Array, "array", "an array"},
		{String, "string", "a text"},
		{Number, "number", "a number"},
		{Integer, "integer", "an integer"},
		{Fraction, "", "a fraction"},
		{Boolean, "boolean", "a boolean"},
		{Null, "null", "null"},
	} {
		if k&w.set == w.set {
			found = append(found, w)
			k &^= w.set
		}
	}
	return found
}

// Names are the names of the types, as in the keyword "type". Fractions alone have none.
func (k Kinds) Names() []string {
	var names []string
	for _, w := range k.words() {
		if w.name != "" {
			names = append(names, w.name)
		}
	}
	return names
}

// Types names the types as schemas do: "string or null".
func (k Kinds) Types() string {
	if k == Any {
		return "of any type"
	}
	return diag.Join(k.Names(), "or")
}

// Phrase names the types as a sentence does: "a text or null".
func (k Kinds) Phrase() string {
	if k == Any {
		return "of any type"
	}
	var phrases []string
	for _, w := range k.words() {
		phrases = append(phrases, w.sentence)
	}
	return diag.Join(phrases, "or")
}

// KindsNamed returns what the keyword "type" lets through.
func KindsNamed(v value.Value) Kinds {
	if v.Kind() == value.Array {
		var k Kinds
		for _, e := range v.Elems() {
			k |= KindsNamed(e)
		}
		return k
	}
	switch v.Str() {
	case "null":
		return Null
	case "boolean":
		return Boolean
	case "object":
		return Object
	case "array":
		return Array
	case "string":
		return String
	case "integer":
		return Integer
	case "number":
		return Number
	default:
		return Any
	}
}

// KindOf returns the type of one value.
func KindOf(v value.Value) Kinds {
	switch v.Kind() {
	case value.Null:
		return Null
	case value.Bool:
		return Boolean
	case value.Object:
		return Object
	case value.Array:
		return Array
	case value.String:
		return String
	case value.Number:
		if v.IsInteger() {
			return Integer
		}
		return Fraction
	case value.Missing:
	}
	return 0
}
