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

// TestTraceOfLargeGraphs asks for graphs with more nodes than one may have: those that the fewest edges lead to are
// there.
func TestTraceOfLargeGraphs(t *testing.T) {
	h, moveOut := moveIn(t, t.TempDir(), frozenAt())
	defer moveOut()
	var all struct{ Instances []struct{ ID string } }
	h.decode(h.ask("GET", "control", "/api/instances", ""), &all)
	h.ask("POST", "control", "/api/instances/"+all.Instances[0].ID+"/spec?environment=prod", `{"agent_types": ["user"], "aggregate_types": {
		"note": {"events": {"was_written": {"schema": {"type": "object"}, "handler": []}}}, "link": {"events": {"was_made": {"schema": {"type": "object"}, "handler": []}}}}}`)

	// History: a chain of a thousand causes that share a correlation id, and between others that share one too a chain
	// of three.
	const length = 1000
	var lines strings.Builder
	event := func(key, typ, correlation, by string) {
		fmt.Fprintf(&lines, `{"key":%q,"type":%q,"data":{},"metadata":{"actor":{"type":"user","id":"global"},"timestamp":1700000000,"correlation_id":%q%s}}`+"\n", key, typ, correlation, by)
	}
	key := func(typ string, n int) string { return fmt.Sprintf("%s:7c0f6a38-91b2-4d6e-8f57-%012d", typ, n) }
	implied := func(n, depth int) string {
		return fmt.Sprintf(`,"implied_by":{"key":%q,"event_type":"was_made","depth":%d}`, key("link", n), depth)
	}
	for n := range length {
		by := ""
		if n > 0 {
			by = implied(n-1, n)
		}
		event(key("link", n), "was_made", "7c0f6a38-91b2-4d6e-8f57-aaaaaaaaaaaa", by)
	}
	const crowd = "7c0f6a38-91b2-4d6e-8f57-bbbbbbbbbbbb"
	for n := range 2 * length {
		if n == length {
			event(key("link", 5000), "was_made", crowd, "")
			event(key("link", 5001), "was_made", crowd, implied(5000, 1))
			event(key("link", 5002), "was_made", crowd, implied(5001, 2))
		}
		event(key("note", n), "was_written", crowd, "")
	}
	h.ask("POST", "prod", "/_admin/import", "["+strings.ReplaceAll(strings.TrimSpace(lines.String()), "\n", ",")+"]")
	position := func(key string) string {
		answer := h.ask("GET", "prod", "/_admin/aggregates/"+strings.Replace(key, ":", "/", 1)+"/events", "")
		_, id, _ := strings.Cut(string(answer), `"stream_id":"`)
		id, _, _ = strings.Cut(id, `"`)
		return id
	}
	trace := func(key string) (g wire.Trace, there map[string]bool) {
		t.Helper()
		h.decode(h.ask("GET", "prod", "/_admin/trace/"+position(key), ""), &g)
		there = map[string]bool{}
		for _, n := range g.Nodes {
			there[n.Key] = true
		}
		if len(g.Nodes) != mostTraced || !g.Truncated {
			t.Errorf("the graph of %s has %d nodes, truncated %t", key, len(g.Nodes), g.Truncated)
		}
		return g, there
	}

	// In the middle of the chain as many are there on both sides; among equals the earlier one.
	g, there := trace(key("link", 500))
	if len(g.Edges) != mostTraced-1 || !there[key("link", 250)] || !there[key("link", 749)] {
		t.Errorf("%d edges; the first is there: %t, the last: %t", len(g.Edges), there[key("link", 250)], there[key("link", 749)])
	}
	for _, end := range []int{0, length - 1} {
		if g, there := trace(key("link", end)); len(g.Edges) != mostTraced-1 || !there[key("link", end)] {
			t.Errorf("from %d there are %d edges", end, len(g.Edges))
		}
	}

	// What edges lead to comes before what only shares the correlation id, wherever it is asked.
	for n := 5000; n < 5003; n++ {
		if g, there := trace(key("link", n)); len(g.Edges) != 2 || !there[key("link", 5000)] ||
			!there[key("link", 5001)] || !there[key("link", 5002)] {
			t.Errorf("from %d: %v", n, g.Edges)
		}
	}
	if _, there := trace(key("note", 1999)); !there[key("note", 1999)] || there[key("note", 0)] {
		t.Error("the last of a crowd is not among those that are near it")
	}
}

// mostTraced is how many nodes a graph has at most.
const mostTraced = 500
