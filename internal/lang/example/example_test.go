//go:build !race

package example_test

import (
	"fmt"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/example"
	"j17/internal/lang/schema"
)

func TestOf(t *testing.T) {
	for _, tc := range []struct{ schema, want string }{
		{`{}`, `"text"`},
		{`true`, `"text"`},
		{`{"const":{"a":1}}`, `{"a":1}`},
		{`{"enum":["b","a"]}`, `"b"`},
		{`{"type":"string","examples":["Ada"]}`, `"Ada"`},
		{`{"type":["string","null"],"minLength":6,"maxLength":8}`, `"text.."`},
		{`{"type":"string","maxLength":2}`, `"te"`},
		{`{"format":"date-time"}`, `"2026-01-31T12:00:00Z"`},
		{`{"pattern":"^[A-Z]{3}-\\d{2,}(x|y)?$"}`, `"AAA-11"`},
		{`{"type":"integer","minimum":18}`, `18`},
		{`{"type":"number","maximum":-0.5}`, `-0.5`},
		{`{"type":"integer","exclusiveMinimum":0}`, `1`},
		{`{"type":"integer","exclusiveMinimum":7}`, `8`},
		{`{"type":"integer","multipleOf":5}`, `5`},
		{`{"type":"array","items":{"type":"boolean"},"minItems":2}`, `[true,true]`},
		{`{"type":"array"}`, `[]`},
		{`{"type":"array","prefixItems":[{"type":"null"}],"minItems":1}`, `[null]`},
		{
			`{"type":"object","required":["display_name","line"],"properties":{"display_name":{"type":"string"},"line":{"$ref":"#/$defs/a~1b"},"more":{}},"$defs":{"a/b":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}}}`,
			`{"display_name":"display name","line":{"n":1}}`,
		},
		{`{"allOf":[{"required":["a"],"properties":{"a":{"const":1}}},{"required":["b"],"properties":{"b":{"const":2}}}],"type":"object"}`, `{"a":1,"b":2}`},
		{`{"oneOf":[{"type":"object","required":["k"]},{"type":"null"}]}`, `{"k":"text"}`},
		// All that holds together counts, however it is put together.
		{
			`{"type":"object","required":["n"],"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"allOf":[{"properties":{"n":{"type":["null","integer"]}}},{"properties":{"n":{"type":"integer","minimum":7}}}]}}}`,
			`{"n":7}`,
		},
		{`{"$ref":"item","$defs":{"a":{"$id":"item","$ref":"#/$defs/b","$defs":{"b":{"type":"boolean"}}}}}`, `true`},
		{`{"type":"object","properties":{"a":{"type":"integer"},"b":{}},"minProperties":1}`, `{"a":1}`},
	} {
		s, err := value.ParseString(tc.schema)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := example.Of(s, value.Value{})
		if !ok || got.String() != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.schema, got, ok, tc.want)
			continue
		}
		var l diag.List
		if fits, err := schema.NewGroup(&l).Compile(s, "").Valid(got, work.Counted(work.Command)); !fits {
			t.Errorf("%s does not fit %s: %v", got, tc.schema, err)
		}
	}
	for _, none := range []string{
		`false`, `{"$ref":"#/$defs/none"}`, `{"$ref":"#"}`, `{"$ref":"https://example.com/x"}`, `{"pattern":"("}`,
		`{"type":"array","minItems":100}`,
		`{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`,
	} {
		s, err := value.ParseString(none)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := example.Of(s, value.Value{}); ok {
			t.Errorf("%s: %s", none, got)
		}
	}
}

// TestExamplesAreBounded looks for examples of schemas whose parts multiply.
func TestExamplesAreBounded(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf(`"n%d"`, i))
	}
	var wide, tree strings.Builder
	for i := range 11 {
		fmt.Fprintf(&tree, `"d%d":{"type":"object","required":[%s],"properties":{`, i, strings.Join(names, ","))
		for j, name := range names {
			if j > 0 {
				tree.WriteByte(',')
			}
			fmt.Fprintf(&tree, `%s:{"$ref":"#/$defs/d%d"}`, name, i+1)
		}
		tree.WriteString("}},")
	}
	for i := range 50_000 {
		fmt.Fprintf(&wide, `"n%d",`, i)
	}
	for _, src := range []string{
		`{"$ref":"#/$defs/d0","$defs":{` + tree.String() + `"d11":{"type":"string"}}}`,
		`{"type":"object","required":[` + wide.String() + `"z"]}`,
		`{"allOf":[` + strings.Repeat(`{"required":["a"],"properties":{"a":{}}},`, 50_000) + `{}]}`,
	} {
		s, err := value.Parse([]byte(src))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := example.Of(s, value.Value{}); ok {
			t.Errorf("%.60s: there is an example of %d members", src, got.Len())
		}
	}
}
