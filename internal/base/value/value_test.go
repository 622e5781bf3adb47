//go:build !race

package value_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"j17/internal/base/value"
)

// fataler is what a test and a rapid test have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func parse(tb fataler, src string) value.Value {
	tb.Helper()
	v, err := value.ParseString(src)
	if err != nil {
		tb.Fatalf("parse %s: %v", src, err)
	}
	return v
}

func TestParseKeepsNumbersOrderAndText(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{` { "b" : 1 , "a" : [ ] , "c" : { } } `, `{"b":1,"a":[],"c":{}}`},
		{`12345678901234567890123`, `12345678901234567890123`},
		{`1.10`, `1.10`},
		{`-0`, `-0`},
		{`-0.50`, `-0.50`},
		{`0.000000000000000001`, `0.000000000000000001`},
		{`1E+2`, `1E+2`},
		{`"\u00e9\ud83d\ude00\/\n\u0001"`, `"é😀/\n\u0001"`},
		{`[true,false,null]`, `[true,false,null]`},
		{`""`, `""`},
	} {
		if got := parse(t, tc.in).String(); got != tc.want {
			t.Errorf("%s became %s, want %s", tc.in, got, tc.want)
		}
	}
}

func TestParseRejects(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":0,`, i)
		}
		return b.String()
	}
	for _, tc := range []struct{ in, want string }{
		{``, "line 1, column 1: the JSON text ends"},
		{`{`, "expected a key"},
		{`{"a":1,}`, "comma before the closing brace"},
		{`[1,]`, "comma before the closing bracket"},
		{"{\n  \"a\": tru\n}", "line 2, column 8: unknown word"},
		{`{"c":"a","a" : 1,"b":{"a":2}, "a" :3}`, `line 1, column 31: the object has the key "a" more than once`},
		{`[{"a":[1,2],"b":2,"\u0061":3}]`, `column 19: the object has the key "a" more than once`},
		{`{` + many(40) + `"k7":1}`, `the key "k7" more than once`},
		{`01`, "must not start with a zero"},
		{`-`, "expected a digit"},
		{`1.`, "after the decimal point"},
		{`1e`, "in the exponent"},
		{`1e401`, "between -400 and 400"},
		{`1e-99999999999999999999`, "between -400 and 400"},
		{strings.Repeat("9", value.MaxDigits+1), "at most 10000 digits"},
		{`"\ud800"`, "surrogates"},
		{`"\ud800\u0041"`, "surrogates"},
		{`"\udc00"`, "surrogates"},
		{"\"\xff\"", "UTF-8"},
		{"\"\\n\xff\"", "UTF-8"},
		{"\"\n\"", "U+000A unescaped"},
		{`"\x"`, "unknown escape"},
		{`"\`, "no closing quote"},
		{`"a`, "no closing quote"},
		{`1 2`, "more after the end"},
		{`é`, `unexpected 'é'`},
		{"\xef\xbb\xbf1", "unexpected"},
		{strings.Repeat("[", 129) + strings.Repeat("]", 129), "nested too deeply"},
		{strings.Repeat("[", 1_000_000), "nested too deeply"},
	} {
		_, err := value.ParseString(tc.in)
		var syntax *value.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.40s: got error %v, want one with %q", tc.in, err, tc.want)
		}
	}
	parse(t, strings.Repeat("[", 128)+strings.Repeat("]", 128))
	parse(t, "1e400")
	parse(t, strings.Repeat("9", value.MaxDigits))
}

func TestArithmeticIsExact(t *testing.T) {
	for _, tc := range []struct{ a, b, sum, diff string }{
		{"0.1", "0.2", "0.3", "-0.1"},
		{"1.10", "2", "3.10", "-0.90"},
		{"999999999999999999", "1", "1000000000000000000", "999999999999999998"},
		{"12345678901234567890123", "-0.5", "12345678901234567890122.5", "12345678901234567890123.5"},
		{"1e3", "1", "1001", "999"},
		{"1e-2", "1", "1.01", "-0.99"},
		{"5", "5", "10", "0"},
		{"0.05", "-0.05", "0.00", "0.10"},
	} {
		a, b := parse(t, tc.a), parse(t, tc.b)
		sum, ok1 := value.Add(a, b)
		diff, ok2 := value.Sub(a, b)
		if !ok1 || !ok2 || sum.String() != tc.sum || diff.String() != tc.diff {
			t.Errorf("%s and %s: sum %s, difference %s; want %s, %s", tc.a, tc.b, sum, diff, tc.sum, tc.diff)
		}
	}
	if _, ok := value.Add(parse(t, `"1"`), value.Int(1)); ok {
		t.Error("a string was added to a number")
	}
	if _, ok := value.Add(parse(t, strings.Repeat("9", value.MaxDigits)), value.Int(1)); ok {
		t.Error("a sum grew beyond the limit of digits")
	}
}

// TestNumbersAgreeWithRationals compares arithmetic and order with math/big on random decimals.
func TestNumbersAgreeWithRationals(t *testing.T) {
	text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,21})?(e-?[0-9]{1,2})?`)
	rat := func(v value.Value) *big.Rat {
		r, ok := new(big.Rat).SetString(v.Num())
		if !ok {
			panic(v.Num())
		}
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		a, err1 := value.ParseString(text.Draw(t, "a"))
		b, err2 := value.ParseString(text.Draw(t, "b"))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		x, y := rat(a), rat(b)
		sum, _ := value.Add(a, b)
		diff, _ := value.Sub(a, b)
		if rat(sum).Cmp(new(big.Rat).Add(x, y)) != 0 || rat(diff).Cmp(new(big.Rat).Sub(x, y)) != 0 {
			t.Fatalf("%s, %s: sum %s, difference %s", a, b, sum, diff)
		}
		if c, ok := value.Compare(a, b); !ok || c != x.Cmp(y) || value.Equal(a, b) != (c == 0) {
			t.Fatalf("%s, %s: order %d", a, b, c)
		}
		if a.IsInteger() != x.IsInt() || a.Sign() != x.Sign() {
			t.Fatalf("%s: integer %v, sign %d", a, a.IsInteger(), a.Sign())
		}
		if n, ok := a.Int64(); ok != (x.IsInt() && x.Num().IsInt64()) || (ok && n != x.Num().Int64()) {
			t.Fatalf("%s: %d, %v", a, n, ok)
		}
		if y.Sign() != 0 && a.MultipleOf(b) != new(big.Rat).Quo(x, y).IsInt() {
			t.Fatalf("%s multiple of %s: %v", a, b, a.MultipleOf(b))
		}
	})
}

func TestEqual(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1.0`, true},
		{`100`, `1e2`, true},
		{`-0`, `0`, true},
		{`1`, `"1"`, false},
		{`{"a":1,"b":[2]}`, `{"b":[2.0],"a":1}`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1,"b":2}`, `{"a":1,"c":2}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`null`, `false`, false},
	} {
		if value.Equal(parse(t, tc.a), parse(t, tc.b)) != tc.want {
			t.Errorf("%s equal to %s: not %v", tc.a, tc.b, tc.want)
		}
	}
}

func TestLargeObjectsKeepTheirIndex(t *testing.T) {
	ed := value.NewEditor()
	obj := value.ObjectValue()
	const n = 1000
	for i := range n {
		obj = ed.SetMember(obj, fmt.Sprint(i), value.Int(int64(i)))
	}
	ed.Freeze()
	changed := ed.SetMember(obj, "500", value.NullValue())
	for i := range 50 {
		changed = ed.SetMember(changed, fmt.Sprint("new", i), value.Int(1))
	}
	changed = ed.RemoveMember(changed, "7")
	for i := range n {
		key := fmt.Sprint(i)
		if got, _ := obj.Get(key).Int64(); got != int64(i) {
			t.Fatalf("old version: %s is %d", key, got)
		}
		want := fmt.Sprint(i)
		switch i {
		case 500:
			want = "null"
		case 7:
			want = ""
		}
		if got := changed.Get(key).String(); got != want {
			t.Fatalf("new version: %s is %s", key, got)
		}
	}
	if obj.Len() != n || changed.Len() != n+49 {
		t.Fatalf("lengths %d and %d", obj.Len(), changed.Len())
	}
}

func TestPut(t *testing.T) {
	key := func(k string) value.Step { return value.Step{Key: k} }
	at := func(i int) value.Step { return value.Step{Index: i, IsIndex: true} }
	for _, tc := range []struct {
		root  string
		steps []value.Step
		want  string
		ok    bool
	}{
		{`{}`, []value.Step{key("a"), key("b")}, `{"a":{"b":9}}`, true},
		{`{"a":null}`, []value.Step{key("a"), key("b")}, `{"a":{"b":9}}`, true},
		{`{"a":1}`, []value.Step{key("a"), key("b")}, `{"a":1}`, false},
		{`{"a":[1,2]}`, []value.Step{key("a"), at(-1)}, `{"a":[1,9]}`, true},
		{`{"a":[1,2]}`, []value.Step{key("a"), at(2)}, `{"a":[1,2]}`, false},
		{`{"a":[1,2]}`, []value.Step{key("a"), at(-3)}, `{"a":[1,2]}`, false},
		{`{"a":[1,2]}`, []value.Step{key("a"), key("0")}, `{"a":[1,2]}`, false},
		{`{}`, []value.Step{key("a"), at(0)}, `{}`, false},
		{`[{"x":1}]`, []value.Step{at(0), key("y")}, `[{"x":1,"y":9}]`, true},
		{`1`, nil, `9`, true},
	} {
		got, ok := value.NewEditor().Put(parse(t, tc.root), tc.steps, value.Int(9), value.Weight{})
		if got.String() != tc.want || ok != tc.ok {
			t.Errorf("put %v into %s: %s, %v", tc.steps, tc.root, got, ok)
		}
	}
}

// TestEditorNeverChangesWhatWasFrozen applies random edits and checks every frozen version against its text.
func TestEditorNeverChangesWhatWasFrozen(t *testing.T) {
	keys := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	rapid.Check(t, func(t *rapid.T) {
		ed := value.NewEditor()
		root := value.ObjectValue()
		type version struct {
			v    value.Value
			text string
		}
		var frozen []version
		model := map[string]any{}
		for range rapid.IntRange(1, 40).Draw(t, "edits") {
			k, k2 := keys.Draw(t, "key"), keys.Draw(t, "key2")
			switch rapid.IntRange(0, 4).Draw(t, "edit") {
			case 0:
				root, _ = ed.Put(root, []value.Step{{Key: k}}, value.Int(1), value.Weight{})
				model[k] = 1
			case 1:
				if _, isObj := model[k].(map[string]any); !isObj && model[k] != nil {
					continue
				}
				root, _ = ed.Put(root, []value.Step{{Key: k}, {Key: k2}}, value.Int(2), value.Weight{})
				m, _ := model[k].(map[string]any)
				if m == nil {
					m = map[string]any{}
				}
				m[k2] = 2
				model[k] = m
			case 2:
				root = ed.RemoveMember(root, k)
				delete(model, k)
			case 3: // keep a container in a second place
				if rapid.Bool().Draw(t, "all") {
					ed.Freeze()
				} else {
					ed.Release(root.Get(k2))
				}
				root = ed.SetMember(root, k, root.Get(k2).OrNull())
				var copied any
				raw, _ := json.Marshal(model[k2])
				_ = json.Unmarshal(raw, &copied)
				model[k] = copied
			case 4:
				ed.Freeze()
				frozen = append(frozen, version{root, root.String()})
			}
			raw, _ := json.Marshal(model)
			want, _ := value.Parse(raw)
			if !value.Equal(root, want) {
				t.Fatalf("got %s, want %s", root, raw)
			}
		}
		for _, f := range frozen {
			if f.v.String() != f.text {
				t.Fatalf("frozen %s became %s", f.text, f.v)
			}
		}
	})
}

func TestLocate(t *testing.T) {
	src := "{\n  \"a/b\": [1, {\"x~y\": \"\\\"]}\"}],\n  \"c\": {}\n}"
	for _, tc := range []struct {
		pointer, want string
		ok            bool
	}{
		{"", src, true},
		{"/a~1b/0", "1", true},
		{"/a~1b/1/x~0y", `"\"]}"`, true},
		{"/c", "{}", true},
		{"/c/none", "{}", false},
		{"/a~1b/7", `[1, {"x~y": "\"]}"}]`, false},
	} {
		got, ok := value.Locate(src, tc.pointer)
		if ok != tc.ok || src[got.Start:got.End] != tc.want {
			t.Errorf("%s: %q, %v", tc.pointer, src[got.Start:got.End], ok)
		}
	}
	if place, ok := value.Locate(`{"a":{"":1}}`, "/a/"); !ok || place.Start != 9 {
		t.Errorf("an empty key: %+v, %v", place, ok)
	}
	place, _ := value.Locate(src, "/c")
	if line, column := value.Position(src, place.Key); line != 3 || column != 3 {
		t.Errorf("key of /c at %d:%d", line, column)
	}
}

func TestWithin(t *testing.T) {
	v := parse(t, `{"a":[1,[2]]}`)
	for _, tc := range []struct {
		depth, nodes int
		want         bool
	}{{3, 5, true}, {2, 5, false}, {3, 4, false}} {
		if v.Within(tc.depth, tc.nodes) != tc.want {
			t.Errorf("within depth %d and %d nodes: not %v", tc.depth, tc.nodes, tc.want)
		}
	}
}

// FuzzParse checks that exactly the texts that another strict parser accepts are accepted (up to our limits on
// numbers and depth), that what is written is read back the same, and that places can be looked up in anything.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e3,"\u00e9\ud83d\ude00"],"b":{"a":null}}`, `[[],{}]`, `"\ud800"`, `{"a":1,"a":2}`, `1e400`, "\"\x80\"", ` 1 `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		value.Locate(string(src), "/a/0")
		v, err := value.Parse(src)
		if accepted := oracle(src); accepted != (err == nil) && !ourLimit(err) {
			t.Fatalf("%q: accepted by the oracle: %v, our error: %v", src, accepted, err)
		}
		if err != nil {
			return
		}
		sized(t, v)
		text := v.String()
		again, err := value.ParseString(text)
		if err != nil || !value.Equal(v, again) || again.String() != text {
			t.Fatalf("%q became %q: %v", src, text, err)
		}
		if place, ok := value.Locate(text, ""); !ok || place.End != len(text) {
			t.Fatalf("%q: located %+v", text, place)
		}
	})
}

func ourLimit(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "nested too deeply") ||
		strings.Contains(err.Error(), "exponent of a number must") || strings.Contains(err.Error(), "at most"))
}

func oracle(src []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(src))
	if _, err := d.ReadValue(); err != nil {
		return false
	}
	_, err := d.ReadToken()
	return errors.Is(err, io.EOF)
}

func BenchmarkParse(b *testing.B) {
	src := []byte(order)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Parse(src); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	v := parse(b, order)
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = v.AppendJSON(buf[:0])
	}
}

const order = `{"customer_id":"550e8400-e29b-41d4-a716-446655440003","items":[{"sku":"WIDGET-1","name":"Widget","price":29.99,"quantity":2},{"sku":"GADGET-2","name":"Gadget","price":19.99,"quantity":1}],"shipping_address":{"street":"123 Main St","city":"Austin","zip":"78701"},"gift":false,"note":null,"x":12}`

// TestInvalidUTF8IsFound has the offending byte at the end of each text, before the closing quote and more.
func TestInvalidUTF8IsFound(t *testing.T) {
	for _, before := range []string{`["`, `["abc`, `["\u4e2d\u00fc`, `["a\n\"b`, "[\n \"a", `[{"é`, `["é", "a\u00e9ü`} {
		for _, after := range []string{`"]`, `x\n"]`, "\xff\"]"} {
			src := before + "\xe9" + after
			_, err := value.ParseString(src)
			var syntax *value.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset != len(before) || !strings.Contains(syntax.Message, "0xE9") {
				t.Errorf("%q: %v", src, err)
			}
		}
	}
}

// TestAppendDigits: numbers that are equal have the same digits, whatever their text.
func TestAppendDigits(t *testing.T) {
	for text, want := range map[string]string{
		"0": " 0 0", "-0.00": " 0 0", "1": "1 1 1", "1.0": "1 1 1", "10e-1": "1 1 1", "-120": "12 -1 3",
		"0.0012": "12 1 -2", "1e400": "1 1 401",
		"100000000000000000000.50": "1000000000000000000005 1 21", `"1"`: " 0 0",
	} {
		v, err := value.ParseString(text)
		if err != nil {
			t.Fatal(err)
		}
		digits, sign, magnitude := v.AppendDigits(nil)
		if got := fmt.Sprintf("%s %d %d", digits, sign, magnitude); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
