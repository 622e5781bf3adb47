package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
	"j17/internal/storage/store"
)

const testPassword = "correct horse battery"

// plane is a fixture with operators.
type plane struct {
	*fixture
	admin string // the token of a platform admin
	log   *lockedBuffer
	store store.Store
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the log.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newPlane(tb testing.TB, change func(*httpapi.Options)) *plane {
	tb.Helper()
	p := &plane{log: &lockedBuffer{}}
	p.fixture = newFixture(tb, func(o *httpapi.Options) {
		o.Logger = slog.New(slog.NewJSONHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Usage = usage.New(usage.Options{
			Store: o.Store, Registry: o.Registry, Clock: o.Clock, Logger: o.Logger,
			Worker: worker.New(o.Clock, o.Logger),
		})
		o.DefaultInstance = ""
		deploying(tb, o, deploy.Options{Registry: o.Registry, Engine: o.Engine, Clock: o.Clock, Logger: o.Logger})
		var ok bool
		if p.store, ok = o.Store.(store.Store); !ok {
			tb.Fatal("the fixture's store is not whole")
		}
		if change != nil {
			change(o)
		}
	})
	p.operator(tb, "admin@example.com", control.RolePlatformAdmin)
	p.admin = p.login(tb, "admin@example.com")
	return p
}

func (p *plane) operator(tb testing.TB, email string, role control.Role, instances ...string) control.Operator {
	tb.Helper()
	op, err := p.registry.Operators.Create(tb.Context(), control.NewOperator{
		Email: email, Password: testPassword, Role: role, Instances: instances,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return op
}

func (p *plane) login(tb testing.TB, email string) string {
	tb.Helper()
	got := p.control(tb, "POST", "/api/login", `{"email":"`+email+`","password":"`+testPassword+`"}`, "")
	if got.status != 200 {
		tb.Fatal(got)
	}
	return got.member(tb, "token")
}

// control sends a request to the control plane.
func (p *plane) control(tb testing.TB, method, path, body, token string, headers ...string) answer {
	tb.Helper()
	return p.do(
		tb, method, path, body,
		append([]string{"Host: control.j17.example", "Authorization: Bearer " + token}, headers...)...,
	)
}

// must sends a request as the platform admin that has to get a status.
func (p *plane) must(tb testing.TB, status int, method, path, body string) map[string]any {
	tb.Helper()
	return p.mustAs(tb, p.admin, status, method, path, body)
}

func (p *plane) mustAs(tb testing.TB, token string, status int, method, path, body string) map[string]any {
	tb.Helper()
	got := p.control(tb, method, path, body, token)
	if got.status != status {
		tb.Fatalf("%s %s %s: %d %s; want %d", method, path, body, got.status, got.body, status)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(got.body), &m); err != nil {
		tb.Fatal(got.body, err)
	}
	return m
}

// rows returns a member of an answer that is a list.
func rows(answer map[string]any, plural string) []any {
	list, _ := answer[plural].([]any)
	return list
}

func TestInstancesOverHTTP(t *testing.T) {
	p := newPlane(t, nil)
	i := p.must(t, 201, "POST", "/api/instances", `{"name":"shop","plan":"free"}`)
	id, _ := i["id"].(string)
	if i["name"] != "shop" || i["plan"] != "free" || i["ok"] != true || !strings.HasPrefix(id, "ins_") {
		t.Errorf("%v", i)
	}
	hosts := fmt.Sprint(i["environments"])
	for _, host := range []string{"shop.j17.example", "shop-staging.j17.example", "shop-test.j17.example"} {
		if !strings.Contains(hosts, host) {
			t.Errorf("%s is not in %s", host, hosts)
		}
	}
	p.must(t, 409, "POST", "/api/instances", `{"name":"shop"}`)
	for _, bad := range []string{
		`{}`, `{"name":7}`, `{"name":"UP"}`, `{"name":"x-test"}`, `{"name":"a","plan":"gold"}`, `{"nam":"a"}`, `[]`,
		`{`, `"x"`, `null`,
	} {
		p.must(t, 400, "POST", "/api/instances", bad)
	}
	for body, want := range map[string]string{
		`{"nam":"a"}`:              "Unknown field 'nam': did you mean 'name'?",
		`{"name":"a","colour":""}`: "Unknown field 'colour': known fields are name, plan",
	} {
		if got := p.must(t, 400, "POST", "/api/instances", body)["error"]; got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
	if all := rows(p.must(t, 200, "GET", "/api/instances", ""), "instances"); len(all) != 2 {
		t.Errorf("%v", all)
	}
	if all := p.must(t, 200, "GET", "/api/instances?limit=1", ""); len(rows(all, "instances")) != 1 ||
		all["next"] != 1.0 {
		t.Errorf("%v", all)
	}
	got := p.must(t, 200, "GET", "/api/instances/"+id, "")
	used, _ := got["usage"].(map[string]any)
	limits, _ := got["limits"].(map[string]any)
	if events, _ := used["events"].(map[string]any); events["limit"] != 1000.0 || events["used"] != 0.0 ||
		limits["requests_per_minute"] != 100.0 {
		t.Errorf("%v", got)
	}
	p.must(t, 200, "PATCH", "/api/instances/"+id, `{"name":"store","plan":"self-hosted"}`)
	p.must(t, 400, "PATCH", "/api/instances/"+id, `{"name":null}`)
	p.must(t, 400, "DELETE", "/api/instances/"+id, "")
	p.must(t, 400, "DELETE", "/api/instances/"+id, `{"confirm":"shop"}`)
	p.must(t, 200, "DELETE", "/api/instances/"+id, `{"confirm":"store"}`)
	p.must(t, 404, "GET", "/api/instances/"+id, "")
	if plans := rows(p.must(t, 200, "GET", "/api/plans", ""), "plans"); len(plans) != 2 {
		t.Errorf("%v", plans)
	}
}

func TestKeysOverHTTP(t *testing.T) {
	p := newPlane(t, nil)
	keys := "/api/instances/" + p.instance.ID + "/keys"
	k := p.must(t, 201, "POST", keys, `{"name":"web","scope":"read","environment":"prod"}`)
	id, _ := k["id"].(string)
	token, _ := k["key"].(string)
	works := func(token string) int { return p.do(t, "GET", "/note", "", "Authorization: Bearer "+token).status }
	if works(token) != 200 {
		t.Error("a fresh key does not work")
	}
	n := p.must(t, 201, "POST", "/api/keys/"+id+"/rotate", "")
	next, _ := n["key"].(string)
	if works(token) != 401 || works(next) != 200 || n["replaces"] != id {
		t.Errorf("after the rotation: %d, %d, %v", works(token), works(next), n)
	}
	nid, _ := n["id"].(string)
	at := p.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	s := p.must(t, 200, "POST", "/api/keys/"+nid+"/schedule_revocation", `{"revoke_at":"`+at+`"}`)
	if s["status"] != "scheduled" || s["revoke_at"] != at || works(next) != 200 {
		t.Errorf("%v", s)
	}
	for _, bad := range []string{`{}`, `{"revoke_at":"tomorrow"}`, `{"revoke_at":1}`} {
		p.must(t, 400, "POST", "/api/keys/"+nid+"/schedule_revocation", bad)
	}
	p.clock.Advance(2 * time.Hour)
	if works(next) != 401 {
		t.Error("the key works after its revocation")
	}
	m := p.must(t, 201, "POST", keys, `{"name":"web","scope":"write","environment":"prod"}`)
	p.must(t, 200, "DELETE", fmt.Sprint("/api/keys/", m["id"]), "")
	if works(fmt.Sprint(m["key"])) != 401 {
		t.Error("a revoked key works")
	}
	for _, bad := range []string{`{"name":"k","scope":"root","environment":"prod"}`, `{"name":"k","scope":"read","environment":"dev"}`, `{"name":"","scope":"read","environment":"prod"}`, `{}`} {
		p.must(t, 400, "POST", keys, bad)
	}
	p.must(t, 404, "GET", "/api/keys/key_111111111111111", "")
	p.must(t, 200, "GET", "/api/keys/"+id, "")
	listed := p.control(t, "GET", keys, "", p.admin)
	for _, secret := range []string{token, next, fmt.Sprint(m["key"])} {
		if strings.Contains(listed.body, secret[len(secret)-20:]) {
			t.Error("a list of keys shows a token")
		}
	}
	if n := len(rows(p.must(t, 200, "GET", keys+"?status=revoked", ""), "keys")); n != 3 {
		t.Errorf("%d revoked keys", n)
	}
	if regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7`).MatchString(listed.body) {
		t.Error("a list of keys shows an internal id")
	}
	if listed.header.Get("Cache-Control") != "no-store" {
		t.Error("a list of keys may be cached")
	}
}

// TestRolesOverHTTP checks who may do what: for each route the statuses that each role gets.
func TestRolesOverHTTP(t *testing.T) {
	p := newPlane(t, nil)
	p.operator(t, "ia@example.com", control.RoleInstanceAdmin, p.instance.ID)
	p.operator(t, "au@example.com", control.RoleAuditor, p.instance.ID)
	p.operator(t, "po@example.com", control.RolePrivacyOfficer, p.instance.ID)
	p.operator(t, "no@example.com", control.RoleInstanceAdmin)
	victim := p.operator(t, "victim@example.com", control.RoleAuditor)
	key, _, err := p.registry.Keys.Create(t.Context(), control.NewKey{
		Instance: p.instance.ID, Environment: j17.Test, Scope: j17.ScopeRead, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for _, who := range []string{"ia", "au", "po", "no"} {
		tokens[who] = p.login(t, who+"@example.com")
	}
	base := "/api/instances/" + p.instance.ID
	for _, c := range []struct {
		method, path, body string
		ia, au, po, no     int
	}{
		{"GET", base, "", 200, 200, 200, 404},
		{"GET", base + "/keys", "", 200, 200, 403, 404},
		{"GET", base + "/usage", "", 200, 200, 200, 404},
		{"GET", base + "/operators", "", 200, 403, 403, 404},
		{"GET", base + "/audit", "", 200, 200, 403, 404},
		{"GET", base + "/audit/export", "", 200, 200, 403, 404},
		{"GET", "/api/audit", "", 200, 200, 403, 403},
		{"POST", base + "/keys", `{"name":"k","scope":"read","environment":"prod"}`, 201, 403, 403, 404},
		{
			"POST", "/api/keys/" + key.ID + "/schedule_revocation", `{"revoke_at":"2030-01-01T00:00:00Z"}`, 200, 403,
			403, 404,
		},
		{"GET", "/api/keys/" + key.ID, "", 200, 200, 403, 404},
		{"GET", base + "/spec/history?environment=prod", "", 200, 200, 200, 404},
		{"GET", base + "/projections", "", 200, 200, 200, 404},
		{"GET", base + "/ops/prod/tombstones", "", 200, 200, 200, 404},
		{"GET", base + "/ops/prod/implications/failed", "", 200, 403, 403, 404},
		{"GET", base + "/ops/prod/errors/err_1", "", 404, 403, 403, 404},
		{"PATCH", base, `{"name":"app"}`, 200, 403, 403, 404},
		{"PATCH", base, `{"plan":"free"}`, 403, 403, 403, 404},
		{"DELETE", base, `{"confirm":"app"}`, 403, 403, 403, 404},
		{"POST", "/api/instances", `{"name":"x"}`, 403, 403, 403, 403},
		{"GET", "/api/operators", "", 403, 403, 403, 403},
		{"POST", "/api/operators", `{"email":"x@example.com","password":"a long password","role":"platform_admin"}`, 403, 403, 403, 403},
		{"GET", "/api/operators/" + victim.ID, "", 403, 403, 403, 403},
		{"PATCH", "/api/operators/" + victim.ID, `{"role":"platform_admin"}`, 403, 403, 403, 403},
		{"POST", "/api/operators/" + victim.ID + "/password", `{"password":"a long password"}`, 403, 403, 403, 403},
		{"POST", "/api/operators/" + victim.ID + "/revoke_tokens", "", 403, 403, 403, 403},
		{"DELETE", "/api/operators/" + victim.ID, "", 403, 403, 403, 403},
		{"PUT", "/api/operators/" + victim.ID + "/grants/" + p.instance.ID, "", 403, 403, 403, 403},
		{"DELETE", "/api/operators/" + victim.ID + "/grants/" + p.instance.ID, "", 403, 403, 403, 403},
		{"POST", "/api/signing_keys/rotate", "", 403, 403, 403, 403},
		{"GET", "/api/errors/err_1", "", 403, 403, 403, 403},
		{"GET", "/api/me", "", 200, 200, 200, 200},
	} {
		for who, want := range map[string]int{"ia": c.ia, "au": c.au, "po": c.po, "no": c.no} {
			if got := p.control(t, c.method, c.path, c.body, tokens[who]); got.status != want {
				t.Errorf("%s: %s %s: %d %s; want %d", who, c.method, c.path, got.status, got.body, want)
			}
		}
		if got := p.control(t, c.method, c.path, c.body, p.key); got.status != 401 {
			t.Errorf("an API key: %s %s: %d", c.method, c.path, got.status)
		}
	}
	if n := len(rows(p.mustAs(t, tokens["no"], 200, "GET", "/api/instances", ""), "instances")); n != 0 {
		t.Errorf("who has no grant sees %d instances", n)
	}
	// Who was refused stands in the log.
	refusals := rows(p.must(t, 200, "GET", "/api/audit?outcome=refused&actor=au@example.com&limit=1000", ""), "records")
	if len(refusals) < 10 || !strings.Contains(fmt.Sprint(refusals), "instance.delete") {
		t.Errorf("%d refusals", len(refusals))
	}
}

func TestOperatorsOverHTTP(t *testing.T) {
	p := newPlane(t, nil)
	op := p.must(
		t, 201, "POST", "/api/operators",
		`{"email":"b@example.com","password":"`+testPassword+`","role":"instance_admin"}`,
	)
	id := fmt.Sprint(op["id"])
	p.must(t, 409, "POST", "/api/operators", `{"email":"B@example.com","password":"`+testPassword+`","role":"auditor"}`)
	p.must(t, 400, "POST", "/api/operators", `{"email":"c@example.com","password":"`+testPassword+`","role":"root"}`)
	p.must(t, 400, "POST", "/api/operators", `{"email":"c@example.com","password":"short","role":"auditor"}`)
	p.must(t, 400, "POST", "/api/operators", `{"email":"c@example.com"}`)
	granted := p.must(t, 200, "PUT", "/api/operators/"+id+"/grants/"+p.instance.ID, "")
	if fmt.Sprint(granted["instances"]) != "["+p.instance.ID+"]" {
		t.Errorf("%v", granted)
	}
	b := p.login(t, "b@example.com")
	p.mustAs(t, b, 200, "GET", "/api/instances/"+p.instance.ID, "")
	p.must(t, 200, "DELETE", "/api/operators/"+id+"/grants/"+p.instance.ID, "")
	p.mustAs(t, b, 404, "GET", "/api/instances/"+p.instance.ID, "")
	p.must(t, 404, "PUT", "/api/operators/"+id+"/grants/ins_1", "")

	p.mustAs(t, b, 400, "POST", "/api/me/password", `{"current_password":"x"}`)
	p.mustAs(t, b, 403, "POST", "/api/me/password", `{"current_password":"wrong","new_password":"another long password"}`)
	p.mustAs(t, b, 400, "POST", "/api/me/password", `{"current_password":"`+testPassword+`","new_password":"short"}`)
	p.mustAs(t, b, 200, "POST", "/api/me/password", `{"current_password":"`+testPassword+`","new_password":"another long password"}`)
	p.mustAs(t, b, 401, "GET", "/api/me", "")
	p.must(t, 200, "POST", "/api/operators/"+id+"/password", `{"password":"`+testPassword+`"}`)
	p.clock.Advance(time.Minute)
	b = p.login(t, "b@example.com")
	if me := p.mustAs(t, b, 200, "GET", "/api/me", ""); me["email"] != "b@example.com" || me["id"] != id {
		t.Errorf("%v", me)
	}
	p.mustAs(t, b, 200, "POST", "/api/logout", "")
	p.mustAs(t, b, 401, "GET", "/api/me", "")
	b = p.login(t, "b@example.com")
	p.mustAs(t, b, 200, "POST", "/api/operators/"+id+"/revoke_tokens", "")
	p.mustAs(t, b, 401, "GET", "/api/me", "")

	p.must(t, 200, "PATCH", "/api/operators/"+id, `{"role":"auditor"}`)
	p.must(t, 200, "POST", "/api/signing_keys/rotate", "")
	p.must(t, 200, "GET", "/api/me", "")
	if n := len(rows(p.must(t, 200, "GET", "/api/operators", ""), "operators")); n != 2 {
		t.Errorf("%d operators", n)
	}
	p.must(t, 200, "DELETE", "/api/operators/"+id, "")
	p.must(t, 404, "GET", "/api/operators/"+id, "")
	p.must(t, 200, "POST", "/api/signing_keys/rotate", `{"revoke":true}`)
	p.must(t, 401, "GET", "/api/me", "")
}

// TestLoginWithoutDisk checks that operators get in when nothing can be written, which is when they are needed.
func TestLoginWithoutDisk(t *testing.T) {
	p := newPlane(t, nil)
	if err := p.store.Close(); err != nil {
		t.Fatal(err)
	}
	token := p.login(t, "admin@example.com")
	p.mustAs(t, token, 200, "GET", "/api/instances", "")
	got := p.mustAs(t, token, 503, "POST", "/api/instances", `{"name":"shop"}`)
	if _, ok := p.registry.Instances.ByName("shop"); ok || got["error_id"] == nil {
		t.Error(got)
	}
	if !strings.Contains(p.log.String(), "could not be added to the audit log") {
		t.Error("the log does not say what could not be recorded")
	}
}

func TestSetupOverHTTP(t *testing.T) {
	f := newFixture(t, nil)
	p := &plane{fixture: f}
	token, _, err := f.registry.Setup.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	setup := func(token, password string) answer {
		return p.control(t, "POST", "/api/setup", `{"token":"`+token+`","email":"first@example.com","password":"`+password+`"}`, "")
	}
	if got := setup("wrong", testPassword); got.status != 401 {
		t.Error(got)
	}
	if got := setup(token, "short"); got.status != 400 {
		t.Error(got)
	}
	if got := p.control(t, "POST", "/api/setup", `{"token":"`+token+`"}`, ""); got.status != 400 {
		t.Error(got)
	}
	if got := setup(token, testPassword); got.status != 201 {
		t.Error(got)
	}
	if got := setup(token, testPassword); got.status != 401 {
		t.Error(got)
	}
	p.login(t, "first@example.com")
}

func TestAuditOverHTTP(t *testing.T) {
	p := newPlane(
		t, func(o *httpapi.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
	)
	got := p.control(t, "POST", "/api/instances/"+p.instance.ID+"/keys", `{"name":"k","scope":"read","environment":"prod"}`, p.admin, "X-Forwarded-For: 6.6.6.6, 203.0.113.7")
	if got.status != 201 {
		t.Fatal(got)
	}
	records := rows(p.must(t, 200, "GET", "/api/instances/"+p.instance.ID+"/audit?action=key.create&actor=admin@example.com", ""), "records")
	if len(records) != 1 {
		t.Fatalf("%v", records)
	}
	r, _ := records[0].(map[string]any)
	actor, _ := r["actor"].(map[string]any)
	if actor["email"] != "admin@example.com" || actor["address"] != "203.0.113.7" || r["outcome"] != "done" ||
		r["target"] != got.member(t, "id") || r["request_id"] != got.header.Get("X-Request-Id") {
		t.Errorf("%v", r)
	}
	wrong := p.control(t, "POST", "/api/login", `{"email":"admin@example.com","password":"wrong"}`, "")
	if wrong.status != 401 {
		t.Error(wrong)
	}
	if unknown := p.control(t, "POST", "/api/login", `{"email":"nobody@example.com","password":"wrong"}`, ""); unknown.status != 401 {
		t.Error(unknown)
	}
	if logins := rows(p.must(t, 200, "GET", "/api/audit?action=operator.login&outcome=refused", ""), "records"); len(logins) != 1 {
		t.Errorf("failed logins: %v", logins)
	}
	// An outcome that there is not has no records, which reads as if nothing had been refused.
	for _, path := range []string{"/api/audit", "/api/audit/export"} {
		if none := p.control(t, "GET", path+"?outcome=denied", "", p.admin); none.status != 400 ||
			none.member(t, "path") != "outcome" {
			t.Errorf("%s with an unknown outcome: %v", path, none)
		}
	}
	export := p.control(t, "GET", "/api/audit/export", "", p.admin)
	if export.header.Get("Content-Type") != "application/x-ndjson" {
		t.Error(export.header)
	}
	lines := 0
	for s := bufio.NewScanner(strings.NewReader(export.body)); s.Scan(); lines++ {
		var rec control.Record
		if err := json.Unmarshal(s.Bytes(), &rec); err != nil || rec.ID == "" || rec.Action == "" {
			t.Errorf("line %q: %v", s.Text(), err)
		}
	}
	if lines < 4 || strings.Contains(export.body, got.member(t, "key")) {
		t.Errorf("%d lines", lines)
	}
	first := p.must(t, 200, "GET", "/api/audit?limit=1", "")
	second := p.must(t, 200, "GET", fmt.Sprint("/api/audit?limit=1&start=", first["next"]), "")
	if fmt.Sprint(first["records"]) == fmt.Sprint(second["records"]) {
		t.Error("both pages are the same")
	}
	for _, bad := range []string{
		"limit=0", "limit=x", "limit=5000", "start=x", "from=yesterday", "to=1", "actors=x", "limit=1&limit=2",
	} {
		p.must(t, 400, "GET", "/api/audit?"+bad, "")
	}
	// An auditor sees their instances only.
	p.must(t, 201, "POST", "/api/instances", `{"name":"secret"}`)
	p.operator(t, "au@example.com", control.RoleAuditor, p.instance.ID)
	seen := p.control(t, "GET", "/api/audit", "", p.login(t, "au@example.com"))
	if seen.status != 200 || strings.Contains(seen.body, "secret") || !strings.Contains(seen.body, "key.create") {
		t.Errorf("%d %s", seen.status, seen.body)
	}
}

func TestUsageOverHTTP(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) { o.Usage = nil })
	p.must(t, 200, "GET", "/api/instances/"+p.instance.ID+"/usage", "")
	p = newPlane(t, nil)
	for range 3 {
		p.do(t, "GET", "/note", "")
	}
	p.do(t, "GET", "/note", "", "Authorization: Bearer wrong")
	p.do(t, "POST", "/note/global/was_written", `{"data":{},`+actor+`}`)
	got := fmt.Sprint(
		p.must(t, 200, "GET", "/api/instances/"+p.instance.ID+"/usage?from=2023-11-14&to=2023-11-15", "")["days"],
	)
	if got != "[map[date:2023-11-14 environment:prod events:0 reads:3 requests:4 storage_bytes:0]]" {
		t.Error(got)
	}
	p.must(t, 400, "GET", "/api/instances/"+p.instance.ID+"/usage?from=2023-11-15&to=2023-11-14", "")
	p.must(t, 400, "GET", "/api/instances/"+p.instance.ID+"/usage?from=0001-01-01", "")
}

// TestUsageOfASingletonCalledWithin writes to an aggregate at the path where places are asked for elsewhere: that is a
// write, and a key that only reads is refused before anything is counted.
func TestUsageOfASingletonCalledWithin(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) {
		compiled, found := spec.Compile([]byte(`{"agent_types":["user"],"singletons":["within"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{},"handler":[]}}}}}`))
		if compiled == nil {
			t.Fatal(found)
		}
		app, _ := o.Registry.Instances.ByName("app")
		o.Engine.Deploy(j17.TenantOf(app.ID, j17.Prod), compiled, nil)
	})
	events := `{"events":[{"type":"was_written","data":{}}],` + actor + `}`
	for _, c := range []struct {
		method, target, key string
		status              int
	}{
		{"POST", "/note/within", p.key, 201},
		{"POST", "/note/within?dry_run=true", p.key, 200}, // a read, as everywhere
		{"POST", "/note/within", p.reader(t), 403},
		{"GET", "/note/within", p.key, 200},
	} {
		r := httptest.NewRequestWithContext(
			t.Context(), c.method, "http://app.j17.example"+c.target, strings.NewReader(events),
		)
		r.Header.Set("Authorization", "Bearer "+c.key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if p.handler.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.target, w.Code, w.Body)
		}
	}
	got := fmt.Sprint(
		p.must(t, 200, "GET", "/api/instances/"+p.instance.ID+"/usage?from=2023-11-14&to=2023-11-14", "")["days"],
	)
	if got != "[map[date:2023-11-14 environment:prod events:0 reads:2 requests:3 storage_bytes:0]]" {
		t.Error(got)
	}
}

func TestErrorLookup(t *testing.T) {
	var secret string
	p := newPlane(t, func(o *httpapi.Options) {
		o.AdvanceClock = func(_ context.Context, d time.Duration) (time.Time, error) {
			if d > time.Minute {
				panic("boom " + secret)
			}
			return time.Time{}, fmt.Errorf("the disk of %s is on fire", secret)
		}
	})
	secret = p.key
	for by, cause := range map[string]string{
		"1s": "the disk of [redacted] is on fire", "1h": "panic: boom [redacted]",
	} {
		failed := p.do(t, "POST", "/_dev/clock/advance", `{"by":"`+by+`"}`, "Authorization: Bearer "+p.admin)
		id := failed.member(t, "error_id")
		if failed.status != 500 || strings.Contains(failed.body, "fire") || strings.Contains(failed.body, "boom") {
			t.Fatal(failed)
		}
		got := p.control(t, "GET", "/api/errors/"+id, "", p.admin)
		var body struct{ Failure control.Fault }
		if err := json.Unmarshal([]byte(got.body), &body); err != nil {
			t.Fatal(got, err)
		}
		f := body.Failure
		if f.Cause != cause || f.Route != "/_dev/clock/advance" || f.RequestID != failed.header.Get("X-Request-Id") ||
			f.Status != 500 ||
			f.Environment != j17.Prod || f.Instance != p.instance.ID || !strings.Contains(f.Stack, "httpapi") ||
			f.Version != "test" {
			t.Errorf("%+v", f)
		}
		if strings.Contains(got.body, secret) || strings.Contains(p.log.String(), p.admin) {
			t.Error("a secret shows")
		}
		p.must(t, 200, "GET", "/api/instances/"+p.instance.ID+"/ops/prod/errors/"+id, "")
		p.must(t, 404, "GET", "/api/instances/"+p.instance.ID+"/ops/test/errors/"+id, "")
		if got := p.do(t, "GET", "/_admin/errors/"+id, "", "Authorization: Bearer "+p.admin); got.status != 200 {
			t.Error(got)
		}
	}
	p.must(t, 404, "GET", "/api/errors/err_111111111111111", "")
}

// TestBusyIsNoFault: what goes away by itself asks to come again and leaves no error record.
func TestBusyIsNoFault(t *testing.T) {
	for _, code := range []j17.Code{j17.CodeBusy, j17.CodeStateNotReady} {
		p := newPlane(t, func(o *httpapi.Options) {
			o.AdvanceClock = func(context.Context, time.Duration) (time.Time, error) {
				return time.Time{}, j17.Errorf(code, "Not now.")
			}
		})
		got := p.do(t, "POST", "/_dev/clock/advance", `{"by":"1s"}`, "Authorization: Bearer "+p.admin)
		if got.status != 503 || got.header.Get("Retry-After") == "" || got.member(t, "code") != string(code) ||
			strings.Contains(got.body, "error_id") {
			t.Errorf("%d %v %s", got.status, got.header, got.body)
		}
		if list := p.control(t, "GET", "/api/errors", "", p.admin); strings.Contains(list.body, string(code)) {
			t.Errorf("there is a record: %s", list.body)
		}
	}
}
