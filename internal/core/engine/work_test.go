//go:build !race

package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// repeated returns n copies of a text, with commas between them.
func repeated(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+",", n), ",")
}

// TestWhatTakesTooMuchIsNamed sends writes whose conditions, templates, maps and handlers multiply what stands in a
// small event. Each is refused before anything is stored, and the error leads to what was too much.
func TestWhatTakesTooMuchIsNamed(t *testing.T) {
	const nested = `{"some":{"in":"$.data.list","as":"$a","match":{"some":{"in":"$.data.list","as":"$b","match":{"eq":["$b","absent"]}}}}}`
	implying := func(implications string) string {
		return `{"agent_types":["user"],"aggregate_types":{"a":{"events":{
			"was_sent":{"schema":{},"handler":[],"implications":[` + implications + `]},
			"was_seen":{"schema":{},"handler":[]},
			"was_mixed":{"schema":{},"handler":[{"map":{"target":"list","as":"$x","apply":[` + repeated(`{"increment":{"target":"n","by":1}}`, 90) + `]}}]},
			"was_set":{"schema":{},"handler":[{"merge":{"target":"","value":"$.data"}}]}}}}}`
	}
	emit := func(data string) string {
		return `"emit":{"aggregate_type":"a","id":"$.key","event_type":"was_seen","data":` + data + `}`
	}
	one := func(data string) string { return `{"data":` + data + `,` + meta + `}` }
	numbers := func(n int) string { return `{"list":[` + repeated("1", n) + `]}` }
	const implication = "/aggregate_types/a/events/was_sent/implications/0"
	for name, tc := range map[string]struct {
		implications, path, before, body string
		typ, pointer                     string
		index                            int
	}{
		"a search for each element of a map": {
			`{"map":{"in":"$.data.list","as":"$e","condition":{"some":{"in":"$.data.list","as":"$b","match":{"gt":["$b","$e"]}}},` + emit(`{}`) + `}}`,
			"/was_sent", "", one(numbers(10_000)), "was_sent", implication, -1,
		},
		"searches within searches": {
			`{"condition":` + nested + `,` + emit(`{}`) + `}` + strings.Repeat(
				`,{"condition":`+nested+`,`+emit(`{}`)+`}`, 19,
			),
			"/was_sent", "", one(numbers(6_000)), "was_sent", implication, -1,
		},
		"many maps over many elements": {
			repeated(`{"map":{"in":"$.data.list","as":"$e","condition":{"eq":["$e",2]},`+emit(`{}`)+`}}`, 90),
			"/was_sent", "", one(numbers(300_000)), "was_sent", "/aggregate_types/a/events/was_sent/implications/", -1,
		},
		"one object merged thousands of times": {
			`{` + emit(`{"merge":[`+repeated(`"$.data"`, 5_000)+`]}`) + `}`,
			"/was_sent", "", one(`{` + strings.TrimSuffix(manyMembers(3_000), ",") + `}`), "was_sent", implication, -1,
		},
		"the second event of a batch": {
			`{"map":{"in":"$.data.list","as":"$e","condition":{"some":{"in":"$.data.list","as":"$b","match":{"gt":["$b","$e"]}}},` + emit(`{}`) + `}}`,
			"", "", `{"events":[{"type":"was_seen","data":{}},{"type":"was_sent","data":` + numbers(10_000) + `}],` + meta + `}`, "was_sent", implication, 1,
		},
		"a heavy handler": {
			"", "", one(numbers(100_000)), `{"events":[{"type":"was_seen","data":{}},{"type":"was_mixed","data":{}}],` + meta + `}`,
			"was_mixed", "/aggregate_types/a/events/was_mixed/handler", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, engine.Options{})
			f.DeploySource(t, implying(tc.implications))
			stored := uint64(0)
			if tc.before != "" {
				stored = f.Post(t, "a/"+id+"/was_set", strings.ReplaceAll(tc.before, "1,1", `{"n":1},{"n":1}`)).Length
			}
			_, err := f.Execute(t.Context(), enginetest.Command(t, "a/"+id+tc.path, tc.body))
			e, _ := errors.AsType[*j17.Error](err)
			if e == nil || e.Code != j17.CodeWorkLimit {
				t.Fatalf("got %v", err)
			}
			var details struct {
				Key       string         `json:"key"`
				EventType string         `json:"event_type"`
				Pointer   string         `json:"pointer"`
				Chain     []decider.Link `json:"chain"`
			}
			raw, err := json.Marshal(e.Details)
			if err == nil {
				err = json.Unmarshal(raw, &details)
			}
			if err != nil || details.Key != "a:"+id || details.EventType != tc.typ ||
				!strings.HasPrefix(details.Pointer, tc.pointer) || len(details.Chain) != 1 {
				t.Errorf("the details are %s", raw)
			}
			if !strings.Contains(e.Message, details.Pointer) || !strings.Contains(e.Message, tc.typ) {
				t.Errorf("the message does not say where: %s", e.Message)
			}
			if (tc.index < 0) != (e.EventIndex == nil) || e.EventIndex != nil && *e.EventIndex != tc.index {
				t.Errorf("the index is %v, want %d", e.EventIndex, tc.index)
			}
			if n := f.Written(t, "a", id); n != stored {
				t.Errorf("there are %d events, want %d", n, stored)
			}
		})
	}
}

// manyMembers returns n members of an object, each with a comma behind it.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":1,`, i)
	}
	return b.String()
}
