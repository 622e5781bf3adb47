//go:build !race

package schema_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

// drawHostileSchema draws a schema that makes much of what it is given: keywords that compare all with all, that try
// one schema after the other and definitions that lead to themselves.
func drawHostileSchema(t *rapid.T, depth int) any {
	if depth == 0 {
		return drawHostileLeaf(t)
	}
	s := object{}
	sub := func() any { return drawHostileSchema(t, depth-1) }
	for range rapid.IntRange(1, 3).Draw(t, "dear keywords") {
		switch rapid.IntRange(0, 9).Draw(t, "dear keyword") {
		case 0:
			s["uniqueItems"] = true
		case 1:
			s["contains"], s["minContains"] = sub(), 1<<20
		case 2:
			s["anyOf"] = []any{sub(), sub(), sub()}
		case 3:
			s["oneOf"] = []any{sub(), sub(), sub()}
		case 4:
			s["items"] = sub()
		case 5:
			s["prefixItems"], s["allOf"] = []any{sub(), sub()}, []any{sub(), sub()}
		case 6:
			s["additionalProperties"], s["not"] = sub(), sub()
		case 7:
			s["patternProperties"] = object{"^(a|ab)*$": sub(), "(?=.*a)": sub()}
		case 8:
			s["enum"] = []any{drawValue(t, 3), drawValue(t, 3), drawValue(t, 3), drawValue(t, 3)}
		default:
			s["pattern"] = rapid.SampledFrom([]string{
				`^(a+)+$`, `(a|aa)*b`, `^(?=(a*))\1b`, `(.*)*\d`, `(?<!a{1,9})b`,
			}).Draw(t, "dear pattern")
		}
	}
	return s
}

// drawHostileLeaf draws a schema without others in it, but for definitions that the members of a value are checked
// against.
func drawHostileLeaf(t *rapid.T) any {
	return rapid.SampledFrom([]any{
		object{},
		false,
		object{"type": "string"},
		object{"type": []any{"array", "object"}},
		object{"minLength": 4999, "maxLength": 4999},
		object{"multipleOf": json.Number("1e-300")},
		object{"const": []any{1, object{"a": 1}}},
		object{"uniqueItems": true},
		object{"required": []any{"a", "b", "ab"}},
		object{"format": "email"},
		object{"propertyNames": object{"pattern": "(a|b|ab)*c"}},
		object{"items": object{"$ref": "#/$defs/a"}},
		object{"additionalProperties": object{"$ref": "#/$defs/b"}},
		object{"contains": object{"$ref": "#/$defs/b"}},
		object{"items": object{"$ref": "#"}},
		object{"additionalProperties": object{"$ref": "#"}},
	}).Draw(t, "leaf")
}

// drawHostileValue draws the text of a value of up to some hundred thousand bytes: small values, long texts and long
// numbers, repeated in arrays, as members of objects, and inside each other.
func drawHostileValue(t *rapid.T) string {
	seed := rapid.OneOf(
		rapid.Just("0"), rapid.Just(`"a"`), rapid.Just("{}"), rapid.Just("[[]]"), rapid.Just(`{"a":1,"b":[2]}`),
		rapid.Just(`"`+strings.Repeat("a", 5000)+`"`), rapid.Just(strings.Repeat("9", 900)), rapid.Just("1e-300"),
		rapid.Custom(func(t *rapid.T) string { return marshal(t, drawValue(t, 3)) }),
	).Draw(t, "seed")
	for range rapid.IntRange(1, 3).Draw(t, "times") {
		n := max(1, min(rapid.SampledFrom([]int{20, 1000, 50_000, 200_000}).Draw(t, "repeated"), 200_000/len(seed)))
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			seed = list(n, seed)
		case 1:
			var members []string
			for i := range n {
				members = append(members, fmt.Sprintf(`"%s%d":%s`, strings.Repeat("a", i%30), i, seed))
			}
			seed = "{" + strings.Join(members, ",") + "}"
		default:
			deep := min(n, 40)
			seed = strings.Repeat(`[`, deep) + seed + strings.Repeat(`]`, deep)
		}
	}
	return seed
}

// TestRandomHostileSchemas holds a counter against the processor: whatever schema and value, a unit of work takes no
// longer than it may, and the check stops when the budget is used up.
func TestRandomHostileSchemas(t *testing.T) {
	const budget = work.Command / 8
	check := func(t *rapid.T) {
		doc := object{
			"$defs": object{"a": drawHostileSchema(t, 2), "b": drawHostileSchema(t, 1)},
			"allOf": []any{drawHostileSchema(t, 3)},
		}
		src, err := value.ParseString(marshal(t, doc))
		if err != nil {
			t.Fatal(err)
		}
		var l diag.List
		s := schema.NewGroup(&l).Compile(src, "")
		if l.Errors() > 0 {
			return // more than is allowed, for one
		}
		v, err := value.ParseString(drawHostileValue(t))
		if err != nil {
			t.Fatal(err)
		}
		b := work.Counted(budget)
		start := worktest.ProcessorTime(t)
		_, err = s.Validate(v, b)
		took := worktest.Since(t, start)
		if spent := b.Spent(); spent < budget && err != nil {
			t.Errorf("after %d units: %v", spent, err)
		}
		most := worktest.Allowed(min(b.Spent(), budget))
		if took > most {
			t.Errorf("%d units took %v of the processor, and no more than %v is allowed", b.Spent(), took, most)
		}
	}
	rapid.Check(t, check)
}

// TestWorkIsCounted checks that no keyword can take more time than the budget stands for. What is dear is given up,
// whether the value fits or not; a second pass over it takes no budget of its own.
func TestWorkIsCounted(t *testing.T) {
	cases := dear()
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range cases {
			if !yield(name) {
				return
			}
		}
	}) {
		t.Run(name, func(t *testing.T) {
			s, v := compile(t, cases[name][0]), parse(t, cases[name][1])
			budget := work.New(t.Context(), work.Command)
			start := worktest.ProcessorTime(t)
			failures, err := s.Validate(v, budget)
			took := worktest.Since(t, start)
			t.Logf(
				"%v, %.1f ns a unit, %d failures, %v", took, float64(took.Nanoseconds())/float64(budget.Spent()),
				len(failures), err,
			)
			if err == nil && failures == nil {
				t.Errorf("the value fits after %d units", budget.Spent())
			}
			if took > slow {
				t.Errorf("it took %v", took)
			}
		})
	}
}
