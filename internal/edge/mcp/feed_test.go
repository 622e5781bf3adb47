package mcp_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/edge/client"
)

func TestReadFeed(t *testing.T) {
	r := &running{events: 5}
	s := connect(t, options(t, r))
	type page struct {
		Events   []json.RawMessage
		Next     *string
		Position string
	}
	got := answer[page](t, s, "read_feed", `{"type":"counter","event":"was_raised","actor":"user:a:b","target":"user:c","types":["counter.*"],"tags":["a:b,c"],"count":3,"stored":true}`)
	if len(got.Events) != 3 || got.Position != "1795300000000-2" {
		t.Errorf("%+v", got)
	}
	want := client.FeedFilter{
		Type: "counter", Event: "was_raised", Actor: &j17.Agent{Type: "user", ID: "a:b"},
		Target: &j17.Agent{Type: "user", ID: "c"}, Types: []string{"counter.*"}, Tags: []string{"a:b,c"}, Stored: true,
	}
	if diff := cmp.Diff(want, r.filter); diff != "" {
		t.Error(diff)
	}
	r.padding = 200 << 10
	if large := answer[page](t, s, "read_feed", `{}`); len(large.Events) != 2 || large.Next == nil ||
		*large.Next != "1795300000000-1" || large.Position != *large.Next {
		t.Errorf("%d large events, %s", len(large.Events), large.Position)
	}
	refusal(t, s, "read_feed", `{"actor":"user"}`, "type:id")
	refusal(t, s, "read_feed", `{"count":0}`, "count")
}
