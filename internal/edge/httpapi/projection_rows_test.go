package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"j17"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
)

// rowsSpec has notes with what is made of them, and of those of a set.
const rowsSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"note": {"events": {"was_written": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]}}}},
	"projections": {
		"notes": {"for_each": "note", "sources": {"note": "$key"}, "select": {"text": "$.note.text", "team": "$.note.team"}},
		"by_id": {"sources": [{"aggregate": "note", "id": "$.note"}]},
		"by_text": {"sources": [{"aggregate": "note", "query": "text = $.text"}]},
		"by_both": {"sources": [{"aggregate": "note", "id": "$.note"}, {"aggregate": "note", "as": "other", "id": "$.other"}]}
	}
}`

// newRows returns a fixture with another spec.
func newRows(tb testing.TB, source string) *fixture {
	tb.Helper()
	compiled, found := spec.Compile([]byte(source))
	if compiled == nil {
		tb.Fatal(found)
	}
	return newFixture(tb, func(o *httpapi.Options) {
		app, _ := o.Registry.Instances.ByName("app")
		o.Engine.Deploy(j17.TenantOf(app.ID, j17.Prod), compiled, nil)
	})
}

// TestRows reads the rows of a projection as a client does.
func TestRows(t *testing.T) {
	f := newRows(t, rowsSpec)
	if got := f.do(t, "GET", "/_projections/notes", ""); got.status != http.StatusOK || got.body != `{"ok":true,"rows":[],"next":null,"metadata":{"position":"0"}}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	const a, b = "0b6e9d4e-6f0a-4f3c-8c53-000000000001", "0b6e9d4e-6f0a-4f3c-8c53-000000000002"
	f.write(t, a+"/was_written", `{"text":"<A>"}`)
	f.write(t, b+"/was_written", `{"text":"B","team":1.50}`)
	first := f.do(t, "GET", "/_projections/notes?count=1", "")
	next := first.member(t, "next")
	if want := `{"ok":true,"rows":[{"id":"` + a + `","data":{"text":"<A>","team":null}}],"next":"` + next + `","metadata":{"position":"`; first.status != http.StatusOK || !strings.HasPrefix(first.body, want) {
		t.Errorf("%d %s", first.status, first.body)
	}
	second := f.do(t, "GET", "/_projections/notes?count=1&start="+url.QueryEscape(next), "")
	if want := `{"ok":true,"rows":[{"id":"` + b + `","data":{"text":"B","team":1.50}}],"next":null,"metadata":{"position":"`; second.status != http.StatusOK || !strings.HasPrefix(second.body, want) {
		t.Errorf("%d %s", second.status, second.body)
	}
	if got := f.do(t, "GET", "/_projections/notes/_count", ""); got.status != http.StatusOK ||
		got.body != `{"ok":true,"count":2}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := f.do(t, "HEAD", "/_projections/notes", ""); got.status != http.StatusOK || got.body != "" {
		t.Errorf("%d %s", got.status, got.body)
	}

	// What does not change the rows leaves the entity tag.
	tag := first.header.Get("ETag")
	f.write(t, b+"/was_written", `{"text":"C"}`)
	if got := f.do(
		t, "GET", "/_projections/notes?count=1", "", "If-None-Match: "+tag,
	); got.status != http.StatusNotModified {
		t.Errorf("%d %s", got.status, got.body)
	}

	// The other form has its own parameters.
	if got := f.do(t, "GET", "/_projections/by_id?note="+a, ""); got.status != http.StatusOK ||
		!strings.Contains(got.body, `"<A>"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestRefusedRows asks for lists that there are not.
func TestRefusedRows(t *testing.T) {
	f := newRows(t, rowsSpec)
	for path, want := range map[string]string{
		"notes?count=0": "invalid_parameter count", "notes?count=1001": "invalid_parameter count",
		"notes?count=x": "invalid_parameter count", "notes?start=x": "invalid_parameter start",
		"notes?order=": "invalid_parameter order", "notes?order=text": "not_indexed order",
		"notes?text=x": "not_indexed text", "notes?text=x&text=y": "invalid_parameter text",
		"notes?at=1": "invalid_parameter at", "notes?synchronous": "invalid_parameter synchronous",
		"by_id?note=global&count=1": "invalid_parameter count",
		"by_id?note=global&order=a": "invalid_parameter order", "ghost": "unknown_projection",
		"ghost/_count": "unknown_projection", "by_id/_count": "not_found",
		"notes/_count?text=x": "not_indexed text", "notes/_count?order=text": "invalid_parameter order",
		"notes/_count?count=1": "invalid_parameter count", "notes/_count?at=1": "invalid_parameter at",
		"notes/_stream?order=text": "invalid_parameter order", "notes/_stream?count=1": "invalid_parameter count",
		"notes/_stream?at=1": "invalid_parameter at", "notes/_stream?text=x": "not_indexed text",
	} {
		code, at, _ := strings.Cut(want, " ")
		got := f.do(t, "GET", "/_projections/"+path, "")
		if got.member(t, "code") != code || at != "" && got.member(t, "path") != at {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for path, says := range map[string]string{
		"notes?at=1": "known here: order, near, radius, count, start, filters of indexed fields", "notes/_count?order=text": "known here: filters of indexed fields",
		"notes/_stream?order=text": "known here: near, radius, heartbeat, filters of indexed fields", "notes?txet=1": `there is no field \"txet\" in select (did you mean \"text\"?)`,
		"by_id?note=global&count=1": "The projection 'by_id' has no rows: it is not for each aggregate of a type. Read it with its own parameters, and leave 'count' out.",
		"by_id?other=1":             `"detail":"Unknown query parameter; known here: note, at, synchronous"`,
		"by_id/global?other=1":      `"detail":"Unknown query parameter; known here: at, synchronous"`,
		"by_text?txet=1":            `"detail":"Unknown query parameter; did you mean 'text'?"`,
		"by_both?x=1":               `"detail":"Unknown query parameter; known here: note, other, at, synchronous"`,
		"notes/" + noteA + "?x":     `"detail":"Unknown query parameter; known here: at, synchronous"`,
		"by_id/stream?note=1":       `"detail":"What follows 'by_id' in the path, 'stream', is the parameter 'note' already. Leave it out of the query string."`,
		"notes?=1":                  `"detail":"A query parameter has no name: write what it is called before the \"=\""`,

		"notes/" + noteA + "/stream?x=1": `"detail":"Unknown query parameter; known here: heartbeat"`,
		"by_id/global/stream?at=1":       `"detail":"Unknown query parameter; known here: heartbeat"`,

		"ghost": "There is no projection 'ghost' in this environment. It has 'by_both'", "note": "Did you mean 'notes'?",
	} {
		if got := f.do(t, "GET", "/_projections/"+path, ""); !strings.Contains(got.body, says) {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	for _, path := range []string{"notes", "notes/_count"} {
		if got := f.do(t, "POST", "/_projections/"+path, `{}`); got.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d %s", path, got.status, got.body)
		}
	}
}

// TestRowsThatCannotBeComputed stand in a list with the error in the place of the data. Read by id it is that error.
func TestRowsThatCannotBeComputed(t *testing.T) {
	f := newRows(t, strings.Replace(rowsSpec, `"by_id":`, `"wide": {"for_each": "note", "sources": {"n": "$key", "others": {"type": "note", "id": "$.n.others[*]", "mode": "array"}}, "select": {"text": "$.n.text"}}, "by_id":`, 1))
	const a, b = "0b6e9d4e-6f0a-4f3c-8c53-000000000001", "0b6e9d4e-6f0a-4f3c-8c53-000000000002"
	var many []string
	for n := range 1001 {
		many = append(many, fmt.Sprintf(`"0b6e9d4e-6f0a-4f3c-8c53-%012d"`, n))
	}
	f.write(t, a+"/was_written", `{"text":"A","others":[`+strings.Join(many, ",")+`]}`)
	f.write(t, b+"/was_written", `{"text":"B"}`)
	one := f.do(t, "GET", "/_projections/wide/"+a, "")
	if one.status != http.StatusUnprocessableEntity || one.member(t, "code") != string(j17.CodeProjectionLimit) {
		t.Errorf("%d %s", one.status, one.body)
	}
	list := f.do(t, "GET", "/_projections/wide", "")
	before, after := `{"ok":true,"rows":[{"id":"`+a+`","error":{"code":"projection_limit","error":"`, `"}},{"id":"`+b+`","data":{"text":"B"}}],"next":null,"metadata":`
	if list.status != http.StatusOK || !strings.HasPrefix(list.body, before) || !strings.Contains(list.body, after) {
		t.Errorf("%d %s", list.status, list.body)
	}
}

// TestParametersThatAreNoText: a parameter whose name is no UTF-8 is refused for that, also where parameters are
// filters.
func TestParametersThatAreNoText(t *testing.T) {
	f := newRows(t, rowsSpec)
	for _, path := range []string{"/_projections/notes?%ff=1", "/_projections/notes/_count?te%ffxt=1"} {
		got := f.do(t, "GET", path, "")
		if got.status != http.StatusBadRequest || got.member(t, "code") != "invalid_parameter" ||
			!strings.Contains(got.member(t, "error"), "not UTF-8") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}
