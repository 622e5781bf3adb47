package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/erasure"
	"j17/internal/derived/projection"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
	"j17/internal/plane/auth"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/storage/store"
)

// administration is an API with operators.
type administration struct {
	*fixture
	blobs *blob.Store
	log   *bytes.Buffer
	// admin is a platform admin's token, viewer that of an auditor of the instance, stranger that of one of no
	// instance.
	admin, viewer, stranger string
}

func administer(tb testing.TB) *administration {
	tb.Helper()
	return administerWith(tb, nil)
}

func administerWith(tb testing.TB, change func(*httpapi.Options)) *administration {
	tb.Helper()
	a := &administration{log: &bytes.Buffer{}}
	a.fixture = newFixture(tb, func(o *httpapi.Options) {
		logger := slog.New(slog.NewTextHandler(a.log, nil))
		st, ok := o.Store.(store.Store)
		if !ok {
			tb.Fatal("the fixture's store is not whole")
		}
		a.blobs = blob.New(blob.Options{
			Store: st, Clock: o.Clock, MaxBytes: 1 << 20, Worker: worker.New(o.Clock, logger),
		})
		o.Blobs = a.blobs
		deploying(tb, o, deploy.Options{
			Registry: o.Registry, Engine: o.Engine, Blobs: o.Blobs, Clock: o.Clock, Logger: logger,
		})
		if change != nil {
			change(o)
		}
	})
	login := func(email string, role control.Role, grants ...string) string {
		op, err := a.registry.Operators.Create(tb.Context(), control.NewOperator{
			Email: email, Password: "a long password", Role: role,
		})
		if err != nil {
			tb.Fatal(err)
		}
		for _, instance := range grants {
			if _, err := a.registry.Operators.Grant(tb.Context(), op.ID, instance); err != nil {
				tb.Fatal(err)
			}
		}
		s, err := auth.New(a.registry, a.clock).Login(tb.Context(), email, "a long password", netip.Addr{})
		if err != nil {
			tb.Fatal(err)
		}
		return s.Token
	}
	a.admin = login("admin@example.com", control.RolePlatformAdmin)
	a.viewer = login("auditor@example.com", control.RoleAuditor, a.instance.ID)
	a.stranger = login("stranger@example.com", control.RoleInstanceAdmin)
	return a
}

// deploying gives an API what deploys specs, and projections beside them.
func deploying(tb testing.TB, o *httpapi.Options, d deploy.Options) {
	tb.Helper()
	st, ok := o.Store.(store.Store)
	if !ok {
		tb.Fatal("the fixture's store is not whole")
	}
	o.Projections = projection.New(projection.Options{
		Store: st, Engine: d.Engine, Clock: d.Clock, Logger: d.Logger, Places: o.Places,
		Hold: func(ctx context.Context, t j17.Tenant, f func(*spec.Compiled, store.Fence) error) error {
			return o.Deploy.Hold(ctx, t, f)
		},
	})
	o.Deploy = deploy.New(d)
	o.Deploy.Use(part.Part{Deploy: part.Deploy{Beside: o.Projections.Beside, Try: o.Projections.Part().Deploy.Try}})
	o.Erasures = erasing(o, st, d.Engine)
}

// erasing is what erases in a fixture; it is executed when its queue is asked to.
func erasing(o *httpapi.Options, st store.Store, e *engine.Engine, parts ...part.Part) *erasure.Service {
	s := erasure.New(erasure.Options{
		Store: st, Clock: o.Clock, Worker: worker.New(o.Clock, o.Logger), Logger: o.Logger, Resolve: e.Resolve,
		Spec: e.Spec,
		Root: func(ctx context.Context, t j17.Tenant) (root [32]byte, size uint64, err error) {
			extent, err := st.Extent(ctx, t)
			return root, extent.Events, err
		},
		Sign: func(_ context.Context, _ j17.Tenant, text string) (string, error) { return text, nil },
		By: func(ctx context.Context) string {
			a, _ := control.ActorOf(ctx)
			return string(a.Kind)
		},
		Record: func(ctx context.Context, _ j17.Tenant, a *erasure.Act) error {
			return o.Registry.Audit.Add(ctx, control.Record{
				Action: a.Action, Target: a.Tombstone, Actor: control.Actor{Kind: control.ActorKind(a.By)},
			})
		},
	})
	s.Use(append(parts, o.Tail.Part())...)
	return s
}

// ask sends a request to a host with a token.
func (a *administration) ask(tb testing.TB, token, method, host, target, body string, headers ...string) answer {
	tb.Helper()
	return a.do(
		tb, method, target, body, append([]string{"Host: " + host, "Authorization: Bearer " + token}, headers...)...,
	)
}

// control asks the control host as a platform admin.
func (a *administration) control(tb testing.TB, method, target, body string, headers ...string) answer {
	tb.Helper()
	return a.ask(tb, a.admin, method, "control.j17.example", "/api/instances/"+a.instance.ID+target, body, headers...)
}

// ops asks an environment's administration as a platform admin.
func (a *administration) ops(tb testing.TB, method, target, body string, headers ...string) answer {
	tb.Helper()
	return a.ask(tb, a.admin, method, "app.j17.example", "/_admin/"+target, body, headers...)
}

// inside asks the internal listener.
func (f *fixture) inside(tb testing.TB, method, target string, headers ...string) answer {
	tb.Helper()
	return f.insideWith(tb, method, target, "", headers...)
}

// insideWith asks the internal listener with a body.
func (f *fixture) insideWith(tb testing.TB, method, target, body string, headers ...string) answer {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, v, _ := strings.Cut(h, ": ")
		r.Header.Add(name, v)
	}
	w := httptest.NewRecorder()
	f.Internal().ServeHTTP(w, r)
	a := answer{w.Code, w.Header(), w.Body.String()}
	f.holdInside(tb, r, a)
	return a
}

func TestAdminMounts(t *testing.T) {
	a := administer(t)
	id := a.instance.ID
	const empty = `{"ok":true,"tombstones":[],"next":null}`
	const app, ctl = "app.j17.example", "control.j17.example"
	for _, tc := range []struct {
		what, token, host, target string
		want                      int
	}{
		{"on its host", a.admin, app, "/_admin/tombstones", 200},
		{"on the host of another environment", a.admin, "app-test.j17.example", "/_admin/tombstones", 200},
		{"on the control host", a.admin, ctl, "/api/instances/" + id + "/ops/prod/tombstones", 200},
		{"an auditor", a.viewer, app, "/_admin/tombstones", 200},
		{"an auditor on the control host", a.viewer, ctl, "/api/instances/" + id + "/ops/staging/tombstones", 200},
		{"a stranger", a.stranger, app, "/_admin/tombstones", 403},
		{"a stranger on the control host", a.stranger, ctl, "/api/instances/" + id + "/ops/prod/tombstones", 404},
		{"no token", "", app, "/_admin/tombstones", 401},
		{"an API key", a.key, app, "/_admin/tombstones", 401},
		{"an API key on the control host", a.key, ctl, "/api/instances/" + id + "/ops/prod/tombstones", 401},
		{"the node secret as a token", a.registry.Secrets.NodeSecret(), app, "/_admin/tombstones", 401},
		{"no such instance", a.admin, ctl, "/api/instances/ins_111111111111111/ops/prod/tombstones", 404},
		{"an instance's name", a.admin, ctl, "/api/instances/app/ops/prod/tombstones", 404},
		{"no such environment", a.admin, ctl, "/api/instances/" + id + "/ops/qa/tombstones", 404},
		{"the control host's path on a data host", a.admin, app, "/api/instances/" + id + "/ops/prod/tombstones", 404},
		{"a data host's path on the control host", a.admin, ctl, "/_admin/tombstones", 404},
		{"nothing there", a.admin, app, "/_admin/nothing", 404},
		{"the bare prefix", a.admin, app, "/_admin/", 404},
		{"the internal path", a.admin, app, "/internal/instances/" + id + "/prod/tombstones", 404},
		{"the internal path on the control host", a.admin, ctl, "/internal/instances/" + id + "/prod/tombstones", 404},
		{"a wrong limit", a.admin, app, "/_admin/tombstones?limit=0", 400},
		{"a wrong offset", a.admin, app, "/_admin/tombstones?offset=-1", 400},
		{"a status where there is none", a.admin, app, "/_admin/tombstones?status=x", 400},
	} {
		got := a.ask(
			t, tc.token, http.MethodGet, tc.host, tc.target, "", "X-Node-Secret: "+a.registry.Secrets.NodeSecret(),
		)
		if got.status != tc.want || tc.want == 200 && got.body != empty {
			t.Errorf("%s: %d %s, want %d", tc.what, got.status, got.body, tc.want)
		}
	}
	if got := a.ask(t, a.admin, http.MethodPut, app, "/_admin/tombstones", ""); got.status != 405 ||
		got.header.Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("another method: %d, %q", got.status, got.header.Get("Allow"))
	}

	path := "/internal/instances/" + id + "/prod/tombstones"
	secret := "X-Node-Secret: " + a.registry.Secrets.NodeSecret()
	for _, tc := range []struct {
		what    string
		want    int
		target  string
		headers []string
	}{
		{"with the secret", 200, path, []string{secret}},
		{"without", 401, path, nil},
		{"empty", 401, path, []string{"X-Node-Secret: "}},
		{"wrong", 403, path, []string{"X-Node-Secret: wrong"}},
		{"a part of it", 403, path, []string{secret[:len(secret)-1]}},
		{"twice", 401, path, []string{secret, secret}},
		{"as a token", 401, path, []string{"Authorization: Bearer " + a.registry.Secrets.NodeSecret()}},
		{"an operator", 401, path, []string{"Authorization: Bearer " + a.admin}},
		{"no such instance", 404, "/internal/instances/ins_111111111111111/prod/tombstones", []string{secret}},
		{"no such environment", 404, "/internal/instances/" + id + "/qa/tombstones", []string{secret}},
		{"no such instance, without", 401, "/internal/instances/ins_111111111111111/prod/tombstones", nil},
		{"the other paths", 404, "/_admin/tombstones", []string{secret}},
	} {
		got := a.inside(t, "GET", tc.target, tc.headers...)
		if got.status != tc.want || tc.want == 200 && got.body != empty {
			t.Errorf("inside, %s: %d %s, want %d", tc.what, got.status, got.body, tc.want)
		}
		if strings.Contains(got.body, a.registry.Secrets.NodeSecret()) {
			t.Errorf("inside, %s: the answer contains the secret", tc.what)
		}
	}
}

// form makes the body of an upload out of pairs of a field and its content. Fields that begin with "@" are files.
func form(tb testing.TB, pairs ...string) (body, contentType string) {
	tb.Helper()
	var b strings.Builder
	w := multipart.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		var part io.Writer
		var err error
		if name, ok := strings.CutPrefix(pairs[i], "@"); ok {
			part, err = w.CreateFormFile(name, "../../etc/passwd")
		} else {
			part, err = w.CreateFormField(pairs[i])
		}
		if err == nil {
			_, err = io.WriteString(part, pairs[i+1])
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.String(), "Content-Type: " + w.FormDataContentType()
}

func (a *administration) upload(tb testing.TB, pairs ...string) answer {
	tb.Helper()
	body, contentType := form(tb, pairs...)
	return a.ops(tb, http.MethodPost, "blobs", body, contentType)
}

func TestBlobs(t *testing.T) {
	a := administer(t)
	first := a.upload(t, "name", "a.txt", "@file", "A")
	if first.status != 201 || !strings.HasPrefix(first.body, `{"ok":true,"blob":{"name":"a.txt","version":1,"size":1,"sha256":"`) ||
		!strings.Contains(first.body, `"created_at":"2023-11-14T22:13:20Z","created_by":"opr_`) {
		t.Errorf("%d %s", first.status, first.body)
	}
	if again := a.upload(t, "name", "a.txt", "@file", "A"); again.status != 200 || again.body != first.body {
		t.Errorf("the same again: %d %s", again.status, again.body)
	}
	if second := a.upload(t, "name", "a.txt", "file", "<b>"); second.status != 201 ||
		!strings.Contains(second.body, `"version":2`) {
		t.Errorf("a file without a file name: %d %s", second.status, second.body)
	}
	a.upload(t, "name", "b", "@file", "b")

	if got := a.ops(t, "GET", "blobs?limit=1", ""); got.status != 200 || !strings.HasPrefix(got.body, `{"ok":true,"blobs":[{"name":"a.txt","version":2,`) ||
		!strings.HasSuffix(got.body, `"versions":2}],"next":1}`) {
		t.Errorf("a page: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "GET", "blobs?limit=1&offset=1", ""); !strings.Contains(got.body, `"name":"b"`) ||
		!strings.HasSuffix(got.body, `"next":null}`) {
		t.Errorf("the next page: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "GET", "blobs/a.txt/versions", ""); got.status != 200 ||
		strings.Count(got.body, `"sha256"`) != 2 {
		t.Errorf("its versions: %d %s", got.status, got.body)
	}

	got := a.ops(t, "GET", "blobs/a.txt", "")
	if got.status != 200 || got.body != "<b>" || got.header.Get("X-Blob-Version") != "2" ||
		got.header.Get("Content-Length") != "3" {
		t.Errorf("the latest: %d %q %v", got.status, got.body, got.header)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff",
		"Content-Disposition": "attachment; filename=a.txt",
	} {
		if v := got.header.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if again := a.ops(t, "GET", "blobs/a.txt", "", "If-None-Match: "+got.header.Get("Etag")); again.status != 304 ||
		again.body != "" {
		t.Errorf("unchanged: %d %s", again.status, again.body)
	}
	if head := a.ops(t, "HEAD", "blobs/a.txt", ""); head.status != 200 || head.body != "" ||
		head.header.Get("Content-Length") != "3" {
		t.Errorf("HEAD: %d %q %v", head.status, head.body, head.header)
	}
	for target, want := range map[string]int{
		"blobs/a.txt?version=1": 200, "blobs/a.txt:v1": 200, "blobs/a.txt:v2": 200, "blobs/a.txt?version=3": 404,
		"blobs/a.txt:v3":        404,
		"blobs/a.txt?version=0": 400, "blobs/a.txt?version=01": 400, "blobs/a.txt:v": 400, "blobs/a.txt:vx": 400,
		"blobs/a.txt:v1?version=1": 400,
		"blobs/a.txt?vresion=1":    400, "blobs/c": 404, "blobs/c/versions": 404, "blobs/%2e%2e%2fa": 404,
		"blobs/a%00": 404, "blobs/a%2fb": 404,
	} {
		if got := a.ops(t, "GET", target, ""); got.status != want {
			t.Errorf("%s: %d %s, want %d", target, got.status, got.body, want)
		}
	}
	if got := a.ops(t, "GET", "blobs/a.txt:v1", ""); got.body != "A" {
		t.Errorf("version 1: %q", got.body)
	}

	// Environments share nothing.
	if got := a.ask(
		t, a.admin, "GET", "app-staging.j17.example", "/_admin/blobs", "",
	); got.body != `{"ok":true,"blobs":[],"next":null}` {
		t.Errorf("elsewhere: %s", got.body)
	}
	// Code is for those who run the instance.
	body, contentType := form(t, "name", "x", "@file", "x")
	if got := a.ask(t, a.viewer, "POST", "app.j17.example", "/_admin/blobs", body, contentType); got.status != 403 {
		t.Errorf("an auditor uploads: %d %s", got.status, got.body)
	}
	for _, target := range []string{"blobs", "blobs/b", "blobs/b/versions"} {
		if got := a.ask(t, a.viewer, "GET", "app.j17.example", "/_admin/"+target, ""); got.status != 403 {
			t.Errorf("an auditor reads %s: %d %s", target, got.status, got.body)
		}
	}

	for target, want := range map[string]int{
		"blobs/a.txt?version=1": 200, "blobs/b": 200, "blobs/c": 404, "blobs/a:b": 404, "blobs/a.txt:v0": 400,
	} {
		if got := a.ops(t, "DELETE", target, ""); got.status != want {
			t.Errorf("DELETE %s: %d %s, want %d", target, got.status, got.body, want)
		}
	}
	if got := a.ops(t, "DELETE", "blobs/a.txt:v1", ""); got.status != 404 {
		t.Errorf("deleted twice: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "GET", "blobs", ""); strings.Count(got.body, `"name"`) != 1 ||
		!strings.Contains(got.body, `"versions":1`) {
		t.Errorf("what is left: %s", got.body)
	}
}

func TestUploadWithTheFileFirst(t *testing.T) {
	a := administer(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	content := strings.Repeat("content ", 1000)
	if got := a.upload(t, "@file", content, "name", "late"); got.status != 201 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := a.ops(t, "GET", "blobs/late", ""); got.body != content {
		t.Errorf("%d bytes came back", len(got.body))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestHostileUploads(t *testing.T) {
	a := administer(t)
	large := strings.Repeat("x", 1<<20)
	for _, tc := range []struct {
		what  string
		want  j17.Code
		pairs []string
	}{
		{"nothing", j17.CodeMissingField, nil},
		{"no file", j17.CodeMissingField, []string{"name", "a"}},
		{"no name", j17.CodeMissingField, []string{"@file", "x"}},
		{"two files before a name", j17.CodeUnknownField, []string{"@file", "x", "@file", "y", "name", "a"}},
		{"two names behind a file", j17.CodeInvalidField, []string{"@file", "x", "name", "a", "name", "b"}},
		{"a large file before its name", j17.CodePayloadTooLarge, []string{"@file", large + large, "name", "a"}},
		{"a file before its name, a little too large", j17.CodePayloadTooLarge, []string{"@file", large + "x", "name", "a"}},
		{"two names", j17.CodeInvalidField, []string{"name", "a", "name", "b", "@file", "x"}},
		{"a name behind the file", j17.CodeUnknownField, []string{"name", "a", "@file", "x", "name", "b"}},
		{"two files", j17.CodeUnknownField, []string{"name", "a", "@file", "x", "@file", "y"}},
		{"an unknown field", j17.CodeUnknownField, []string{"name", "a", "version", "2", "@file", "x"}},
		{"a field without a name", j17.CodeUnknownField, []string{"", "a", "name", "a", "@file", "x"}},
		{"an empty file", j17.CodeInvalidField, []string{"name", "a", "@file", ""}},
		{"an empty name", j17.CodeInvalidField, []string{"name", "", "@file", "x"}},
		{"a path", j17.CodeInvalidField, []string{"name", "../a", "@file", "x"}},
		{"a pinned name", j17.CodeInvalidField, []string{"name", "a:v2", "@file", "x"}},
		{"a long name", j17.CodeInvalidField, []string{"name", strings.Repeat("a", 129), "@file", "x"}},
		{"a name like a file", j17.CodeInvalidField, []string{"name", large, "@file", "x"}},
		{"a large file", j17.CodePayloadTooLarge, []string{"name", "a", "@file", large + "x"}},
		{"a very large file", j17.CodePayloadTooLarge, []string{"name", "a", "@file", large + large}},
		{"too many fields", j17.CodeUnknownField, []string{"name", "a", "a", "", "b", "", "c", "", "@file", "x"}},
	} {
		if got := a.upload(t, tc.pairs...); got.member(t, "code") != string(tc.want) {
			t.Errorf("%s: %d %s, want %s", tc.what, got.status, got.body, tc.want)
		}
	}
	whole, contentType := form(t, "name", "a", "@file", "content of the file")
	boundary := contentType[strings.Index(contentType, "boundary=")+len("boundary="):]
	for _, tc := range []struct {
		what, contentType, body string
		want                    j17.Code
	}{
		{"JSON", "Content-Type: application/json", `{}`, j17.CodeInvalidContentType},
		{"no boundary", "Content-Type: multipart/form-data", whole, j17.CodeInvalidContentType},
		{"a long boundary", "Content-Type: multipart/form-data; boundary=" + strings.Repeat("x", 200), whole, j17.CodeInvalidContentType},
		{"another boundary", "Content-Type: multipart/form-data; boundary=other", whole, j17.CodeMissingField},
		{"multipart of another sort", "Content-Type: multipart/mixed; boundary=" + boundary, whole, j17.CodeInvalidContentType},
		{"cut in the file", contentType, whole[:strings.Index(whole, "of the file")], j17.CodeInvalidRequest},
		{"cut in a header", contentType, whole[:strings.Index(whole, "filename")], j17.CodeMissingField},
		{"cut before the end", contentType, whole[:len(whole)-8], j17.CodeInvalidRequest},
		{"an endless header", contentType, "--" + boundary + "\r\nX: " + large + "\r\n\r\n", j17.CodeUnknownField},
		{"no headers", contentType, "--" + boundary + "\r\n\r\nx\r\n--" + boundary + "--\r\n", j17.CodeUnknownField},
		{"empty", contentType, " ", j17.CodeMissingField},
	} {
		got := a.ops(t, "POST", "blobs", tc.body, tc.contentType)
		code := got.member(t, "code")
		// What cannot be told from the end of a form is one of two.
		if code != string(tc.want) && (tc.want != j17.CodeMissingField || code != string(j17.CodeInvalidRequest)) {
			t.Errorf("%s: %d %s, want %s", tc.what, got.status, got.body, tc.want)
		}
	}
	if got := a.ops(t, "POST", "blobs", whole, contentType, "Content-Encoding: gzip"); got.status != 400 {
		t.Errorf("compressed: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "POST", "blobs?name=a", whole, contentType); got.status != 400 {
		t.Errorf("with parameters: %d %s", got.status, got.body)
	}

	// A client that goes away in the middle.
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://app.j17.example/_admin/blobs",
		io.MultiReader(strings.NewReader(whole[:len(whole)/2]), iotest.ErrReader(fmt.Errorf("reset"))))
	r.Header.Set("Authorization", "Bearer "+a.admin)
	r.Header.Set("Content-Type", strings.TrimPrefix(contentType, "Content-Type: "))
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code != 400 {
		t.Errorf("gone: %d %s", w.Code, w.Body)
	}

	if got := a.ops(t, "GET", "blobs", ""); got.body != `{"ok":true,"blobs":[],"next":null}` {
		t.Errorf("something was stored: %s", got.body)
	}
	if got := a.ops(t, "POST", "blobs", whole, contentType); got.status != 201 {
		t.Errorf("the sound form: %d %s", got.status, got.body)
	}
	if got := a.upload(t, "name", "largest", "@file", large); got.status != 201 {
		t.Errorf("the largest file: %d %s", got.status, got.body)
	}
}

func TestDebug(t *testing.T) {
	a := administer(t)
	const off = `{"ok":true,"debug":{"wasm_trace":false}}`
	if got := a.ops(t, "GET", "debug", ""); got.status != 200 || got.body != off {
		t.Errorf("at first: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "POST", "debug", `{"wasm_trace":true,"minutes":5}`); got.status != 200 || got.body != `{"ok":true,"debug":{"wasm_trace":true,"until":"2023-11-14T22:18:20Z"}}` {
		t.Errorf("switched on: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "GET", "debug", ""); !strings.Contains(got.body, `"wasm_trace":true`) {
		t.Errorf("then: %s", got.body)
	}
	if got := a.ask(t, a.admin, "GET", "app-test.j17.example", "/_admin/debug", ""); got.body != off {
		t.Errorf("elsewhere: %s", got.body)
	}
	if got := a.ops(t, "POST", "debug", `{"wasm_trace":true}`); !strings.Contains(
		got.body, `"until":"2023-11-14T23:13:20Z"`,
	) {
		t.Errorf("without a time: %s", got.body)
	}
	if got := a.ops(t, "POST", "debug", `{"wasm_trace":false}`); got.body != off {
		t.Errorf("switched off: %s", got.body)
	}
	for body, want := range map[string]int{
		`{}`: 400, `{"wasm_trace":"yes"}`: 400, `{"wasm_trace":true,"minutes":0}`: 400,
		`{"wasm_trace":true,"minutes":61}`:  400,
		`{"wasm_trace":true,"minutes":1.5}`: 400, `{"wasm_trace":null}`: 400, `{"wasm_trace":true,"hours":1}`: 400,
		`[]`: 400, `x`: 400,
	} {
		if got := a.ops(t, "POST", "debug", body); got.status != want {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	for method, body := range map[string]string{"GET": "", "POST": `{"wasm_trace":true}`} {
		if got := a.ask(t, a.viewer, method, "app.j17.example", "/_admin/debug", body); got.status != 403 {
			t.Errorf("an auditor: %s: %d", method, got.status)
		}
	}
	if got := a.ops(t, "GET", "debug", ""); got.body != off {
		t.Errorf("at last: %s", got.body)
	}
	records, _, err := a.registry.Audit.List(
		t.Context(), control.AuditQuery{Instance: a.instance.ID, Action: "debug"}, 10,
	)
	if err != nil || len(records) != 4 || records[0].Outcome != control.Refused ||
		records[3].Actor.Email != "admin@example.com" {
		t.Errorf("the audit log: %+v, %v", records, err)
	}
}
