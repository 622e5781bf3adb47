//go:build !race

package outline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/outline"
)

func read(tb testing.TB, text string) outline.Schema {
	tb.Helper()
	v, err := value.ParseString(text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return outline.Of(v, value.Value{})
}

// places writes the places of schemas that hold together.
func places(a outline.Alternative) string {
	var list []string
	for _, s := range a {
		list = append(list, "#"+string(s.At))
	}
	return strings.Join(list, " ")
}

// TestAlternatives has schemas, the places of the alternatives that they are taken apart into, and the kinds that these
// let through. The first of them is the one that FirstAlternative finds, in another order.
func TestAlternatives(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`:              {"#: any"},
		`false`:           {"#: "},
		`{"type":"null"}`: {"#: null"},
		`{"anyOf":[{"type":"null"},{"type":"string"}]}`:                                                 {"# #/anyOf/0: null", "# #/anyOf/1: string"},
		`{"type":"object","allOf":[{"type":["object","null"]},{"const":{}}]}`:                           {"# #/allOf/0 #/allOf/1: object"},
		`{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"enum":[1,1.5]}}}`:      {"# #/$defs/a #/$defs/a/allOf/0 #/$defs/b: number"},
		`{"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"array"}}}`:          {"# #/oneOf/0 #/$defs/a: array", "# #/oneOf/1 #/$defs/a: array"},
		`{"anyOf":[{"type":"null"},{"oneOf":[{"type":"boolean"},{"type":"integer"}]}],"type":"object"}`: {"# #/anyOf/0: ", "# #/anyOf/1 #/anyOf/1/oneOf/0: ", "# #/anyOf/1 #/anyOf/1/oneOf/1: "},
	} {
		s := read(t, text)
		all, complete := outline.Alternatives([]outline.Schema{s}, work.Counted(1000))
		if !complete {
			t.Errorf("%s has too many alternatives", text)
		}
		var got []string
		for _, a := range all {
			kinds := strings.Join((a.Kinds() & a.ValueKinds()).Names(), " ")
			if a.Kinds()&a.ValueKinds() == outline.Any {
				kinds = "any"
			}
			got = append(got, places(a)+": "+kinds)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		first, ok := outline.FirstAlternative([]outline.Schema{s}, work.Counted(1000))
		if !ok || len(all) > 0 && len(first) != len(all[0]) {
			t.Errorf("%s: the first is %s, %t", text, places(first), ok)
		}
	}
}

func TestAlternativesAreBounded(t *testing.T) {
	ten := strings.TrimSuffix(strings.Repeat(`{"anyOf":[{},{},{}]},`, 10), ",")
	all, complete := outline.Alternatives([]outline.Schema{read(t, `{"allOf":[`+ten+`]}`)}, work.Counted(1_000_000))
	if complete || len(all) > 256 {
		t.Errorf("%d alternatives, complete %t", len(all), complete)
	}
	b := work.Counted(5)
	if outline.Alternatives([]outline.Schema{read(t, `{"allOf":[`+ten+`]}`)}, b); b.Err() == nil {
		t.Error("the work is not counted")
	}
	if first, ok := outline.FirstAlternative([]outline.Schema{read(t, `{"allOf":[`+ten+`]}`)}, work.Counted(5)); ok {
		t.Errorf("the first has %d schemas for 5 units", len(first))
	}
}

// TestFind has references from the place that stands before them, and where they lead.
func TestFind(t *testing.T) {
	const text = `{"$id":"https://example.com/root","$defs":{"a/b":{"type":"null"},"c":{"$id":"inner","$defs":{"d":{"type":"string"}},"items":{"$ref":"#/$defs/d"}},
		"e%f":true},"allOf":[{},{}],"x-own":{"deep":{"type":"array"}},"n":5}`
	root := read(t, text)
	for from, want := range map[string]string{
		" #":                                  "#",
		" #/$defs/a~1b":                       "#/$defs/a~1b",
		" #/$defs/e%25f":                      "#/$defs/e%f",
		" #/allOf/1":                          "#/allOf/1",
		" #/x-own/deep":                       "#/x-own/deep",
		" inner":                              "#/$defs/c",
		" inner#/$defs/d":                     "#/$defs/c/$defs/d",
		" https://example.com/inner#/$defs/d": "#/$defs/c/$defs/d",
		"/$defs/c/items #/$defs/d":            "#/$defs/c/$defs/d",
		"/$defs/c/items root#/$defs/a~1b":     "#/$defs/a~1b",
		"/$defs/c/items #/$defs/a~1b":         fmt.Sprint(outline.Nowhere),
		" #/allOf/2":                          fmt.Sprint(outline.Nowhere),
		" #/allOf/01":                         fmt.Sprint(outline.Nowhere),
		" #/n":                                fmt.Sprint(outline.NoSchema),
		" #d":                                 fmt.Sprint(outline.Anchor),
		" other":                              fmt.Sprint(outline.OtherDocument),
		" https://example.com/%zz":            fmt.Sprint(outline.NoURI),
	} {
		place, ref, _ := strings.Cut(from, " ")
		s := root
		for step := range strings.SplitSeq(strings.TrimPrefix(place, "/"), "/") {
			if step != "" {
				s = s.Member(step)
			}
		}
		s.Value = value.ObjectValue(value.Member{Key: "$ref", Value: value.StringValue(ref)})
		to, ok := s.Ref()
		got := "#" + string(to.At)
		if !ok {
			_, fault := outline.Read(root.Value, value.Value{}).Find(ref, s.At)
			got = fmt.Sprint(fault.Why)
		}
		if got != want {
			t.Errorf("%s leads to %s, want %s", from, got, want)
		}
	}
}

// FuzzOutline reads any JSON as a schema. Nothing panics, and what is taken apart is bounded by the work.
func FuzzOutline(f *testing.F) {
	for _, text := range []string{`{"$ref":"#"}`, `{"anyOf":[{"$ref":"#/anyOf/0"},true]}`, `{"$id":"a","allOf":[{"$ref":"a#/x"}],"x":{"$id":"%"}}`, `[1]`, `{"properties":[],"type":{},"enum":5}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := value.ParseString(text)
		if err != nil {
			return
		}
		b := work.Counted(10_000)
		all, _ := outline.Alternatives([]outline.Schema{outline.Of(v, value.Value{})}, b)
		for _, a := range all {
			a.Property("x", func(string, string) bool { return true })
			a.Item(0)
			if k := a.Kinds() & a.ValueKinds(); k > outline.Any {
				t.Errorf("%s: kinds %d", text, k)
			}
		}
		if first, ok := outline.FirstAlternative(
			[]outline.Schema{outline.Of(v, value.Value{})}, work.Counted(10_000),
		); ok && len(first) > 10_000 {
			t.Errorf("%s: %d schemas", text, len(first))
		}
	})
}
