package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// noted is a spec with an event type besides that of apiSpec, if extra says one, and the handler given.
func noted(handler, extra string) string {
	return `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object"},"handler":` + handler + `}` + extra + `}}}}`
}

func TestSpecsOverHTTP(t *testing.T) {
	a := administer(t)
	const keep = `[{"set":{"target":"","value":"$.data"}}]`
	one := noted(keep, "")
	if got := a.control(t, "GET", "/spec", ""); got.status != 404 {
		t.Errorf("before the first: %d %s", got.status, got.body)
	}
	if got := a.control(t, "GET", "/spec/history", ""); got.body != `{"ok":true,"versions":[],"next":null}` {
		t.Errorf("before the first: %d %s", got.status, got.body)
	}
	first := a.control(t, "POST", "/spec?note=the+first", one)
	if first.status != 201 || !strings.Contains(first.body, `"version":1`) ||
		!strings.Contains(first.body, `"environment":"prod"`) ||
		!strings.Contains(first.body, `"note":"the first"`) ||
		!strings.Contains(first.body, `"email":"admin@example.com"`) ||
		strings.Contains(first.body, `"source"`) {
		t.Errorf("the first: %d %s", first.status, first.body)
	}
	if again := a.control(t, "POST", "/spec", one); again.status != 200 || again.member(t, "created") != "false" {
		t.Errorf("again: %d %s", again.status, again.body)
	}

	current := a.control(t, "GET", "/spec", "")
	var answer struct {
		Spec       json.RawMessage
		Deployment struct{ Version int }
	}
	if err := json.Unmarshal([]byte(current.body), &answer); err != nil || current.status != 200 ||
		string(answer.Spec) != one || answer.Deployment.Version != 1 {
		t.Errorf("GET: %d %s %v", current.status, current.body, err)
	}
	tag := current.header.Get("Etag")
	if tag == "" || tag != first.header.Get("Etag") {
		t.Errorf("entity tags %q and %q", tag, first.header.Get("Etag"))
	}
	if got := a.control(t, "GET", "/spec", "", "If-None-Match: "+tag); got.status != 304 {
		t.Errorf("unchanged: %d", got.status)
	}
	if got := a.ops(t, "GET", "spec", ""); got.status != 200 || got.body != current.body {
		t.Errorf("on the instance's host: %d %s", got.status, got.body)
	}
	if got := a.ask(t, a.admin, "GET", "app-test.j17.example", "/_admin/spec", ""); got.status != 404 {
		t.Errorf("in another environment: %d %s", got.status, got.body)
	}

	two := noted(keep, `,"was_read":{"schema":{},"handler":[]}`)
	if got := a.control(t, "POST", "/spec", two, `If-Match: "other"`); got.status != 412 {
		t.Errorf("onto another spec: %d %s", got.status, got.body)
	}
	if got := a.control(t, "POST", "/spec", two, "If-Match: "+tag); got.status != 201 ||
		got.member(t, "created") != "true" {
		t.Errorf("the second: %d %s", got.status, got.body)
	}
	refused := a.control(t, "POST", "/spec", one)
	if refused.status != 422 || refused.member(t, "code") != "spec_incompatible" ||
		!strings.Contains(refused.body, `"errors":[{"pointer":"`) {
		t.Errorf("back: %d %s", refused.status, refused.body)
	}
	if got := a.control(t, "POST", "/spec/rollback", `{"version":1}`); got.status != 422 {
		t.Errorf("a rollback: %d %s", got.status, got.body)
	}
	if got := a.control(t, "POST", "/spec/rollback", `{"version":1,"force":true,"note":"was wrong"}`); got.status != 201 ||
		!strings.Contains(got.body, `"how":"rollback","from":{"environment":"prod","version":1},"forced":true,"note":"was wrong"`) {
		t.Errorf("a forced rollback: %d %s", got.status, got.body)
	}
	if got := a.control(t, "POST", "/spec/promote", `{"from":"prod","to":"test","version":2}`); got.status != 201 || !strings.Contains(got.body, `"environment":"test"`) {
		t.Errorf("a promotion: %d %s", got.status, got.body)
	}
	if got := a.control(t, "POST", "/spec", `{"spec":`+one+`,"environment":"staging"}`); got.status != 201 ||
		!strings.Contains(got.body, `"environment":"staging"`) {
		t.Errorf("to staging: %d %s", got.status, got.body)
	}
	if got := a.control(t, "GET", "/spec?environment=staging", ""); got.status != 200 {
		t.Errorf("from staging: %d %s", got.status, got.body)
	}

	history := a.control(t, "GET", "/spec/history?limit=2", "")
	if history.status != 200 || strings.Count(history.body, `"version":3`) != 1 ||
		!strings.HasSuffix(history.body, `"next":2}`) || strings.Contains(history.body, "agent_types") {
		t.Errorf("the history: %d %s", history.status, history.body)
	}
	if got := a.ops(t, "GET", "spec/history?offset=2", ""); !strings.Contains(got.body, `"version":1`) ||
		!strings.HasSuffix(got.body, `"next":null}`) {
		t.Errorf("its end: %d %s", got.status, got.body)
	}
	if got := a.control(t, "GET", "/spec/versions/2", ""); got.status != 200 ||
		!strings.Contains(got.body, "was_read") {
		t.Errorf("version 2: %d %s", got.status, got.body)
	}
	if got := a.control(t, "GET", "/spec/diff?from=1&to=2", ""); got.status != 200 ||
		got.body != `{"ok":true,"from":1,"to":2,"changes":[{"change":"added","what":"event type","name":"note.was_read"}],"incompatible":[]}` {
		t.Errorf("a difference: %d %s", got.status, got.body)
	}
	if got := a.control(t, "GET", "/spec/diff", ""); got.status != 200 ||
		!strings.Contains(got.body, `"from":2,"to":3`) || !strings.Contains(got.body, `"incompatible":[{"pointer"`) {
		t.Errorf("the latest difference: %d %s", got.status, got.body)
	}

	dry := a.control(t, "POST", "/spec?dry_run=true&aggregates=5", noted(`[]`, ""))
	if dry.status != 200 || dry.member(t, "dry_run") != "true" || dry.member(t, "compatible") != "true" || !strings.Contains(dry.body, `"replay":{"types":["note"],"aggregates":0,`) {
		t.Errorf("a dry run: %d %s", dry.status, dry.body)
	}
	if got := a.control(t, "POST", "/spec/promote?dry_run=true", `{"from":"prod","to":"test"}`); got.status != 200 ||
		got.member(t, "compatible") != "false" {
		t.Errorf("a dry promotion: %d %s", got.status, got.body)
	}
	if got := a.control(t, "GET", "/spec/history", ""); strings.Count(got.body, `"id":"dep_`) != 3 {
		t.Errorf("a dry run has left something: %s", got.body)
	}

	for _, tc := range []struct {
		method, target, body string
		want                 int
	}{
		{"POST", "/spec", `{`, 422},
		{"POST", "/spec", ``, 400},
		{"POST", "/spec", `[]`, 422},
		{"POST", "/spec", `{"spec":` + one + `,"environment":"qa"}`, 422},
		{"POST", "/spec?environment=test", `{"spec":` + one + `,"environment":"prod"}`, 400},
		{"POST", "/spec?environment=qa", one, 400},
		{"POST", "/spec?aggregates=5", one, 400},
		{"POST", "/spec?dry_run=true&aggregates=0", one, 400},
		{"POST", "/spec?dry_run=true&aggregates=1001", one, 400},
		{"POST", "/spec?dry_run=perhaps", one, 400},
		{"POST", "/spec?dryrun=true", one, 400},
		{"POST", "/spec?note=a%0ab", one, 400},
		{"POST", "/spec", strings.Repeat(" ", 5<<20), 413},
		{"POST", "/spec/rollback", `{}`, 400},
		{"POST", "/spec/rollback", `{"version":9}`, 404},
		{"POST", "/spec/rollback", `{"version":0}`, 404},
		{"POST", "/spec/rollback", `{"version":"1"}`, 400},
		{"POST", "/spec/rollback", `{"version":1,"environment":"qa"}`, 400},
		{"POST", "/spec/promote", `{}`, 400},
		{"POST", "/spec/promote", `{"from":"prod"}`, 400},
		{"POST", "/spec/promote", `{"from":"prod","to":"prod"}`, 400},
		{"POST", "/spec/promote", `{"from":"prod","to":"test","version":0}`, 400},
		{"POST", "/spec/promote", `{"from":"prod","to":"test","version":9}`, 404},
		{"GET", "/spec?environment=qa", "", 400},
		{"GET", "/spec/versions/9", "", 404},
		{"GET", "/spec/versions/0", "", 404},
		{"GET", "/spec/versions/x", "", 404},
		{"GET", "/spec/diff?from=0", "", 400},
		{"GET", "/spec/diff?from=1&to=9", "", 404},
		{"GET", "/spec/history?limit=x", "", 400},
		{"PUT", "/spec", one, 405},
	} {
		if got := a.control(t, tc.method, tc.target, tc.body); got.status != tc.want {
			t.Errorf("%s %s %.80s: %d %s, want %d", tc.method, tc.target, tc.body, got.status, got.body, tc.want)
		}
	}
	if got := a.control(t, "POST", "/spec", one, "If-Match: *"); got.status != 400 {
		t.Errorf("If-Match: *: %d", got.status)
	}
	if got := a.control(t, "POST", "/spec", one, "Content-Type: text/plain"); got.status != 400 {
		t.Errorf("plain text: %d", got.status)
	}
	if got := a.ops(t, "GET", "spec?environment=test", ""); got.status != 400 {
		t.Errorf("two environments: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "POST", "spec", one); got.status != 405 {
		t.Errorf("specs are deployed on the control host only: %d", got.status)
	}
}

func TestRightsOnSpecs(t *testing.T) {
	a := administer(t)
	ask := func(token, method, target string) int {
		return a.ask(
			t, token, method, "control.j17.example", "/api/instances/"+a.instance.ID+target, `{"version":1}`,
		).status
	}
	for _, target := range []string{"/spec", "/spec/rollback", "/spec/promote"} {
		if got := ask(a.viewer, "POST", target); got != 403 {
			t.Errorf("an auditor posts to %s: %d", target, got)
		}
		if got := ask(a.stranger, "POST", target); got != 404 {
			t.Errorf("a stranger posts to %s: %d", target, got)
		}
	}
	if got := ask(a.viewer, "GET", "/spec/history"); got != 200 {
		t.Errorf("an auditor reads the history: %d", got)
	}
	for _, target := range []string{"/spec", "/spec/history", "/spec/versions/1", "/spec/diff"} {
		if got := ask(a.stranger, "GET", target); got != 404 {
			t.Errorf("a stranger reads %s: %d", target, got)
		}
	}
}

// TestDeployShowsAtOnce checks that the first request behind a deployment sees it.
func TestDeployShowsAtOnce(t *testing.T) {
	a := administer(t)
	const id = "/note/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05"
	if got := a.control(t, "POST", "/spec", noted(`[{"set":{"target":"","value":"$.data"}}]`, "")); got.status != 201 {
		t.Fatal(got.body)
	}
	if got := a.do(t, "POST", id+"/was_written", `{"data":{"n":1},`+actor+`}`); got.status != 201 {
		t.Fatal(got.body)
	}
	for i := range 20 {
		spec := noted(fmt.Sprintf(`[{"set":{"target":"","value":"$.data"}},{"set":{"target":"v","value":%d}}]`, i), "")
		if got := a.control(t, "POST", "/spec", spec); got.status != 201 {
			t.Fatal(got.body)
		}
		if got := a.do(t, "GET", id, ""); !strings.Contains(got.body, fmt.Sprintf(`"v":%d`, i)) {
			t.Fatalf("behind version %d: %s", i, got.body)
		}
	}
}
