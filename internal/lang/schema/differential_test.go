//go:build !race

package schema_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

type object = map[string]any

func names() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a", "b", "ab", "x-c", "", "0"})
}

func numbers() *rapid.Generator[json.Number] {
	return rapid.SampledFrom([]json.Number{
		"0", "-0.0", "1", "1.0", "2", "-1", "0.5", "1.5", "0.1", "0.3", "3", "10", "1e2", "100", "12345678901234567890",
		"1e-3", "7",
	})
}

func texts() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"", "a", "b", "ab", "abc", "é", "😀😀", "x-c", "aaaa", "2024-02-29", "1"})
}

// drawValue draws an instance.
func drawValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "boolean")
	case 2:
		return numbers().Draw(t, "number")
	case 3:
		return texts().Draw(t, "text")
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	default:
		o := object{}
		for range rapid.IntRange(0, 4).Draw(t, "size") {
			o[names().Draw(t, "name")] = drawValue(t, depth-1)
		}
		return o
	}
}

// drawSchema draws a schema of a few keywords. References lead to the definitions a and b of the document.
func drawSchema(t *rapid.T, depth int) any {
	if rapid.IntRange(0, 15).Draw(t, "boolean schema") == 0 {
		return rapid.Bool().Draw(t, "schema")
	}
	s := object{}
	for range rapid.IntRange(0, 3).Draw(t, "keywords") {
		drawKeyword(t, s, depth)
	}
	return s
}

func drawKeyword(t *rapid.T, s object, depth int) {
	plain := []string{
		"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength",
		"pattern", "format", "minItems", "maxItems", "uniqueItems", "required", "dependentRequired", "minProperties",
		"maxProperties",
	}
	nested := []string{
		"items", "prefixItems", "contains", "properties", "properties", "patternProperties", "additionalProperties",
		"propertyNames",
		"dependentSchemas", "allOf", "anyOf", "oneOf", "not", "if", "$ref",
	}
	keywords := plain
	if depth > 0 && rapid.Bool().Draw(t, "nested") {
		keywords = nested
	}
	keyword := rapid.SampledFrom(keywords).Draw(t, "keyword")
	sub := func() any { return drawSchema(t, depth-1) }
	list := func(n int) []any {
		out := []any{}
		for range rapid.IntRange(1, n).Draw(t, "schemas") {
			out = append(out, sub())
		}
		return out
	}
	count := rapid.IntRange(0, 3)
	switch keyword {
	case "type":
		types := []string{"null", "boolean", "number", "integer", "string", "array", "object"}
		s[keyword] = rapid.SliceOfNDistinct(rapid.SampledFrom(types), 1, 3, rapid.ID).Draw(t, "types")
	case "enum":
		s[keyword] = []any{drawValue(t, 1), drawValue(t, 2)}
	case "const":
		s[keyword] = drawValue(t, 2)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		s[keyword] = numbers().Draw(t, "bound")
	case "multipleOf":
		s[keyword] = rapid.SampledFrom([]json.Number{"0.1", "1", "2", "0.5", "3", "1e-3", "1e2"}).Draw(t, "factor")
	case "pattern":
		s[keyword] = rapid.SampledFrom([]string{"^a", "b$", "^[ab]*$", "é", ".", "^.{2}$"}).Draw(t, "pattern")
	case "format":
		s[keyword] = rapid.SampledFrom([]string{"date", "uuid", "ipv4", "json-pointer", "email"}).Draw(t, "format")
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		s[keyword] = count.Draw(t, "count")
	case "uniqueItems":
		s[keyword] = true
	case "required":
		s[keyword] = rapid.SliceOfNDistinct(names(), 0, 2, rapid.ID).Draw(t, "required")
	case "dependentRequired":
		s[keyword] = object{
			names().Draw(t, "name"): rapid.SliceOfNDistinct(names(), 0, 2, rapid.ID).Draw(t, "required"),
		}
	case "contains":
		s[keyword] = sub()
		if rapid.Bool().Draw(t, "bounded") {
			s["minContains"], s["maxContains"] = count.Draw(t, "least"), count.Draw(t, "most")
		}
	case "items", "additionalProperties", "propertyNames", "not":
		s[keyword] = sub()
	case "allOf", "anyOf", "oneOf":
		s[keyword] = list(3)
	case "prefixItems":
		s[keyword] = list(3)
		if rapid.Bool().Draw(t, "more") {
			s["items"] = sub()
		}
	case "properties":
		p := object{}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			p[names().Draw(t, "name")] = sub()
		}
		s[keyword] = p
	case "patternProperties":
		s[keyword] = object{rapid.SampledFrom([]string{"^x-", "a", "^$"}).Draw(t, "pattern"): sub()}
	case "dependentSchemas":
		s[keyword] = object{names().Draw(t, "name"): sub()}
	case "if":
		s["if"] = sub()
		if rapid.Bool().Draw(t, "then") {
			s["then"] = sub()
		}
		if rapid.Bool().Draw(t, "else") {
			s["else"] = sub()
		}
	case "$ref":
		s[keyword] = rapid.SampledFrom([]string{"#/$defs/a", "#/$defs/b"}).Draw(t, "reference")
	}
}

// manyChecks is rapid.Check for checks so short that ten times as many do not hurt.
func manyChecks(t *testing.T, check func(t *rapid.T)) {
	t.Helper()
	for range 10 {
		rapid.Check(t, check)
	}
}

func marshal(t *rapid.T, v any) string {
	src, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

// TestAgainstOtherImplementation draws schemas and values and compares the verdicts of two validators.
func TestAgainstOtherImplementation(t *testing.T) {
	manyChecks(t, func(t *rapid.T) {
		doc := object{"$defs": object{"a": drawSchema(t, 1), "b": drawSchema(t, 1)}, "allOf": []any{drawSchema(t, 3)}}
		src := marshal(t, doc)
		v, err := value.ParseString(src)
		if err != nil {
			t.Fatal(err)
		}
		var l diag.List
		ours := schema.NewGroup(&l).Compile(v, "")
		if l.Errors() > 0 {
			for _, d := range l.All() {
				if d.Severity == diag.Error && !strings.Contains(d.Message, "leads back to its own schema") {
					t.Fatalf("%s: %v", src, d)
				}
			}
			t.Skip("a schema that leads back to itself")
		}
		parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(src))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft2020)
		c.AssertFormat()
		c.UseLoader(jsonschema.SchemeURLLoader{})
		if err := c.AddResource("mem:schema", parsed); err != nil {
			t.Fatal(err)
		}
		theirs, err := c.Compile("mem:schema")
		if err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		for range 5 {
			data := marshal(t, drawValue(t, 3))
			instance, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			ourValue, err := value.ParseString(data)
			if err != nil {
				t.Fatal(err)
			}
			want := theirs.Validate(instance)
			failures := validate(t, ours, ourValue)
			if (want == nil) != (failures == nil) {
				t.Fatalf("schema %s\nvalue %s\nours: %v\ntheirs: %v", src, data, failures, want)
			}
			checkFailures(t, ourValue, failures)
		}
	})
}

// checkFailures checks what holds for all failures: their places are in the value, or next to something in it, and in
// order.
func checkFailures(t *rapid.T, v value.Value, failures []schema.Failure) {
	var last []int
	for _, f := range failures {
		place, at, parent := []int{}, v, v
		for i, step := range diag.Pointer(f.Pointer).Steps() {
			if at.IsMissing() {
				t.Fatalf("%s: %q leads too far", v, f.Pointer)
			}
			parent = at
			if at.Kind() == value.Array {
				index := slices.IndexFunc([]string{"0", "1", "2", "3"}, func(s string) bool { return s == step })
				place, at = append(place, index), at.Index(index)
				continue
			}
			index := slices.IndexFunc(at.Members(), func(m value.Member) bool { return m.Key == step })
			if index >= 0 {
				place = append(place, index)
			} else if i != len(diag.Pointer(f.Pointer).Steps())-1 {
				t.Fatalf("%s: %q leads nowhere", v, f.Pointer)
			}
			at = at.Get(step)
		}
		missing := f.Constraint == "required" || f.Constraint == "dependentRequired"
		if at.IsMissing() != missing || missing && parent.Kind() != value.Object {
			t.Fatalf("%s: %+v", v, f)
		}
		if slices.Compare(last, place) > 0 {
			t.Fatalf("%s: the failures are out of order: %+v", v, failures)
		}
		last = place
		if f.Message == "" || f.Constraint == "" {
			t.Fatalf("%s: %+v", v, f)
		}
	}
}

// TestBothPassesAgree checks that the second pass finds a reason wherever the first one says no, and none in what the
// first one accepts: the field y makes every value fail, so that both passes look at the field x.
func TestBothPassesAgree(t *testing.T) {
	manyChecks(t, func(t *rapid.T) {
		definitions := object{"a": drawSchema(t, 2), "b": drawSchema(t, 2)}
		drawn := drawSchema(t, 4)
		var l diag.List
		compiled := func(doc object) *schema.Schema {
			v, err := value.ParseString(marshal(t, doc))
			if err != nil {
				t.Fatal(err)
			}
			return schema.NewGroup(&l).Compile(v, "")
		}
		x := compiled(object{"$defs": definitions, "allOf": []any{drawn}})
		both := compiled(object{"$defs": definitions, "properties": object{"x": drawn, "y": false}})
		if l.Errors() > 0 {
			t.Skip("a schema that leads back to itself")
		}
		for range 10 {
			data, err := value.ParseString(marshal(t, drawValue(t, 4)))
			if err != nil {
				t.Fatal(err)
			}
			failures := validate(t, both, value.ObjectValue(
				value.Member{Key: "x", Value: data}, value.Member{Key: "y", Value: value.NullValue()},
			))
			reasons := len(failures)
			for _, f := range failures {
				if f.Pointer == "/y" {
					reasons--
				}
			}
			fits := valid(t, x, data)
			if fits != (reasons == 0) || reasons < schema.MaxFailures && reasons == len(failures) {
				t.Fatalf("schema %s, value %s: Valid says %v, Validate %+v", marshal(t, drawn), data, fits, failures)
			}
		}
	})
}
