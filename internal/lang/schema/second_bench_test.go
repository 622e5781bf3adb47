//go:build !race

package schema_test

import (
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// BenchmarkSecondOpinion checks the order of BenchmarkValidate with the library that gives the second opinion in the
// other tests, on a value that is decoded already.
func BenchmarkSecondOpinion(b *testing.B) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(orderSchema))
	if err != nil {
		b.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("order.json", document); err != nil {
		b.Fatal(err)
	}
	s, err := c.Compile("order.json")
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"order": order, "failure": strings.ReplaceAll(order, `"EUR"`, `"XXX"`)} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if fits := s.Validate(v) == nil; fits != (name == "order") {
					b.Fatal("the value has the other verdict")
				}
			}
		})
	}
}
