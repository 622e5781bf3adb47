package server_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"j17/internal/base/clock"
	"j17/internal/server"
)

const (
	nodeSecret = "0123456789abcdef0123456789abcdef"
	adminEmail = "admin@example.com"
	adminPass  = "correct horse battery"
)

// node is a running server of a test.
type node struct {
	options server.ServeOptions
	serve   *server.Serve
	stop    context.CancelFunc
	ended   chan error
}

func file(tb testing.TB, content string) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

func options(tb testing.TB) server.ServeOptions {
	tb.Helper()
	var o server.ServeOptions
	o.Dir, o.BaseDomain = filepath.Join(tb.TempDir(), "data"), "example.test"
	o.Listen, o.InternalListen = "127.0.0.1:0", "127.0.0.1:0"
	o.Version, o.Clock = "test", clock.System{}
	o.Logger = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return o
}

func start(tb testing.TB, o server.ServeOptions) *node {
	tb.Helper()
	if found := o.Check(); len(found) > 0 {
		tb.Fatal(found)
	}
	s, err := server.OpenServe(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return running(tb, o, s)
}

// running lets a server that is open run until the test ends.
func running(tb testing.TB, o server.ServeOptions, s *server.Serve) *node {
	tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	n := &node{options: o, serve: s, stop: stop, ended: make(chan error, 1)}
	go func() { n.ended <- s.Run(ctx) }()
	tb.Cleanup(func() { n.end(tb) })
	return n
}

// end stops the node, once.
func (n *node) end(tb testing.TB) {
	tb.Helper()
	if n.serve == nil {
		return
	}
	n.stop()
	if err := <-n.ended; err != nil {
		tb.Error(err)
	}
	if err := n.serve.Close(); err != nil {
		tb.Error(err)
	}
	n.serve = nil
}

func (n *node) internal() string { return n.serve.Ready().URLs["internal"] }

type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// send sends a request to the public listener of a node.
func (n *node) send(tb testing.TB, method, host, path, token, body string) reply {
	tb.Helper()
	return request(tb, method, "http://"+n.serve.Ready().Addresses["public"]+path, host, body, map[string]string{
		"Authorization": "Bearer " + token,
	})
}

func request(tb testing.TB, method, url, host, body string, headers map[string]string) reply {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	r.Host = host
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, v := range headers {
		r.Header.Set(name, v)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		tb.Fatal(err)
	}
	got := reply{status: resp.StatusCode, header: resp.Header, text: string(raw)}
	_ = json.Unmarshal(raw, &got.body) // pages are no JSON
	return got
}

func (r reply) want(tb testing.TB, what string, status int) reply {
	tb.Helper()
	if r.status != status {
		tb.Fatalf("%s: %d and not %d: %s", what, r.status, status, r.text)
	}
	return r
}

func (r reply) text1(tb testing.TB, members ...string) string {
	tb.Helper()
	var v any = r.body
	for _, m := range members {
		object, _ := v.(map[string]any)
		v = object[m]
	}
	s, ok := v.(string)
	if !ok {
		tb.Fatalf("no %v in %s", members, r.text)
	}
	return s
}

const counterSpec = `{"aggregate_types":{"counter":{"events":{"was_increased":{"schema":{"type":"object","properties":{"by":{"type":"integer"}},"required":["by"],"additionalProperties":false},
	"handler":[{"increment":{"target":"total","by":"$.data.by"}}]}}}},"agent_types":["user"]}`

const (
	counterPath = "/counter/550e8400-e29b-41d4-a716-446655440000"
	increase    = `{"data":{"by":2},"metadata":{"actor":{"type":"user","id":"7c9e6679-7425-40de-944b-e07fc1f90ae7"}}}`
)

func headnode(tb testing.TB) *node {
	tb.Helper()
	o := options(tb)
	o.Role, o.NodeSecretFile = server.RoleHeadnode, file(tb, nodeSecret+"\n")
	o.OperatorEmail, o.OperatorPasswordFile = adminEmail, file(tb, adminPass)
	return start(tb, o)
}

func workerOptions(tb testing.TB, name, head string) server.ServeOptions {
	tb.Helper()
	o := options(tb)
	o.Role, o.NodeSecretFile, o.Node, o.Headnode = server.RoleWorker, file(tb, nodeSecret), name, head
	return o
}

func TestNodes(t *testing.T) {
	whole := t // for nodes that outlive a part of it
	head := headnode(t)
	internal := head.internal()
	first := start(t, workerOptions(t, "one", internal))
	second := start(t, workerOptions(t, "two", internal))
	const ctl = "control.example.test"
	token := head.send(t, "POST", ctl, "/api/login", "", `{"email":"`+adminEmail+`","password":"`+adminPass+`"}`).want(
		t, "login", 200,
	).text1(t, "token")

	type instance struct{ id, host, key, keyID string }
	var instances []instance
	for _, name := range []string{"alpha", "beta"} {
		made := head.send(t, "POST", ctl, "/api/instances", token, `{"name":"`+name+`"}`).want(t, "create", 201)
		i := instance{id: made.text1(t, "id"), host: name + ".example.test"}
		key := head.send(t, "POST", ctl, "/api/instances/"+i.id+"/keys", token, `{"environment":"prod","scope":"write","name":"k"}`).want(t, "key", 201)
		head.send(t, "POST", ctl, "/api/instances/"+i.id+"/spec", token, counterSpec).want(t, "deploy", 201)
		for _, member := range []string{"token", "key"} {
			if s, ok := key.body[member].(string); ok && strings.HasPrefix(s, "j17_") {
				i.key = s
			}
		}
		list := head.send(t, "GET", ctl, "/api/instances/"+i.id+"/keys", token, "").want(t, "keys", 200)
		//nolint:forcetypeassert,errcheck // the test fails either way
		i.keyID = list.body["keys"].([]any)[0].(map[string]any)["id"].(string)
		instances = append(instances, i)
	}
	alpha, beta := instances[0], instances[1]

	t.Run("each instance is on one worker", func(t *testing.T) {
		first.send(t, "POST", alpha.host, counterPath+"/was_increased", alpha.key, increase).want(t, "write", 201)
		second.send(t, "POST", beta.host, counterPath+"/was_increased", beta.key, increase).want(t, "write", 201)
		for _, wrong := range []*node{second, head} {
			r := wrong.send(t, "POST", alpha.host, counterPath+"/was_increased", alpha.key, increase).want(
				t, "elsewhere", 421,
			)
			if got, want := r.text1(t, "details", "url"),
				"http://"+first.serve.Ready().Addresses["public"]; got != want {
				t.Errorf("the worker is at %s and not at %s", got, want)
			}
		}
		first.send(t, "POST", ctl, "/api/login", "", `{"email":"`+adminEmail+`","password":"`+adminPass+`"}`).want(
			t, "login at a worker", 421,
		)
		first.send(t, "GET", alpha.host, "/_admin/tombstones", token, "").want(t, "an operator at a worker", 200)
		first.send(t, "GET", beta.host, "/_admin/tombstones", token, "").want(t, "an operator at the wrong worker", 421)
		if got := first.send(t, "GET", alpha.host, counterPath, alpha.key, "").want(
			t, "read", 200,
		).text; !strings.Contains(got, `"total":2`) {
			t.Errorf("state: %s", got)
		}
	})

	t.Run("the headnode gathers what workers have found", func(t *testing.T) {
		for _, method := range []string{"POST", "GET"} {
			got := head.send(t, method, ctl, "/api/scrub", token, "").want(t, "scrub", 200)
			nodes, _ := got.body["nodes"].([]any)
			if len(nodes) != 2 || strings.Count(got.text, `"damaged":[]`) != 3 ||
				strings.Contains(got.text, `"error"`) {
				t.Errorf("%s: %s", method, got.text)
			}
		}
	})

	t.Run("the headnode passes on", func(t *testing.T) {
		ops := "/api/instances/" + alpha.id + "/ops/prod/"
		got := head.send(t, "GET", ctl, ops+"tombstones", token, "").want(t, "ops", 200)
		if len(got.header.Values("X-Request-Id")) != 1 {
			t.Errorf("request ids: %v", got.header)
		}
		head.send(t, "GET", ctl, ops+"tombstones", "wrong", "").want(t, "ops without a token", 401)
		head.send(t, "GET", ctl, ops+"nothing", token, "").want(t, "unknown ops", 404)
		// Escapes mean the same to both nodes: this is one error_id, not another row.
		got = head.send(t, "GET", ctl, ops+"errors/err_x%2fy", token, "").want(t, "an escaped slash", 404)
		if !strings.Contains(got.text, "error") || strings.Contains(got.text, "nothing at this path") {
			t.Errorf("an escaped slash has led elsewhere: %s", got.text)
		}
		head.send(t, "GET", ctl, strings.Replace(ops, "/ops/", "/%6fps/", 1)+"tombstones", token, "").want(
			t, "an escaped letter", 200,
		)
		history := head.send(t, "GET", ctl, "/api/instances/"+alpha.id+"/spec/history", token, "").want(
			t, "history", 200,
		)
		if !strings.Contains(history.text, adminEmail) {
			t.Errorf("who has deployed is lost: %s", history.text)
		}
		second := strings.Replace(counterSpec, `"agent_types":["user"]`, `"agent_types":["user","robot"]`, 1)
		head.send(t, "POST", ctl, "/api/instances/"+alpha.id+"/spec", token, second).want(t, "second deploy", 201)
		rolled := head.send(t, "POST", ctl, "/api/instances/"+alpha.id+"/spec/rollback", token, `{"version":1}`)
		if rolled.status/100 != 2 {
			t.Errorf("rollback: %d %s", rolled.status, rolled.text)
		}
		head.send(t, "POST", ctl, "/api/instances/"+alpha.id+"/spec", token, `{}`).want(t, "invalid spec", 422)
		head.send(t, "GET", ctl, "/api/instances/"+alpha.id+"/usage", token, "").want(t, "usage", 200)
		head.send(t, "GET", ctl, "/api/instances/"+alpha.id, token, "").want(t, "instance", 200)
		audit := head.send(t, "GET", ctl, "/api/audit?action=spec", token, "").want(t, "audit", 200)
		if !strings.Contains(audit.text, `"spec.rollback"`) || !strings.Contains(audit.text, adminEmail) {
			t.Errorf("audit: %s", audit.text)
		}
		form := "--x\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\ncode\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nhello\r\n--x--\r\n"
		blob := request(t, "POST", "http://"+head.serve.Ready().Addresses["public"]+ops+"blobs", ctl, form,
			map[string]string{
				"Authorization": "Bearer " + token, "Content-Type": "multipart/form-data; boundary=x",
			}).want(t, "upload", 201)
		if by := blob.text1(t, "blob", "created_by"); !strings.HasPrefix(by, "opr_") {
			t.Errorf("the blob was uploaded by %q", by)
		}
		nodes := head.send(t, "GET", ctl, "/api/nodes", token, "").want(t, "nodes", 200)
		if list, _ := nodes.body["nodes"].([]any); len(list) != 2 {
			t.Errorf("nodes: %s", nodes.text)
		}
	})

	t.Run("a change that has not reached a worker says so", func(t *testing.T) {
		made := head.send(t, "POST", ctl, "/api/instances/"+beta.id+"/keys", token, `{"environment":"prod","scope":"read","name":"late"}`).want(t, "key", 201)
		if strings.Contains(made.text, "workers_behind") {
			t.Errorf("all workers are there: %s", made.text)
		}
		key, id := made.text1(t, "key"), made.text1(t, "id")
		second.send(t, "GET", beta.host, "/counter", key, "").want(t, "the key", 200)
		options := second.options
		second.end(t)
		gone := head.send(t, "DELETE", ctl, "/api/keys/"+id, token, "").want(t, "revoke", 200)
		if !strings.Contains(gone.text, `"workers_behind":["two"]`) {
			t.Errorf("the worker two is away: %s", gone.text)
		}
		second = start(whole, options)
		second.send(t, "GET", beta.host, "/counter", key, "").want(t, "revoked while the worker was away", 401)
	})

	t.Run("errors of workers are found from the headnode", func(t *testing.T) {
		failed := first.send(
			t, "GET", "alpha-test.example.test", "/counter", testKey(t, head, ctl, token, alpha.id), "",
		).want(t, "no spec", 503)
		found := head.send(t, "GET", ctl, "/api/errors/"+failed.text1(t, "error_id"), token, "").want(t, "error", 200)
		if got := found.text1(t, "failure", "request_id"); got != failed.header.Get("X-Request-Id") {
			t.Errorf("the error is that of request %s: %s", got, found.text)
		}
		head.send(t, "GET", ctl, "/api/errors/err_111111111111111", token, "").want(
			t, "an error that nobody knows", 404,
		)
	})

	t.Run("a refusal has the id of the request", func(t *testing.T) {
		refused := head.send(t, "POST", ctl, "/api/instances/"+alpha.id+"/ops/prod/inject", token, `[]`).want(
			t, "test data in production", 403,
		)
		records := head.send(t, "GET", ctl, "/api/audit?action=events.inject", token, "").want(t, "audit", 200)
		if !strings.Contains(records.text, refused.header.Get("X-Request-Id")) {
			t.Errorf("request %s is not in %s", refused.header.Get("X-Request-Id"), records.text)
		}
	})

	t.Run("the internal API", func(t *testing.T) {
		path := "/internal/instances/" + alpha.id + "/prod/tombstones"
		with := func(url, secret string) reply {
			return request(t, "GET", url+path, "", "", map[string]string{"X-Node-Secret": secret})
		}
		with(first.internal(), nodeSecret).want(t, "right", 200)
		with(second.internal(), nodeSecret).want(t, "elsewhere", 421)
		for range 60 {
			if got := with(first.internal(), "wrong"+nodeSecret); got.status == 429 {
				break
			}
		}
		with(first.internal(), "wrong").want(t, "too often", 429)
		with(first.internal(), nodeSecret).want(t, "too often, though right", 429)
		for _, n := range []*node{head, first} {
			for _, host := range []string{ctl, alpha.host, "internal", "127.0.0.1"} {
				request(t, "GET", "http://"+n.serve.Ready().Addresses["public"]+path, host, "", map[string]string{
					"X-Node-Secret": nodeSecret,
				}).want(t, "public, host "+host, 404)
			}
		}
	})

	t.Run("a revoked key is refused at once", func(t *testing.T) {
		head.send(t, "DELETE", ctl, "/api/keys/"+beta.keyID, token, "").want(t, "revoke", 200)
		second.send(t, "GET", beta.host, counterPath, beta.key, "").want(t, "revoked", 401)
	})

	t.Run("another folder under the same name is refused", func(t *testing.T) {
		o := workerOptions(t, "one", internal)
		if found := o.Check(); len(found) > 0 {
			t.Fatal(found)
		}
		s, err := server.OpenServe(t.Context(), o)
		if err == nil {
			err = s.Close()
			t.Fatal("a second worker called one", err)
		}
		if !strings.Contains(err.Error(), "another name") {
			t.Error(err)
		}
	})

	t.Run("workers go on without the headnode", func(t *testing.T) {
		head.end(t)
		first.send(t, "POST", alpha.host, counterPath+"/was_increased", alpha.key, increase).want(t, "write", 201)
		options := first.options
		first.end(t)
		again := start(t, options)
		again.send(t, "POST", alpha.host, counterPath+"/was_increased", alpha.key, increase).want(
			t, "write after a restart", 201,
		)
		again.send(t, "GET", alpha.host, "/_admin/tombstones", token, "").want(t, "an operator", 200)
		second.send(t, "GET", beta.host, counterPath, beta.key, "").want(t, "still revoked", 401)
		if got := again.send(t, "GET", alpha.host, counterPath, alpha.key, "").want(
			t, "read", 200,
		).text; !strings.Contains(got, `"total":6`) {
			t.Errorf("state: %s", got)
		}
	})
}

// TestAWorkerThatHangs checks that the headnode does not wait for a worker that takes connections and answers nothing.
func TestAWorkerThatHangs(t *testing.T) {
	head := headnode(t)
	const ctl = "control.example.test"
	token := head.send(t, "POST", ctl, "/api/login", "", `{"email":"`+adminEmail+`","password":"`+adminPass+`"}`).want(
		t, "login", 200,
	).text1(t, "token")
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // of a test
	poll := `{"node":{"name":"mute","identity":"0123456789abcdef0123456789abcdef","public_url":"http://127.0.0.1:1","internal_url":"http://` + silent.Addr().String() + `","version":"test"},"writable":true,"position":"","at_once":true}`
	request(t, "POST", head.internal()+"/internal/control/changes", "", poll, map[string]string{
		"X-Node-Secret": nodeSecret,
	}).want(t, "a node that polls", 200)
	made := head.send(t, "POST", ctl, "/api/instances", token, `{"name":"alpha"}`).want(t, "create", 201)
	if made.text1(t, "node") != "mute" {
		t.Fatalf("the instance is elsewhere: %s", made.text)
	}
	if behind, _ := made.body["workers_behind"].([]any); len(behind) != 1 {
		t.Errorf("the worker that is there no more: %s", made.text)
	}
	id := made.text1(t, "id")
	head.send(t, "GET", ctl, "/api/instances/"+id+"/ops/prod/tombstones", token, "").want(t, "ops", 503)
	if got := head.send(t, "GET", ctl, "/api/scrub", token, "").want(t, "the scrub", 200); !strings.Contains(got.text, `"nodes":[{"node":"mute","scrub":null,"error":"the worker does not answer"}]`) {
		t.Errorf("its scrub: %s", got.text)
	}
	if got := head.send(t, "GET", ctl, "/api/instances/"+id, token, "").want(t, "the instance", 200); !strings.Contains(
		got.text, `"usage":null`,
	) {
		t.Errorf("its usage: %s", got.text)
	}
}

// TestAWorkerThatGoes checks what the headnode says where a worker ends before it has answered: of what changes
// something, that this may have been done.
func TestAWorkerThatGoes(t *testing.T) {
	head := headnode(t)
	const ctl = "control.example.test"
	token := head.send(t, "POST", ctl, "/api/login", "", `{"email":"`+adminEmail+`","password":"`+adminPass+`"}`).want(
		t, "login", 200,
	).text1(t, "token")
	worker := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			panic(http.ErrAbortHandler)
		}
	}))
	defer worker.Close()
	poll := `{"node":{"name":"brief","identity":"0123456789abcdef0123456789abcdef","public_url":"http://127.0.0.1:1","internal_url":"` + worker.URL + `","version":"test"},"writable":true,"position":"","at_once":true}`
	request(t, "POST", head.internal()+"/internal/control/changes", "", poll, map[string]string{
		"X-Node-Secret": nodeSecret,
	}).want(t, "a node that polls", 200)
	id := head.send(t, "POST", ctl, "/api/instances", token, `{"name":"alpha"}`).want(t, "create", 201).text1(t, "id")
	for method, code := range map[string]string{"GET": "unavailable", "POST": "outcome_unknown"} {
		if got := head.send(t, method, ctl, "/api/instances/"+id+"/ops/prod/root-checkpoints", token, "").want(
			t, method, 503,
		).text1(t, "code"); got != code {
			t.Errorf("%s: %s, want %s", method, got, code)
		}
	}
}

// TestAHeadnodeThatGoes checks what a deployment says where the headnode ends before it has answered the worker: that
// it may have been stored.
func TestAHeadnodeThatGoes(t *testing.T) {
	head := headnode(t)
	const ctl = "control.example.test"
	target, err := url.Parse(head.internal())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/internal/control/specs" {
			forward.ServeHTTP(w, r)
			return
		}
		forward.ServeHTTP(httptest.NewRecorder(), r.Clone(context.WithoutCancel(r.Context())))
		panic(http.ErrAbortHandler)
	}))
	defer between.Close()
	worker := start(t, workerOptions(t, "one", between.URL))
	defer worker.end(t)
	token := head.send(t, "POST", ctl, "/api/login", "", `{"email":"`+adminEmail+`","password":"`+adminPass+`"}`).want(
		t, "login", 200,
	).text1(t, "token")
	id := head.send(t, "POST", ctl, "/api/instances", token, `{"name":"alpha"}`).want(t, "create", 201).text1(t, "id")
	got := head.send(t, "POST", ctl, "/api/instances/"+id+"/spec", token, counterSpec).want(
		t, "a deployment without an answer", 503,
	)
	if code := got.text1(t, "code"); code != "outcome_unknown" {
		t.Errorf("it is stored, and the answer is %s: %s", code, got.text)
	}
	history := head.send(t, "GET", ctl, "/api/instances/"+id+"/spec/history", token, "").want(t, "history", 200)
	if !strings.Contains(history.text, `"version":1`) {
		t.Errorf("history: %s", history.text)
	}
}

// testKey makes a key for the test environment of an instance.
func testKey(tb testing.TB, head *node, host, token, instance string) string {
	tb.Helper()
	return head.send(tb, "POST", host, "/api/instances/"+instance+"/keys", token, `{"environment":"test","scope":"read","name":"t"}`).want(tb, "key", 201).text1(tb, "key")
}

func TestWorkerNeedsItsHeadnodeOnce(t *testing.T) {
	o := workerOptions(t, "one", "http://127.0.0.1:1")
	if found := o.Check(); len(found) > 0 {
		t.Fatal(found)
	}
	if s, err := server.OpenServe(t.Context(), o); err == nil || !strings.Contains(err.Error(), "knows nothing yet") {
		t.Errorf("%v %v", s, err)
	}
}

func TestSetup(t *testing.T) {
	var url string
	o := options(t)
	o.SetupURL = func(u string) { url = u }
	n := start(t, o)
	first := url
	n.end(t)
	url = ""
	n = start(t, o)
	_, token, ok := strings.Cut(url, "/setup#token=")
	if url != first && !ok {
		t.Fatalf("the URL was %q and is %q", first, url)
	}
	if _, before, _ := strings.Cut(first, "#"); !strings.HasSuffix(url, before) {
		t.Errorf("the token has changed with the restart: %s, %s", first, url)
	}
	page := n.send(t, "GET", "control.example.test", "/setup", "", "").want(t, "page", 200)
	if !strings.Contains(page.header.Get("Content-Security-Policy"), "script-src 'sha256-") ||
		!strings.Contains(page.text, "/api/setup") {
		t.Errorf("page: %v %s", page.header, page.text)
	}
	body := `{"token":"` + token + `","email":"` + adminEmail + `","password":"` + adminPass + `"}`
	n.send(t, "POST", "control.example.test", "/api/setup", "", body).want(t, "setup", 201)
	n.send(t, "POST", "control.example.test", "/api/setup", "", body).want(t, "setup again", 401)
	n.end(t)
	url = ""
	n = start(t, o)
	if url != "" {
		t.Errorf("with an operator there is a setup URL: %s", url)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "setup-token")); !os.IsNotExist(err) {
		t.Errorf("the token is still there: %v", err)
	}
	n.end(t)
	o.Role, o.NodeSecretFile = server.RoleHeadnode, file(t, nodeSecret)
	start(t, o)
	if url != "" {
		t.Error("a setup URL for a headnode that is set up")
	}
}
