package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// TestWhatWasRefusedIsNotKept has events imply others that are refused for their data or for what should be an
// identifier: neither is in the list of those that failed, which no erasure looks through for values.
func TestWhatWasRefusedIsNotKept(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {
		"order": {"events": {
			"was_counted": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "strict", "id": "$.key", "event_type": "e", "data": {"n": "$.data.n"}}}]},
			"was_named": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "strict", "id": "$.data.n", "event_type": "e"}}]}}},
		"strict": {"events": {"e": {"schema": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10}}}, "handler": []}}}}}`)
	for event, n := range map[string]string{"was_counted": "4711471147", "was_named": `"4711 471147"`} {
		_, err := f.Execute(t.Context(), enginetest.Command(t, "order/"+id+"/"+event, `{"data":{"n":`+n+`},`+meta+`}`))
		if j17.CodeOf(err) != j17.CodeImplicationFailed ||
			!strings.Contains(err.Error(), "4711") && event == "was_named" {
			t.Errorf("%s: %v", event, err)
		}
	}
	list, _, err := f.ImplicationFailures(t.Context(), tenant, 0, 10)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	raw, err := json.Marshal(list)
	if err != nil || strings.Contains(string(raw), "4711") || !strings.Contains(string(raw), "/data/n") ||
		!strings.Contains(string(raw), "invalid_identifier") {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestWhatAGuardSaysIsNotListed has events imply others that the spec forbids: the list has the code, the place and the
// keys, and not what the guard says, be it made of the data or not.
func TestWhatAGuardSaysIsNotListed(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {
		"order": {"events": {"was_sent": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "strict", "id": "$.key", "event_type": "e", "data": {"n": "$.data.n"}}}]}}},
		"strict": {"events": {"e": {"schema": {}, "handler": [], "reads": {"other": {"aggregate_type": "order", "id": "$.data.n"}}, "requires": [
			{"that": {"equals": ["$.data.n", null]}, "message": "It is sealed.", "code": "sealed"}]}}}}}`)
	for n, said := range map[string]string{`"` + id + `"`: "It is sealed.", `"no id!"`: "no id!"} {
		_, err := f.Execute(
			t.Context(), enginetest.Command(t, "order/"+id+"/was_sent", `{"data":{"n":`+n+`},`+meta+`}`),
		)
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v", n, err)
		}
	}
	list, _, err := f.ImplicationFailures(t.Context(), tenant, 0, 10)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, got := range list {
		want := decider.ImplicationFailure{
			At: got.At, Trigger: decider.Link{Key: "order:" + id, EventType: "was_sent"}, Pointer: "/aggregate_types/strict/events/e/requires/0",
			Chain: []decider.Link{
				{Key: "order:" + id, EventType: "was_sent"}, {Key: "strict:" + id, EventType: "e"},
			},
			Implication: "/aggregate_types/order/events/was_sent/implications/0/emit", Code: j17.CodeRequirementFailed, Error: "requirement_failed",
		}
		if got.Code == j17.CodeInvalidIdentifier {
			want.Code, want.Path, want.Pointer = got.Code, "data.n", "/aggregate_types/strict/events/e/reads/other/id"
			want.Error = "invalid_identifier at data.n"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
