package mcp_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"j17"
	"j17/internal/edge/client"
)

// TestPostEventIsTried: a dry run writes nothing, and the description of the tool has the guards of the spec.
func TestPostEventIsTried(t *testing.T) {
	r := &running{}
	o := options(t, r)
	o.Writer = r
	o.Spec = func() ([]byte, error) {
		return []byte(`{"agent_types":["user"],"aggregate_types":{"purse":{"events":{"was_emptied":{"schema":{},"handler":[],"requires":[
			{"that":{"gt":["$.state.coins",0]},"message":"There is nothing in it.","code":"empty"}]}}}}}`), nil
	}
	s := connect(t, o)
	text, failed := call(t, s, "post_event", `{"type":"purse","id":"global","event":"was_emptied","actor":{"type":"user","id":"global"},"previous_length":3,"dry_run":true}`)
	if failed || !strings.Contains(text, `"code":"requirement_failed"`) || len(r.written) != 0 || len(r.tried) != 1 ||
		*r.with[0].PreviousLength != 3 {
		t.Errorf("%s, %d written, %d tried", text, len(r.written), len(r.tried))
	}
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if tool.Name == "post_event" && !strings.Contains(tool.Description, `- purse.was_emptied: empty "There is nothing in it."`) {
			t.Error(tool.Description)
		}
	}
	r.err = j17.Errorf(j17.CodeUnknownEventType, "There is no such event.")
	refusal(t, s, "post_event", `{"type":"purse","id":"global","event":"was_lost","actor":{"type":"user","id":"global"},"dry_run":true}`, "There is no such event.")
}

func (r *running) TryEvent(
	_ context.Context, _ j17.Key, ev client.NewEvent, o client.WriteOptions,
) (json.RawMessage, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.tried, r.with = append(r.tried, ev), append(r.with, o)
	return json.RawMessage(`{"ok":true,"dry_run":true,"accepted":false,"refusals":[{"status":422,"code":"requirement_failed","error":"No"}],"events":[],"states":[]}`), nil
}
