//go:build !race

package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"j17/internal/base/wire"
)

// TestTrace asks from each event of two graphs: one with a schedule that another request has cancelled, one with a
// circle of sagas.
func TestTrace(t *testing.T) {
	h, moveOut := moveIn(t, t.TempDir(), frozenAt())
	defer moveOut()
	event := func(more string) string { return `{"schema": {"type": "object"}, "handler": []` + more + `}` }
	spec := `{"agent_types": ["user"], "aggregate_types": {
		"cart": {"events": {"was_closed": ` + event("") + `, "was_opened": ` + event(`, "implications": [
			{"emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {}}},
			{"schedule": {"delay": "1h", "cancel_on": [{"aggregate_type": "cart", "id": "$.key", "event_type": "was_closed"}],
				"emit": {"aggregate_type": "note", "id": "$.key", "event_type": "was_written", "data": {}}}}]`) + `}},
		"note": {"events": {"was_written": ` + event("") + `}},
		"ring": {"events": {"was_rung": ` + event("") + `}}},
		"modules": {"sagas": {"round": {"trigger": {"aggregate_type": "ring", "event_type": "was_rung"},
			"steps": [{"name": "again", "condition": {"exists": "$.data"}, "emit": {"aggregate_type": "ring", "id": "$.key", "event_type": "was_rung", "data": {}}}]}}}}`
	var all struct{ Instances []struct{ ID string } }
	h.decode(h.ask("GET", "control", "/api/instances", ""), &all)
	h.ask("POST", "control", "/api/instances/"+all.Instances[0].ID+"/spec?environment=prod", spec)
	post := func(path string) string {
		t.Helper()
		answer := h.ask("POST", "prod", path, by(ada, "{}"))
		_, id, _ := strings.Cut(string(answer), `"stream_id":"`)
		id, _, _ = strings.Cut(id, `"`)
		return id
	}
	trace := func(id string) (g wire.Trace, text string) {
		t.Helper()
		raw := h.ask("GET", "prod", "/_admin/trace/"+id, "")
		if err := json.Unmarshal(raw, &g); err != nil {
			t.Fatal(err)
		}
		return g, string(raw)
	}

	opened, closed := post("/cart/"+numbered(1)+"/was_opened"), post("/cart/"+numbered(1)+"/was_closed")
	g, text := trace(opened)
	how := map[string]int{}
	for _, e := range g.Edges {
		how[e.How]++
	}
	if fmt.Sprint(how) != "map[cancelled:1 implied:1 scheduled:1]" || len(g.Nodes) != 4 {
		t.Errorf("the graph is %s", text)
	}
	if _, other := trace(closed); other != text {
		t.Errorf("from the other side it is %s, want %s", other, text)
	}

	// A circle ends, however far it has come.
	rung := post("/ring/" + numbered(2) + "/was_rung")
	if g, text := trace(rung); len(g.Nodes) < 2 || len(g.Nodes) > mostTraced || len(g.Edges) == 0 {
		t.Errorf("the circle is %s", text)
	}
}

// mostTraced is how many nodes a graph has at most.
const mostTraced = 500
