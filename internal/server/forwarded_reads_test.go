package server_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestForwardedReads reads events, states and causes as an operator of each role, at the worker that has them and
// through the headnode: both let in the same people, and say the same.
func TestForwardedReads(t *testing.T) {
	head := headnode(t)
	worker := start(t, workerOptions(t, "one", head.internal()))
	const ctl, host = "control.example.test", "alpha.example.test"
	login := func(email string) string {
		return head.send(t, "POST", ctl, "/api/login", "", `{"email":"`+email+`","password":"`+adminPass+`"}`).want(
			t, "login", 200,
		).text1(t, "token")
	}
	admin := login(adminEmail)
	id := head.send(t, "POST", ctl, "/api/instances", admin, `{"name":"alpha"}`).want(t, "create", 201).text1(t, "id")
	head.send(t, "POST", ctl, "/api/instances/"+id+"/spec", admin, counterSpec).want(t, "deploy", 201)
	key := head.send(t, "POST", ctl, "/api/instances/"+id+"/keys", admin, `{"environment":"prod","scope":"write","name":"k"}`).want(t, "key", 201).text1(t, "key")
	var at string
	for range 3 {
		at = worker.send(t, "POST", host, counterPath+"/was_increased", key, increase).want(t, "write", 201).text1(
			t, "stream_id",
		)
	}
	aggregate := "aggregates" + counterPath
	for role, reads := range map[string]bool{
		"platform_admin": true, "instance_admin": true, "auditor": true, "privacy_officer": false,
	} {
		granted := `,"instances":["` + id + `"]`
		if role == "platform_admin" {
			granted = ""
		}
		email := role + "@example.com"
		head.send(
			t, "POST", ctl, "/api/operators", admin,
			`{"email":"`+email+`","password":"`+adminPass+`","role":"`+role+`"`+granted+`}`,
		).want(t, "operator", 201)
		token := login(email)
		for _, path := range []string{
			"aggregates", "aggregates/counter", aggregate, aggregate + "/length", aggregate + "/events?count=2",
			aggregate + "/changes", aggregate + "/blame",
			"events?before=now&count=2", "events?after=0", "events/" + at, "trace/" + at, "overview",
		} {
			through, there := head.send(t, "GET", ctl, "/api/instances/"+id+"/ops/prod/"+path, token, ""),
				worker.send(t, "GET", host, "/_admin/"+path, token, "")
			want := 200
			if !reads {
				want = 403
			}
			if through.status != want || there.status != want {
				t.Errorf("%s of %s: %d through the headnode and %d at the worker, want %d: %s", path, role, through.status, there.status, want, through.text)
			}
			if reads && path != "overview" && through.text != there.text { // which has rates of the moment
				t.Errorf("%s of %s is %s\nthrough the headnode, and %s", path, role, through.text, there.text)
			}
		}
	}

	// What nothing waits for, and who asks for it, comes back through both.
	refused := head.send(
		t, "POST", ctl, "/api/instances/"+id+"/ops/prod/attention/retry", admin, `{"kind":"saga","cause":"none"}`,
	).want(t, "retry", 404)
	if !strings.Contains(refused.text, "GET attention lists") {
		t.Error(refused.text)
	}
	head.send(t, "GET", ctl, "/api/instances/"+id+"/ops/prod/attention", admin, "").want(t, "attention", 200)
	head.send(t, "GET", ctl, "/api/instances/"+id+"/ops/prod/trace/1000000000000-0", admin, "").want(t, "no event", 404)
	page := head.send(t, "GET", ctl, fmt.Sprintf("/api/instances/%s/ops/prod/events?after=%s&wait=1s", id, at), admin, "").want(t, "a page that waits", 200)
	if !strings.Contains(page.text, `"events":[]`) {
		t.Error(page.text)
	}
}
