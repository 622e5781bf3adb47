package engine_test

import (
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/storage/store"
)

// TestEventsAreTagged: events of a request and those that they imply are found by their actor and their target.
func TestEventsAreTagged(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types":["user"],"target_types":["user"],"aggregate_types":{
		"a":{"events":{"e":{"schema":{},"handler":[],"implications":[{"emit":{"aggregate_type":"b","id":"$.key","event_type":"f","data":{}}}]}}},
		"b":{"events":{"f":{"schema":{},"handler":[]}}}}}`)
	const other = "b1111111-1111-4111-8111-111111111111"
	f.Post(t, "a/"+id+"/e", `{"data":{},"metadata":{"actor":{"type":"user","id":"`+user+`"},"target":{"type":"user","id":"`+other+`"}}}`)
	f.Post(t, "a/"+id+"/e", `{"data":{},"metadata":{"actor":{"type":"user","id":"`+other+`"}}}`)
	actor, target := j17.ActorTag(j17.Agent{Type: "user", ID: user}), j17.TargetTag(j17.Agent{Type: "user", ID: other})
	for _, c := range []struct {
		tags []string
		want int
	}{
		{[]string{actor}, 2},
		{[]string{target}, 2},
		{[]string{j17.ActorTag(j17.Agent{Type: "user", ID: other})}, 2},
		{[]string{"actor:user:" + other, target}, 0},
	} {
		n := 0
		for ev, err := range f.Store.ReadTagged(
			t.Context(), tenant, store.Tagged{Tags: c.tags}, j17.StreamID{}, 9, nil,
		) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; len(j17.MetadataTags(ev.Metadata)) == 0 {
				t.Errorf("%s tells nobody", ev.Metadata)
			}
		}
		if n != c.want {
			t.Errorf("%d events have the tags %q, want %d", n, c.tags, c.want)
		}
	}
}
