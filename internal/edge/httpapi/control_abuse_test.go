package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/edge/httpapi"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
)

func TestPerPlanAndExemptRates(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) {
		o.Keys, o.Addresses = auth.NewRateLimit(3), auth.NewRateLimit(1000)
	})
	got := p.do(t, "GET", "/note", "")
	for name, want := range map[string]string{
		"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "2", "X-RateLimit-Scope": "api-key",
		"RateLimit-Policy": `"ip";q=1000;w=60, "api-key";q=3;w=60`,
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %s", name, got.header.Get(name))
		}
	}
	if rate := got.header.Get("RateLimit"); !regexp.MustCompile(`^"ip";r=\d+;t=\d+, "api-key";r=2;t=60$`).MatchString(rate) {
		t.Error(rate)
	}
	plan := "free"
	if _, err := p.registry.Instances.Change(
		t.Context(), p.instance.ID, control.InstanceChange{Plan: &plan},
	); err != nil {
		t.Fatal(err)
	}
	if got := p.do(t, "GET", "/note", ""); got.header.Get("X-RateLimit-Limit") != "100" {
		t.Errorf("the plan's limit: %v", got.header)
	}
	for range 5 {
		if got := p.control(t, "GET", "/api/me", "", p.admin); got.status != 200 ||
			got.header.Get("X-RateLimit-Remaining") != "1000" || got.header.Get("RateLimit") != `"ip";r=1000;t=0` {
			t.Errorf("a platform admin: %d %v", got.status, got.header)
		}
	}
	// A browser's question counts nothing and shows the limit.
	for range 2 {
		asked := p.do(t, "OPTIONS", "/note", "", "Origin: https://x.example", "Access-Control-Request-Method: POST")
		if asked.status != 204 || asked.header.Get("X-RateLimit-Remaining") != "997" {
			t.Errorf("a preflight: %d %v", asked.status, asked.header)
		}
	}
	// Refusals, dead ends and unknown hosts carry the headers too.
	for _, got := range []answer{
		p.do(t, "GET", "/note", "", "Authorization: Bearer x"), p.do(t, "GET", "/a/b/c/d/e", ""), p.do(
			t, "GET", "/internal/x", "",
		), p.do(t, "GET", "/", "", "Host: nowhere.j17.example"), p.do(t, "GET", "/", ""),
	} {
		if got.header.Get("X-RateLimit-Scope") != "ip" || got.header.Get("RateLimit-Policy") != `"ip";q=1000;w=60` {
			t.Errorf("%d %v", got.status, got.header)
		}
	}
}

func TestBadKeysUseUpTheBudgetOfTheAddress(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) { o.Addresses = auth.NewRateLimit(10) })
	for range 30 {
		if got := p.do(t, "GET", "/note", "", "Authorization: Bearer j17_0_prod_x"); got.status != 401 {
			t.Fatal(got)
		}
	}
	if got := p.do(t, "GET", "/note", ""); got.status != 429 || got.header.Get("Retry-After") != "60" {
		t.Error(got.status, got.header)
	}
	p.clock.Advance(time.Second)
	p.do(t, "GET", "/note", "", "Authorization: Bearer j17_0_prod_x")
	lines := 0
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, `"request refused"`) {
			lines++
			if strings.Contains(line, "j17_0_prod_x") || !strings.Contains(line, `"address":"192.0.2.1"`) ||
				lines == 2 && !strings.Contains(line, `"not_logged_before":29`) {
				t.Error(line)
			}
		}
	}
	if lines != 2 {
		t.Errorf("%d lines about refused requests", lines)
	}
}

// TestEachKindOfAbuseIsLogged: many refusals of one kind do not hide one of another.
func TestEachKindOfAbuseIsLogged(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) { o.MaxBatchBytes = 1000 })
	for range 5 {
		p.do(t, "GET", "/note", "", "Authorization: Bearer j17_0_prod_x")
	}
	if got := p.do(t, "POST", "/note/global", strings.Repeat("x", 2000)); got.status != 413 {
		t.Fatal(got)
	}
	r := httptest.NewRequestWithContext(
		t.Context(), http.MethodGet, "http://127.0.0.1/internal/instances/"+p.instance.ID+"/prod/blobs", nil,
	)
	r.Header.Set("X-Node-Secret", "a guess")
	w := httptest.NewRecorder()
	p.Internal().ServeHTTP(w, r)
	log := p.log.String()
	for _, code := range []string{"unauthorized", "payload_too_large", "forbidden"} {
		if n := strings.Count(log, `"request refused","code":"`+code+`"`); n != 1 {
			t.Errorf("%s: %d lines (%d)\n%s", code, n, w.Code, log)
		}
	}
	if strings.Contains(log, "a guess") || strings.Contains(log, "j17_0_prod_x") {
		t.Error("the log has what was guessed")
	}
}

func TestClientAddresses(t *testing.T) {
	planes := map[httpapi.ForwardedHeader]*plane{}
	for _, header := range []httpapi.ForwardedHeader{"", httpapi.Forwarded} {
		planes[header] = newPlane(t, func(o *httpapi.Options) {
			o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
			o.ForwardedHeader = header
		})
	}
	for what, c := range map[string]struct {
		peer   string
		header httpapi.ForwardedHeader
		h      http.Header
		want   string
	}{
		"no proxy": {
			"192.0.2.1:1", "",
			http.Header{"X-Forwarded-For": {"203.0.113.9"}, "Forwarded": {"for=203.0.113.9"}},
			"192.0.2.1",
		},
		"one proxy": {"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {"203.0.113.9"}}, "203.0.113.9"},
		"a spoofed one": {
			"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {"1.1.1.1, 203.0.113.9"}}, "203.0.113.9",
		},
		"two proxies": {
			"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {"1.1.1.1, 203.0.113.9, 10.9.9.9"}}, "203.0.113.9",
		},
		"several lines": {
			"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {"1.1.1.1", "203.0.113.9", "10.9.9.9"}}, "203.0.113.9",
		},
		"with a port": {
			"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {"203.0.113.9:4711"}}, "203.0.113.9",
		},
		"the other header": {"10.0.0.1:1", "", http.Header{"Forwarded": {"for=203.0.113.9"}}, "10.0.0.1"},
		"no header":        {"10.0.0.1:1", "", nil, "10.0.0.1"},
		"garbage": {
			"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {"203.0.113.9, <script>"}}, "10.0.0.1",
		},
		"nothing":      {"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {", ,"}}, "10.0.0.1"},
		"only proxies": {"10.0.0.1:1", "", http.Header{"X-Forwarded-For": {"10.0.0.3, 10.0.0.2"}}, "10.0.0.3"},
		"forwarded":    {"10.0.0.1:1", httpapi.Forwarded, http.Header{"Forwarded": {`for=1.1.1.1, for="203.0.113.9:80";proto=https;by=10.0.0.1`}}, "203.0.113.9"},
		"forwarded, IPv6": {
			"[fd00::1]:1", httpapi.Forwarded, http.Header{"Forwarded": {`For="[2001:db8::17]:4711"`}}, "2001:db8::17",
		},
		"forwarded, hidden": {
			"10.0.0.1:1", httpapi.Forwarded, http.Header{"Forwarded": {`for=1.1.1.1, for=_hidden`}}, "10.0.0.1",
		},
		"forwarded, not X": {
			"10.0.0.1:1", httpapi.Forwarded, http.Header{"X-Forwarded-For": {"203.0.113.9"}}, "10.0.0.1",
		},
		"IPv6": {"[fd00::1]:1", "", http.Header{"X-Forwarded-For": {"2001:db8::1"}}, "2001:db8::1"},
		"a very long header": {
			"10.0.0.1:1", "",
			http.Header{"X-Forwarded-For": {strings.Repeat("10.0.0.2,", 3000) + "10.0.0.2"}},
			"10.0.0.2",
		},
		"an IPv4 mapped client": {
			"[::ffff:10.0.0.1]:1", "", http.Header{"X-Forwarded-For": {"::ffff:203.0.113.9"}}, "203.0.113.9",
		},
	} {
		p := planes[c.header]
		p.admin = p.login(t, "admin@example.com")
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://control.j17.example/api/logout", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("Authorization", "Bearer "+p.admin)
		maps.Copy(r.Header, c.h)
		w := httptest.NewRecorder()
		p.handler.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Fatal(what, w.Body)
		}
		records, _, err := p.registry.Audit.List(t.Context(), control.AuditQuery{Action: "operator.logout"}, 1)
		if err != nil || len(records) != 1 || records[0].Actor.Address != c.want {
			t.Errorf("%s: %+v, %v; want %s", what, records, err, c.want)
		}
	}
}

// TestAddressesOfOneNetworkShareABudget checks that an IPv6 client does not get a budget for each of its addresses.
func TestAddressesOfOneNetworkShareABudget(t *testing.T) {
	p := newPlane(t, func(o *httpapi.Options) { o.Addresses = auth.NewRateLimit(10) })
	get := func(peer string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://app.j17.example/", nil)
		r.RemoteAddr = peer
		w := httptest.NewRecorder()
		p.handler.ServeHTTP(w, r)
		return w.Code
	}
	var codes []int
	for i := range 11 {
		codes = append(codes, get(fmt.Sprintf("[2001:db8::%x]:1", i+1)))
	}
	if codes[9] != 200 || codes[10] != 429 || get("[2001:db8:0:1::1]:1") != 200 || get("192.0.2.9:1") != 200 {
		t.Error(codes)
	}
}

// TestHostsCannotBeSmuggled speaks to a server over a connection, since clients would put such requests right.
func TestHostsCannotBeSmuggled(t *testing.T) {
	p := newPlane(t, nil)
	if _, err := p.registry.Instances.Create(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.handler)
	defer server.Close()
	send := func(lines ...string) (int, string) {
		t.Helper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(lines, err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	key, admin := "Authorization: Bearer "+p.key, "Authorization: Bearer "+p.admin
	for _, c := range []struct {
		want  int
		lines []string
	}{
		{200, []string{"GET /note HTTP/1.1", "Host: app.j17.example", key}},
		{200, []string{"GET /note HTTP/1.1", "Host: APP.J17.Example.:8080", key}},
		{200, []string{"GET http://app.j17.example/note HTTP/1.1", "Host: app.j17.example", key}},
		// The target decides, whatever the header says (RFC 9112, 3.2.2): one host for authentication and for the data.
		{403, []string{"GET http://other.j17.example/note HTTP/1.1", "Host: app.j17.example", key}},
		{200, []string{"GET http://app.j17.example/note HTTP/1.1", "Host: other.j17.example", key}},
		{404, []string{"GET http://control.j17.example/note HTTP/1.1", "Host: app.j17.example", key}},
		{403, []string{
			"GET /note HTTP/1.1", "Host: other.j17.example", "X-Forwarded-Host: app.j17.example",
			"Forwarded: host=app.j17.example", key,
		}},
		{200, []string{
			"GET /note HTTP/1.1", "Host: app.j17.example", "X-Forwarded-Host: other.j17.example",
			"X-Host: other.j17.example", "X-Original-URL: /x", key,
		}},
		{400, []string{"GET /note HTTP/1.1", "Host: app.j17.example", "Host: other.j17.example", key}},
		{400, []string{"GET /note HTTP/1.1", key}},
		{400, []string{"GET /note HTTP/1.1", "Host: app.j17.example other.j17.example", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: app.j17.example:80:80", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: app.j17.example:x", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: app.j17.example:99999", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: app.j17.example..", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: .j17.example", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: control.app.j17.example", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: app.j17.example.evil.example", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: appj17.example", key}},
		{404, []string{"GET /note HTTP/1.1", "Host: control-test.j17.example", key}},
		{200, []string{"GET /livez HTTP/1.1", "Host: 127.0.0.1"}},
		{404, []string{"GET /note HTTP/1.1", "Host: 127.0.0.1", key}}, // There is no default instance.
		{404, []string{"GET /_admin/tombstones HTTP/1.1", "Host: j17.example", admin}},
		{401, []string{"GET /api/instances HTTP/1.1", "Host: control.j17.example", key}},
		{200, []string{"GET /api/instances HTTP/1.1", "Host: Control.J17.Example", admin}},
		{401, []string{"GET /api/instances HTTP/1.1", "Host: app.j17.example", admin}},
		{404, []string{
			"GET /internal/instances/" + p.instance.ID + "/prod/tombstones HTTP/1.1", "Host: control.j17.example",
			"X-Node-Secret: " + p.registry.Secrets.NodeSecret(),
		}},
		{404, []string{
			"GET /internal/instances/" + p.instance.ID + "/prod/tombstones HTTP/1.1", "Host: 127.0.0.1",
			"X-Node-Secret: " + p.registry.Secrets.NodeSecret(),
		}},
	} {
		if got, body := send(c.lines...); got != c.want {
			t.Errorf("%q: %d %s; want %d", c.lines, got, body, c.want)
		}
	}
}

// TestAbuse sends what someone without rights would try and checks that nothing of it works or leaves a secret behind.
func TestAbuse(t *testing.T) {
	p := newPlane(t, nil)
	other, err := p.registry.Instances.Create(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	p.operator(t, "ia@example.com", control.RoleInstanceAdmin, p.instance.ID)
	mine := p.login(t, "ia@example.com")
	_, staging, err := p.registry.Keys.Create(t.Context(), control.NewKey{
		Instance: p.instance.ID, Environment: j17.Staging, Scope: j17.ScopeWrite, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	theirs, foreign, err := p.registry.Keys.Create(t.Context(), control.NewKey{
		Instance: other.ID, Environment: j17.Prod, Scope: j17.ScopeWrite, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	for want, keys := range map[int][]string{
		403: {staging, foreign}, 401: {mine, p.admin, "", p.key + "x", strings.ToUpper(p.key)},
	} {
		for _, key := range keys {
			if got := p.do(t, "GET", "/note", "", "Authorization: Bearer "+key); got.status != want {
				t.Errorf("a key of elsewhere: %d %s; want %d", got.status, got.body, want)
			}
		}
	}
	for _, path := range []string{
		"/api/keys/" + theirs.ID + "/rotate", "/api/keys/" + theirs.ID + "/schedule_revocation",
		"/api/instances/" + other.ID + "/keys",
	} {
		if got := p.control(t, "POST", path, "{}", mine); got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if _, ok := p.registry.Keys.ByToken(foreign); !ok {
		t.Error("someone else's key was revoked")
	}

	big := `{"name":"` + strings.Repeat("x", 20<<10) + `"}`
	for _, path := range []string{
		"/api/login", "/api/setup", "/api/instances", "/api/instances/" + p.instance.ID + "/keys",
	} {
		if got := p.control(t, "POST", path, big, p.admin); got.status != 413 {
			t.Errorf("%s with %d bytes: %d", path, len(big), got.status)
		}
	}
	deep := strings.Repeat(`{"name":`, 1000) + "1" + strings.Repeat("}", 1000)
	for _, body := range []string{deep, `{"name":"a","name":"b"}`, "\xff", `{"name":1e999999999}`} {
		if got := p.control(t, "POST", "/api/instances", body, p.admin); got.status != 400 {
			t.Errorf("%.20q: %d %s", body, got.status, got.body)
		}
	}

	codes := map[int]int{}
	for range control.MaxActiveKeys + 5 {
		codes[p.control(t, "POST", "/api/instances/"+p.instance.ID+"/keys", `{"name":"k","scope":"read","environment":"prod"}`, mine).status]++
	}
	if codes[409] < 5 || codes[201] > control.MaxActiveKeys {
		t.Errorf("mass creation of keys: %v", codes)
	}

	// Someone who guesses is slowed down, and the operator can still log in from where they were before.
	guess := func() int {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://control.j17.example/api/login", strings.NewReader(`{"email":"admin@example.com","password":"guess"}`))
		r.RemoteAddr = "203.0.113.5:1"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		p.handler.ServeHTTP(w, r)
		return w.Code
	}
	clear(codes)
	for range 15 {
		codes[guess()]++
	}
	if codes[401] != 10 || codes[429] != 5 {
		t.Errorf("guesses: %v", codes)
	}
	p.login(t, "admin@example.com")

	// A key in the wrong place.
	p.do(t, "GET", "/"+p.key, "")
	p.do(t, "GET", "/note/"+p.key+"?key="+p.key, "")
	p.do(
		t, "POST", "/note/global/"+p.key, `{"data":{"key":"`+p.key+`"},`+actor+`}`, "X-Correlation-ID: "+p.key,
		"X-Idempotency-Key: "+p.key,
	)
	p.control(t, "GET", "/api/instances/"+p.key+"/"+p.admin, "", p.admin)
	p.control(t, "GET", "/api/instances?"+p.admin, "", p.admin)

	log := p.log.String()
	if !strings.Contains(log, "login failed") || !strings.Contains(log, "203.0.113.5") {
		t.Error("guesses leave no trace in the log")
	}
	for _, secret := range []string{
		p.key, p.admin, mine, staging, foreign, testPassword, "guess\"", p.registry.Secrets.NodeSecret(),
	} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds a secret: %.12s", secret)
		}
	}
}

// TestEveryControlRouteNeedsAToken finds routes that were added without one.
func TestEveryControlRouteNeedsAToken(t *testing.T) {
	p := newPlane(t, nil)
	free := []string{
		"POST /api/login", "POST /api/setup", "GET /setup", "GET /_openapi.json", "GET /llms-core.txt",
		"POST /api/sessions", "GET /api/session", "DELETE /api/session",
	}
	for _, r := range p.ControlRoutes() {
		method, path, _ := strings.Cut(r, " ")
		if slices.Contains(free, r) {
			continue
		}
		path = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x")
		for _, token := range []string{"", "x", p.key} {
			if got := p.control(t, method, path, "", token); got.status != 401 {
				t.Errorf("%s: %d %s", r, got.status, got.body)
			}
		}
	}
}

// TestTokensInTheWrongPlace checks that a token that was pasted where an id, a name or a value belongs is repeated
// nowhere.
func TestTokensInTheWrongPlace(t *testing.T) {
	p := newPlane(t, nil)
	key, jwt := p.key, p.admin
	body := func(s string) string { return strings.ReplaceAll(s, "$", key) }
	var answers []answer
	for _, token := range []string{key, strings.ToUpper(key), jwt} {
		answers = append(
			answers,
			p.control(t, "DELETE", "/api/keys/"+token, "", p.admin),
			p.control(t, "POST", "/api/keys/"+token+"/rotate", "", p.admin),
			p.control(t, "DELETE", "/api/operators/"+token, "", p.admin),
			p.control(t, "DELETE", "/api/instances/"+token, `{"confirm":"x"}`, p.admin),
			p.control(t, "GET", "/api/errors/"+token, "", p.admin),
			p.control(t, "GET", "/api/audit?actor="+token+"&nope=1", "", p.admin),
			p.do(t, "GET", "/"+token, ""), p.do(t, "GET", "/note/"+token, ""),
			p.do(t, "POST", "/note/global/"+token, "{}"), p.do(t, "GET", "/note?"+token+"=1", ""),
		)
	}
	answers = append(
		answers,
		p.do(t, "POST", "/note/global/was_written", body(`{"$":1}`)), p.do(t, "POST", "/note/global/was_written", body(`{"data":{},"metadata":{"actor":{"type":"$","id":"$"}}}`)),
		p.do(t, "POST", "/note/global/was_written", body(`{"data":{},"metadata":{"actor":{"type":"user","id":"$"}}}`)), p.control(t, "POST", "/api/instances", body(`{"name":"$"}`), p.admin),
	)
	for _, got := range answers {
		if got.status < 400 || strings.Contains(strings.ToLower(got.body), strings.ToLower(key)) ||
			strings.Contains(got.body, jwt) || !json.Valid([]byte(got.body)) {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	// What is no token is left alone.
	if got := p.do(t, "POST", "/note/global/was_written", `{"data":{},"metadata":{"actor":{"type":"user","id":"global"},"basic plan":1}}`); !strings.Contains(got.body, `"path":"metadata.basic plan"`) {
		t.Errorf("a member is blacked out: %s", got.body)
	}
	for _, where := range []string{p.control(t, "GET", "/api/audit/export", "", p.admin).body, p.log.String()} {
		if strings.Contains(strings.ToLower(where), strings.ToLower(key)) || strings.Contains(where, jwt) {
			t.Errorf("a token stands in\n%s", where)
		}
	}
}

// TestBodiesOfTheControlPlaneAreExact checks that members have one spelling, and that nothing is passed over.
func TestBodiesOfTheControlPlaneAreExact(t *testing.T) {
	p := newPlane(t, nil)
	for _, c := range []struct {
		path, body, want string
	}{
		{"/api/login", `{"EMAIL":"a@example.com","password":"x"}`, `"path":"EMAIL"`},
		{"/api/login", `{"email":"a@example.com","Email":"b@example.com","password":"x"}`, `"path":"Email"`},
		{"/api/login", `{"email":"a@example.com"}`, `"path":"password"`},
		{"/api/login", `null`, "JSON object"},
		{"/api/login", `[]`, "JSON object"},
		{"/api/login?x=1", `{"email":"a@example.com","password":"x"}`, "query parameter"},
		{"/api/signing_keys/rotate", `null`, "JSON object"},
		{
			"/api/me/password", `{"current_password":"` + testPassword + `","new_password":"short"}`,
			`"path":"new_password"`,
		},
		{"/api/instances?x=1", `{"name":"other"}`, "query parameter"},
	} {
		if got := p.control(t, "POST", c.path, c.body, p.admin); got.status != 400 ||
			!strings.Contains(got.body, c.want) {
			t.Errorf("%s %s: %d %s", c.path, c.body, got.status, got.body)
		}
	}
	for _, path := range []string{"/api/me?x=1", "/api/instances/" + p.instance.ID + "?x=1"} {
		if got := p.control(t, "GET", path, "", p.admin); got.status != 400 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := p.do(t, "GET", "/api/me", "", "Host: control.j17.example", "Authorization: "); got.status != 401 ||
		strings.Contains(got.body, "API key") {
		t.Errorf("without a token: %s", got.body)
	}
}
