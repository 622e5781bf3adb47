//go:build !race

package value_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"j17/internal/base/value"
)

func steps(path string) []value.Step {
	var out []value.Step
	for part := range strings.SplitSeq(path, "/") {
		if part == "" {
			continue
		}
		if digits, ok := strings.CutPrefix(part, "#"); ok {
			i, err := strconv.Atoi(digits)
			if err != nil {
				panic(err)
			}
			out = append(out, value.Step{Index: i, IsIndex: true})
			continue
		}
		out = append(out, value.Step{Key: part})
	}
	return out
}

func TestFinder(t *testing.T) {
	const doc = `{"a":1,"b":{"c":"x","d":[10,{"e":"\"q\" é"},[true]],"k\"q":null},"f":-12.50,"g":1e3,"h":""}`
	tests := []struct {
		name  string
		paths []string
		want  []string
	}{
		{"members", []string{"a", "b/c", "f", "h"}, []string{`1`, `"x"`, `-12.50`, `""`}},
		{"elements", []string{"b/d/#0", "b/d/#1/e", "b/d/#2/#0", "b/d/#9"}, []string{`10`, `"\"q\" é"`, `true`, ``}},
		{"from the end", []string{"b/d/#-1/#0", "b/d/#-3", "b/d/#-4"}, []string{`true`, `10`, ``}},
		{"escaped keys", []string{`b/k"q`}, []string{`null`}},
		{"nowhere", []string{"x", "a/b", "b/#0", "b/d/c", "b/c/d"}, []string{``, ``, ``, ``, ``}},
		{"one below another", []string{"b", "b/c", "b/d/#1/e", "b/d/#-1"}, []string{`{"c":"x","d":[10,{"e":"\"q\" é"},[true]],"k\"q":null}`, `"x"`, `"\"q\" é"`, `[true]`}},
		{"the same twice", []string{"a", "a"}, []string{`1`, `1`}},
		{"everything", []string{"", "g"}, []string{doc, `1e3`}},
		{"nothing", nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var paths [][]value.Step
			for _, p := range test.paths {
				paths = append(paths, steps(p))
			}
			out := make([]value.Value, len(paths))
			if _, ok := value.NewFinder(paths).Find([]byte(doc), out); !ok {
				t.Fatal("Find reports broken JSON")
			}
			var got []string
			for _, v := range out {
				got = append(got, v.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFinderDoesNotKeepTheText(t *testing.T) {
	src := []byte(`{"s":"text","n":12345678901234567890.5,"o":{"k":"v"},"e":"a\nb"}`)
	out := make([]value.Value, 4)
	f := value.NewFinder([][]value.Step{steps("s"), steps("n"), steps("o"), steps("e")})
	parsed, ok := f.Find(src, out)
	if !ok {
		t.Fatal("Find reports broken JSON")
	}
	if want := (value.Weight{Bytes: len(`{"k":"v"}`), Values: 2}); parsed != want {
		t.Errorf("containers of %v were parsed", parsed)
	}
	for i := range src {
		src[i] = '#'
	}
	want := []string{`"text"`, `12345678901234567890.5`, `{"k":"v"}`, `"a\nb"`}
	for i := range out {
		if got := out[i].String(); got != want[i] {
			t.Errorf("value %d is %s, want %s", i, got, want[i])
		}
	}
}

func TestFinderRejectsBrokenText(t *testing.T) {
	f := value.NewFinder([][]value.Step{steps("a/b"), steps("z")})
	for _, src := range []string{
		``, `{`, `{"a"`, `{"a":`, `{"a":{"b":1`, `{"a":{"b":"x`, `{"a":{"b":"x\`, `{"a":{"b":nul}}`, `{"a":{"b":[1,}}`,
		`{"a":1;`, `{x`,
	} {
		out := []value.Value{value.Int(1), value.Int(2)}
		if _, ok := f.Find([]byte(src), out); ok {
			t.Errorf("Find accepts %q", src)
		}
		if !out[0].IsMissing() || !out[1].IsMissing() {
			t.Errorf("Find leaves values behind in %q", src)
		}
	}
}

func drawSteps(t *rapid.T) []value.Step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) value.Step {
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			return value.Step{IsIndex: true, Index: rapid.IntRange(-3, 3).Draw(t, "index")}
		}
		return value.Step{Key: rapid.SampledFrom([]string{"a", "b", "c", "é", "q\"\n"}).Draw(t, "key")}
	}), 0, 4).Draw(t, "steps")
}

func drawTree(t *rapid.T, depth int) value.Value {
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 && kind > 5 {
		kind = 0
	}
	switch kind {
	case 0:
		return value.NullValue()
	case 1:
		return value.BoolValue(rapid.Bool().Draw(t, "bool"))
	case 2, 3:
		v, err := value.ParseString(rapid.SampledFrom([]string{
			"0", "-1", "1.50", "-0", "1e5", "123456789012345678", "1234567890123456789", "0.1",
		}).Draw(t, "number"))
		if err != nil {
			t.Fatal(err)
		}
		return v
	case 4, 5:
		return value.StringValue(
			rapid.SampledFrom([]string{"", "x", "{\"a\":1}", "\\", "]}\"", "é\n"}).Draw(t, "string"),
		)
	case 6:
		elems := make([]value.Value, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range elems {
			elems[i] = drawTree(t, depth-1)
		}
		return value.ArrayValue(elems...)
	default:
		var members []value.Member
		for _, k := range []string{"a", "b", "c", "é", "q\"\n"} {
			if rapid.Bool().Draw(t, "has") {
				members = append(members, value.Member{Key: k, Value: drawTree(t, depth-1)})
			}
		}
		return value.ObjectValue(members...)
	}
}

// A finder agrees with following the paths through the parsed text.
func TestFinderAgreesWithAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := drawTree(t, 4)
		paths := make([][]value.Step, rapid.IntRange(0, 6).Draw(t, "paths"))
		for i := range paths {
			paths[i] = drawSteps(t)
		}
		src := tree.AppendJSON(nil)
		out := make([]value.Value, len(paths))
		if _, ok := value.NewFinder(paths).Find(src, out); !ok {
			t.Fatalf("Find reports broken JSON in %s", src)
		}
		for i := range paths {
			if want, got := tree.At(paths[i]).String(), out[i].String(); got != want {
				t.Fatalf("%v in %s is %s, want %s", paths[i], src, got, want)
			}
		}
	})
}

func FuzzFinder(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1},"c":[1,2,{"d":"x"}]}`))
	f.Add([]byte(`{"a":"\`))
	f.Fuzz(func(t *testing.T, src []byte) {
		paths := [][]value.Step{steps("a/b"), steps("c/#1"), steps("c/#2/d"), steps("c/#-1"), steps("e")}
		out := make([]value.Value, len(paths))
		value.NewFinder(paths).Find(src, out)
		tree, err := value.Parse(src)
		if err != nil {
			return
		}
		src = tree.AppendJSON(nil)
		if _, ok := value.NewFinder(paths).Find(src, out); !ok {
			t.Fatalf("Find reports broken JSON in %s", src)
		}
		for i := range paths {
			if want, got := tree.At(paths[i]).String(), out[i].String(); got != want {
				t.Errorf("%v in %s is %s, want %s", paths[i], src, got, want)
			}
		}
	})
}

func BenchmarkFinder(b *testing.B) {
	src := []byte(`{"customer_id":"550e8400-e29b-41d4-a716-446655440003","items":[{"sku":"WIDGET-1","name":"Widget","price":29.99,"quantity":2},{"sku":"GADGET-2","name":"Gadget","price":19.99,"quantity":1}],"shipping_address":{"street":"123 Main St","city":"Austin","zip":"78701"},"gift":false,"note":null,"x":12}`)
	f := value.NewFinder([][]value.Step{steps("x")})
	out := make([]value.Value, 1)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := f.Find(src, out); !ok {
			b.Fatal("not found")
		}
	}
}
