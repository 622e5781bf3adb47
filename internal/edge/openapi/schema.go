package openapi

import (
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
)

type problemBody = wire.Problem

// Schema returns the schema of a Go type as encoding/json writes it: a reference where the type is a struct with a
// name, whose schema becomes a component.
func (b *Builder) Schema(t reflect.Type) any {
	// Types that are more than their kind.
	if own, ok := b.instead[t]; ok {
		return own
	}
	if t.Kind() == reflect.Pointer {
		return b.Schema(t.Elem())
	}
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
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number", "format": "double"}
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

	described["properties"], described["required"] = b.members(t, nil)
	if name == "" {
		return described
	}
	return ref("schemas", name)
}

// members returns the schemas of a struct's members, and which of them are always there. A member that may be left out
// has an option; one that is always there may be null. Members that typed names have the schema that it says.
func (b *Builder) members(t reflect.Type, typed map[string]any) (properties object, required []string) {
	properties, required = object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if member == "" || member == "-" {
			continue
		}
		schema := typed[member]
		if schema == nil {
			schema = b.Schema(f.Type)
		}
		if options == "" {
			required = append(required, member)
			if f.Type.Kind() == reflect.Pointer {
				schema = orNull(schema)
			}
		} else if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Pointer {
			schema = orNull(schema) // it may be left out, and it may be null
		}
		properties[member] = schema
	}
	return properties, required
}

// orNull is a schema of what may be null too.
func orNull(schema any) any {
	if s, ok := schema.(object); ok {
		if name, ok := s["type"].(string); ok && s["enum"] == nil {
			s = maps.Clone(s)
			s["type"] = []string{name, "null"}
			return s
		}
	}
	return object{"anyOf": []any{schema, object{"type": "null"}}}
}

// Typed is the schema of a struct whose members of the given names have the given schemas. It is no component.
func (b *Builder) Typed(t reflect.Type, typed map[string]any) any {
	properties, required := b.members(t, typed)
	return object{"type": "object", "properties": properties, "required": required}
}

// Answered is the schema of an answer with the members of a shape, nil for none, beside "ok".
func (b *Builder) Answered(shape any) any {
	ok := object{
		"type": "object", "required": []string{"ok"},
		"properties": object{"ok": object{"type": "boolean", "const": true}},
	}
	if shape == nil {
		return ok
	}
	if own, inline := shape.(object); inline && own["properties"] != nil {
		properties, _ := own["properties"].(object)
		required, _ := own["required"].([]string)
		properties["ok"] = object{"type": "boolean", "const": true}
		return object{"type": "object", "properties": properties, "required": append([]string{"ok"}, required...)}
	}
	return object{"allOf": []any{ok, shape}}
}
