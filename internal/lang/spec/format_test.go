//go:build !race

package spec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/lang/spec"
)

func TestFormat(t *testing.T) {
	for _, tc := range []struct{ name, src, want string }{
		{"scalar", ` 1.50 `, "1.50\n"},
		{"empty", `{ }`, "{}\n"},
		{"the outermost is spread", `{"a":[1,2],"b":{}}`, "{\n  \"a\": [1, 2],\n  \"b\": {}\n}\n"},
		{"order and numbers stay", `{"b":1e2,"a":100000000000000000000.0,"0":-0}`, "{\n  \"b\": 1e2,\n  \"a\": 100000000000000000000.0,\n  \"0\": -0\n}\n"},
		{
			"a line of 100 columns, its comma included",
			`{"k":["0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"],"z":0}`,
			"{\n  \"k\": [\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567\"],\n  \"z\": 0\n}\n",
		},
		{
			"one more",
			`{"k":["01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678"],"z":0}`,
			"{\n  \"k\": [\n    \"01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678\"\n  ],\n  \"z\": 0\n}\n",
		},
		{"characters count, not bytes", `{"é":["\u00e9"]}`, "{\n  \"é\": [\"é\"]\n}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, found := spec.Format([]byte(tc.src))
			if diff := cmp.Diff(tc.want, string(got)); diff != "" || found != nil {
				t.Errorf("%v\n%s", found, diff)
			}
		})
	}
	if _, found := spec.Format([]byte("{\n  x")); len(found) != 1 || found[0].Line != 2 || found[0].Column != 3 {
		t.Errorf("no JSON: %v", found)
	}
}

// TestFormatKeepsTheDocument formats every spec of the repository and random documents: the value stays the same in
// every detail, and formatting again changes nothing.
func TestFormatKeepsTheDocument(t *testing.T) {
	keeps := func(t interface{ Fatalf(string, ...any) }, src []byte) {
		once, found := spec.Format(src)
		if found != nil {
			t.Fatalf("%v\n%s", found, src)
		}
		twice, _ := spec.Format(once)
		if string(once) != string(twice) {
			t.Fatalf("formatting again changes\n%s\nto\n%s", once, twice)
		}
		was, err := value.Parse(src)
		if err != nil {
			t.Fatalf("%v", err)
		}
		is, err := value.Parse(once)
		if err != nil || was.String() != is.String() {
			t.Fatalf("%v: %s became %s", err, was, is)
		}
	}
	files, err := filepath.Glob("../../../examples/*/spec.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		keeps(t, src)
	}
	rapid.Check(t, func(t *rapid.T) {
		var gen func(depth int) value.Value
		gen = func(depth int) value.Value {
			kinds := 5
			if depth == 0 {
				kinds = 3
			}
			switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
			case 0:
				return value.StringValue(rapid.String().Draw(t, "string"))
			case 1:
				return value.Int(rapid.Int64().Draw(t, "number"))
			case 2:
				return value.NullValue()
			case 3:
				elems := make([]value.Value, rapid.IntRange(0, 6).Draw(t, "elements"))
				for i := range elems {
					elems[i] = gen(depth - 1)
				}
				return value.ArrayValue(elems...)
			default:
				keys := rapid.SliceOfNDistinct(rapid.String(), 0, 6, rapid.ID[string]).Draw(t, "keys")
				members := make([]value.Member, len(keys))
				for i, k := range keys {
					members[i] = value.Member{Key: k, Value: gen(depth - 1)}
				}
				return value.ObjectValue(members...)
			}
		}
		keeps(t, gen(4).AppendJSON(nil))
	})
}
