package httpapi_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/edge/httpapi"
	"j17/internal/plane/control"
)

// TestRights asks for every route of operators as an operator of each role and compares who was let in with a table
// that is there to be read. Sessions open the same to each as tokens do. Every request has a parameter that no route
// knows: who has the right is told so, and nothing is done.
func TestRights(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) {
		o.AdvanceClock = func(context.Context, time.Duration) (time.Time, error) {
			return time.Time{}, fmt.Errorf("not to be reached")
		}
	})
	key, _, err := p.registry.Keys.Create(t.Context(), control.NewKey{
		Instance: p.instance.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	other := p.operator(t, "other@example.com", control.RoleAuditor)
	tokens, cookies := []string{p.admin}, []string{p.signIn(t, "admin@example.com")}
	for i, role := range []control.Role{
		control.RoleInstanceAdmin, control.RoleAuditor, control.RolePrivacyOfficer, control.RoleInstanceAdmin,
	} {
		email := fmt.Sprintf("op%d@example.com", i)
		granted := []string{p.instance.ID}
		if i == 3 {
			granted = nil
		}
		p.operator(t, email, role, granted...)
		tokens, cookies = append(tokens, p.login(t, email)), append(cookies, p.signIn(t, email))
		p.clock.Advance(time.Minute)
	}

	var got strings.Builder
	ask := func(row, host string) {
		method, pattern, _ := strings.Cut(row, " ")
		id := other.ID
		if strings.HasPrefix(pattern, "/api/instances") {
			id = p.instance.ID
		} else if strings.HasPrefix(pattern, "/api/keys") {
			id = key.ID
		}
		path := strings.NewReplacer(
			"{id}", id, "{instance}", p.instance.ID, "{instance_}", p.instance.ID, "{env_}", "prod",
		).Replace(pattern)
		line := ""
		for i, token := range tokens {
			answer := p.do(t, method, path+"?no_such_parameter=1", "", "Host: "+host, "Authorization: Bearer "+token)
			switch {
			case answer.status == 400 && answer.member(t, "code") == "invalid_parameter":
				line += "PIAOS"[i : i+1]
			case answer.status == 403 && answer.member(t, "code") == "forbidden",
				answer.status == 404 && answer.member(t, "code") == "not_found":
				line += "-"
			default:
				t.Errorf("%s: %d %s", row, answer.status, answer.body)
			}

			// By the cookie of a session it is the same on the control host, and nothing elsewhere.
			by := p.browse(t, method, path+"?no_such_parameter=1", "", cookies[i], ofPage, "Host: "+host)
			if host == "control.j17.example" && (by.status != answer.status ||
				by.member(t, "code") != answer.member(t, "code")) || host != "control.j17.example" && by.status != 401 {
				t.Errorf("%s of operator %d by a cookie: %d %s, by a token: %d", row, i, by.status, by.body, answer.status)
			}
		}
		fmt.Fprintf(&got, "%s %s %s\n", line, host, row)
	}
	for _, row := range p.ControlRoutes() {
		switch row {
		case "POST /api/login", "POST /api/setup", "GET /setup", "GET /_openapi.json", "GET /llms-core.txt":
			// open to everybody
		case "POST /api/sessions", "GET /api/session", "DELETE /api/session", "GET /ui", "GET /ui/{path...}":
		default:
			ask(row, "control.j17.example")
		}
	}
	for _, row := range p.OperatorRoutes() {
		ask(row, "app.j17.example")
	}

	file := filepath.Join("testdata", "rights.txt")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(raw), "\n\n")
	if got.String() != want {
		t.Errorf("%s says otherwise. Who has been let in:\n%s", file, got.String())
	}
}

// TestCarelessRoutes checks that a route which does not say who may use it is used by nobody, and that there is none.
func TestCarelessRoutes(t *testing.T) {
	for _, cluster := range []*httpapi.Cluster{nil, {}, {Node: "n"}} {
		p := newPlane(t, func(o *httpapi.Options) {
			o.AdvanceClock = func(context.Context, time.Duration) (time.Time, error) { return time.Time{}, nil }
		})
		p.Cluster = cluster
		if found := p.Careless(); found != nil {
			t.Errorf("%v do not say who may use them", found)
		}
	}
	p := newPlane(t, nil)
	for asks, want := range map[string]int{"": 500, "operator": 403} {
		called := false
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://control.j17.example/careless", nil)
		r.Header.Set("Authorization", "Bearer "+p.admin)
		w := httptest.NewRecorder()
		p.ServeCareless(asks, &called).ServeHTTP(w, r)
		if called || w.Code != want {
			t.Errorf("%q: %d, called: %v", asks, w.Code, called)
		}
	}
}
