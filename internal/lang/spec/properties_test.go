//go:build !race

package spec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/schema"
	"j17/internal/lang/spec"
)

// object is a JSON schema, or a part of one, in the form that encoding/json reads and writes.
type object = map[string]any

// schemaText returns a whole schema around s, with definitions that s may refer to.
func schemaText(t *rapid.T, s, defs any) string {
	text, err := json.Marshal(object{"allOf": []any{s}, "$defs": object{"d": defs}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// defs is what drawn schemas refer to: something that may contain itself, but not without end.
func defs(elem any) any { return object{"type": "array", "items": elem} }

// drawSchema draws a schema that says of every value it lets through what it is made of: there are no places in it
// that are not declared, which newer schemas may declare as they like.
func drawSchema(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 11).Draw(t, "kind")
	switch {
	case depth > 0 && kind < 4:
		properties := object{}
		for _, name := range []string{"a", "b", "c"} {
			properties[name] = drawSchema(t, depth-1)
		}
		s := object{"type": "object", "properties": properties, "required": drawNames(t)}
		switch rapid.IntRange(0, 4).Draw(t, "others") {
		case 0:
			s["additionalProperties"] = false
		case 1:
			s["additionalProperties"] = drawSchema(t, depth-1)
		}
		switch rapid.IntRange(0, 6).Draw(t, "more") {
		case 0:
			s["if"], s["then"], s["else"] = object{"required": drawNames(t)}, drawSchema(t, 1), drawSchema(t, 1)
		case 1:
			s["dependentRequired"] = object{"a": drawNames(t)}
		case 2:
			s["dependentSchemas"] = object{"b": drawSchema(t, 1)}
		}
		return s
	case depth > 0 && kind < 6:
		s := object{"type": "array", "items": drawSchema(t, depth-1)}
		if kind == 5 {
			s["prefixItems"] = []any{drawSchema(t, depth-1)}
		}
		return s
	case depth > 0 && kind < 8:
		return object{"anyOf": []any{drawSchema(t, depth-1), drawSchema(t, depth-1)}}
	case depth > 0 && kind == 8:
		return object{"allOf": []any{drawSchema(t, depth-1), drawSchema(t, depth-1)}}
	case depth > 0 && kind == 9:
		return object{"$ref": "#/$defs/d"}
	default:
		return object{"type": drawTypes(t)}
	}
}

func drawTypes(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"string", "integer", "number", "boolean", "null",
	}), 1, 3, rapid.ID).Draw(t, "types")
}

func drawNames(t *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "z"}), 0, 2, rapid.ID).Draw(t, "names")
}

// changed draws a schema that differs from s here and there, if at all.
func changed(t *rapid.T, s any, depth int) any {
	switch s := s.(type) {
	case object:
		if rapid.IntRange(0, 11).Draw(t, "change") == 0 {
			return drawSchema(t, depth)
		}
		c := object{}
		for _, key := range sorted(s) {
			v := s[key]
			switch key {
			case "required":
				if rapid.IntRange(0, 5).Draw(t, "change") == 0 {
					v = drawNames(t)
				}
			case "type":
				if _, ok := v.([]string); ok && rapid.IntRange(0, 7).Draw(t, "change") == 0 {
					v = drawTypes(t)
				}
			case "if", "$ref", "dependentRequired":
			case "properties", "dependentSchemas":
				inner := object{}
				each(v, func(name string, sub any) { inner[name] = changed(t, sub, depth-1) })
				v = inner
			default:
				v = changed(t, v, depth-1)
			}
			c[key] = v
		}
		return c
	case []any:
		c := slices.Clone(s)
		for i := range c {
			c[i] = changed(t, c[i], depth-1)
		}
		return c
	default:
		return s
	}
}

// each calls f for the members of an object in order.
func each(v any, f func(name string, sub any)) {
	o, _ := v.(object)
	for _, name := range sorted(o) {
		f(name, o[name])
	}
}

func sorted(o object) []string {
	var keys []string
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// values draws values. referred is the schema that "$ref" leads to.
type values struct {
	t        *rapid.T
	referred any
}

// fitting draws a value that fits a schema, or nearly so.
func (d values) fitting(s any, depth int) any {
	t := d.t
	o, ok := s.(object)
	if !ok || depth < 0 || rapid.IntRange(0, 30).Draw(t, "wild") == 0 {
		return rapid.SampledFrom([]any{"s", 1, 1.5, true, nil, object{}, []any{}}).Draw(t, "scalar")
	}
	if o["$ref"] != nil {
		return d.fitting(d.referred, depth-1)
	}
	for _, key := range []string{"anyOf", "allOf"} {
		if list, ok := o[key].([]any); ok {
			return d.fitting(rapid.SampledFrom(list).Draw(t, key), depth-1)
		}
	}
	switch types := o["type"].(type) {
	case []string:
		switch rapid.SampledFrom(types).Draw(t, "type") {
		case "string":
			return "s"
		case "integer":
			return 7
		case "number":
			return rapid.SampledFrom([]any{7, 1.5}).Draw(t, "number")
		case "boolean":
			return true
		default:
			return nil
		}
	case string:
		if types == "array" {
			list := []any{}
			for i := range rapid.IntRange(0, 3).Draw(t, "length") {
				of := o["items"]
				if prefix, ok := o["prefixItems"].([]any); ok && i < len(prefix) {
					of = prefix[i]
				}
				list = append(list, d.fitting(of, depth-1))
			}
			return list
		}
		v := object{}
		properties, _ := o["properties"].(object)
		for _, name := range []string{"a", "b", "c", "z"} {
			of, declared := properties[name]
			if !declared {
				of = o["additionalProperties"]
			}
			required, _ := o["required"].([]string)
			if of != false && (slices.Contains(required, name) || rapid.Bool().Draw(t, "present")) {
				v[name] = d.fitting(of, depth-1)
			}
		}
		return v
	}
	return nil
}

func compiledSchema(t *rapid.T, text string) *schema.Schema {
	v, err := value.ParseString(text)
	if err != nil {
		t.Fatal(err)
	}
	var l diag.List
	s := schema.NewGroup(&l).Compile(v, "")
	if l.Errors() > 0 {
		t.Fatalf("%s\n%v", text, l.All())
	}
	return s
}

func drawnSpec(t *rapid.T, schema string) *spec.Compiled {
	c, found := lint.Compile(whole(schema))
	if c == nil {
		t.Fatalf("%s\n%s", schema, written(found))
	}
	return c
}

// What Compare lets pass must let pass what was stored.
func TestCompareIsSound(t *testing.T) {
	passed, checked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		elem, old := drawSchema(t, 1), drawSchema(t, 3)
		oldDefs, newDefs := defs(elem), defs(changed(t, elem, 1))
		next := changed(t, old, 3)
		oldText, newText := schemaText(t, old, oldDefs), schemaText(t, next, newDefs)
		was, is := drawnSpec(t, oldText), drawnSpec(t, newText)
		if errors, _ := diag.Count(compare.Compatibility(was, is)); errors > 0 {
			return
		}
		passed++
		before, after := compiledSchema(t, oldText), compiledSchema(t, newText)
		drawn := values{t, oldDefs}
		for range 10 {
			text, err := json.Marshal(drawn.fitting(old, 6))
			if err != nil {
				t.Fatal(err)
			}
			v, err := value.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if fits, err := before.Valid(v, work.Counted(work.Command)); err != nil || !fits {
				continue
			}
			checked++
			if fits, err := after.Valid(v, work.Counted(work.Command)); err != nil || !fits {
				t.Fatalf("%s\nfits\n%s\nbut not\n%s\nwhich Compare lets pass", text, oldText, newText)
			}
		}
	})
	t.Logf("%d comparisons passed, %d values checked", passed, checked)
	if checked == 0 {
		t.Error("no stored value was ever checked")
	}
}

// widened draws a schema that only allows more than s, in the ways that are always allowed. added draws new properties.
func widened(t *rapid.T, s any, added func() any) any {
	o, ok := s.(object)
	if !ok {
		return s
	}
	c := object{}
	for _, key := range sorted(o) {
		v := o[key]
		switch key {
		case "required":
			if names, ok := v.([]string); ok {
				v = slices.DeleteFunc(slices.Clone(names), func(string) bool { return rapid.Bool().Draw(t, "drop") })
			}
		case "type":
			if types, ok := v.([]string); ok && rapid.Bool().Draw(t, "widen") && !slices.Contains(types, "boolean") {
				v = append(slices.Clone(types), "boolean")
			}
		case "properties":
			properties := object{}
			each(v, func(name string, sub any) { properties[name] = widened(t, sub, added) })
			if _, limited := o["additionalProperties"].(object); !limited && rapid.Bool().Draw(t, "optional") {
				properties["new"] = added()
			}
			v = properties
		case "items", "additionalProperties":
			v = widened(t, v, added)
		case "anyOf", "prefixItems":
			list, _ := v.([]any)
			list = slices.Clone(list)
			for i := range list {
				list[i] = widened(t, list[i], added)
			}
			if key == "anyOf" && rapid.Bool().Draw(t, "branch") {
				list = slices.Insert(list, rapid.IntRange(0, len(list)).Draw(t, "at"), drawSchema(t, 1))
			}
			v = list
		}
		c[key] = v
	}
	if rapid.Bool().Draw(t, "annotate") {
		c["description"] = fmt.Sprint("text ", rapid.Byte().Draw(t, "text"))
	}
	return c
}

// What only widens a schema, or says nothing new, must pass.
func TestCompareLetsWideningPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		elem, old := drawSchema(t, 1), drawSchema(t, 3)
		oldText := schemaText(t, old, defs(elem))
		added := func() any {
			for _, key := range []string{`"if"`, `"$ref"`, `"dependentSchemas"`} {
				// Some other schema for the same object may limit the property already.
				if strings.Contains(oldText, key) || strings.Count(oldText, `"allOf"`) > 1 {
					return true
				}
			}
			return drawSchema(t, 1)
		}
		newText := schemaText(
			t, object{"title": "newer", "allOf": []any{widened(t, old, added)}}, defs(widened(t, elem, added)),
		)
		if found := compare.Compatibility(drawnSpec(t, oldText), drawnSpec(t, newText)); len(found) > 0 {
			t.Fatalf("%s\nis only widened by\n%s\nbut\n%s", oldText, newText, written(found))
		}
	})
}

// Whatever else is changed, a property that becomes required is found.
func TestCompareFindsNewRequirements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wrap := func(s any) any { return s }
		for range rapid.IntRange(0, 4).Draw(t, "depth") {
			inner := wrap
			name := rapid.SampledFrom([]string{
				"a", "b", "items", "allOf", "$defs", "patternProperties", "additionalProperties",
			}).Draw(t, "place")
			wrap = func(s any) any {
				s = inner(s)
				switch name {
				case "items":
					return object{"type": "array", "items": s}
				case "allOf":
					return object{"allOf": []any{object{"title": "x"}, s}}
				case "$defs":
					return object{"anyOf": []any{s, object{"type": "null"}}}
				case "patternProperties":
					return object{"type": "object", "patternProperties": object{"^x": s}}
				case "additionalProperties":
					return object{"type": "object", "additionalProperties": s}
				default:
					return object{"type": "object", "properties": object{name: s}}
				}
			}
		}
		body := func(required ...string) object {
			return object{
				"type": "object", "properties": object{"k": object{"type": "string"}},
				"required": append([]string{}, required...),
			}
		}
		old, next := schemaText(t, wrap(body()), true), schemaText(t, wrap(body("k")), true)
		found := compare.Compatibility(drawnSpec(t, old), drawnSpec(t, next))
		if errors, _ := diag.Count(found); errors != 1 || !strings.HasSuffix(string(found[0].Pointer), "/required/0") {
			t.Fatalf("%s\nbecame\n%s\nand only this was found:\n%s", old, next, written(found))
		}
	})
}
