package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"j17"
	"j17/internal/engine"
	"j17/internal/engine/enginetest"
)

// TestWhatWasRefusedIsNotKept has events imply others that are refused for their data or for what should be an identifier: neither is in
// the list of those that failed, which no erasure looks through for values.
func TestWhatWasRefusedIsNotKept(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {
		"order": {"events": {
			"was_counted": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "strict", "id": "$.key", "event_type": "e", "data": {"n": "$.data.n"}}}]},
			"was_named": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "strict", "id": "$.data.n", "event_type": "e"}}]}}},
		"strict": {"events": {"e": {"schema": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10}}}, "handler": []}}}}}`)
	for event, n := range map[string]string{"was_counted": "4711471147", "was_named": `"4711 471147"`} {
		_, err := f.Execute(t.Context(), enginetest.Command(t, "order/"+id+"/"+event, `{"data":{"n":`+n+`},`+meta+`}`))
		if j17.CodeOf(err) != j17.CodeImplicationFailed || !strings.Contains(err.Error(), "4711") && event == "was_named" {
			t.Errorf("%s: %v", event, err)
		}
	}
	list, _, err := f.ImplicationFailures(t.Context(), tenant, 0, 10)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	raw, err := json.Marshal(list)
	if err != nil || strings.Contains(string(raw), "4711") || !strings.Contains(string(raw), "/data/n") || !strings.Contains(string(raw), "invalid_identifier") {
		t.Errorf("%s, %v", raw, err)
	}
}
