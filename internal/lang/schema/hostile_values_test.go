//go:build !race

package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

// TestHostileSchemas checks that schemas which would take forever to check are refused or given up.
func TestHostileSchemas(t *testing.T) {
	refused := func(name, src, message string) {
		t.Helper()
		v := parse(t, src)
		var l diag.List
		soon(t, func() { schema.NewGroup(&l).Compile(v, "") })
		if !slices.ContainsFunc(
			l.All(), func(d diag.Diagnostic) bool {
				return d.Severity == diag.Error && strings.Contains(d.Message, message)
			},
		) {
			t.Errorf("%s: %.300v", name, l.All())
		}
	}
	double := `{"$ref": "#/$defs/d0", "$defs": {"d30": {"type": "null"}`
	for i := range 30 {
		double += fmt.Sprintf(`, "d%d": {"allOf": [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]}`, i, i+1, i+1)
	}
	refused("doubling references", double+"}}", "more than 10000 schemas")

	chain := `{"$ref": "#/$defs/d0", "$defs": {"d3000": {"type": "null"}`
	for i := range 3000 {
		chain += fmt.Sprintf(`, "d%d": {"$ref": "#/$defs/d%d"}`, i, i+1)
	}
	refused("a long chain", chain+"}}", "more than 200 steps")

	many := strings.Repeat(`{},`, 20_000) + `{}`
	refused("many schemas", `{"anyOf": [`+many+`]}`, "more than 10000 schemas")

	unknown := `{"notes": {"anyOf": [` + many + `]}, "$ref": "#/notes"}`
	refused("many schemas where none should be", unknown, "more than 10000 schemas")

	var patterns strings.Builder
	for i := range 600 {
		fmt.Fprintf(&patterns, `"a%d": {"pattern": "a%d"},`, i, i)
	}
	refused("many patterns", `{"properties": {`+patterns.String()+`"z": {}}}`, "more than 500 different patterns")

	refused("a long pattern", `{"pattern": "`+strings.Repeat("a", 10_000)+`"}`, "longer than")

	deep := strings.Repeat(`{"not": `, 126) + "true" + strings.Repeat("}", 126)
	if s := compile(t, deep); !valid(t, s, value.NullValue()) {
		t.Error("an even number of negations is no affirmation")
	}

	// Each level of the value doubles what has to be checked on the next.
	tree := `{"anyOf": [{"properties": {"a": {"allOf": [{"$ref": "#"}, {"maxProperties": 0}]}}, "required": ["a"]},
		{"properties": {"a": {"$ref": "#"}}, "required": ["a"]}]}`
	nested := strings.Repeat(`{"a": `, 100) + "{}" + strings.Repeat("}", 100)
	tooMuch(t, compile(t, tree), parse(t, nested))
	for _, keyword := range []string{"anyOf", "allOf", "oneOf"} {
		s := compile(t, fmt.Sprintf(`{"properties": {"a": {"%s": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}}, "required": ["a"]}`, keyword))
		for _, depth := range []int{12, 120} {
			v := parse(t, strings.Repeat(`{"a": `, depth)+"{}"+strings.Repeat("}", depth))
			soon(t, func() {
				if failures, err := s.Validate(v, work.Counted(work.Command)); failures == nil && err == nil {
					t.Errorf("%s, depth %d: the value fits", keyword, depth)
				}
			})
		}
	}
}

// TestHostileValues checks values that make single keywords work hard.
func TestHostileValues(t *testing.T) {
	numbers := make([]value.Value, 100)
	for i := range numbers {
		numbers[i] = parse(t, strings.Repeat("7", 9000)+fmt.Sprint(i)+"e-400")
	}
	long := value.ArrayValue(numbers...)
	s := compile(t, `{"uniqueItems": true, "items": {"multipleOf": 1e-400, "minimum": 1e-400, "maximum": 1e400, "exclusiveMaximum": 1e399}}`)
	soon(t, func() { _, _ = s.Validate(long, work.Counted(work.Command)) })

	items := make([]value.Value, 100_000)
	for i := range items {
		items[i] = value.ObjectValue(value.Member{Key: "a", Value: value.Int(int64(i))})
	}
	unique := compile(t, `{"uniqueItems": true}`)
	soon(t, func() {
		if got := validate(t, unique, value.ArrayValue(items...)); got != nil {
			t.Error(got)
		}
	})
	items[99_999] = items[5]
	if f := onlyFailure(t, unique, value.ArrayValue(items...)); f.Path != "[99999]" {
		t.Errorf("%+v", f)
	}

	wide := compile(t, `{"additionalProperties": {"type": "null"}, "patternProperties": {"b(?=(x+)+y)": {}}}`)
	var members []value.Member
	for i := range 100_000 {
		members = append(members, value.Member{
			Key: fmt.Sprintf("b%sx%d", strings.Repeat("x", 30), i), Value: value.NullValue(),
		})
	}
	soon(t, func() { _, _ = wide.Validate(value.ObjectValue(members...), work.Counted(work.Command)) })

	deep := value.NullValue()
	for range 4000 {
		deep = value.ArrayValue(deep)
	}
	nested := compile(t, `{"type": "array", "items": {"$ref": "#"}}`)
	if f := onlyFailure(t, nested, deep); f.Constraint != "type" {
		t.Errorf("%+v", f)
	}
}
