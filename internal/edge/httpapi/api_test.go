package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/envlog"
	"j17/internal/custody/loading"
	"j17/internal/derived/build"
	"j17/internal/derived/generation"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/tail"
	"j17/internal/lang/spec"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const apiSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"note": {"events": {
		"was_written": {"schema": {"type": "object"}, "handler": [{"set": {"target": "", "value": "$.data"}}]},
		"was_coded": {"schema": {"type": "object", "properties": {"code": {"type": "string", "pattern": "^(a+)+$"}}}, "handler": []}
	}}}
}`

const actor = `"metadata":{"actor":{"type":"user","id":"global"}}`

// fixture is an API on a store.
type fixture struct {
	*httpapi.API
	handler  http.Handler
	instance control.Instance
	registry *control.Registry
	clock    *clock.Manual
	key      string
}

func newFixture(tb testing.TB, change func(*httpapi.Options)) *fixture {
	tb.Helper()
	f := &fixture{clock: clock.NewManual(time.Unix(1_700_000_000, 0))}
	s := testopen.Open(tb, f.clock)
	var err error
	if f.registry, err = control.Open(tb.Context(), control.Options{
		Store: s, Clock: f.clock, PasswordMemory: 64,
	}); err != nil {
		tb.Fatal(err)
	}
	if f.instance, err = f.registry.Instances.Create(tb.Context(), "app"); err != nil {
		tb.Fatal(err)
	}
	_, f.key, err = f.registry.Keys.Create(tb.Context(), control.NewKey{
		Instance: f.instance.ID, Environment: j17.Prod, Scope: j17.ScopeWrite, Name: "k",
	})
	if err != nil {
		tb.Fatal(err)
	}
	compiled, found := spec.Compile([]byte(apiSpec))
	if compiled == nil {
		tb.Fatal(found)
	}
	logger := slog.New(slog.DiscardHandler)
	var places *place.Service
	e := engine.New(engine.Options{Store: s, Clock: f.clock, Logger: logger}).Use(enginetest.Derived(
		func(ctx context.Context, e *part.Entering) ([]store.Side, error) { return places.Derive(ctx, e) },
	)...)
	builds := build.New(build.Options{Store: s, Clock: f.clock, Logger: logger, Worker: worker.New(f.clock, logger)})
	places = place.New(place.Options{
		Store: s, Engine: e, Builds: builds, Clock: f.clock, Logger: logger,
	})
	e.Deploy(j17.TenantOf(f.instance.ID, j17.Prod), compiled, nil)
	follow := tail.New(s, nil)
	logs := envlog.New(envlog.Options{
		Store: s, Clock: f.clock, Worker: worker.New(f.clock, logger), Origin: func(t j17.Tenant) (string, error) {
			return "app.j17.example/" + string(t[strings.IndexByte(string(t), '/')+1:]), nil
		},
	})
	o := httpapi.Options{
		Tail: follow, Engine: e, Loader: &loading.Loader{Engine: e, Store: s}, Store: s, Registry: f.registry,
		Auth: auth.New(f.registry, f.clock), Clock: f.clock, Logger: logger,
		Places:  places,
		Tagging: build.NewTagger(build.TaggerOptions{Store: s, Engine: e, Builds: builds}),
		Generations: generation.New(generation.Options{
			Store: s, Engine: e, Clock: f.clock, Worker: worker.New(f.clock, logger), Logger: logger,
		}),
		Checkpoints: checkpoint.New(checkpoint.Options{
			Store: s, Engine: e, Log: logs, Clock: f.clock, Logger: logger, Worker: worker.New(f.clock, logger),
		}),
		Projections: projection.New(projection.Options{
			Store: s, Engine: e, Places: places, Clock: f.clock, Logger: logger, Changed: follow.Stir,
		}),
		Logs:    logs,
		Version: "test", BaseDomain: "j17.example", DefaultInstance: f.instance.ID,
	}
	if change != nil {
		change(&o)
	}
	o.Metrics = append(o.Metrics, metricsOf(&o)...)
	f.API = httpapi.New(o)
	f.handler = f.Public()
	return f
}

// metricsOf returns what the parts count whose services an API has.
func metricsOf(o *httpapi.Options) (all []part.Metric) {
	parts := []part.Part{
		o.Engine.Part(), o.Tail.Part(), o.Places.Part(), o.Tagging.Part(), o.Projections.Part(), o.Sagas.Part(),
		o.Schedule.Part(),
		o.Listeners.Part(), o.Indexes.Part(), o.Backups.Part(), o.Scrub.Part(),
	}
	for i, has := range []bool{
		true, true, o.Places != nil, o.Tagging != nil, o.Projections != nil, o.Sagas != nil, o.Schedule != nil,
		o.Listeners != nil, o.Indexes != nil, o.Backups != nil, o.Scrub != nil,
	} {
		if has {
			all = append(all, parts[i].Metrics...)
		}
	}
	return all
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// member returns a member of the answer's JSON body as text.
func (a answer) member(tb testing.TB, name string) string {
	tb.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		tb.Fatalf("%d %q: %v", a.status, a.body, err)
	}
	return fmt.Sprint(m[name])
}

func (f *fixture) do(tb testing.TB, method, target, body string, headers ...string) answer {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), method, "http://app.j17.example"+target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+f.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, v, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = v
		} else {
			r.Header.Set(name, v)
		}
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	a := answer{w.Code, w.Header(), w.Body.String()}
	f.hold(tb, r, a)
	return a
}

func TestHosts(t *testing.T) {
	f := newFixture(t, nil)
	for _, tc := range []struct {
		host string
		want int
	}{
		{"app.j17.example", 200},
		{"APP.J17.Example:8080", 200},
		{"app.j17.example.", 200},
		{"j17.example", 200},
		{"127.0.0.1:17000", 200},
		{"[::1]:17000", 200},
		{"::1", 200},
		{"app-staging.j17.example", 403},
		{"app-test.j17.example", 403},
		{"app-prod.j17.example", 404},
		{"other.j17.example", 404},
		{"x.app.j17.example", 404},
		{"app.example", 404},
		{"app.j17.example.evil.example", 404},
		{"evilj17.example", 404},
		{"control.j17.example", 404}, // the control plane lists no notes
	} {
		if got := f.do(t, "GET", "/note", "", "Host: "+tc.host); got.status != tc.want {
			t.Errorf("%s: %d %s", tc.host, got.status, got.body)
		}
	}
}

// TestHostileBodies sends what breaks parsers. Each must be refused, or accepted whole, in bounded time.
func TestHostileBodies(t *testing.T) {
	f := newFixture(t, nil)
	event := func(data string) string { return `{"data":` + data + `,` + actor + `}` }
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		return `{` + strings.TrimSuffix(b.String(), ",") + `}`
	}
	for _, tc := range []struct {
		name, path, body string
		want             int
		code             string
	}{
		{
			"nested arrays", "was_written",
			event(`{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`), 400, "invalid_json",
		},
		{
			"nested objects", "was_written", event(strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000)),
			400, "invalid_json",
		},
		{"unclosed", "was_written", strings.Repeat("[", 500_000), 400, "invalid_json"},
		{"huge number", "was_written", event(`{"n":` + strings.Repeat("9", 500_000) + `}`), 400, "invalid_json"},
		{"huge exponent", "was_written", event(`{"n":1e30000000}`), 400, "invalid_json"},
		{"many keys", "was_written", event(keys(50_000)), 201, ""},
		{
			"one key twice among many", "was_written", event(strings.Replace(keys(50_000), `"k49999"`, `"k7"`, 1)), 400,
			"invalid_json",
		},
		{"invalid UTF-8", "was_written", event("{\"a\":\"\xff\xfe\"}"), 400, "invalid_json"},
		{"lone surrogate", "was_written", event(`{"a":"\ud800"}`), 400, "invalid_json"},
		{"NUL in a key", "was_written", event(`{"a\u0000b":1}`), 201, ""},
		{"byte order mark", "was_written", "\ufeff" + event(`{}`), 400, "invalid_json"},
		{
			"regular expression bomb", "was_coded", event(`{"code":"` + strings.Repeat("a", 5_000) + `!"}`), 400,
			"validation_failed",
		},
		{"not an object", "was_written", `"x"`, 400, "invalid_field"},
		{
			"over the limit", "was_written", event(`{"a":"` + strings.Repeat("a", 1<<20) + `"}`), 413,
			"payload_too_large",
		},
		{"empty", "was_written", " ", 400, "invalid_json"},
		{"prototype pollution", "was_written", event(`{"__proto__":{"x":1},"constructor":2}`), 201, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := f.do(t, "POST", "/note/global/"+tc.path, tc.body)
			if got.status != tc.want || tc.code != "" && got.member(t, "code") != tc.code {
				t.Errorf("%d %.300s", got.status, got.body)
			}
			if len(got.body) > 4096 {
				t.Errorf("the answer has %d bytes", len(got.body))
			}
		})
	}
	if got := f.do(t, "GET", "/note/global/length", ""); !strings.Contains(got.body, `"length":3`) {
		t.Error(got.body)
	}
}

// TestTooLargeBodiesAreReadToTheirEnd: a client that sends everything before it reads gets the reply, and no broken
// connection.
func TestTooLargeBodiesAreReadToTheirEnd(t *testing.T) {
	f := newFixture(t, func(o *httpapi.Options) { o.MaxBatchBytes = 2000 })
	server := httptest.NewServer(f.handler)
	defer server.Close()
	const size = 32 << 20 // more than the system keeps for a connection
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for name, head := range map[string]string{
		"length": fmt.Sprintf("Content-Length: %d", size), "chunks": "Transfer-Encoding: chunked",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		send := func(s string) {
			t.Helper()
			if _, err := io.WriteString(conn, s); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		send("POST /note/global HTTP/1.1\r\nHost: " + server.Listener.Addr().String() + "\r\nAuthorization: Bearer " + f.key + "\r\nContent-Type: application/json\r\n" + head + "\r\n\r\n")
		for range size / len(chunk) {
			if name == "chunks" {
				send(fmt.Sprintf("%x\r\n%s\r\n", len(chunk), chunk))
			} else {
				send(string(chunk))
			}
		}
		if name == "chunks" {
			send("0\r\n\r\n")
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the connection is closed
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %v %v", name, resp, err)
		}
		_ = conn.Close()
	}
}

// TestBodyWithoutLength checks the limits on a body whose length is not announced.
func TestBodyWithoutLength(t *testing.T) {
	f := newFixture(t, func(o *httpapi.Options) { o.MaxEventBytes = 1000; o.MaxBatchBytes = 2000 })
	for _, tc := range []struct {
		path string
		size int
		want int
	}{
		{"/note/global/was_written", 800, 201},
		{"/note/global/was_written", 1800, 413},
		{"/note/global", 1800, 201},
		{"/note/global", 2800, 413},
	} {
		body := `{"data":{"x":"` + strings.Repeat("x", tc.size) + `"},` + actor + `}`
		if tc.path == "/note/global" {
			body = `{"events":[{"type":"was_written","data":{"x":"` + strings.Repeat("x", tc.size) + `"}}],` + actor + `}`
		}
		r := httptest.NewRequestWithContext(
			t.Context(), http.MethodPost, "http://app.j17.example"+tc.path, io.MultiReader(strings.NewReader(body)),
		)
		r.ContentLength = -1
		r.Header.Set("Authorization", "Bearer "+f.key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s with %d bytes: %d %s", tc.path, tc.size, w.Code, w.Body)
		}
	}
}

func TestIdempotencyKeys(t *testing.T) {
	f := newFixture(t, nil)
	body := `{"data":{},` + actor + `}`
	for _, tc := range []struct {
		key  string
		want int
	}{
		{"", 400},
		{strings.Repeat("x", 256), 400},
		{strings.Repeat("x", 255), 201},
		{"tab\there", 400},
		{"grün", 400},
		{"with space and ~!", 201},
	} {
		for _, name := range []string{"Idempotency-Key: ", "X-Idempotency-Key: "} {
			if got := f.do(t, "POST", "/note/global/was_written", body, name+tc.key); got.status != tc.want {
				t.Errorf("%s%q: %d %s", name, tc.key, got.status, got.body)
			}
		}
	}
	first := f.do(t, "POST", "/note/global/was_written", body, "Idempotency-Key: k")
	again := f.do(t, "POST", "/note/global/was_written", body, "X-Idempotency-Key: k")
	if first.body != again.body || first.header.Get("X-Idempotency-Replayed") != "" ||
		again.header.Get("X-Idempotency-Replayed") != "true" {
		t.Errorf("first %+v, again %+v", first, again)
	}
	if both := f.do(
		t, "POST", "/note/global/was_written", body, "Idempotency-Key: k", "X-Idempotency-Key: k",
	); both.body != first.body {
		t.Errorf("both headers: %d %s", both.status, both.body)
	}
	if two := f.do(
		t, "POST", "/note/global/was_written", body, "Idempotency-Key: k", "X-Idempotency-Key: l",
	); two.status != 400 {
		t.Errorf("two keys: %d %s", two.status, two.body)
	}
	if other := f.do(t, "POST", "/note/ABC123XYZ/was_written", body, "X-Idempotency-Key: k"); other.status != 422 {
		t.Errorf("the same key for another aggregate: %d %s", other.status, other.body)
	}
}

func TestRateLimits(t *testing.T) {
	f := newFixture(t, func(o *httpapi.Options) { o.Keys = auth.NewRateLimit(3); o.Addresses = auth.NewRateLimit(5) })
	for i := range 3 {
		got := f.do(t, "GET", "/note", "")
		if got.status != 200 || got.header.Get("X-RateLimit-Limit") != "3" || got.header.Get(
			"X-RateLimit-Remaining",
		) != fmt.Sprint(2-i) || got.header.Get("X-RateLimit-Scope") != "api-key" {
			t.Errorf("%d: %d %v", i, got.status, got.header)
		}
	}
	if got := f.do(t, "GET", "/note", ""); got.status != 429 || got.header.Get("Retry-After") != "60" ||
		got.header.Get("X-RateLimit-Scope") != "api-key" {
		t.Errorf("%d %v", got.status, got.header)
	}
	f.do(t, "GET", "/", "")
	if got := f.do(t, "GET", "/livez", ""); got.status != 200 {
		t.Errorf("health is limited: %d", got.status)
	}
	if got := f.do(t, "GET", "/", ""); got.status != 429 || got.header.Get("X-RateLimit-Scope") != "ip" {
		t.Errorf("%d %v", got.status, got.header)
	}
	f.clock.Advance(time.Minute)
	if got := f.do(t, "GET", "/note", ""); got.status != 200 {
		t.Errorf("after a minute: %d %s", got.status, got.body)
	}
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	f := newFixture(t, nil)
	text := strings.Repeat("all work and no play ", 500)
	f.do(t, "POST", "/note/global/was_written", `{"data":{"text":"`+text+`"},`+actor+`}`)
	for _, tc := range []struct {
		accept, encoding string
		open             func(io.Reader) (io.Reader, error)
	}{
		{"gzip", "gzip", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
		{"gzip, zstd", "zstd", func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) }},
		{"br", "", func(r io.Reader) (io.Reader, error) { return r, nil }},
	} {
		got := f.do(t, "GET", "/note/global", "", "Accept-Encoding: "+tc.accept)
		if got.header.Get("Content-Encoding") != tc.encoding {
			t.Errorf("%s: %v", tc.accept, got.header)
			continue
		}
		r, err := tc.open(strings.NewReader(got.body))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(r); err != nil || !strings.Contains(string(raw), text) {
			t.Errorf("%s: %v", tc.accept, err)
		}
	}
}

func TestCrossOrigin(t *testing.T) {
	f := newFixture(t, nil)
	pre := f.do(t, "OPTIONS", "/note/global/was_written", "", "Origin: https://app.example",
		"Access-Control-Request-Method: POST",
		"Access-Control-Request-Headers: authorization, Content-Type, x-idempotency-key, if-match, x-correlation-id")
	if pre.status >= 300 || pre.header.Get("Access-Control-Allow-Origin") != "*" ||
		!strings.Contains(pre.header.Get("Access-Control-Allow-Headers"), "x-idempotency-key") {
		t.Errorf("%d %v", pre.status, pre.header)
	}
	if got := f.do(t, "GET", "/note/nope", "", "Origin: https://app.example"); got.status != 422 ||
		got.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%d %v", got.status, got.header)
	}
}

func TestReadiness(t *testing.T) {
	f := newFixture(t, nil)
	for target, want := range map[string]int{
		"/readyz": 200, "/readyz?for=reads": 200, "/readyz?for=writes": 200, "/readyz?for=tea": 400,
	} {
		if got := f.do(t, "GET", target, ""); got.status != want {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
	f.Drain()
	if got := f.do(t, "GET", "/readyz", ""); got.status != 503 ||
		!strings.HasPrefix(got.member(t, "error_id"), "err_") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := f.do(t, "GET", "/livez", ""); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestEveryCodeHasAStatus checks that no code falls through to the status of the unexpected.
// saying is a store that says of itself what it is told to say.
type saying struct {
	httpapi.Storage
	says store.Status
}

func (s *saying) Status() store.Status { return s.says }

// TestReadinessForReadsAndForWrites: a server that takes no writes answers reads.
func TestReadinessForReadsAndForWrites(t *testing.T) {
	var s *saying
	f := newFixture(t, func(o *httpapi.Options) {
		s = &saying{Storage: o.Store}
		o.Store = s
	})
	for _, tc := range []struct {
		says               store.Status
		all, reads, writes int
	}{
		{store.Status{Readable: true, Writable: true}, 200, 200, 200},
		{store.Status{Readable: true, Reason: "full"}, 503, 200, 503},
		{store.Status{Reason: "closed"}, 503, 503, 503},
	} {
		s.says = tc.says
		for target, want := range map[string]int{
			"/readyz": tc.all, "/readyz?for=reads": tc.reads, "/readyz?for=writes": tc.writes,
		} {
			if got := f.do(t, "GET", target, ""); got.status != want {
				t.Errorf("%+v: %s: %d %s", tc.says, target, got.status, got.body)
			}
		}
	}
}

// TestAnEnvironmentThatIsStillRestored is told from one without a spec.
func TestAnEnvironmentThatIsStillRestored(t *testing.T) {
	restoring := true
	f := newFixture(t, func(o *httpapi.Options) {
		prod := j17.TenantOf(o.DefaultInstance, j17.Prod)
		o.Engine.Undeploy(prod)
		o.Restoring = func(t j17.Tenant) bool { return restoring && t == prod }
		o.RestoringAny = func() bool { return restoring }
	})
	for _, tc := range []struct {
		target string
		status int
		code   string
	}{
		{"/note/global", 503, "unavailable"},
		{"/readyz", 503, "unavailable"},
		{"/readyz?for=reads", 503, "unavailable"},
	} {
		if got := f.do(t, "GET", tc.target, ""); got.status != tc.status || got.member(t, "code") != tc.code ||
			got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", tc.target, got.status, got.body)
		}
	}
	restoring = false
	if got := f.do(t, "GET", "/note/global", ""); got.member(t, "code") != "no_spec_deployed" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := f.do(t, "GET", "/readyz", ""); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestEveryCodeHasAStatus(t *testing.T) {
	for _, code := range j17.Codes() {
		if s := httpapi.StatusOf(code); s < 400 ||
			s == 500 && code != j17.CodeInternal && code != j17.CodeCorruption && code != j17.CodeCustomCodeFailed {
			t.Errorf("%s has status %d", code, s)
		}
	}
}

// FuzzRequest sends anything. The server's own errors (5xx) are the only answers that must not come.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/note/global/was_written", `{"data":{},`+actor+`}`, "application/json", "key", "*")
	f.Add("GET", "/note/global?at=1&length=2&synchronous", "", "", "", `"1-00000000", W/"x"`)
	f.Add(
		"POST", "/note/global", `{"events":[{"type":"was_written"}],`+actor+`}`, "application/json; charset=utf-8", "",
		"",
	)
	f.Add("GET", "/note/global/events?start=1706789012345-0&count=3", "", "", "", "")
	f.Add("DELETE", "/%2e%2e/..//note", "", "", "", "")
	f.Fuzz(func(t *testing.T, method, target, body, contentType, key, tags string) {
		if !strings.HasPrefix(target, "/") || strings.ContainsAny(target, " \r\n#") ||
			strings.ContainsAny(method, " \r\n/:") || method == "" || method == "CONNECT" {
			t.Skip("no request line")
		}
		r, err := http.NewRequestWithContext(
			t.Context(), method, "http://app.j17.example"+target, strings.NewReader(body),
		)
		if err != nil {
			t.Skip("no URL")
		}
		r.RemoteAddr = "192.0.2.1:1234"
		fx := newFixture(t, nil)
		r.Header.Set("Authorization", "Bearer "+fx.key)
		r.Header.Set("Content-Type", contentType)
		r.Header["X-Idempotency-Key"] = []string{key}
		r.Header["If-Match"] = []string{tags}
		if method == http.MethodGet || method == http.MethodHead {
			r.Header["If-None-Match"] = []string{tags} // refused on writes
		}
		w := httptest.NewRecorder()
		fx.handler.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %s: %d %s", method, target, w.Code, w.Body)
		}
		if ct := w.Header().Get("Content-Type"); w.Body.Len() > 0 && strings.HasPrefix(ct, "application/") &&
			ct != "application/x-ndjson" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: the answer is not JSON: %s", method, target, w.Body)
		}
	})
}
