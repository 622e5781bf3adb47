package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"j17/internal/plane/control"
)

// TestHistories asks what versions changed, by which operations, and what set each leaf last.
func TestHistories(t *testing.T) {
	p := newPlane(t, nil)
	p.operator(t, "auditor@example.com", control.RoleAuditor, p.instance.ID)
	auditor := p.login(t, "auditor@example.com")
	const id = "550e8400-e29b-41d4-a716-446655440000"
	var at []string
	for _, data := range []string{`{"a":0.10,"b":{"c":[1]}}`, `{"a":0.10,"b":{"c":[1,2]}}`, `{"b":{}}`} {
		at = append(at, p.write(t, id+"/was_written", data))
	}
	get := func(path string) answer {
		t.Helper()
		return p.control(
			t, http.MethodGet, "/api/instances/"+p.instance.ID+"/ops/prod/aggregates/note/"+id+path, "", auditor,
		)
	}

	all := get("/changes")
	all.wants(t, http.StatusOK, `"length":3`, `"next":null`, `{"pointer":"/a","change":"added","after":"0.10","operation":"/aggregate_types/note/events/was_written/handler/0"}`,
		`{"pointer":"/b/c/1","change":"added","after":"2"`, `{"pointer":"/a","change":"removed","before":"0.10"`)
	get("/changes?from=2&count=1").wants(t, http.StatusOK, `"changes":[{"length":2,`, at[1], `"next":3`)
	get("/changes?from=9").wants(t, http.StatusOK, `"changes":[]`, `"length":3`)
	get("/changes?from=0").wants(t, http.StatusBadRequest)
	get("/changes?count=101").wants(t, http.StatusBadRequest)

	get("/blame?length=2").wants(t, http.StatusOK, fmt.Sprintf(`"blame":[{"pointer":"/a","length":1,"stream_id":"%s"},{"pointer":"/b/c/0","length":1,"stream_id":"%s"},{"pointer":"/b/c/1","length":2,"stream_id":"%s"}]`, at[0], at[0], at[1]))
	get("/blame").wants(t, http.StatusOK, fmt.Sprintf(`[{"pointer":"/b","length":3,"stream_id":"%s"}],"truncated":false`, at[2]))

	// A long history is paged through from its end.
	for i := range 250 {
		p.write(t, id+"/was_written", fmt.Sprintf(`{"first":1,"n":%d}`, i))
	}
	get("/blame").wants(t, http.StatusOK, `{"pointer":"/first","length":4,`, `{"pointer":"/n","length":253,`)
	get("/changes?from=200").wants(t, http.StatusOK, `"changes":[{"length":200,`, `"length":253,"event"`, `"next":null`)
	p.control(t, http.MethodGet, "/api/instances/"+p.instance.ID+"/ops/prod/aggregates/note/550e8400-e29b-41d4-a716-446655440009/changes", "", auditor).wants(t, http.StatusNotFound)
}
