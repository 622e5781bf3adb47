package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"j17"
	"j17/internal/engine"
	"j17/internal/engine/enginetest"
)

// dearSpec has a schema that takes much work for little data, and an implication that emits such data.
const dearSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"a": {"events": {
		"was_tried": {"schema": {"properties": {"text": {"pattern": "^(?:(?=(a+)+b)|a)"}}}, "handler": []},
		"was_asked": {"schema": {"properties": {"texts": {"type": "array"}}}, "handler": [], "implications": [
			{"map": {"in": "$.data.texts", "as": "$t", "emit": {"aggregate_type": "a", "id": "$.key", "event_type": "was_tried", "data": {"text": "$t"}}}}]}
	}}}
}`

// TestABatchHasOneBudgetForItsSchemas checks that the work for all events of a write is counted together, also for those that it
// implies, and that a write whose caller has left is given up.
func TestABatchHasOneBudgetForItsSchemas(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, dearSpec)
	bait := `"` + strings.Repeat("a", 19) + `"`
	event := `{"type":"was_tried","data":{"text":` + bait + `}}`
	batch := func(n int) string { return `{"events":[` + event + strings.Repeat(","+event, n-1) + `],` + meta + `}` }
	f.Post(t, "a/"+id, batch(1))

	_, err := f.Execute(t.Context(), enginetest.Command(t, "a/"+id, batch(60)))
	var e *j17.Error
	if !errors.As(err, &e) || e.Code != j17.CodeWorkLimit || e.EventIndex == nil {
		t.Errorf("a batch: %+v", err)
	}
	asked := `{"data":{"texts":[` + bait + strings.Repeat(","+bait, 59) + `]},` + meta + `}`
	if _, err := f.Execute(t.Context(), enginetest.Command(t, "a/"+id+"/was_asked", asked)); j17.CodeOf(err) != j17.CodeWorkLimit {
		t.Errorf("implied events: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Execute(ctx, enginetest.Command(t, "a/"+id, batch(1))); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left: %v", err)
	}
	if n := f.Written(t, "a", id); n != 1 {
		t.Errorf("there are %d events", n)
	}
}
