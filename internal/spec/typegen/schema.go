package typegen

import (
	"slices"
	"strings"

	"j17/internal/value"
)

// schemas turns the schemas of one event type into types.
type schemas struct {
	model *model
	// root is the schema that references start at, prefix what names of declarations start with.
	root   value.Value
	prefix string
	// refs maps references to the names of their declarations.
	refs map[string]string
}

// of returns the type of the values that fit a schema, or of a few more. Keywords that say nothing about the shape of a
// value are passed over.
func (c *schemas) of(s value.Value) *typ {
	if s.Kind() != value.Object {
		return &typ{}
	}
	parts := []*typ{c.own(s)}
	if ref := s.Get("$ref"); ref.Kind() == value.String {
		parts = append(parts, c.ref(ref.Str()))
	}
	for _, sub := range s.Get("allOf").Elems() {
		parts = append(parts, c.of(sub))
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		var options []*typ
		for _, sub := range s.Get(key).Elems() {
			options = append(options, c.of(sub))
		}
		if len(options) > 0 {
			parts = append(parts, either(options...))
		}
	}
	return together(parts...)
}

// own is what the schema itself says, without the schemas that it applies in place.
func (c *schemas) own(s value.Value) *typ {
	if v := s.Get("const"); !v.IsMissing() {
		return &typ{kind: literal, values: []value.Value{v}}
	}
	if v := s.Get("enum"); v.Len() > 0 {
		return either(&typ{kind: literal, values: v.Elems()})
	}
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
	return either(options...)
}

func (c *schemas) array(s value.Value) *typ {
	elem := c.of(s.Get("items"))
	if first := s.Get("prefixItems"); first.Len() > 0 {
		options := []*typ{}
		for _, sub := range first.Elems() {
			options = append(options, c.of(sub))
		}
		if items := s.Get("items"); items.Kind() != value.Bool || items.Truth() {
			options = append(options, elem)
		}
		elem = either(options...)
	}
	return &typ{kind: array, elem: elem}
}

func (c *schemas) object(s value.Value) *typ {
	properties := s.Get("properties").Members()
	if len(properties) == 0 && s.Get("required").Len() == 0 {
		var options []*typ
		for _, m := range s.Get("patternProperties").Members() {
			options = append(options, c.of(m.Value))
		}
		more := s.Get("additionalProperties")
		if more.Kind() != value.Bool || more.Truth() {
			options = append(options, c.of(more))
		}
		if len(options) == 0 {
			return &typ{kind: object}
		}
		return &typ{kind: mapping, elem: either(options...)}
	}
	o := &typ{kind: object}
	required := s.Get("required").Elems()
	for _, p := range properties {
		optional := !slices.ContainsFunc(required, func(r value.Value) bool { return r.Str() == p.Key })
		o.fields = append(o.fields, field{key: p.Key, typ: c.of(p.Value), optional: optional, about: p.Value.Get("description").Str()})
	}
	for _, r := range required {
		if !slices.ContainsFunc(o.fields, func(f field) bool { return f.key == r.Str() }) {
			o.fields = append(o.fields, field{key: r.Str(), typ: c.of(s.Get("additionalProperties"))})
		}
	}
	return o
}

// ref returns the type of a reference within the schema.
func (c *schemas) ref(ref string) *typ {
	if name, ok := c.refs[ref]; ok {
		return &typ{kind: reference, name: name}
	}
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok || strings.Contains(pointer, "%") {
		return &typ{}
	}
	s := c.root
	last := ""
	for step := range strings.SplitSeq(pointer, "/") {
		last = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		if s = s.Get(last); s.IsMissing() {
			return &typ{}
		}
	}
	d := c.model.declare(c.prefix+pascal(last), "", &typ{})
	d.about = s.Get("description").Str()
	c.refs[ref] = d.name
	d.typ = c.of(s)
	return &typ{kind: reference, name: d.name}
}
