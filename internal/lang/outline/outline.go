// Package outline reads JSON Schemas for what they say: which kinds of values they let through, what the members and
// elements of these are, and where references lead. It does not check values, which package schema does, and takes a
// keyword of the wrong form for a missing one. Comparing schemas, making up examples, writing types and checking paths
// are built on it.
package outline

import (
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Schema is a schema in a document, or the value of one of its keywords. The zero Schema is missing.
type Schema struct {
	value.Value
	// At is its place in the document. That of a shared definition, or of a part of one, is Shared with the way from
	// there.
	At  diag.Pointer
	doc *Document
}

// Of returns the schema that is a whole document of a spec with shared definitions.
func Of(root, shared value.Value) Schema { return Read(root, shared).Root() }

// Member is Get with the place.
func (s Schema) Member(key string) Schema {
	return Schema{Value: s.Get(key), At: s.At.Key(key), doc: s.doc}
}

// Element is Index with the place.
func (s Schema) Element(i int) Schema {
	return Schema{Value: s.Index(i), At: s.At.Index(i), doc: s.doc}
}

// Elements are the elements of an array with their places.
func (s Schema) Elements() []Schema {
	out := make([]Schema, len(s.Elems()))
	for i := range out {
		out[i] = s.Element(i)
	}
	return out
}

// Never reports whether the schema is false, which lets nothing through.
func (s Schema) Never() bool { return s.Kind() == value.Bool && !s.Truth() }

// Closed reports whether an object that fits has no members but those that stand under "properties".
func (s Schema) Closed() bool {
	more := s.Get("additionalProperties")
	return more.Kind() == value.Bool && !more.Truth() && s.Get("patternProperties").Len() == 0
}

// Property returns the schema of a member that "properties" declares.
func (s Schema) Property(name string) Schema {
	return Schema{Value: s.Get("properties").Get(name), At: s.At.Key("properties", name), doc: s.doc}
}

// Values returns what enum and const allow, and whether there is either.
func (s Schema) Values() ([]value.Value, bool) {
	if v := s.Get("const"); !v.IsMissing() {
		return []value.Value{v}, true
	}
	v := s.Get("enum")
	return v.Elems(), v.Kind() == value.Array
}

// Ref returns the schema that "$ref" leads to. It reports false where there is no reference, or where it leads to
// nothing in the document.
func (s Schema) Ref() (Schema, bool) {
	ref := s.Get("$ref")
	if ref.Kind() != value.String || s.doc == nil {
		return Schema{}, false
	}
	to, fault := s.doc.Find(ref.Str(), s.At)
	return to, fault.Why == Found
}

// Follow follows steps through "properties" and "items" of the schema itself, or of the one that it refers to where it
// has no such keyword itself. The result is missing where nothing is said about that place.
func (s Schema) Follow(steps []value.Step) Schema {
	for _, step := range steps {
		s = s.referred("properties", "items", "prefixItems")
		switch {
		case !step.IsIndex:
			s = s.Property(step.Key)
		case s.Get("prefixItems").IsMissing():
			s = s.Member("items")
		default:
			return Schema{}
		}
	}
	return s.referred("type", "enum", "const", "properties", "items", "prefixItems")
}

// maxReferences is how many references are followed one after the other.
const maxReferences = 10

// referred returns the schema that a reference leads to where none of some keywords stands beside it, else the schema
// itself. Both hold, so that what is true of either is true.
func (s Schema) referred(keywords ...string) Schema {
	for range maxReferences {
		if slices.ContainsFunc(keywords, func(k string) bool { return !s.Get(k).IsMissing() }) {
			break
		}
		to, ok := s.Ref()
		if !ok {
			break
		}
		s = to
	}
	return s
}

// Size is how many names, values and members the lists of the schema have.
func (s Schema) Size() int {
	values, _ := s.Values()
	n := s.Get("required").Len() + s.Get("properties").Len() + s.Get("patternProperties").Len() + len(values)
	for _, m := range s.Get("dependentRequired").Members() {
		n += m.Value.Len()
	}
	return n
}

// Alternative is a set of schemas that hold together.
type Alternative []Schema

// Kinds returns the types that every schema of the alternative lets through by its keyword "type".
func (a Alternative) Kinds() Kinds {
	k := Any
	for _, s := range a {
		if s.Never() {
			return 0
		}
		if t := s.Get("type"); !t.IsMissing() {
			k &= KindsNamed(t)
		}
	}
	return k
}

// ValueKinds returns the types of the values that enum and const leave.
func (a Alternative) ValueKinds() Kinds {
	k := Any
	for _, s := range a {
		if values, ok := s.Values(); ok {
			var some Kinds
			for _, v := range values {
				some |= KindOf(v)
			}
			k &= some
		}
	}
	return k
}

// Kinds returns the kinds that the schema itself says it lets through; it never leaves one out.
func (s Schema) Kinds() Kinds {
	a := Alternative{s}
	return a.Kinds() & a.ValueKinds()
}

// Size is that of all schemas.
func (a Alternative) Size() int {
	n := 0
	for _, s := range a {
		n += s.Size()
	}
	return n
}

// First returns the value of a keyword in the first schema that has it.
func (a Alternative) First(key string) Schema {
	for _, s := range a {
		if v := s.Member(key); !v.IsMissing() {
			return v
		}
	}
	return Schema{}
}

// Property returns the schemas that hold for a property: those that declare it by name, those of patterns that match
// it, and where a schema has neither those of the properties that are not declared.
func (a Alternative) Property(name string, matches func(pattern, name string) bool) []Schema {
	var found []Schema
	for _, s := range a {
		before := len(found)
		if sub := s.Property(name); !sub.IsMissing() {
			found = append(found, sub)
		}
		patterns := s.Member("patternProperties")
		for _, m := range patterns.Members() {
			if matches(m.Key, name) {
				found = append(found, patterns.Member(m.Key))
			}
		}
		if others := s.Member("additionalProperties"); len(found) == before && !others.IsMissing() {
			found = append(found, others)
		}
	}
	return found
}

// Pattern returns the schemas that hold for properties that match a pattern.
func (a Alternative) Pattern(pattern string) []Schema {
	var found []Schema
	for _, s := range a {
		if sub := s.Member("patternProperties").Member(pattern); !sub.IsMissing() {
			found = append(found, sub)
		} else if others := s.Member("additionalProperties"); !others.IsMissing() {
			found = append(found, others)
		}
	}
	return found
}

// Item returns the schemas that hold for an element of an array.
func (a Alternative) Item(i int) []Schema {
	var found []Schema
	for _, s := range a {
		prefix := s.Member("prefixItems")
		if i < prefix.Len() {
			found = append(found, prefix.Element(i))
		} else if rest := s.Member("items"); !rest.IsMissing() {
			found = append(found, rest)
		}
	}
	return found
}

// Declares reports whether a property is mentioned by name or by pattern.
func (a Alternative) Declares(name string, matches func(pattern, name string) bool) bool {
	return slices.ContainsFunc(a, func(s Schema) bool {
		return !s.Property(name).IsMissing() ||
			slices.ContainsFunc(s.Get("patternProperties").Members(), func(m value.Member) bool {
				return matches(m.Key, name)
			})
	})
}
