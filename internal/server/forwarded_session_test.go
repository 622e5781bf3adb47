package server_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"j17/internal/plane/control"
)

// TestForwardedStreamsEndWithTheirSession opens streams by the cookie of a session, which a headnode passes on to the
// worker that has the events, and takes away what let them in. The worker does not know of sessions, so the headnode
// has to ask.
func TestForwardedStreamsEndWithTheirSession(t *testing.T) {
	head := headnode(t)
	start(t, workerOptions(t, "one", head.internal()))
	const ctl, opEmail = "control.example.test", "op@example.com"
	public := "http://" + head.serve.Ready().Addresses["public"]
	token := head.send(t, "POST", ctl, "/api/login", "", `{"email":"`+adminEmail+`","password":"`+adminPass+`"}`).want(
		t, "login", 200,
	).text1(t, "token")
	id := head.send(t, "POST", ctl, "/api/instances", token, `{"name":"alpha"}`).want(t, "create", 201).text1(t, "id")
	head.send(t, "POST", ctl, "/api/instances/"+id+"/spec", token, counterSpec).want(t, "deploy", 201)
	made := head.send(t, "POST", ctl, "/api/operators", token, `{"email":"`+opEmail+`","password":"`+adminPass+`","role":"instance_admin","instances":["`+id+`"]}`).want(t, "operator", 201)
	op := made.text1(t, "id")

	browse := func(method, path, body, cookie string) reply {
		return request(t, method, public+path, ctl, body, map[string]string{
			"Cookie": cookie, "Sec-Fetch-Site": "same-origin",
		})
	}
	signIn := func() string {
		got := browse("POST", "/api/sessions", `{"email":"`+opEmail+`","password":"`+adminPass+`"}`, "").want(
			t, "sign in", 201,
		)
		cookie, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
		return cookie
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(path, cookie string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, public+"/api/instances/"+id+"/ops/prod/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = ctl
		r.Header.Set("Cookie", cookie)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	for _, c := range []struct {
		name string
		end  func(cookie string)
	}{
		{"sign-out", func(cookie string) { browse("DELETE", "/api/session", "", cookie).want(t, "sign out", 200) }},
		{"another role", func(string) {
			head.send(t, "PATCH", ctl, "/api/operators/"+op, token, `{"role":"privacy_officer"}`).want(t, "role", 200)
		}},
		{"loss of the grant", func(string) {
			head.send(t, "DELETE", ctl, "/api/operators/"+op+"/grants/"+id, token, "").want(t, "grant", 200)
		}},
	} {
		head.send(
			t, "PATCH", ctl, "/api/operators/"+op, token, `{"role":"`+string(control.RoleInstanceAdmin)+`"}`,
		).want(t, "role", 200)
		cookie := signIn()
		stream := open("events/stream", cookie) //nolint:bodyclose // open closes it at the end of the test
		if stream.StatusCode != http.StatusOK {
			t.Fatalf("%s: a stream: %d", c.name, stream.StatusCode)
		}
		page := make(chan *http.Response, 1)
		//nolint:bodyclose // as above
		go func() { page <- open("events?after=0&wait=60s&event=was_increased", cookie) }()
		events := bufio.NewReader(stream.Body)
		c.end(cookie)
		if _, err := io.Copy(io.Discard, events); ctx.Err() != nil {
			t.Fatalf("%s: the stream goes on: %v", c.name, err)
		}
		answered := <-page
		if answered.StatusCode < http.StatusBadRequest || answered.StatusCode >= http.StatusInternalServerError ||
			ctx.Err() != nil {
			t.Errorf("%s: a page that waits: %d", c.name, answered.StatusCode)
		}
	}
}
