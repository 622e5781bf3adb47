package tick

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/value"
)

// TestGrammarIsWhole: each operation and each predicate has a row, by which it is compiled, and whoever goes through handlers by
// these rows meets every path that the compiler met.
func TestGrammarIsWhole(t *testing.T) {
	for _, name := range operationNames() {
		if f, ok := operationNamed(name); !ok || f.compile == nil && name != "if" || (f.on != value.Missing || f.effect != Nothing) && len(f.operands) == 0 {
			t.Errorf("the row of %s is %+v", name, f)
		}
		src := example(name)
		if name == "if" {
			src = `{"if": {"equals": ["$.data.done", true]}, "then": [{"set": {"target": "a", "value": "$.data.a"}}], "else": {"increment": {"target": "b", "by": "$.data.b"}}}`
		}
		samePaths(t, name, src)
	}
	for _, name := range predicateNames() {
		if f, ok := predicateNamed(name); !ok || f.compile == nil || len(f.operands) == 0 {
			t.Errorf("the row of %s is %+v", name, f)
		}
		samePaths(t, name, `{"filter": {"target": "xs", "keep": `+example(name)+`}}`)
	}
	for _, name := range []string{"", "unless", "find"} {
		if _, ok := operationNamed(name); ok {
			t.Errorf("%q is an operation", name)
		}
		if _, ok := predicateNamed(name); ok {
			t.Errorf("%q is a predicate", name)
		}
	}
}

// samePaths compares the paths in the text of an operation, but for names, with those that going through it meets.
func samePaths(t *testing.T, name, src string) {
	t.Helper()
	v, err := value.ParseString(src)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	var l diag.List
	if CompileHandler(v, "", &l) == nil {
		t.Errorf("%s: %v", src, l.All())
	}
	var want, got []string
	paths := func(v value.Value, into *[]string) {
		var walk func(v value.Value)
		walk = func(v value.Value) {
			if jsonpath.IsPath(v.Str()) && (strings.ContainsAny(v.Str(), ".@") || v.Str() == "$") {
				*into = append(*into, v.Str())
			}
			for _, e := range v.Elems() {
				walk(e)
			}
			for _, m := range v.Members() {
				walk(m.Value)
			}
		}
		walk(v)
	}
	var parts func(list []Part)
	var operations func(v value.Value, at diag.Pointer)
	parts = func(list []Part) {
		for _, p := range list {
			if place, ok := value.Locate(src, string(p.At)); !ok || src[place.Start:place.End] == "" {
				t.Errorf("%s: nothing is at %s", name, p.At)
			}
			switch p.Reading {
			case AsPredicate:
				parts(PredicateParts(p.Value, p.At))
			case AsOperations:
				operations(p.Value, p.At)
			case AsValue, AsNumber, AsArray, AsPath, asMatch, asPredicates:
				paths(p.Value, &got)
			}
		}
	}
	operations = func(v value.Value, at diag.Pointer) {
		for op := range Operations(v, at) {
			parts(op.Parts())
		}
	}
	operations(v, "")
	paths(v, &want)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: going through it meets other paths (-all +met): %s", name, diff)
	}
}
