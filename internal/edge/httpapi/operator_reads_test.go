package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"j17/internal/plane/control"
)

// TestOperatorsRead reads events, states and lists as an operator, and pages of the feed backwards.
func TestOperatorsRead(t *testing.T) {
	p := newPlane(t, nil)
	ops := "/api/instances/" + p.instance.ID + "/ops/prod/"
	p.operator(t, "auditor@example.com", control.RoleAuditor, p.instance.ID)
	auditor := p.login(t, "auditor@example.com")
	const id = "550e8400-e29b-41d4-a716-44665544000"
	var at []string
	for i := range 5 {
		at = append(at, p.write(t, fmt.Sprintf("%s%d/was_written", id, i%2), fmt.Sprintf(`{"n":%d}`, i)))
	}
	get := func(path string) answer { t.Helper(); return p.control(t, http.MethodGet, ops+path, "", auditor) }

	// States, as the data plane has them.
	own := p.do(t, http.MethodGet, "/note/"+id+"0", "")
	if got := get("aggregates/note/" + id + "0"); got.status != http.StatusOK || got.body != own.body ||
		got.header.Get("ETag") != own.header.Get("ETag") {
		t.Errorf("%d %s, the data plane says %s", got.status, got.body, own.body)
	}
	get("aggregates/note/"+id+"0/length").wants(t, http.StatusOK, `"length":3`)
	get("aggregates/note/"+id+"0/events?count=1").wants(t, http.StatusOK, at[0], `"next":"`+at[0])
	get("aggregates").wants(t, http.StatusOK, `"type":"note","declared":true,"events":[`, `"count":2,"more":false`)
	get("aggregates/note").wants(t, http.StatusOK, id+"0", id+"1", `"length":2`)
	get("aggregates/note?prefix="+id+"1").wants(t, http.StatusOK, id+"1")
	if got := get("aggregates/note?prefix=" + id + "1"); strings.Contains(got.body, id+"0") {
		t.Error(got.body)
	}
	get("aggregates/note?count=1").wants(t, http.StatusOK, `"next":"`+id+"0")
	get("aggregates/ghost").wants(t, http.StatusNotFound, "unknown_aggregate_type")

	// Events: one, and pages that go back.
	get("events/"+at[2]).wants(t, http.StatusOK, `"length":2`, `"previous":"`+at[0]+`"`, `"next":"`+at[4]+`"`)
	get("events/1000000000000-0").wants(t, http.StatusNotFound)
	get("events/x").wants(t, http.StatusNotFound)
	page := get("events?before=now&count=2")
	page.wants(t, http.StatusOK, at[4], at[3], `"next":"`+at[3]+`"`, `"position":"`+at[4]+`"`)
	if strings.Index(page.body, at[4]) > strings.Index(page.body, at[3]) {
		t.Errorf("the newest event is not the first: %s", page.body)
	}
	p.do(t, http.MethodGet, "/_events?before="+at[1], "").wants(t, http.StatusOK, at[0], `"next":null`)
	for query, says := range map[string]string{
		"before=now&after=0": "'before'", "before=now&wait=1s": "'before'", "before=now&since=1": "'before'",
		"since=1&after=0": "'since'", "before=soon": "or now",
	} {
		get("events?"+query).wants(t, http.StatusBadRequest, says)
	}
	get("events?since=1").wants(t, http.StatusOK, at[0])
	get("events?since=4000000000").wants(t, http.StatusBadRequest)
}
