package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"j17/internal/plane/control"
)

const keeping = `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object"},"handler":[{"set":{"target":"%s","value":"$.data"}}]}}}}}`

// TestCheckSpec sends texts that are specs, and texts that are not.
func TestCheckSpec(t *testing.T) {
	p := newPlane(t, nil)
	p.operator(t, "auditor@example.com", control.RoleAuditor, p.instance.ID)
	auditor := p.login(t, "auditor@example.com")
	check := func(body string) answer {
		t.Helper()
		return p.control(
			t, http.MethodPost, "/api/instances/"+p.instance.ID+"/ops/prod/spec/check", body, auditor,
			"Content-Type: application/json",
		)
	}
	good := fmt.Sprintf(keeping, "here")
	check(good).wants(t, http.StatusOK, `"valid":true`, `"errors":[]`)
	check(`{"spec":`+good+`}`).wants(t, http.StatusOK, `"valid":true`, `"errors":[]`)
	check(strings.Replace(good, `"handler"`, "\n\"handlr\"", 1)).wants(
		t, http.StatusOK, `"valid":false`, `handlr`, `"line":2,"column":1`,
	)
	check("{\n  \"a\": ").wants(t, http.StatusOK, `"valid":false`, `"line":2`)
	check("").wants(t, http.StatusOK, `"valid":false`, `"line":1,"column":1`)
	check("\xff\xfe{").wants(t, http.StatusOK, `"valid":false`, `"line":1,"column":1`)
	check(`{"spec":{},"forse":true}`).wants(t, http.StatusOK, `"valid":false`, `forse`)
	check(strings.Repeat("[", 100_000)).wants(t, http.StatusOK, `"valid":false`, `"line":1`)
	check(strings.Repeat(" ", 5<<20)).wants(t, http.StatusRequestEntityTooLarge)
}

// TestSpecStates compares an aggregate under two specs at several versions.
func TestSpecStates(t *testing.T) {
	p := newPlane(t, nil)
	p.operator(t, "auditor@example.com", control.RoleAuditor, p.instance.ID)
	p.operator(t, "privacy@example.com", control.RolePrivacyOfficer, p.instance.ID)
	auditor, privacy := p.login(t, "auditor@example.com"), p.login(t, "privacy@example.com")
	const id = "550e8400-e29b-41d4-a716-446655440000"
	p.must(t, http.StatusCreated, http.MethodPost, "/api/instances/"+p.instance.ID+"/spec", fmt.Sprintf(keeping, ""))
	p.write(t, id+"/was_written", `{"a":1.10}`)
	p.write(t, id+"/was_written", `{"a":2}`)
	states := func(token, query, body string) answer {
		t.Helper()
		return p.control(
			t, http.MethodPost, "/api/instances/"+p.instance.ID+"/ops/prod/spec/states"+query, body, token,
			"Content-Type: application/json",
		)
	}
	next := fmt.Sprintf(keeping, "here")
	states(auditor, "?key=note:"+id+"&length=1", next).wants(t, http.StatusOK, `"now":{"length":1,"data":{"a":1.10`, `"then":{"length":1,"data":{"here":{"a":1.10}`,
		`{"pointer":"/a","change":"removed","before":"1.10"}`)
	states(auditor, "?key=note:"+id, next).wants(t, http.StatusOK, `"now":{"length":2,`, `"then":{"length":2,`)
	states(auditor, "?key=note:"+id, strings.Replace(next, `"note"`, `"page"`, 1)).wants(t, http.StatusOK, `"then":null`, `"error":"The spec has no aggregate type 'note'."`)
	states(auditor, "?key=note:"+id, `{"aggregate_types":1}`).wants(t, http.StatusUnprocessableEntity, `invalid_spec`)
	states(auditor, "?key=note", next).wants(t, http.StatusBadRequest, `invalid_parameter`)
	states(auditor, "?key=note:550e8400-e29b-41d4-a716-446655440009", next).wants(t, http.StatusNotFound)
	states(privacy, "?key=note:"+id, next).wants(t, http.StatusForbidden)
}
