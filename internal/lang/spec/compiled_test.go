//go:build !race

package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

const everything = `
{
  "aggregate_types": {
    "order": {
      "identity": {"handle": "ord", "sequence": true},
      "onTombstone": {"actor": "cascade"},
      "events": {
        "was_placed": {
          "schema": {"type": "object"}, "handler": {"set": {"target": "", "value": "$.data"}}, "allow_skip_occ": true,
          "geo": {"type": "zone", "path": "$.data.zone"},
          "implications": [
            {"map": {"in": "$.data.lines", "as": "$line", "emit": {"aggregate_type": "note", "id": "note:ADMIN", "event_type": "was_written", "data": {"n": 1.50}}}},
            {"schedule": {"delay": "36h", "emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written"},
                          "cancel_on": [{"aggregate_type": "note", "id": "a0000000-0000-4000-a000-000000000001", "event_type": "was_written"}]}},
            {"pipeline": [{"wasm": {"blob_name": "x.wasm:v3", "mode": "transform"}}, {"runtime_container": {"runtime": "ruby", "entrypoint": "a/b.rb"}}]}
          ]
        },
        "was_moved": {"schema": true, "handler": {"wasm": {"blob_name": "m.wasm", "timeout_ms": 250}}},
        "_was_tombstoned": {"handler": []}
      }
    },
    "note": {"events": {"was_written": {"schema": {"required": ["x"]}, "handler": []}}}
  },
  "agent_types": ["user", "admin"],
  "target_types": ["order"],
  "singletons": ["ADMIN", "global"],
  "identity": {"uuid_versions": [7, 4]},
  "project_key": "VNO",
  "modules": {
    "cache": ["note"],
    "sagas": {"s": {"trigger": {"aggregate_type": "order", "event_type": "was_placed"}, "steps": [
      {"name": "one", "emit": {"aggregate_type": "note", "id": "ADMIN", "event_type": "was_written"},
       "await": {"aggregate_type": "note", "event_types": ["was_written"], "id": "$.id"}, "timeout_ms": 1500}]}}
  },
  "geo_types": {"zone": {"type": "polygon", "properties": ["fee"]}},
  "projections": {
    "p": {"for_each": "order", "sources": {"order": "$key", "notes": {"type": "note", "id": "$.order.notes[*].id", "mode": "array"}}, "include": {"c": "note:global"}, "select": {"a": "$.order.a"}},
    "q": {"sources": [{"aggregate": "note", "query": "user.id = $.user"}, {"aggregate": "note", "as": "five", "query": "n = 5"}]}
  },
  "listeners": {
    "l": {"url": {"test": "https://example.com/x"}, "events": ["order.was_placed", "note.*", "*"], "headers": {"X-A": "b"}, "when": {"exists": "$.data.a"}, "format": "cloudevents"}
  }
}
`

func TestCompiledHoldsWhatTheSpecSays(t *testing.T) {
	c := compile(t, []byte(everything))
	if string(c.Source) != strings.TrimSpace(everything) {
		t.Errorf("the source is %q", c.Source)
	}
	placed := c.EventType("order", "was_placed")
	if placed.Handler == nil || placed.Code != nil || placed.Schema == nil || !placed.AllowSkipOCC || placed.System {
		t.Errorf("was_placed is %+v", placed)
	}
	if e := c.EventType("order", "_was_tombstoned"); !e.System || e.Schema != nil || e.Handler == nil {
		t.Errorf("_was_tombstoned is %+v", e)
	}
	if c.EventType("order", "nope") != nil || c.EventType("nope", "nope") != nil {
		t.Error("there are event types that were not declared")
	}
	if got, err := c.EventType("note", "was_written").Schema.Valid(
		value.ObjectValue(), work.Counted(work.Command),
	); got || err != nil {
		t.Errorf("was_written does not check its data: %v", err)
	}
	if _, kind, _ := c.IDs.Check("ADMIN"); kind != ident.Singleton {
		t.Error("ADMIN is no singleton")
	}
	if _, _, err := c.IDs.Check("0190a5c8-7b1a-7c3d-9e4f-0123456789ab"); err != nil {
		t.Errorf("UUIDs of version 7: %v", err)
	}
	if l := c.Listeners["l"]; l.Condition == nil || !l.Events[0].Matches("order", "was_placed") ||
		l.Events[0].Matches("order", "x") ||
		!l.Events[1].Matches("note", "x") || l.Events[1].Matches("order", "x") || !l.Events[2].Matches("x", "y") {
		t.Errorf("the listener is %+v", l)
	}

	path := func(text string) *tick.Path {
		return tick.CompilePath(
			value.StringValue(text), "", "a path", tick.Scope{Bindings: []string{"prev"}, Wildcards: true},
			&diag.List{},
		)
	}
	ref := func(text string) spec.Ref { return spec.Ref{Path: path(text)} }
	at := diag.Pointer("/aggregate_types/order/events/was_placed/implications")
	note := func(at diag.Pointer, id spec.Ref, data string) *spec.Emit {
		e := &spec.Emit{Pointer: at, AggregateType: "note", ID: id, EventType: "was_written"}
		if data != "" {
			v, _ := value.ParseString(data)
			e.Data = tick.CompileTemplate(v, "", tick.Scope{Bindings: []string{"line", "prev"}}, &diag.List{})
		}
		return e
	}
	admin := spec.Ref{Literal: "ADMIN"}
	for what, pair := range map[string][2]any{
		"agent types":  {[]string{"admin", "user"}, c.AgentTypes.Sorted()},
		"target types": {[]string{"order"}, c.TargetTypes.Sorted()},
		"singletons":   {[]string{"ADMIN"}, c.Singletons.Sorted()},
		"project key":  {"VNO", c.ProjectKey},
		"order": {[]any{ident.Prefix("ord"), true, false, &spec.OnTombstone{CascadeFromActor: true}}, []any{
			c.Types["order"].Handle, c.Types["order"].Sequence, c.Types["order"].Cache, c.Types["order"].OnTombstone,
		}},
		"cache": {true, c.Types["note"].Cache},
		"geo": {
			&spec.Geo{Type: c.GeoTypes["zone"], Steps: []value.Step{{Key: "zone"}}, Where: "data.zone"}, placed.Geo,
		},
		"geo types": {
			map[string]*spec.GeoType{"zone": {Name: "zone", Shape: "polygon", Properties: []string{"fee"}}}, c.GeoTypes,
		},
		"wasm": {&spec.Code{
			Runtime: spec.WASM, Artifact: "m.wasm", Entrypoint: "apply_handler", Timeout: 250 * time.Millisecond,
		}, c.EventType("order", "was_moved").Code},
		"implications": {[]*spec.Implication{
			{Pointer: at.Index(0), Map: &spec.Map{
				In: path("$.data.lines"), As: "$line",
				Emit: note(at.Index(0).Key("map").Key("emit"), admin, `{"n": 1.50}`),
			}},
			{Pointer: at.Index(1), Schedule: &spec.Schedule{
				Delay: 36 * time.Hour, Emit: note(at.Index(1).Key("schedule").Key("emit"), ref("$.key"), ""),
				CancelOn: []spec.Match{{
					AggregateType: "note", ID: spec.Ref{Literal: "a0000000-0000-4000-a000-000000000001"},
					EventType: "was_written",
				}},
			}},
			{Pointer: at.Index(2), Pipeline: []*spec.Implication{
				{Pointer: at.Index(2).Key("pipeline").Index(0), Code: &spec.Code{
					Runtime: spec.WASM, Artifact: "x.wasm", Version: 3, Entrypoint: "compute_implications",
					Transform: true,
				}},
				{
					Pointer: at.Index(2).Key("pipeline").Index(1),
					Code:    &spec.Code{Runtime: spec.RubyContainer, Entrypoint: "a/b.rb"},
				},
			}},
		}, placed.Implications},
		"sagas": {map[string]*spec.Saga{"s": {
			Name: "s", TriggerAggregate: "order", TriggerEvent: "was_placed", MaxCompensationAttempts: 3,
			Steps: []spec.Step{{
				Name: "one", Emit: note("/modules/sagas/s/steps/0/emit", admin, ""), Timeout: 1500 * time.Millisecond,
				Await: &spec.Await{AggregateType: "note", EventTypes: []string{"was_written"}, ID: new(ref("$.id"))},
			}},
		}}, c.Sagas},
		"what an event starts": {[]*spec.Saga{c.Sagas["s"]}, placed.Sagas},
		"listeners": {map[string]*spec.Listener{"l": {
			Name: "l", URLs: map[j17.Environment]string{j17.Test: "https://example.com/x"},
			Headers: map[string]string{"X-A": "b"},
			Events:  []spec.Pattern{{AggregateType: "order", EventType: "was_placed"}, {AggregateType: "note"}, {}},
			Format:  spec.FormatCloudEvents,
		}}, c.Listeners},
	} {
		same := cmp.Options{
			cmp.Comparer(value.Equal),
			cmp.Transformer("Text", func(p *tick.Path) string {
				if p == nil {
					return ""
				}
				return p.Text()
			}),
			cmp.Transformer("Source", (*tick.Template).Source),
		}
		if diff := cmp.Diff(pair[0], pair[1], same, cmpopts.IgnoreTypes(&tick.Predicate{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestHashIsOfWhatTheSpecSays(t *testing.T) {
	hash := func(src string) string { return compile(t, []byte(src)).Hash }
	one := hash(`{"aggregate_types": {}, "agent_types": ["user"]}`)
	if len(one) != 64 || strings.ToLower(one) != one {
		t.Errorf("the hash is %q", one)
	}
	if two := hash("{\"aggregate_types\":\n\n{},\t\"agent_types\":[\"\\u0075ser\"]}\n"); one != two {
		t.Errorf("white space and escapes make %s of %s", two, one)
	}
	for _, other := range []string{`{"aggregate_types": {}, "agent_types": ["users"]}`, `{"agent_types": ["user"], "aggregate_types": {}}`} {
		if hash(other) == one {
			t.Errorf("%s has the hash of another spec", other)
		}
	}
}

// repeated writes format n times, with the number in place of "%d".
func repeated(n int, format string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(format, "%d", fmt.Sprint(i))
	}
	return strings.Join(parts, ",")
}

func TestLimits(t *testing.T) {
	event := `"e%d": {"schema": {}, "handler": []}`
	for what, c := range map[string]struct{ src, want string }{
		"size":            {`{"aggregate_types": {}, "agent_types": ["user"]}` + strings.Repeat(" ", spec.MaxSize), "the spec has 4194352 bytes; at most 4194304 are accepted"},
		"aggregate types": {`{"agent_types": ["user"], "modules": {"cache": ["t1"]}, "aggregate_types": {` + repeated(1001, `"t%d": {"events": {}}`) + `}}`, "aggregate_types may have at most 1000 entries and has 1001"},
		"event types": {
			`{"agent_types": ["user"], "aggregate_types": {"a": {"events": {` + repeated(5000, event) + `}}, "b": {"events": {` + repeated(5001, event) + `}}}}`,
			"all aggregate types together may have at most 10000 entries and has 10001",
		},
		"agent types":  {`{"aggregate_types": {}, "agent_types": [` + repeated(1001, `"a%d"`) + `]}`, "agent_types may have at most 1000 entries and has 1001"},
		"implications": {`{"agent_types": ["user"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": [], "implications": [` + repeated(101, `{}`) + `]}}}}}`, "implications may have at most 100 entries and has 101"},
		"saga":         {`{"aggregate_types": {}, "agent_types": ["user"], "modules": {"sagas": {"s": {"steps": [` + repeated(51, `{}`) + `]}}}}`, "the steps of a saga may have at most 50 entries and has 51"},
		"long text":    {`{"aggregate_types": {}, "agent_types": ["user"], "project_key": "` + strings.Repeat("A", 2049) + `"}`, "project_key is longer than 2048 bytes"},
	} {
		compiled, found := lint.Compile([]byte(c.src))
		if compiled != nil || !strings.Contains(written(found), c.want) {
			t.Errorf("%s: found %.2000s", what, written(found))
		}
	}
}

func TestFaultsAreCounted(t *testing.T) {
	_, found := lint.Compile([]byte(`{"agent_types": [` + strings.Repeat(`1,`, 999) + `1], "aggregate_types": {` +
		strings.Repeat(" ", 1<<20) + `"a": {"events": {"e": {"schema": {}, "handler": [], "implications": [` + strings.Repeat(`{},`, 99) + `{}]}}}}}`))
	last := found[len(found)-1]
	if len(found) != diag.MaxKept+1 || last.Message != "100 more findings are left out" {
		t.Errorf("%d findings, the last is %v", len(found), last)
	}
}

// hostile returns specs made to cost as much as possible.
func hostile() map[string]string {
	one := func(event string) string {
		return `{"agent_types": ["user"], "aggregate_types": {"t": {"events": {` + event + `}}}}`
	}
	emit := `{"emit": {"aggregate_type": "t", "id": "$.key", "event_type": "%s"}}`
	var chain strings.Builder
	for i := range 9999 {
		fmt.Fprintf(&chain, `"e%d": {"schema": {}, "handler": [], "implications": [`+emit+`]},`, i, fmt.Sprint("e", i+1))
	}
	fmt.Fprintf(&chain, `"e9999": {"schema": {}, "handler": [], "implications": [`+emit+`]}`, "e0")
	var renamed strings.Builder
	for i := range 9999 {
		fmt.Fprintf(&renamed, `"e%d": {"schema": {}, "retired": {"as": "e%d", "generation": 1}},`, i, i+1)
	}
	renamed.WriteString(`"e9999": {"schema": {}, "handler": []}`)
	many := func(n int, each string) string { return strings.TrimSuffix(strings.Repeat(each+",", n), ",") }
	return map[string]string{
		"unknown keys": "{" + repeated(300_000, `"x%d":1`) + "}",
		"unknown keys below": one(repeated(
			9000, `"e%d": {"schema": {}, "handler": [], `+strings.ReplaceAll(repeated(30, `"x%d": 1`), "%", "%%")+`}`,
		)),
		"undeclared events":   one(repeated(1500, `"event_of_some_length_%d": {"schema": {}, "handler": [], "implications": [`+many(30, fmt.Sprintf(emit, "event_of_some_length_x"))+`]}`)),
		"cycles":              one(repeated(600, `"e%d": {"schema": {}, "handler": [], "implications": [`+many(90, fmt.Sprintf(emit, "e0"))+`]}`)),
		"undeclared, of many": one(repeated(9999, `"e%d": {"schema": {}, "handler": [], "implications": [`+fmt.Sprintf(emit, "f%d")+`]}`)),
		"one long cycle":      one(chain.String()),
		"deep data":           one(`"e": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "t", "id": "$.key", "event_type": "f", "data": [` + many(20_000, strings.Repeat("[", 90)+`"$.x"`+strings.Repeat("]", 90)) + `]}}]}, "f": {"schema": {}, "handler": []}`),
		"faults at the end":   one(`"e": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "t", "id": "$.key", "event_type": "f", "data": [` + many(400_000, `"$.x"`) + `]}}]}, "f": {"schema": {}, "handler": []}`),
		"generations":         one(repeated(40, `"e%d": {"schema": {}, "handler": [], "generations": {`+strings.Replace(strings.ReplaceAll(repeated(100, `"%d": {"schema": {"type": "object"}, "upcast": [`+many(10, `{"set": {"target": "a.b", "value": "@.c?"}}`)+`]}`), "%", "%%"), `"0"`, `"x"`, 1)+`}}`)),
		"one long retirement": one(renamed.String()),
		"agents":              `{"agent_types": [` + many(1000, `"system_x"`) + `], "aggregate_types": {}}`,
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, src := range hostile() {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				_, found := lint.Compile([]byte(src))
				diag.Render("spec.json", []byte(src), found)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	src := []byte(everything)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if c, _ := lint.Compile(src); c == nil {
			b.Fatal("no spec")
		}
	}
}

func TestSchemasThatCannotBeComparedAreReported(t *testing.T) {
	branches := func(n int) string {
		return repeated(n, `{"type": "object", "properties": {"p%d": {"type": "string"}}, "required": ["p%d"]}`)
	}
	for what, schemas := range map[string][2]string{
		"one wide choice":  {`{"anyOf": [` + branches(257) + `]}`, `{"title": "x", "anyOf": [` + branches(257) + `]}`},
		"choices in a row": {`{}`, `{"allOf": [` + repeated(9, `{"anyOf": [{"required": ["a%d"]}, {"required": ["b%d"]}]}`) + `]}`},
		"many patterns": {`{"properties": {` + repeated(1000, `"p%d": {}`) + `}}`, `{"properties": {` + repeated(
			1000, `"p%d": {}`,
		) + `}, "patternProperties": {` + repeated(400, `"^q%d": {}`) + `}}`},
	} {
		old, next := compile(t, whole(schemas[0])), compile(t, whole(schemas[1]))
		found := compare.Compatibility(old, next)
		if len(found) != 1 || !strings.Contains(found[0].Message, "too many alternatives") {
			t.Errorf("%s: %.1000s", what, written(found))
		}
	}
}

func TestFingerprint(t *testing.T) {
	types := func(projectKey string) map[string]*spec.AggregateType {
		c, found := lint.Compile([]byte(`{"agent_types": ["user"], "project_key": "` + projectKey + `", "aggregate_types": {
			"ticket": {"identity": {"sequence": true}, "events": {"was_opened": {"schema": {}, "handler": []}}},
			"note": {"events": {"was_written": {"schema": {}, "handler": []}}}}}`))
		if c == nil {
			t.Fatal(found)
		}
		return c.Types
	}
	was, is := types("VNO"), types("OPS")
	if was["ticket"].Fingerprint == is["ticket"].Fingerprint {
		t.Error("another project key does not show in the fingerprint of a type with public ids")
	}
	if was["note"].Fingerprint != is["note"].Fingerprint {
		t.Error("another project key shows in the fingerprint of a type without public ids")
	}
}

// A shared definition is part of the fingerprint of the types whose schemas reach it, by others too, and of no other
// type.
func TestFingerprintOfDefinitions(t *testing.T) {
	types := func(amount string) map[string]*spec.AggregateType {
		c, found := lint.Compile([]byte(`{"agent_types": ["user"], "$defs": {"money": {"properties": {"amount": {"$ref": "#/$defs/amount"}}}, "amount": {"type": "` + amount + `"}},
			"aggregate_types": {
				"order": {"events": {"was_paid": {"schema": {"properties": {"price": {"$ref": "#/$defs/money"}}}, "handler": []}}},
				"own": {"events": {"was_paid": {"schema": {"$ref": "#/$defs/money", "$defs": {"money": {}}}, "handler": []}}},
				"note": {"events": {"was_written": {"schema": {}, "handler": []}}}}}`))
		if c == nil {
			t.Fatal(found)
		}
		return c.Types
	}
	was, is := types("number"), types("integer")
	for name, changes := range map[string]bool{"order": true, "own": false, "note": false} {
		if (was[name].Fingerprint != is[name].Fingerprint) != changes {
			t.Errorf("another definition shows in the fingerprint of %s: %t, want %t", name, !changes, changes)
		}
	}
	if got := was["order"].Events["was_paid"].Schema.Definitions(); !slices.Equal(got, []string{"amount", "money"}) {
		t.Errorf("the schema reaches %v", got)
	}
}

// TestListenersAreCounted: a listener counts once for an event type, however many of its patterns select it.
func TestListenersAreCounted(t *testing.T) {
	c := compile(t, []byte(`{"agent_types":["user"],"aggregate_types":{"a":{"events":{"e":{"schema":{},"handler":[]},"f":{"schema":{},"handler":[]}}},"b":{"events":{"e":{"schema":{},"handler":[]}}}},
		"listeners":{
			"all":{"url":"https://example.com/","events":["*","a.*","a.e"]},
			"type":{"url":"https://example.com/","events":["a.*","a.e","a.e"]},
			"event":{"url":"https://example.com/","events":["a.e","b.e"]}}}`))
	for event, want := range map[string]int{"a.e": 3, "a.f": 2, "b.e": 2} {
		typ, name, _ := strings.Cut(event, ".")
		if got := c.EventType(typ, name).Listeners; got != want {
			t.Errorf("%d listeners are told of %s, want %d", got, event, want)
		}
	}
}
