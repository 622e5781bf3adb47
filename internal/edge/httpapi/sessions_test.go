package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"j17/internal/edge/httpapi"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
)

const ofPage = "Sec-Fetch-Site: same-origin"

// browse sends a request to the control host as a browser does, without a token. cookie is "name=value", "" for none.
func (p *plane) browse(tb testing.TB, method, path, body, cookie string, headers ...string) answer {
	tb.Helper()
	return p.browseFrom(tb, "192.0.2.1:1", method, path, body, cookie, headers...)
}

func (p *plane) browseFrom(tb testing.TB, peer, method, path, body, cookie string, headers ...string) answer {
	tb.Helper()
	r := httptest.NewRequestWithContext(
		tb.Context(), method, "http://control.j17.example"+path, strings.NewReader(body),
	)
	r.RemoteAddr = peer
	if method != http.MethodGet && method != http.MethodDelete {
		r.Header.Set("Content-Type", "application/json")
	}
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	for _, h := range headers {
		name, v, _ := strings.Cut(h, ": ")
		switch {
		case name == "Host":
			r.Host = v
		case v == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, v)
		}
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	a := answer{w.Code, w.Header(), w.Body.String()}
	if strings.HasPrefix(path, "/api/") || path == "/setup" {
		// the dashboard's own files are nothing to program against
		p.hold(tb, r, a)
	}
	return a
}

// cookie is the one that an answer sets, as a browser sends it back.
func (a answer) cookie(tb testing.TB) *http.Cookie {
	tb.Helper()
	all := (&http.Response{Header: a.header}).Cookies()
	if len(all) != 1 {
		tb.Fatalf("%d %s: %d cookies", a.status, a.body, len(all))
	}
	return all[0]
}

func (p *plane) signIn(tb testing.TB, email string) string {
	tb.Helper()
	got := p.browse(tb, "POST", "/api/sessions", `{"email":"`+email+`","password":"`+testPassword+`"}`, "", ofPage)
	if got.status != 201 {
		tb.Fatal(got.status, got.body)
	}
	c := got.cookie(tb)
	return c.Name + "=" + c.Value
}

func (p *plane) signedIn(tb testing.TB, cookie string) bool {
	tb.Helper()
	me, session := p.browse(tb, "GET", "/api/me", "", cookie), p.browse(tb, "GET", "/api/session", "", cookie)
	if session.status != 200 || (me.status == 200) != strings.Contains(session.body, `"operator":{`) {
		tb.Errorf("%d %s\n%d %s", me.status, me.body, session.status, session.body)
	}
	return me.status == 200
}

func TestSessionOfABrowser(t *testing.T) {
	p := newPlane(t, nil)
	got := p.browse(t, "POST", "/api/sessions", `{"email":"admin@example.com","password":"`+testPassword+`"}`, "", ofPage)
	set := got.header.Get("Set-Cookie")
	c := got.cookie(t)
	if want := "j17_session=" + c.Value + "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"; got.status != 201 || set != want || len(c.Value) < 40 || strings.Contains(got.body, c.Value) {
		t.Errorf("%d %s\n%s; want %s", got.status, got.body, set, want)
	}
	cookie := c.Name + "=" + c.Value
	session := p.browse(t, "GET", "/api/session", "", cookie)
	for _, part := range []string{
		`"email":"admin@example.com"`, `"rights":{"server":["view","read",`, `"instances":{}`,
		`"expires_at":"2023-11-15T`,
	} {
		if !strings.Contains(session.body, part) {
			t.Errorf("%s: no %s", session.body, part)
		}
	}
	if session.header.Get("Cache-Control") != "no-store" {
		t.Error(session.header)
	}
	list := p.browse(t, "GET", "/api/me/sessions", "", cookie)
	if strings.Count(list.body, `"id":`) != 1 || !strings.Contains(list.body, `"current":true`) ||
		!strings.Contains(list.body, `"address":"192.0.2.1"`) {
		t.Error(list.body)
	}
	if made := p.browse(t, "POST", "/api/instances", `{"name":"shop"}`, cookie, ofPage); made.status != 201 {
		t.Errorf("a change: %d %s", made.status, made.body)
	}

	// It ends on the server, not in the browser alone.
	end := p.browse(t, "DELETE", "/api/session", "", cookie, ofPage)
	if end.status != 200 || !strings.HasPrefix(end.header.Get("Set-Cookie"), "j17_session=; Path=/; Max-Age=0; HttpOnly") || p.signedIn(t, cookie) {
		t.Errorf("%d %v", end.status, end.header)
	}
	if again := p.browse(t, "DELETE", "/api/session", "", "", ofPage); again.status != 200 {
		t.Errorf("without a session: %d %s", again.status, again.body)
	}
	other := p.signIn(t, "admin@example.com")
	if out := p.browse(t, "POST", "/api/logout", "", other, ofPage); out.status != 200 || p.signedIn(t, other) {
		t.Errorf("logout with a cookie: %d %s", out.status, out.body)
	}
	if strings.Contains(p.log.String(), c.Value) ||
		strings.Contains(p.log.String(), strings.TrimPrefix(other, "j17_session=")) {
		t.Error("the log has the token of a session")
	}
	records := p.control(t, "GET", "/api/audit", "", p.admin).body
	for _, action := range []string{"operator.login", "operator.logout", "instance.create"} {
		if !strings.Contains(records, `"action":"`+action+`"`) {
			t.Errorf("no record of %s", action)
		}
	}
}

// TestForgedRequests sends what pages of other sites can make a browser send, hosts of instances among them.
func TestForgedRequests(t *testing.T) {
	p := newPlane(t, nil)
	cookie := p.signIn(t, "admin@example.com")
	for name, c := range map[string]struct {
		method  string
		headers []string
		want    int
	}{
		"own page": {
			"POST", []string{"Sec-Fetch-Site: same-origin", "Origin: http://control.j17.example"}, 201,
		},
		"own page, older browser": {"POST", []string{"Origin: http://control.j17.example"}, 201},
		"other site": {
			"POST", []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, 403,
		},
		"an instance's host": {
			"POST", []string{"Sec-Fetch-Site: same-site", "Origin: http://app.j17.example"}, 403,
		},
		"an instance's, older": {"POST", []string{"Origin: http://app.j17.example"}, 403},
		"same origin as one says": {
			"POST", []string{"Sec-Fetch-Site: cross-site", "Origin: http://control.j17.example"}, 403,
		},
		"address line":                {"POST", []string{"Sec-Fetch-Site: none"}, 403},
		"frame without an origin":     {"POST", []string{"Origin: null"}, 403},
		"other port":                  {"POST", []string{"Origin: http://control.j17.example:81"}, 403},
		"other scheme":                {"POST", []string{"Origin: https://control.j17.example"}, 403},
		"begins alike":                {"POST", []string{"Origin: http://control.j17.example.evil.example"}, 403},
		"neither header":              {"POST", nil, 403},
		"form":                        {"POST", []string{ofPage, "Content-Type: application/x-www-form-urlencoded"}, 403},
		"plain text":                  {"POST", []string{ofPage, "Content-Type: text/plain"}, 403},
		"no type":                     {"POST", []string{ofPage, "Content-Type: "}, 403},
		"removal from another site":   {"DELETE", []string{"Sec-Fetch-Site: cross-site"}, 403},
		"removal without an origin":   {"DELETE", nil, 403},
		"removal of plain text":       {"DELETE", []string{ofPage, "Content-Type: text/plain"}, 403},
		"reading":                     {"GET", []string{"Sec-Fetch-Site: same-origin"}, 200},
		"reading by the address line": {"GET", []string{"Sec-Fetch-Site: none"}, 200},
		"reading, older":              {"GET", nil, 200},
		"reading from another site":   {"GET", []string{"Sec-Fetch-Site: cross-site"}, 403},
		"reading from an instance":    {"GET", []string{"Sec-Fetch-Site: same-site"}, 403},
	} {
		path, body := "/api/me/login_codes", ""
		switch c.method {
		case "GET":
			path = "/api/me"
		case "DELETE":
			path = "/api/me/sessions/x"
		}
		got := p.browse(t, c.method, path, body, cookie, c.headers...)
		if got.status != c.want || c.want == 403 && got.member(t, "code") != "forbidden_origin" {
			t.Errorf("%s: %d %s; want %d", name, got.status, got.body, c.want)
		}
		if c.want != 403 || c.method == "GET" {
			continue
		}
		// Nobody is signed in or out from there either.
		in := p.browse(t, "POST", "/api/sessions", `{"email":"admin@example.com","password":"`+testPassword+`"}`, "", c.headers...)
		if strings.HasPrefix(name, "removal") {
			in = p.browse(t, "DELETE", "/api/session", "", cookie, c.headers...)
		}
		if in.status != 403 || in.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: signing in or out: %d %s", name, in.status, in.body)
		}
	}
	if !p.signedIn(t, cookie) {
		t.Error("a forged request has ended the session")
	}
	if got := p.browse(t, "GET", "/api/session", "", cookie, "Sec-Fetch-Site: cross-site"); got.status != 403 {
		t.Errorf("who is signed in, from another site: %d %s", got.status, got.body)
	}
}

// TestSessionOpensTheControlAPIAlone sends the cookie to all that is not the control API.
func TestSessionOpensTheControlAPIAlone(t *testing.T) {
	p := newPlane(t, nil)
	cookie := p.signIn(t, "admin@example.com")
	for _, c := range []struct{ host, path string }{
		{"app.j17.example", "/note"},
		{"app.j17.example", "/_events"},
		{"app.j17.example", "/_openapi.json"},
		{"app.j17.example", "/_admin/listeners"},
		{"app-test.j17.example", "/_admin/spec"},
		{"app.j17.example", "/api/me"},
		{"j17.example", "/api/me"},
	} {
		got := p.browse(t, "GET", c.path, "", cookie, "Host: "+c.host, ofPage)
		if got.status != 401 && got.status != 404 {
			t.Errorf("%s%s: %d %s", c.host, c.path, got.status, got.body)
		}
	}
	// A token counts alone, whoever has the cookie.
	if got := p.browse(t, "GET", "/api/me", "", cookie, "Authorization: Bearer x"); got.status != 401 {
		t.Errorf("with a wrong token: %d %s", got.status, got.body)
	}
	p.operator(t, "auditor@example.com", control.RoleAuditor)
	token := p.login(t, "auditor@example.com")
	if got := p.browse(
		t, "GET", "/api/me", "", cookie, "Authorization: Bearer "+token, "Sec-Fetch-Site: cross-site",
	); !strings.Contains(got.body, "auditor@example.com") {
		t.Errorf("with the token of another operator: %d %s", got.status, got.body)
	}
	for _, wrong := range []string{
		"j17_session=", "j17_session=" + strings.Repeat("x", 4000), "j17_session=" + p.admin, "__Host-" + cookie,
		strings.ToLower(cookie),
	} {
		if p.signedIn(t, wrong) {
			t.Errorf("let in by %.40s", wrong)
		}
	}
}

// TestSessionOverTLS checks the name of the cookie where the client's connection is encrypted, at this server or at a
// proxy in front of it.
func TestSessionOverTLS(t *testing.T) {
	const in = `{"email":"admin@example.com","password":"` + testPassword + `"}`
	secure := func(p *plane, peer string, headers ...string) string {
		t.Helper()
		got := p.browseFrom(t, peer, "POST", "/api/sessions", in, "", headers...)
		c := got.cookie(t)
		if want := "__Host-j17_session=" + c.Value + "; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict"; got.header.Get("Set-Cookie") != want {
			t.Errorf("%s; want %s", got.header.Get("Set-Cookie"), want)
		}
		return c.Value
	}
	p := newPlane(t, func(o *httpapi.Options) { o.Encrypted = true })
	token := secure(p, "192.0.2.1:1", "Origin: https://control.j17.example")
	if !p.signedIn(t, "__Host-j17_session="+token) || p.signedIn(t, "j17_session="+token) {
		t.Error("over TLS another cookie counts")
	}
	p = newPlane(t, func(o *httpapi.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	secure(p, "10.0.0.1:1", "X-Forwarded-Proto: https", "Origin: https://control.j17.example")
	if got := p.browse(
		t, "POST", "/api/sessions", in, "", "X-Forwarded-Proto: https", ofPage,
	); got.cookie(t).Name != "j17_session" {
		t.Error("a client that says that it is a proxy is believed")
	}
}

// TestSessionsEndWithTokens checks the next request after whatever makes tokens void, and after the changes that a
// session survives.
func TestSessionsEndWithTokens(t *testing.T) {
	p := newPlane(t, nil)
	op := p.operator(t, "op@example.com", control.RoleInstanceAdmin, p.instance.ID)
	begin := func() string {
		p.clock.Advance(time.Minute) // the limits of logins are another test's
		return p.signIn(t, "op@example.com")
	}
	ops := "/api/operators/" + op.ID

	// A change of the role or of a grant counts at the next request.
	cookie := begin()
	keys := "/api/instances/" + p.instance.ID + "/keys"
	newKey := func() int {
		return p.browse(t, "POST", keys, `{"name":"k","scope":"read","environment":"prod"}`, cookie, ofPage).status
	}
	if got := newKey(); got != 201 {
		t.Errorf("an instance admin: %d", got)
	}
	p.must(t, 200, "PATCH", ops, `{"role":"auditor"}`)
	if got := newKey(); got != 403 {
		t.Errorf("as an auditor: %d", got)
	}
	if got := p.browse(t, "GET", keys, "", cookie); got.status != 200 {
		t.Errorf("an auditor reads: %d", got.status)
	}
	p.must(t, 200, "DELETE", ops+"/grants/"+p.instance.ID, "")
	if got := p.browse(t, "GET", keys, "", cookie); got.status != 404 {
		t.Errorf("without the grant: %d", got.status)
	}
	if got := p.browse(t, "GET", "/api/session", "", cookie); !strings.Contains(got.body, `"instances":{}`) {
		t.Errorf("rights without the grant: %s", got.body)
	}

	const other = "another long password"
	for _, c := range []struct {
		name string
		do   func()
	}{
		{
			"a password that an admin sets",
			func() { p.must(t, 200, "POST", ops+"/password", `{"password":"`+testPassword+`"}`) },
		},
		{"revoke_tokens", func() { p.must(t, 200, "POST", ops+"/revoke_tokens", "") }},
		{"a signing key that is revoked", func() {
			p.must(t, 200, "POST", "/api/signing_keys/rotate", `{"revoke":true}`)
			p.admin = p.login(t, "admin@example.com")
		}},
		{"12 hours", func() {
			for range 12 {
				if !p.signedIn(t, cookie) {
					t.Error("ended before")
				}
				p.clock.Advance(time.Hour)
			}
		}},
		{"2 hours without use", func() { p.clock.Advance(2 * time.Hour) }},
		{"a change of one's own password", func() {
			if got := p.browse(
				t, "POST", "/api/me/password", `{"current_password":"`+testPassword+`","new_password":"`+other+`"}`,
				cookie, ofPage,
			); got.status != 200 {
				t.Error(got.status, got.body)
			}
			p.must(t, 200, "POST", ops+"/password", `{"password":"`+testPassword+`"}`)
		}},
		{"the removal of the operator", func() { p.must(t, 200, "DELETE", ops, "") }},
	} {
		cookie = begin()
		if !p.signedIn(t, cookie) {
			t.Fatalf("%s: not signed in before", c.name)
		}
		c.do()
		if p.signedIn(t, cookie) {
			t.Errorf("the session outlives %s", c.name)
		}
	}
	// Keys that are rotated without being revoked leave it alone.
	cookie = p.signIn(t, "admin@example.com")
	p.admin = p.login(t, "admin@example.com")
	p.must(t, 200, "POST", "/api/signing_keys/rotate", "")
	if !p.signedIn(t, cookie) {
		t.Error("the rotation of keys has ended a session")
	}
}

func TestSessionsOfOneself(t *testing.T) {
	p := newPlane(t, nil)
	p.operator(t, "other@example.com", control.RoleInstanceAdmin, p.instance.ID)
	mine, theirs := p.signIn(t, "admin@example.com"), p.signIn(t, "other@example.com")
	list := func(cookie string) string { return p.browse(t, "GET", "/api/me/sessions", "", cookie).body }
	id := func(cookie string) string {
		_, after, _ := strings.Cut(list(cookie), `"id":"`)
		return after[:strings.IndexByte(after, '"')]
	}
	if got := p.browse(t, "DELETE", "/api/me/sessions/"+id(mine), "", theirs, ofPage); got.status != 404 ||
		!p.signedIn(t, mine) {
		t.Errorf("another operator's session: %d %s", got.status, got.body)
	}
	if got := p.control(t, "DELETE", "/api/me/sessions/"+id(mine), "", p.admin); got.status != 200 ||
		p.signedIn(t, mine) {
		t.Errorf("one's own, by a token: %d %s", got.status, got.body)
	}
	if strings.Contains(list(theirs), strings.TrimPrefix(theirs, "j17_session=")) {
		t.Error("the list has tokens")
	}

	// The oldest ends.
	first := theirs
	for range control.MaxSessions - 1 {
		p.clock.Advance(time.Minute)
		theirs = p.signIn(t, "other@example.com")
	}
	if !p.signedIn(t, first) {
		t.Error("the first has ended too early")
	}
	p.clock.Advance(time.Minute)
	last := p.signIn(t, "other@example.com")
	if p.signedIn(t, first) || !p.signedIn(t, theirs) || !p.signedIn(t, last) ||
		strings.Count(list(last), `"id":`) != control.MaxSessions {
		t.Errorf("more than %d sessions: %s", control.MaxSessions, list(last))
	}
}

func TestLoginCodes(t *testing.T) {
	p := newPlane(t, nil)
	var codes []string
	newCode := func() string {
		got := p.control(t, "POST", "/api/me/login_codes", "", p.admin)
		code := got.member(t, "code")
		if got.status != 201 || len(code) < 24 ||
			got.member(t, "link") != "http://control.j17.example/ui/#login="+code {
			t.Fatal(got.status, got.body)
		}
		codes = append(codes, code)
		return code
	}
	use := func(code string) answer {
		return p.browse(t, "POST", "/api/sessions", `{"code":"`+code+`"}`, "", ofPage)
	}
	code := newCode()
	got := use(code)
	c := got.cookie(t)
	if got.status != 201 || !p.signedIn(t, c.Name+"="+c.Value) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := use(code); got.status != 401 || got.header.Get("Set-Cookie") != "" {
		t.Errorf("twice: %d %s", got.status, got.body)
	}
	late := newCode()
	p.clock.Advance(time.Hour)
	if got := use(late); got.status != 401 {
		t.Errorf("late: %d %s", got.status, got.body)
	}
	void := newCode()
	p.must(t, 200, "POST", "/api/signing_keys/rotate", `{"revoke":true}`)
	if got := use(void); got.status != 401 {
		t.Errorf("of a token that is void: %d %s", got.status, got.body)
	}
	p.admin = p.login(t, "admin@example.com")
	fresh := newCode()
	for _, body := range []string{
		`{"code":"` + fresh + `","email":"admin@example.com"}`, `{}`, `{"code":7}`,
		`{"code":"` + fresh + `","next":"/"}`,
	} {
		if got := p.browse(t, "POST", "/api/sessions", body, "", ofPage); got.status != 400 {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if got := p.browse(t, "POST", "/api/sessions?code="+fresh, `{}`, "", ofPage); got.status != 400 {
		t.Errorf("in the address: %d %s", got.status, got.body)
	}

	// Guesses are slowed down, and the right one waits as they do.
	p.clock.Advance(10 * time.Minute)
	tried := map[int]int{}
	for i := range 60 {
		tried[use(fmt.Sprint("GUESS", i)).status]++
	}
	if tried[401] != 50 || tried[429] != 10 {
		t.Errorf("guesses: %v", tried)
	}
	if got := use(fresh); got.status != 429 || got.header.Get("Retry-After") != "6" {
		t.Errorf("after the guesses: %d %v", got.status, got.header)
	}
	p.clock.Advance(time.Minute)
	if got := use(fresh); got.status != 201 {
		t.Errorf("after the wait: %d %s", got.status, got.body)
	}

	audit := p.control(t, "GET", "/api/audit/export", "", p.admin).body
	if !strings.Contains(audit, "operator.create_login_code") {
		t.Error("no record of codes")
	}
	for _, code := range codes {
		if strings.Contains(p.log.String(), code) || strings.Contains(audit, code) {
			t.Errorf("the code %s stands in the log", code)
		}
	}
}

// TestLimitsOfLoginsCountForBothWays checks that passwords are not guessed twice as fast with two routes.
func TestLimitsOfLoginsCountForBothWays(t *testing.T) {
	p := newPlane(t, nil)
	p.clock.Advance(auth.TokenLifetime)
	statuses := map[int]int{}
	for i := range 16 {
		path := []string{"/api/sessions", "/api/login"}[i%2]
		statuses[p.browseFrom(t, "203.0.113.5:1", "POST", path, `{"email":"admin@example.com","password":"a guess"}`, "", ofPage).status]++
	}
	if statuses[401] != 10 || statuses[429] != 6 {
		t.Errorf("%v", statuses)
	}
	if strings.Contains(p.log.String(), "a guess") {
		t.Error("the log has what was guessed")
	}
}
