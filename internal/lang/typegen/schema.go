package typegen

import (
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
)

// schemas turns the schemas of one event type into types.
type schemas struct {
	model *model
	// prefix is what names of declarations start with.
	prefix string
	// data is the name of the component of the whole schema, component names those of its parts.
	data      string
	component func(data string, at diag.Pointer) string
	// refs has the names of the declarations of schemas that references lead to, by their places.
	refs map[diag.Pointer]string
}

// of returns the type of the values that fit a schema, or of a few more. Keywords that do not affect the shape of a
// value are ignored.
func (c *schemas) of(s outline.Schema) *typ {
	if s.Kind() != value.Object {
		return &typ{}
	}
	parts := []*typ{c.own(s)}
	if to, ok := s.Ref(); ok {
		parts = append(parts, c.ref(to))
	}
	for _, sub := range s.Member("allOf").Elements() {
		parts = append(parts, c.of(sub))
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		var options []*typ
		for _, sub := range s.Member(key).Elements() {
			options = append(options, c.of(sub))
		}
		if len(options) > 0 {
			parts = append(parts, c.model.either(options...))
		}
	}
	return together(parts...)
}

// own is the type that the schema itself describes, without the schemas that it applies in place.
func (c *schemas) own(s outline.Schema) *typ {
	if v := s.Get("const"); !v.IsMissing() {
		return &typ{kind: literal, values: []value.Value{v}}
	}
	if v := s.Get("enum"); v.Len() > 0 {
		return c.model.either(&typ{kind: literal, values: v.Elems()})
	}

	// The kinds that it allows, or that its keywords are about.
	var names []string
	switch t := s.Get("type"); {
	case t.Kind() == value.String:
		names = []string{t.Str()}
	case t.Kind() == value.Array:
		for _, n := range t.Elems() {
			names = append(names, n.Str())
		}
	case !s.Get("properties").IsMissing():
		names = []string{"object"}
	case !s.Get("items").IsMissing() || !s.Get("prefixItems").IsMissing():
		names = []string{"array"}
	default:
		return &typ{}
	}

	var options []*typ
	for _, n := range names {
		switch n {
		case "null":
			options = append(options, &typ{kind: null})
		case "boolean":
			options = append(options, &typ{kind: boolean})
		case "integer":
			options = append(options, &typ{kind: integer})
		case "number":
			options = append(options, &typ{kind: number})
		case "string":
			options = append(options, &typ{kind: text})
		case "array":
			options = append(options, c.array(s))
		case "object":
			options = append(options, c.object(s))
		}
	}
	return c.model.either(options...)
}

func (c *schemas) array(s outline.Schema) *typ {
	elem := c.of(s.Member("items"))
	if first := s.Member("prefixItems"); first.Len() > 0 {
		options := []*typ{}
		for _, sub := range first.Elements() {
			options = append(options, c.of(sub))
		}
		if !s.Member("items").Never() {
			options = append(options, elem)
		}
		elem = c.model.either(options...)
	}
	return &typ{kind: array, elem: elem}
}

func (c *schemas) object(s outline.Schema) *typ {
	properties := s.Get("properties").Members()
	if len(properties) == 0 && s.Get("required").Len() == 0 {
		var options []*typ
		for _, m := range s.Get("patternProperties").Members() {
			options = append(options, c.of(s.Member("patternProperties").Member(m.Key)))
		}
		more := s.Member("additionalProperties")
		if !more.Never() {
			options = append(options, c.of(more))
		}
		if len(options) == 0 {
			return &typ{kind: object}
		}
		return &typ{kind: mapping, elem: c.model.either(options...)}
	}
	o := &typ{kind: object}
	required := s.Get("required").Elems()
	for _, p := range properties {
		optional := !slices.ContainsFunc(required, func(r value.Value) bool { return r.Str() == p.Key })
		o.fields = append(o.fields, field{
			key: p.Key, typ: c.of(s.Property(p.Key)), optional: optional, about: p.Value.Get("description").Str(),
		})
	}
	for _, r := range required {
		if !slices.ContainsFunc(o.fields, func(f field) bool { return f.key == r.Str() }) {
			o.fields = append(o.fields, field{key: r.Str(), typ: c.of(s.Member("additionalProperties"))})
		}
	}
	return o
}

// ref returns the type of the schema that a reference leads to.
func (c *schemas) ref(to outline.Schema) *typ {
	prefix, refs, steps := c.prefix, c.refs, to.At.Steps()
	if name := outline.Definition(to.At); name != "" {
		// A shared definition is declared once, and what is in it after it.
		refs, prefix, steps = c.model.shared, pascal(name), steps[len(outline.Shared.Key(name).Steps()):]
	}
	if name, ok := refs[to.At]; ok {
		return &typ{kind: reference, name: name}
	}
	last := ""
	if len(steps) > 0 {
		last = pascal(steps[len(steps)-1])
	}
	d := c.model.declare(prefix+last, "", &typ{})
	d.about = to.Get("description").Str()
	if c.component != nil {
		d.component = c.component(c.data, to.At)
	}
	refs[to.At] = d.name
	d.typ = c.of(to)
	return &typ{kind: reference, name: d.name}
}
