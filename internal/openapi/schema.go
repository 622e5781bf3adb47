package openapi

import (
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/value"
	"j17/internal/wire"
)

type problemBody = wire.Problem

// Schema returns the schema of a Go type as encoding/json writes it: a reference where the type is a struct with a name, whose
// schema becomes a component.
func (b *Builder) Schema(t reflect.Type) any {
	// Types that are more than their kind.
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return object{}
	case reflect.TypeFor[j17.Environment]():
		return object{"type": "string", "enum": j17.Environments()}
	case reflect.TypeFor[j17.Scope]():
		return object{"type": "string", "enum": []j17.Scope{j17.ScopeRead, j17.ScopeWrite}}
	case reflect.TypeFor[j17.Code]():
		return ref("schemas", "Code")
	}
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return object{}
	}

	// The others are what their kind is.
	switch t.Kind() { //nolint:exhaustive // what the shapes are made of; all else is described as anything
	case reflect.Pointer:
		return b.Schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": b.Schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": b.Schema(t.Elem())}
	case reflect.Struct:
		return b.structure(t)
	default:
		return object{}
	}
}

// structure returns the schema of a struct.
func (b *Builder) structure(t reflect.Type) any {
	name := t.Name()
	if from := path.Base(t.PkgPath()); from != "wire" && from != "j17" && name != "" {
		name = strings.ToUpper(from[:1]) + from[1:] + name
	}
	if name != "" && b.schemas[name] != nil {
		return ref("schemas", name)
	}

	described := object{"type": "object"}
	if name != "" {
		b.schemas[name] = described // before its members, which may lead back to it
	}

	// A member that may be left out has an option; one that is always there may be null.
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if member == "" || member == "-" {
			continue
		}
		schema := b.Schema(f.Type)
		if options == "" {
			required = append(required, member)
			if f.Type.Kind() == reflect.Pointer {
				schema = object{"anyOf": []any{schema, object{"type": "null"}}}
			}
		}
		properties[member] = schema
	}

	described["properties"], described["required"] = properties, required
	if name == "" {
		return described
	}
	return ref("schemas", name)
}

// Answered is the schema of an answer with the members of a shape, nil for none, beside "ok".
func (b *Builder) Answered(shape any) any {
	ok := object{"type": "object", "required": []string{"ok"}, "properties": object{"ok": object{"const": true}}}
	if shape == nil {
		return ok
	}
	return object{"allOf": []any{ok, shape}}
}

// maxGrowth is how many times its own size a schema may grow by the longer references that make it a component.
const maxGrowth = 3

// Embedded is a JSON Schema of somebody else's as a component of the name: what it refers to is inside of it, wherever it
// stands now. One that names its parts with $id is left as it is, under an id of its own, and so is one of which little is left
// but references.
func Embedded(name string, schema value.Value) any {
	raw := schema.AppendJSON(nil)
	if schema.Kind() != value.Object {
		return json.RawMessage(raw)
	}
	if !named(schema) {
		m := mover{to: "#/components/schemas/" + name, room: maxGrowth * len(raw)}
		if m.move(schema, false); m.room >= 0 {
			return json.RawMessage(m.b)
		}
	}
	if schema.Get("$id").Kind() != value.Missing {
		return json.RawMessage(raw)
	}
	b := value.AppendString([]byte(`{"$id":`), "urn:j17:"+name)
	if len(raw) > len("{}") {
		b = append(b, ',')
	}
	return json.RawMessage(append(b, raw[1:]...))
}

// named reports whether a part of a schema has an $id.
func named(v value.Value) bool {
	for _, m := range v.Members() {
		if m.Key == "$id" && m.Value.Kind() == value.String || named(m.Value) {
			return true
		}
	}
	return slices.ContainsFunc(v.Elems(), named)
}

// mover writes a schema whose references to itself lead below a place.
type mover struct {
	b  []byte
	to string
	// room is by how much the references may make the schema longer. Below 0, what is written is not whole.
	room int
}

// move writes a part. In an object of schemas by name every member is one; elsewhere the values of const, enum, default and
// examples are data.
func (m *mover) move(v value.Value, byName bool) {
	if m.room < 0 {
		return
	}
	switch v.Kind() { //nolint:exhaustive // what else there is leads nowhere
	case value.Object:
		m.b = append(m.b, '{')
		for i, of := range v.Members() {
			if i > 0 {
				m.b = append(m.b, ',')
			}
			m.b = append(value.AppendString(m.b, of.Key), ':')
			m.member(of.Key, of.Value, byName)
		}
		m.b = append(m.b, '}')
	case value.Array:
		m.b = append(m.b, '[')
		for i, e := range v.Elems() {
			if i > 0 {
				m.b = append(m.b, ',')
			}
			m.move(e, false)
		}
		m.b = append(m.b, ']')
	default:
		m.b = v.AppendJSON(m.b)
	}
}

// member writes the value of a member.
func (m *mover) member(key string, v value.Value, byName bool) {
	switch {
	case byName:
		m.move(v, false)
	case key == "$ref" && v.Kind() == value.String && strings.HasPrefix(v.Str(), "#"):
		m.room -= len(m.to)
		m.b = value.AppendString(m.b, m.to+v.Str()[1:])
	case key == "const", key == "enum", key == "default", key == "examples":
		m.b = v.AppendJSON(m.b)
	default:
		m.move(v, key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions" || key == "dependentSchemas")
	}
}
