package engine_test

import (
	"testing"

	"j17/internal/core/engine"
)

// A condition that looks a value up in an array of the state, by a path without a prefix, sees the state.
func TestConditionsLookIntoTheState(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {
		"stock": {"events": {
			"had_allowed": {"schema": {}, "handler": [{"set": {"target": "allowed", "value": "$.data.list"}}]},
			"was_asked": {"schema": {}, "handler": [], "implications": [
				{"condition": {"in": ["$.data.sku", "allowed"]}, "emit": {"aggregate_type": "known", "id": "$.key", "event_type": "e"}},
				{"condition": {"not_in": ["$.data.sku", "allowed"]}, "emit": {"aggregate_type": "other", "id": "$.key", "event_type": "e"}}]}}},
		"known": {"events": {"e": {"schema": {}, "handler": []}}},
		"other": {"events": {"e": {"schema": {}, "handler": []}}}}}`)
	f.Post(t, "stock/"+id+"/had_allowed", `{"data":{"list":["A","B"]},`+meta+`}`)
	f.Post(t, "stock/"+id+"/was_asked", `{"data":{"sku":"A"},`+meta+`}`)
	if known, other := f.Written(t, "known", id), f.Written(t, "other", id); known != 1 || other != 0 {
		t.Errorf("a value that the state has: %d times in, %d times not in", known, other)
	}
	f.Post(t, "stock/"+id+"/was_asked", `{"data":{"sku":"Z"},`+meta+`}`)
	if known, other := f.Written(t, "known", id), f.Written(t, "other", id); known != 1 || other != 1 {
		t.Errorf("a value that the state does not have: %d times in, %d times not in", known-1, other)
	}
}
