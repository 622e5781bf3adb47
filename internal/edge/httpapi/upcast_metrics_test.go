package httpapi_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/lang/spec"
)

// threeShapes has an event type of three generations, the second of which is closed, one that goes by another name now,
// and one whose older events say nothing of their generation.
const threeShapes = `{"agent_types": ["user"], "aggregate_types": {
	"note": {"events": {
		"was_written": {
			"generations": {
				"1": {"schema": {"required": ["a"]}, "upcast": {"move": {"from": "a", "to": "b"}}},
				"2": {"schema": {"required": ["b"]}, "upcast": {"set": {"target": "c", "value": {"$number": "@.b"}}}},
				"3": {"schema": true, "upcast": [], "closed": true}
			},
			"schema": {"required": ["b", "c"]}, "handler": []
		},
		"was_noted": {"schema": true, "retired": {"as": "was_written", "generation": 1}},
		"was_read": {
			"generations": {"1": {"schema": true, "upcast": []}}, "assume_generation": 1, "schema": true, "handler": []
		}
	}},
	"other": {"events": {"was_read": {
		"generations": {"1": {"schema": true, "upcast": []}}, "schema": true, "handler": []
	}}}
}}`

// TestOlderWritesAreCounted writes events in all ways, in older generations and in the newest. Each is counted once, by
// what was sent, if it was stored for a client.
func TestOlderWritesAreCounted(t *testing.T) {
	a := importing(t, nil)
	c, found := spec.Compile([]byte(threeShapes))
	if c == nil {
		t.Fatal(found)
	}
	a.Engine.Deploy(j17.TenantOf(a.instance.ID, j17.Prod), c, nil)
	counted := func() (rows []string) {
		t.Helper()
		w := httptest.NewRecorder()
		a.Internal().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			if row, ok := strings.CutPrefix(line, "j17_upcast_writes_total{"); ok {
				rows = append(rows, strings.TrimSpace(row))
			}
		}
		slices.Sort(rows)
		return rows
	}
	const written = "/note/global/was_written"
	const meta = `"metadata":{"actor":{"type":"user","id":"global"}`
	one := func(data, generation string) string {
		return `{"data":` + data + `,` + meta + `,"generation":` + generation + `}}`
	}

	// was is what is counted so far.
	was := []string(nil)
	for _, tc := range []struct {
		name, path, body string
		status           int
		header           string
		want             []string
	}{
		{name: "newest", path: written, body: one(`{"b":"1","c":1}`, "4"), status: 201},
		{name: "unsaid", path: written, body: `{"data":{"b":"1","c":1},` + meta + `}}`, status: 201},
		{name: "no such", path: written, body: one(`{"b":"1","c":1}`, "5"), status: 400},
		{name: "closed", path: written, body: one(`{"b":"1","c":1}`, "3"), status: 410},
		{name: "unlike its schema", path: written, body: one(`{}`, "1"), status: 400},
		{name: "no step", path: written, body: one(`{"a":"x"}`, "1"), status: 422},
		{
			name: "expected elsewhere", path: written, status: 409,
			body: `{"data":{"a":"1"},` + meta + `,"generation":1,"previous_length":7}}`,
		},
		{name: "tried", path: written + "?dry_run=true", body: one(`{"a":"1"}`, "1"), status: 200},
		{
			name: "older", path: written, body: one(`{"a":"1"}`, "1"), status: 201,
			header: "Idempotency-Key: k", want: []string{`generation="1",type="was_written"} 1`},
		},
		{
			name: "again", path: written, body: one(`{"a":"1"}`, "1"), status: 201,
			header: "Idempotency-Key: k", want: []string{`generation="1",type="was_written"} 1`},
		},
		{
			name: "a batch", path: "/note/global", status: 201,
			body: `{"events":[{"type":"was_written","data":{"a":"1"},"generation":1},` +
				`{"type":"was_written","data":{"b":"2"},"generation":2},` +
				`{"type":"was_written","data":{"b":"3","c":3}},` +
				`{"type":"was_written","data":{"a":"4"},"generation":1}],` + meta + `}}`,
			want: []string{`generation="1",type="was_written"} 3`, `generation="2",type="was_written"} 1`},
		},
		{
			name: "a refused batch", path: "/note/global", status: 400,
			body: `{"events":[{"type":"was_written","data":{"a":"1"},"generation":1},` +
				`{"type":"was_written","data":{}}],` + meta + `}}`,
			want: []string{`generation="1",type="was_written"} 3`, `generation="2",type="was_written"} 1`},
		},
		{
			name: "types of one name", path: "/_transaction", status: 201,
			body: `{"writes":[{"key":"note:global","events":[{"type":"was_read","data":{}}]},` +
				`{"key":"other:global","events":[{"type":"was_read","data":{},"generation":1},` +
				`{"type":"was_read","data":{}}]}],` + meta + `}}`,
			want: []string{
				`generation="1",type="was_read"} 2`, `generation="1",type="was_written"} 3`,
				`generation="2",type="was_written"} 1`,
			},
		},
		{
			name: "another name", path: "/note/global/was_noted", body: one(`{"a":"1"}`, "1"), status: 201,
			want: []string{
				`generation="1",type="was_noted"} 1`, `generation="1",type="was_read"} 2`,
				`generation="1",type="was_written"} 3`, `generation="2",type="was_written"} 1`,
			},
		},
	} {
		var headers []string
		if tc.header != "" {
			headers = []string{tc.header}
		}
		if got := a.do(t, "POST", tc.path, tc.body, headers...); got.status != tc.status {
			t.Errorf("%s: %d %s", tc.name, got.status, got.body)
		}
		if tc.want != nil {
			was = tc.want
		}
		if diff := cmp.Diff(was, counted()); diff != "" {
			t.Errorf("%s: what is counted (+):\n%s", tc.name, diff)
		}
	}

	// A file has events of clients of long ago.
	file := `{"key":"note:0b6e9d4e-6f0a-4f3c-8c53-000000000001","type":"was_written","data":{"a":"1"},` +
		meta + `,"generation":1,"timestamp":1600000000}}`
	if got := a.ops(t, "POST", "import", file, "Content-Type: application/x-ndjson"); got.status != 200 {
		t.Errorf("the import: %d %s", got.status, got.body)
	}
	if diff := cmp.Diff(was, counted()); diff != "" {
		t.Errorf("after an import is counted (+):\n%s", diff)
	}
}
