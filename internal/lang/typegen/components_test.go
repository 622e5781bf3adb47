package typegen_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/lang/typegen"
)

// A definition that all schemas share is one component, whatever event type is called as it is.
func TestSharedDefinitionsAreComponentsOnce(t *testing.T) {
	root, err := value.ParseString(`{"$defs": {"positive": {"type": "number"}, "money": {"properties": {"amount": {"$ref": "#/$defs/positive"}, "of": {"$ref": "#/$defs/money"}}}},
		"aggregate_types": {
			"shared": {"events": {"money": {"schema": {"properties": {"a": {"$ref": "#/$defs/money"}, "b": {"$ref": "#/$defs/own"}}, "$defs": {"own": {"type": "string"}}}}}},
			"order": {"events": {
				"was_paid": {"schema": {"$ref": "#/$defs/money"}},
				"was_sent": {"schema": {"properties": {"n": {"$ref": "#/$defs/positive"}, "m": {"$ref": "#/$defs/money"}}, "$defs": {"positive": {"type": "integer"}}}}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range typegen.Components(root, value.Value{}) {
		if strings.HasSuffix(c.Name, "._state") {
			continue
		}
		if got[c.Name] != "" {
			t.Errorf("%s is there twice", c.Name)
		}
		got[c.Name] = string(c.Schema)
	}
	want := map[string]string{
		"shared.money":            `{"properties":{"a":{"$ref":"#/components/schemas/shared.money2"},"b":{"$ref":"#/components/schemas/shared.money.own"}}}`,
		"shared.money.own":        `{"type":"string"}`,
		"shared.money2":           `{"properties":{"amount":{"$ref":"#/components/schemas/shared.positive"},"of":{"$ref":"#/components/schemas/shared.money2"}}}`,
		"shared.positive":         `{"type":"number","format":"double"}`,
		"order.was_paid":          `{"$ref":"#/components/schemas/shared.money2"}`,
		"order.was_sent":          `{"properties":{"n":{"$ref":"#/components/schemas/order.was_sent.positive"},"m":{"$ref":"#/components/schemas/shared.money2"}}}`,
		"order.was_sent.positive": `{"type":"integer"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDerivedComponents: the states of a spec, and what its projections yield, are components that refer to those of
// the data.
func TestDerivedComponents(t *testing.T) {
	root := read(t, "testdata/spec.json")
	got := map[string]string{}
	for _, c := range typegen.Components(root, root.Get("projections")) {
		got[c.Name] = string(c.Schema)
	}
	var d bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(got)) {
		d.WriteString(name + "\n")
		if err := json.Indent(&d, []byte(got[name]), "", "  "); err != nil {
			t.Fatal(name, err, got[name])
		}
		d.WriteString("\n\n")
		for rest := got[name]; ; {
			_, after, found := strings.Cut(rest, `"$ref":"#/components/schemas/`)
			if !found {
				break
			}
			to, left, _ := strings.Cut(after, `"`)
			if rest = left; got[to] == "" {
				t.Errorf("%s refers to %s, which is not there", name, to)
			}
		}
	}
	const file = "testdata/want.components.txt"
	if *update {
		if err := os.WriteFile(file, d.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), d.String()); diff != "" {
		t.Error(diff)
	}
}

// TestDerivedComponentsAreBounded: what repeats a large type many times has components that are not much larger than
// the spec, soon.
func TestDerivedComponentsAreBounded(t *testing.T) {
	var wide, sets, views strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&wide, `"member_%d":{"type":"string"},`, i)
		fmt.Fprintf(&sets, `{"set":{"target":"t%d","value":"$.data.wide"}},{"merge":{"target":"m%d","value":{"$merge":["$.data.wide","$.data.other?"]}}},`, i, i)
		fmt.Fprintf(&views, `"v%d":"$.a.t1","w%d":"$.a.m2?",`, i, i)
	}
	source := `{"aggregate_types":{"a":{"events":{"e":{"schema":{"type":"object","properties":{
		"wide":{"type":"object","properties":{` + strings.TrimSuffix(wide.String(), ",") + `}},"other":{"allOf":[{"type":"object","properties":{` +
		strings.TrimSuffix(wide.String(), ",") + `}},{"type":"object","properties":{"x":{}}}]}}},"handler":[` + strings.TrimSuffix(sets.String(), ",") + `]}}}},
		"projections":{"p":{"for_each":"a","sources":{"a":"$key"},"select":{` + strings.TrimSuffix(views.String(), ",") + `}}}}`
	root, err := value.ParseString(source)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	size := 0
	for _, c := range typegen.Components(root, root.Get("projections")) {
		size += len(c.Schema)
		if !json.Valid(c.Schema) {
			t.Errorf("%s is %.100s", c.Name, c.Schema)
		}
	}
	runtime.ReadMemStats(&after)
	if most := 6*len(source) + 1<<20; size > most {
		t.Errorf("a spec of %d bytes has components of %d", len(source), size)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 2<<30 {
		t.Errorf("%d bytes were allocated", used)
	}
}
