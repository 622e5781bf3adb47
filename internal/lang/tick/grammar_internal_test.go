package tick

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// TestGrammarIsWhole: each operation and each predicate has a row, by which it is compiled, and whoever goes through
// handlers by these rows meets every path that the compiler met.
func TestGrammarIsWhole(t *testing.T) {
	for _, name := range operationNames() {
		if f, ok := operationNamed(name); !ok || f.compile == nil && name != "if" ||
			(f.on != value.Missing || f.effect != Nothing) && f.effect != Moves && f.effect != Drops &&
				len(f.operands) == 0 {
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

// TestOperators goes through the parts of each operator, which have all of its paths.
func TestOperators(t *testing.T) {
	examples := map[string]string{
		"$": `{"$": "$.data.a"}`, "$literal": `{"$literal": 1}`, "$now": `{"$now": "date"}`,
		"$divide": `{"$divide": ["$.data.a", "$.data.b"], "scale": "$.data.c"}`, "$round": `{"$round": "$.data.a", "scale": "$.data.b"}`,
		"$sum": `{"$sum": "$.data.a", "as": "$x", "of": "$x.b"}`, "$count": `{"$count": "$.data.a", "where": {"gt": ["$item.n", {"$abs": "$.data.b"}]}}`,
		"$slice": `{"$slice": "$.data.a", "from": "$.data.b", "to": "$.data.c"}`, "$date_trunc": `{"$date_trunc": "$.data.a", "to": "day"}`,
		"$if":           `{"$if": {"gt": ["$.data.a", "$.data.b"]}, "then": {"$abs": "$.data.c"}, "else": "@.b"}`,
		"$add_duration": `{"$add_duration": ["$.data.a", "$.data.b"]}`, "$add": `{"$add": "$.data.a"}`,
		"$split":  `{"$split": "$.data.a", "by": "$.data.b", "limit": "$.data.c", "part": "@.d"}`,
		"$join":   `{"$join": ["$.data.a", "@.b"], "by": "$.data.c"}`,
		"$number": `{"$number": "$.data.a"}`,
		"$case":   `{"$case": "$.data.a", "of": [["$.data.b", "@.c"], [1, {"$abs": "@.d"}]], "else": "$.data.e"}`,
	}
	for _, name := range operatorNames() {
		o, ok := operatorNamed(name)
		if !ok {
			t.Errorf("%s is listed, and has no row", name)
			continue
		}
		if o.in&handlers == 0 {
			continue
		}
		src := examples[o.name]
		switch {
		case src != "":
		case o.operands[0].reading == AsNumber || o.operands[0].reading == AsText:
			src = `{"` + o.name + `": "$.data.a"}`
		default:
			src = `{"` + o.name + `": ["$.data.a", "@.b"]}`
		}
		v, err := value.ParseString(src)
		if err != nil {
			t.Fatal(err)
		}
		var l diag.List
		if CompileHandler(value.ObjectValue(value.Member{Key: "set", Value: value.ObjectValue(
			value.Member{Key: "target", Value: value.StringValue("x")}, value.Member{Key: "value", Value: v},
		)}), "", &l) == nil {
			t.Errorf("%s: %v", src, l.All())
		}
		if form, _ := HandlerForm(v); form != o.form || form == Plain {
			t.Errorf("%s is of the form %d", src, form)
		}
		parts, ok := OperatorParts(v, "")
		var all strings.Builder
		for _, p := range parts {
			all.WriteString(p.Value.String())
		}
		for _, path := range []string{"$.data.a", "$.data.b", "$.data.c", "@.b", "$x.b"} {
			if !ok || strings.Contains(src, path) != strings.Contains(all.String(), path) {
				t.Errorf("the parts of %s are %s", src, all.String())
			}
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
			case AsValue, AsNumber, AsText, AsObject, AsTime, AsArray, AsPath, asNumbers, asValues, asObjects, asMatch,
				asPredicates, asPairs:
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
