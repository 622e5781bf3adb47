package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"j17"
	"j17/internal/edge/client"
)

// assistant starts j17 mcp in a folder, as an assistant does, and returns what calls its tools.
func assistant(
	t *testing.T, dir string, args ...string,
) (call func(tool string, arguments any) (text string, failed bool)) {
	t.Helper()
	cmd := startable(t, "j17", append([]string{"mcp"}, args...)...)
	cmd.Dir = dir
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(
		t.Context(), &sdk.CommandTransport{Command: cmd}, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("j17 mcp did not end well: %v", err)
		}
	})
	return func(tool string, arguments any) (string, bool) {
		t.Helper()
		result, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		text, ok := result.Content[0].(*sdk.TextContent)
		if !ok {
			t.Fatalf("content is a %T", result.Content[0])
		}
		return text.Text, result.IsError
	}
}

// TestAssistant lets an assistant work with a development server: first one that may only read, then one that may
// write.
func TestAssistant(t *testing.T) {
	p, specFile := started(t, plainSpec)
	dir := filepath.Dir(specFile)
	type arguments = map[string]any
	note := arguments{
		"type": "note", "id": "global", "event": "was_written", "data": arguments{"text": "hello"},
		"actor": arguments{"type": "user", "id": "global"},
	}
	// The URL and the keys come from the data folder.
	reads := assistant(t, dir, "--data", "data", "--spec", "spec.json")
	if text, failed := reads("post_event", note); !failed || !strings.Contains(text, "read-only") {
		t.Errorf("a write without --allow-writes: %s", text)
	}
	if text, failed := reads("validate_spec", arguments{}); failed || !strings.Contains(text, `"valid":true`) {
		t.Errorf("the spec of --spec: %s", text)
	}
	if text, failed := reads("read_state", arguments{
		"type": "note", "id": "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10",
	}); !failed || !strings.Contains(text, "aggregate_not_found") {
		t.Errorf("an aggregate that is not there: %s", text)
	}
	if text, failed := reads("list_ids", arguments{
		"type": "note",
	}); failed || text != `{"type":"note","ids":[],"next":null}` {
		t.Errorf("the ids before: %s", text)
	}

	writes := assistant(t, dir, "--data", "data", "--allow-writes")
	if text, failed := writes("post_event", note); failed || !strings.Contains(text, `"length":1`) {
		t.Errorf("a write: %s", text)
	}
	broken := arguments{
		"type": "note", "id": "global", "event": "was_written", "data": arguments{},
		"actor": arguments{"type": "nobody", "id": "global"},
	}
	if text, failed := writes("post_event", broken); !failed || !strings.Contains(text, "undeclared_type") ||
		!strings.Contains(text, "What to do: ") {
		t.Errorf("a write that is refused: %s", text)
	}
	for tool, want := range map[string]string{
		"read_state": `"text":"hello"`, "read_events": `"type":"was_written"`, "list_ids": `"ids":["global"]`,
		"read_feed": `"position":"`,
	} {
		with := arguments{"type": "note", "id": "global"}
		if tool == "list_ids" || tool == "read_feed" {
			delete(with, "id")
		}
		text, failed := reads(tool, with)
		if failed || !strings.Contains(text, want) {
			t.Errorf("%s: %s", tool, text)
		}
		if strings.Contains(text, p.ready.Keys["prod"].Write) || strings.Contains(text, p.ready.Keys["prod"].Read) {
			t.Errorf("%s shows a key: %s", tool, text)
		}
	}
}

// TestAssistantFindsRows lets an assistant list the rows of a projection, and what is somewhere, on a development
// server.
func TestAssistantFindsRows(t *testing.T) {
	_, specFile := started(t, `{"agent_types":["user"],"aggregate_types":{
		"shop":{"events":{"was_opened":{"schema":{"type":"object"},"geo":{"type":"point","path":"$.data.at"},"handler":[{"set":{"target":"","value":"$.data"}}]}}},
		"zone":{"events":{"was_drawn":{"schema":{"type":"object"},"geo":{"type":"polygon","path":"$.data.area"},"handler":[{"set":{"target":"","value":"$.data"}}]}}}},
		"projections":{"shops":{"for_each":"shop","sources":{"s":"$key"},"select":{"name":"$.s.name"},"index":["name"]}}}`)
	call := assistant(t, filepath.Dir(specFile), "--data", "data", "--allow-writes")
	type arguments = map[string]any
	const id = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	actor := arguments{"type": "user", "id": "global"}
	at := func(lat, lng float64) arguments { return arguments{"lat": lat, "lng": lng} }
	for _, event := range []arguments{
		{
			"type": "shop", "id": id, "event": "was_opened", "data": arguments{"name": "Tea", "at": at(40.7, -74)},
			"actor": actor,
		},
		{
			"type": "zone", "id": id, "event": "was_drawn",
			"data": arguments{"area": []arguments{at(40, -75), at(40, -73), at(41, -74)}}, "actor": actor,
		},
	} {
		if text, failed := call("post_event", event); failed {
			t.Fatal(text)
		}
	}
	for _, c := range []struct {
		tool  string
		with  arguments
		wants string
	}{
		{
			"list_rows",
			arguments{"name": "shops", "filters": arguments{"name.prefix": "T"}, "order": "-name"},
			`"rows":[{"id":"` + id + `","data":{"name":"Tea"}}],"next":null`,
		},
		{"list_rows", arguments{"name": "shops", "lat": 40.7, "lng": -74, "radius": 10}, `"distance":`},
		{
			"count_rows",
			arguments{"name": "shops", "filters": arguments{"name": "Tea"}},
			`{"projection":"shops","count":1}`,
		},
		{
			"find_nearby",
			arguments{"type": "shop", "lat": 40.7, "lng": -74.01, "data": false},
			`"rows":[{"id":"` + id + `","distance":`,
		},
		{
			"find_within",
			arguments{"type": "shop", "box": []float64{40, -75, 41, -73}},
			`"rows":[{"id":"` + id + `","location":`,
		},
		{"find_within", arguments{"type": "shop", "polygon": []float64{0, 0, 0, 1, 1, 1}}, `"rows":[],"next":null`},
		{
			"find_containing",
			arguments{"type": "zone", "lat": 40.5, "lng": -74},
			`"rows":[{"id":"` + id + `","geo":"polygon"`,
		},
	} {
		if text, failed := call(c.tool, c.with); failed || !strings.Contains(text, c.wants) {
			t.Errorf("%s: %s, want %s", c.tool, text, c.wants)
		}
	}
	if text, failed := call("list_rows", arguments{
		"name": "shops", "filters": arguments{"size": "1"},
	}); !failed || !strings.Contains(text, "not_indexed") {
		t.Errorf("a filter that no index serves: %s", text)
	}
}

// TestAssistantWithoutServer starts where there is no server: what needs none works, and the rest says what is missing.
func TestAssistantWithoutServer(t *testing.T) {
	call := assistant(t, t.TempDir())
	if text, failed := call("read_doc", map[string]any{
		"topic": "errors",
	}); failed || !strings.HasPrefix(text, "# Errors") {
		t.Errorf("a page: %.200s", text)
	}
	if text, failed := call("read_state", map[string]any{
		"type": "note", "id": "global",
	}); !failed || !strings.Contains(text, "There is no API key for") {
		t.Errorf("a state: %s", text)
	}
}

// TestAssistantBeforeTheServer starts before the development server has ever run, and finds its keys when it needs
// them.
func TestAssistantBeforeTheServer(t *testing.T) {
	dir := t.TempDir()
	call := assistant(t, dir, "--data", "data", "--allow-writes")
	if text, failed := call("list_ids", map[string]any{
		"type": "note",
	}); !failed || !strings.Contains(text, "start one with 'j17 dev --data data'") {
		t.Errorf("before: %s", text)
	}
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startDev(t, dir, "spec.json", "--data", "data")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGTERM) })
	if text, failed := call("list_ids", map[string]any{
		"type": "note",
	}); failed || text != `{"type":"note","ids":[],"next":null}` {
		t.Errorf("then: %s", text)
	}
}

// TestReadOnlyAssistantSendsNoWrites goes below the tools: the client of a read-only assistant cannot write even if
// something asks it to, and it does not have the write key of a development server.
func TestReadOnlyAssistantSendsNoWrites(t *testing.T) {
	p, specFile := started(t, plainSpec)
	data := filepath.Join(filepath.Dir(specFile), "data")
	keys := p.ready.Keys["prod"]
	var seen []*http.Request
	fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r)
		w.WriteHeader(http.StatusBadRequest)
		// A hostile server repeats the key.
		_ = json.NewEncoder(w).Encode(map[string]string{
			"code": "invalid_request", "error": "You sent " + r.Header.Get("Authorization"),
		})
	}))
	t.Cleanup(fake.Close)
	s := &assistedServer{
		env:   &env{getenv: func(string) string { return "" }, err: t.Output()},
		flags: &remote{url: fake.URL, data: data},
	}
	c, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PostEvent(
		t.Context(), j17.Key{Type: "note", ID: "global"}, client.NewEvent{Type: "was_written"}, client.WriteOptions{},
	); err == nil || !strings.Contains(err.Error(), "--allow-writes") {
		t.Errorf("a write: %v", err)
	}
	if len(seen) != 0 {
		t.Fatalf("%d requests were sent", len(seen))
	}
	_, err = s.State(t.Context(), j17.Key{Type: "note", ID: "global"}, client.StateOptions{})
	if err == nil || len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer "+keys.Read {
		t.Fatalf("a read: %v", err)
	}
	if text := s.hide(err.Error() + keys.Write); strings.Contains(text, keys.Read) ||
		strings.Contains(text, keys.Write) || !strings.Contains(text, "[API key]") {
		t.Errorf("a key is shown: %s", text)
	}
}
