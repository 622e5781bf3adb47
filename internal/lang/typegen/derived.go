package typegen

import (
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Bounds of the total length of derived components, in bytes: a multiple of the spec's length, and a constant.
const (
	derivedGrowth = 4
	derivedLeast  = 256 << 10
)

// derive adds the components of what is derived: of states, and of what projections yield.
func (l *lifting) derive(root, projections value.Value) {
	m := newModel(root, func(data string, at diag.Pointer) string { return l.names[data][at] })
	m.projections(root, projections)
	for _, t := range root.Get("aggregate_types").Members() {
		// A state may be that of a singleton, which has none of its members before its first event.
		d := m.byName[m.states[t.Key]]
		d.component = StateComponent(t.Key)
		if fields, ok := m.members(d.typ); ok {
			d.typ = &typ{kind: object, fields: unwritten(fields)}
		}
	}

	// Write states and results, and what they are made of, as far as there is room.
	s := &jsonSchemas{model: m, room: derivedGrowth*len(root.AppendJSON(nil)) + derivedLeast, asked: map[string]bool{}}
	for _, d := range m.declarations {
		if strings.HasSuffix(d.component, stateSuffix) || strings.HasSuffix(d.component, resultSuffix) {
			s.ask(d)
		}
	}
	for i := 0; i < len(s.next); i++ {
		d := s.next[i]
		if l.lifted(d.component) {
			continue
		}
		if m.left < 0 {
			d.typ = &typ{}
		}
		b := s.write(nil, d.typ)
		if s.room -= len(b); s.room < 0 {
			b = []byte("{}")
		}
		l.add(d.component, b)
	}
}

// lifted reports whether a component is that of an event's data, or of a part of it.
func (l *lifting) lifted(component string) bool {
	_, found := l.taken[component]
	return found
}

// unwritten returns the fields of a state before its first event: each may be missing.
func unwritten(fields []field) []field {
	fields = slices.Clone(fields)
	for i := range fields {
		fields[i].optional = true
	}
	return fields
}

// jsonSchemas writes types as JSON Schemas.
type jsonSchemas struct {
	model *model
	// room is how many bytes there may still be.
	room int
	// next are the declarations that have been asked for.
	next  []*declaration
	asked map[string]bool
}

func (s *jsonSchemas) ask(d *declaration) {
	if !s.asked[d.component] {
		s.asked[d.component] = true
		s.next = append(s.next, d)
	}
}

// write appends the schema of a type. It is not whole where there is no room for it.
func (s *jsonSchemas) write(b []byte, t *typ) []byte {
	if len(b) > s.room {
		return b
	}
	switch t.kind {
	case null:
		return append(b, `{"type":"null"}`...)
	case boolean:
		return append(b, `{"type":"boolean"}`...)
	case integer:
		return append(b, `{"type":"integer"}`...)
	case number:
		return append(b, `{"type":"number"`+doubleFormat+`}`...)
	case text:
		return append(b, `{"type":"string"}`...)
	case literal:
		return s.literal(b, t)
	case array:
		return append(s.write(append(b, `{"type":"array","items":`...), t.elem), '}')
	case mapping:
		return append(s.write(append(b, `{"type":"object","additionalProperties":`...), t.elem), '}')
	case object:
		return s.object(b, t)
	case union:
		return s.union(b, t)
	case both:
		return s.list(append(b, `{"allOf":`...), t.parts)
	case reference:
		if d := s.model.byName[t.name]; d.component != "" {
			s.ask(d)
			return appendReference(b, d.component)
		}
	case unknown:
	}
	return append(b, "{}"...)
}

// literal appends the schema of a choice of values, with their type where it is one.
func (s *jsonSchemas) literal(b []byte, t *typ) []byte {
	b = append(b, '{')
	if !slices.ContainsFunc(t.values, func(v value.Value) bool { return v.Kind() != value.String }) {
		b = append(b, `"type":"string",`...)
	}
	return append(value.ArrayValue(t.values...).AppendJSON(append(b, `"enum":`...)), '}')
}

func (s *jsonSchemas) object(b []byte, t *typ) []byte {
	b = append(b, `{"type":"object"`...)
	for i, f := range t.fields {
		b = append(b, [2]string{`,"properties":{`, ","}[min(i, 1)]...)
		b = append(value.AppendString(b, f.key), ':')
		b = s.write(b, f.typ)
	}
	if len(t.fields) > 0 {
		b = append(b, '}')
	}
	var required []value.Value
	for _, f := range t.fields {
		if !f.optional {
			required = append(required, value.StringValue(f.key))
		}
	}
	if len(required) > 0 {
		b = value.ArrayValue(required...).AppendJSON(append(b, `,"required":`...))
	}
	return append(b, '}')
}

// union appends the schema of a choice of types. A simple type or null is written as two types, which more tools
// understand.
func (s *jsonSchemas) union(b []byte, t *typ) []byte {
	if len(t.parts) == 2 {
		for i, p := range t.parts {
			simple := map[kind]string{
				boolean: "boolean", integer: "integer", number: "number", text: "string",
			}[t.parts[1-i].kind]
			if p.kind == null && simple != "" {
				b = append(b, `{"type":[`+strconv.Quote(simple)+`,"null"]`...)
				if simple == "number" {
					b = append(b, doubleFormat...)
				}
				return append(b, '}')
			}
		}
	}
	return s.list(append(b, `{"anyOf":`...), t.parts)
}

func (s *jsonSchemas) list(b []byte, parts []*typ) []byte {
	b = append(b, '[')
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.write(b, p)
	}
	return append(b, "]}"...)
}
