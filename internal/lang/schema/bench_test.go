//go:build !race

package schema_test

import (
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

const orderSchema = `{
  "type": "object",
  "properties": {
    "customer_id": {"type": "string", "format": "uuid"},
    "email": {"type": "string", "format": "email"},
    "currency": {"enum": ["EUR", "USD", "GBP"]},
    "placed_at": {"type": "integer", "minimum": 0},
    "gift": {"type": "boolean"},
    "items": {
      "type": "array",
      "minItems": 1,
      "items": {
        "type": "object",
        "properties": {
          "sku": {"type": "string", "minLength": 1, "maxLength": 40},
          "quantity": {"type": "integer", "minimum": 1},
          "price_cents": {"type": "integer", "minimum": 0}
        },
        "required": ["sku", "quantity"],
        "additionalProperties": false
      }
    }
  },
  "required": ["customer_id", "items"],
  "additionalProperties": false
}`

const order = `{
  "customer_id": "550e8400-e29b-41d4-a716-446655440003",
  "email": "ada@example.com",
  "currency": "EUR",
  "placed_at": 1700000000,
  "gift": false,
  "items": [{"sku": "WIDGET-1", "quantity": 2, "price_cents": 2999}, {"sku": "GADGET-2", "quantity": 1, "price_cents": 1950}]
}`

func parse(tb testing.TB, src string) value.Value {
	tb.Helper()
	v, err := value.ParseString(src)
	if err != nil {
		tb.Fatalf("%s: %v", src, err)
	}
	return v
}

// compile compiles a schema without errors.
func compile(tb testing.TB, src string) *schema.Schema {
	tb.Helper()
	var l diag.List
	s := schema.NewGroup(&l).Compile(parse(tb, src), "")
	if l.Errors() > 0 {
		tb.Fatalf("%.200s: %.500v", src, l.All())
	}
	return s
}

// failer is what testing and rapid have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// validate checks a value with the budget of a command, which has to be enough.
func validate(tb failer, s *schema.Schema, v value.Value) []schema.Failure {
	tb.Helper()
	failures, err := s.Validate(v, work.Counted(work.Command))
	if err != nil {
		tb.Fatal(err)
	}
	return failures
}

// valid is validate without the reasons.
func valid(tb failer, s *schema.Schema, v value.Value) bool {
	tb.Helper()
	fits, err := s.Valid(v, work.Counted(work.Command))
	if err != nil {
		tb.Fatal(err)
	}
	return fits
}

func TestValidAllocatesNothing(t *testing.T) {
	s, v := compile(t, orderSchema), parse(t, order)
	if got := validate(t, s, v); got != nil {
		t.Fatal(got)
	}
	budget := work.New(t.Context(), work.Command)
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Validate(v, budget) }); n != 0 {
		t.Errorf("a valid value costs %v allocations", n)
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, bb := range []struct{ name, schema, data string }{
		{"order", orderSchema, order},
		{"decimals", `{"items": {"type": "number", "minimum": 0, "maximum": 1000, "multipleOf": 0.01}}`, `[29.99, 19.5, 7, 0.05]`},
		{"pattern", `{"type": "string", "pattern": "^[A-Z]{2,8}-[0-9]{1,6}$"}`, `"WIDGET-1042"`},
		{"fields", `{"additionalProperties": {"type": "integer"}}`, `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`},
		{
			"unique", `{"uniqueItems": true}`,
			`["` + strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), `","`) + `"]`,
		},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s, v := compile(b, bb.schema), parse(b, bb.data)
			budget := work.New(b.Context(), work.Command)
			b.ReportAllocs()
			for b.Loop() {
				budget.Renew(work.Command)
				if failures, err := s.Validate(v, budget); failures != nil || err != nil {
					b.Fatal("the value does not fit")
				}
			}
		})
	}
	b.Run("failure", func(b *testing.B) {
		s, v := compile(b, orderSchema), parse(b, strings.ReplaceAll(order, `"EUR"`, `"XXX"`))
		budget := work.New(b.Context(), work.Command)
		b.ReportAllocs()
		for b.Loop() {
			budget.Renew(work.Command)
			if failures, _ := s.Validate(v, budget); failures == nil {
				b.Fatal("the value fits")
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	v := parse(b, orderSchema)
	b.ReportAllocs()
	for b.Loop() {
		var l diag.List
		schema.NewGroup(&l).Compile(v, "")
	}
}
