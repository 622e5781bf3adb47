//go:build !race

package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
)

// What reads the state is known to the compiler of predicates, wherever in one a path without a prefix is a state path.
func TestConditionsThatReadTheState(t *testing.T) {
	const src = `{"agent_types": ["user"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": [], "implications": [
		{"condition": %s, "emit": {"aggregate_type": "b", "id": "$.key", "event_type": "e"}}]}}},
		"b": {"events": {"e": {"schema": {}, "handler": []}}}}, "listeners": {"l": {"url": "https://example.com", "events": ["*"], "condition": %s}}}`
	for predicate, want := range map[string]bool{
		`{"in": ["$.data.sku", "allowed"]}`:                                               true,
		`{"not_in": ["$.data.sku", "allowed"]}`:                                           true,
		`{"not": {"and": [{"in": ["$.data.sku", "allowed"]}]}}`:                           true,
		`{"in": ["$.data.sku", "@.allowed"]}`:                                             true,
		`{"in": ["$.data.sku", ["a", "$.state.b"]]}`:                                      true,
		`{"exists": "x"}`:                                                                 true,
		`{"includes": {"array": "tags", "value": 1}}`:                                     true,
		`{"minItems": {"array": "tags", "min": 1}}`:                                       true,
		`{"subset_of": {"items": ["a"], "array": "tags"}}`:                                true,
		`{"some": {"in": "$.data.xs", "match": {"in": ["$item", "tags"]}}}`:               true,
		`{"some": {"in": "$.data.xs", "match": {"equals": ["$item.tags", "tags"]}}}`:      false,
		`{"in": ["tags", ["exists", "state"]]}`:                                           false,
		`{"includes": {"array": "$.data.in", "value": "tags"}}`:                           false,
		`{"expired": {"timestamp": "$.data.at", "maxAgeSeconds": 5}}`:                     false,
		`{"equals": [{"$literal": "@.x"}, {"$literal": {"in": ["$.state", "allowed"]}}]}`: false,
	} {
		c, findings := lint.Compile([]byte(fmt.Sprintf(src, predicate, `{"exists": "$.key"}`)))
		if c == nil {
			t.Errorf("%s: %v", predicate, findings)
			continue
		}
		if got := c.EventType("a", "e").Implications[0].Condition.ReadsState(); got != want {
			t.Errorf("%s reads the state: %t", predicate, got)
		}
		// A listener has no state.
		_, findings = lint.Compile([]byte(fmt.Sprintf(src, `{"exists": "$.key"}`, predicate)))
		var refused bool
		for _, f := range findings {
			refused = refused || strings.Contains(f.Message, "leads to a state, but there is none here")
		}
		if refused != want {
			t.Errorf("%s in the condition of a listener is refused: %t", predicate, refused)
		}
	}
}

// What steps of a pipeline add takes no room in a condition, so it may read as much of it as it likes.
func TestConditionsOfManyAddedMembers(t *testing.T) {
	var names []string
	for i := range 150 {
		names = append(names, fmt.Sprintf(`{"exists": "$.added%d.x"}`, i))
	}
	_, findings := lint.Compile([]byte(`{"agent_types": ["user"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": [], "implications": [{"pipeline": [
		{"wasm": {"blob_name": "x.wasm", "mode": "transform"}},
		{"condition": {"and": [` + strings.Join(names, ",") + `]}, "emit": {"aggregate_type": "b", "id": "$.key", "event_type": "e"}}]}]}}},
		"b": {"events": {"e": {"schema": {}, "handler": []}}}}}`))
	for _, f := range findings {
		if f.Severity == diag.Error {
			t.Error(f)
		}
	}
}
