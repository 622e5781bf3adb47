package deploy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/code/sandbox"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/generation"
	"j17/internal/derived/unique"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// fixture is a service on a store.
type fixture struct {
	*deploy.Service
	data     *testopen.Data
	clock    *clock.Manual
	store    store.Store
	registry *control.Registry
	engine   *engine.Engine
	blobs    *blob.Store
	unique   *unique.Service
	trials   *generation.Service
	pages    int // options of trials
	modules  *modules
	log      *bytes.Buffer
	instance string
	// beside and adopt, if not nil, and settled are hooks of the service.
	beside  func(ctx context.Context, t j17.Tenant, after *spec.Compiled) (part.Beside, error)
	adopt   func() error
	settled atomic.Int64 // how often it was called
}

func start(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{
		data: testopen.NewData(tb), clock: clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)),
		modules: &modules{closed: make(chan string, 100)},
	}
	f.open(tb)
	app, err := f.registry.Instances.Create(tb.Context(), "app")
	if err != nil {
		tb.Fatal(err)
	}
	f.instance = app.ID
	return f
}

func (f *fixture) open(tb testing.TB) {
	tb.Helper()
	f.join(tb, f.data.Open(tb, f.clock))
}

// join makes the fixture one more server of a store.
func (f *fixture) join(tb testing.TB, st store.Store) {
	tb.Helper()
	var err error
	f.store = st
	if f.registry, err = control.Open(tb.Context(), control.Options{
		Store: f.store, Clock: f.clock, PasswordMemory: 64,
	}); err != nil {
		tb.Fatal(err)
	}
	f.log = &bytes.Buffer{}
	logger := slog.New(slog.NewTextHandler(&locked{w: f.log}, nil))
	f.engine = engine.New(engine.Options{Store: f.store, Clock: f.clock, Logger: logger})
	kit := worker.New(f.clock, slog.New(slog.DiscardHandler))
	builds := build.New(build.Options{Store: f.store, Clock: f.clock, Worker: kit, Logger: logger})
	f.unique = unique.New(unique.Options{Store: f.store, Builds: builds, Engine: f.engine, Logger: logger})
	f.blobs = blob.New(blob.Options{
		Store: f.store, Clock: f.clock, Worker: worker.New(f.clock, slog.New(slog.DiscardHandler)),
	})
	f.Service = deploy.New(deploy.Options{
		Registry: f.registry, Engine: f.engine, Blobs: f.blobs, Modules: f.modules, Clock: f.clock, Logger: logger,
		Settled: func(context.Context, j17.Tenant) { f.settled.Add(1) }, Store: f.store, Worker: kit,
	})
	f.trials = generation.New(generation.Options{
		Store: f.store, Engine: f.engine, Clock: f.clock, Worker: kit, Logger: logger, PageEvents: f.pages,
		ReadyPages: f.pages,
	})
	f.engine.Use(f.Part(), f.unique.Part())
	f.Use(f.trials.Part(), f.unique.Part(), part.Part{Deploy: part.Deploy{
		Beside: func(ctx context.Context, t j17.Tenant, after *spec.Compiled) (part.Beside, error) {
			if f.beside == nil {
				return part.Beside{}, nil
			}
			return f.beside(ctx, t, after)
		},
		Adopt: func(context.Context, j17.Tenant) error {
			if f.adopt == nil {
				return nil
			}
			return f.adopt()
		},
	}})
	if err := f.Restore(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func (f *fixture) restart(tb testing.TB) {
	tb.Helper()
	f.open(tb)
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// modules compiles a language of its own: "\0asm" and the names of the functions that a module exports. All of them
// answer with their module's text, so that a test can see which one it calls.
type modules struct {
	mu       sync.Mutex
	compiled int
	closed   chan string
	heavy    bool // whether all modules take much memory
}

func (m *modules) Compile(_ context.Context, binary []byte) (deploy.Module, error) {
	text, ok := strings.CutPrefix(string(binary), "\x00asm ")
	if !ok {
		return nil, &sandbox.Fault{Kind: sandbox.Start, Detail: "it is no WebAssembly module", Hint: "Upload the file that the compiler has made."}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compiled++
	return &module{text: text, closed: m.closed, heavy: m.heavy}, nil
}

func (m *modules) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.compiled
}

type module struct {
	text   string
	closed chan string
	heavy  bool
}

func (m *module) Entrypoints() []string { return strings.Fields(m.text) }

func (m *module) Function(entrypoint string, timeout time.Duration) (sandbox.Function, error) {
	if !slices.Contains(m.Entrypoints(), entrypoint) {
		return nil, &sandbox.Fault{Kind: sandbox.Start, Detail: "it has no " + entrypoint, Hint: "Export it."}
	}
	return function(fmt.Sprint(m.text, " ", entrypoint, " ", timeout)), nil
}

func (m *module) Bytes() int64 {
	if m.heavy {
		return 1 << 30
	}
	if _, size, ok := strings.Cut(m.text, "MiB:"); ok {
		size, _, _ = strings.Cut(size, " ")
		n, _ := strconv.ParseInt(size, 10, 64)
		return n << 20
	}
	return int64(len(m.text))
}

func (m *module) Close() error {
	m.closed <- m.text
	return nil
}

type function string

func (f function) Call(_ context.Context, input []byte) ([]byte, error) {
	if _, rest, ok := strings.Cut(string(f), "answer:"); ok {
		answer, _, _ := strings.Cut(rest, " ")
		return []byte(answer), nil
	}
	if string(input) == "fail" {
		return nil, &sandbox.Fault{Kind: sandbox.Trap, Detail: "unreachable", Log: "parting words"}
	}
	return []byte(f), nil
}

func (f function) Digest() [32]byte { return sha256.Sum256([]byte(f)) }

const head = `"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object"},"handler":`

// simple is a spec whose handler is the text given.
func simple(handler string) string { return `{` + head + handler + `}}}}}` }

const keep = `[{"set":{"target":"","value":"$.data"}}]`

func (f *fixture) request(source string) deploy.Request {
	return deploy.Request{Instance: f.instance, Source: []byte(source)}
}

func (f *fixture) deploy(tb testing.TB, source string) deploy.Result {
	tb.Helper()
	r, err := f.Deploy(tb.Context(), f.request(source))
	if err != nil {
		tb.Fatalf("%v\n%v", err, fieldErrors(err))
	}
	return r
}

func (f *fixture) upload(tb testing.TB, name, exports string) blob.Blob {
	tb.Helper()
	b, created, err := f.put(tb.Context(), name, "\x00asm "+exports)
	if err != nil || !created {
		tb.Fatal(created, err, fieldErrors(err))
	}
	return b
}

func (f *fixture) put(ctx context.Context, name, content string) (blob.Blob, bool, error) {
	return f.PutBlob(ctx, deploy.Upload{
		Instance: f.instance, Environment: j17.Prod, Name: name, By: "opr_x", Content: strings.NewReader(content),
	})
}

func wantCode(tb testing.TB, what string, err error, code j17.Code) {
	tb.Helper()
	if got := j17.CodeOf(err); got != code {
		tb.Errorf("%s: %q (%v), want %q", what, got, err, code)
	}
}

// fieldErrors lists the findings of an error as "pointer: message hint".
func fieldErrors(err error) []string {
	var all []string
	if e, ok := errors.AsType[*j17.Error](err); ok {
		for _, f := range e.Errors {
			all = append(all, strings.TrimSpace(f.Pointer+": "+f.Message+" "+f.Hint))
		}
	}
	return all
}

func TestDeploy(t *testing.T) {
	f := start(t)
	r := f.deploy(t, simple(keep))
	if !r.Created || r.Spec.Version != 1 || r.Environment != j17.Prod || r.Spec.Source != nil {
		t.Errorf("the first: %+v", r.Spec)
	}
	if f.Spec(f.instance, j17.Prod) == nil || f.Spec(f.instance, j17.Test) != nil {
		t.Error("it is not what the engine works with, or is so everywhere")
	}
	if r = f.deploy(t, "\n "+simple(keep)+" \n"); r.Created || r.Spec.Version != 1 {
		t.Errorf("the same again: %+v", r.Spec)
	}
	if r = f.deploy(t, `{"spec":`+simple(keep)+`,"environment":"test"}`); r.Environment != j17.Test ||
		r.Spec.Version != 1 {
		t.Errorf("to the environment of the envelope: %+v", r)
	}

	_, err := f.Deploy(t.Context(), f.request(`{"spec":{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{},
		"handler":[{"sett":{"target":"","value":1}}]}}}},"aggregat_types":{}}}`))
	wantCode(t, "invalid", err, j17.CodeInvalidSpec)
	e, _ := errors.AsType[*j17.Error](err)
	if len(e.Errors) != 2 || e.Errors[0].Line != 2 || e.Errors[0].Column == 0 || e.Errors[0].Hint == "" ||
		e.Errors[1].Pointer != "/aggregat_types" {
		t.Errorf("not all findings with their places: %+v", e.Errors)
	}
	for what, r := range map[string]deploy.Request{
		"no JSON":                 f.request("{"),
		"empty":                   f.request(""),
		"a wrong envelope":        f.request(`{"spec":` + simple(keep) + `,"forced":true}`),
		"a place that is nowhere": f.request(`{"spec":` + simple(keep) + `,"environment":"qa"}`),
	} {
		_, err := f.Deploy(t.Context(), r)
		wantCode(t, what, err, j17.CodeInvalidSpec)
	}
	elsewhere := f.request(`{"spec":` + simple(keep) + `,"environment":"test"}`)
	elsewhere.Environment = j17.Prod
	_, err = f.Deploy(t.Context(), elsewhere)
	wantCode(t, "two environments", err, j17.CodeInvalidField)
	_, err = f.Deploy(t.Context(), deploy.Request{Instance: "ins_111111111111111", Source: []byte(simple(keep))})
	wantCode(t, "no instance", err, j17.CodeNotFound)
	noted := f.request(simple(keep))
	noted.Note = "two\nlines"
	_, err = f.Deploy(t.Context(), noted)
	wantCode(t, "a bad note", err, j17.CodeInvalidField)

	// Nothing of that has changed anything.
	if history, err := f.registry.Specs.History(t.Context(), f.instance, j17.Prod, 0, 10); err != nil ||
		len(history) != 1 {
		t.Errorf("the history: %+v, %v", history, err)
	}
}

func TestFieldErrors(t *testing.T) {
	for message, want := range map[string]string{
		"unknown key \"projections\"":                                  "Unknown key \"projections\".",
		"max_compensation_attempts must be a whole number from 1 to 3": "max_compensation_attempts must be a whole number from 1 to 3.",
		"agent_types must not be empty":                                "agent_types must not be empty.",
		"élan is no type; did you mean \"plan\"?":                      "Élan is no type; did you mean \"plan\"?",
		"": "",
	} {
		if got := diag.FieldErrors([]diag.Diagnostic{
			{Message: message, Hint: message},
		})[0]; got.Message != want || got.Hint != want {
			t.Errorf("%q became %q and the hint %q, want %q", message, got.Message, got.Hint, want)
		}
	}
}

func TestIncompatible(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	other := strings.ReplaceAll(simple(keep), "was_written", "was_typed")
	_, err := f.Deploy(t.Context(), f.request(other))
	wantCode(t, "an event type is gone", err, j17.CodeIncompatibleSpec)
	if len(fieldErrors(err)) != 1 {
		t.Errorf("the reasons: %q", fieldErrors(err))
	}
	r := f.deploy(t, `{"spec":`+other+`,"force":true}`)
	if !r.Created || !r.Spec.Forced || len(r.Breaks()) != 1 {
		t.Errorf("forced: %+v", r)
	}
	r = f.deploy(t, `{"spec":`+other+`,"force":true}`)
	if r.Created {
		t.Errorf("the same again: %+v", r)
	}
}

func TestBase(t *testing.T) {
	f := start(t)
	based := func(base, source string) error {
		r := f.request(source)
		r.Base = &base
		_, err := f.Deploy(t.Context(), r)
		return err
	}
	if err := based("", simple(keep)); err != nil {
		t.Errorf("onto nothing: %v", err)
	}
	wantCode(t, "onto nothing, where there is something", based("", simple(`[]`)), j17.CodePreconditionFailed)
	current, err := f.registry.Specs.Current(t.Context(), f.instance, j17.Prod)
	if err != nil {
		t.Fatal(err)
	}
	if err := based(current.Hash, simple(`[]`)); err != nil {
		t.Errorf("onto what is there: %v", err)
	}
	wantCode(t, "onto what was there", based(current.Hash, simple(keep)), j17.CodePreconditionFailed)
}

const coded = `{
	"agent_types": ["user"],
	"aggregate_types": {"note": {"events": {
		"a": {"schema": {}, "handler": {"wasm": "a.wasm"}},
		"b": {"schema": {}, "handler": {"wasm": {"blob_name": "a.wasm:v1", "entrypoint": "other", "timeout_ms": 7}}},
		"c": {"schema": {}, "handler": [], "implications": [
			{"wasm": {"blob_name": "b.wasm"}},
			{"pipeline": [{"wasm": {"blob_name": "b.wasm:v3", "mode": "transform"}}, {"emit": {"aggregate_type": "note", "id": "global", "event_type": "b"}}]}
		]}
	}}}
}`

func TestCustomCode(t *testing.T) {
	f := start(t)
	const events = "/aggregate_types/note/events"
	_, err := f.Deploy(t.Context(), f.request(coded))
	wantCode(t, "nothing is uploaded", err, j17.CodeInvalidSpec)
	const first = `There is no blob %q in production. Upload it first, to this environment: 'j17 blobs put FILE %[1]s --env prod', or POST /_admin/blobs.`
	if diff := cmp.Diff([]string{
		events + "/a/handler/wasm: " + fmt.Sprintf(first, "a.wasm"),
		events + "/b/handler/wasm/blob_name: " + fmt.Sprintf(first, "a.wasm"),
		events + "/c/implications/0/wasm/blob_name: " + fmt.Sprintf(first, "b.wasm"),
		events + "/c/implications/1/pipeline/0/wasm/blob_name: " + fmt.Sprintf(first, "b.wasm"),
	}, fieldErrors(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e, _ := errors.AsType[*j17.Error](err)
	if len(e.Errors) != 4 || e.Errors[2].Line != 7 || e.Errors[2].Column == 0 {
		t.Errorf("places: %+v", e.Errors)
	}

	f.upload(t, "a.wasm", "apply_handler othr")
	f.upload(t, "b.was", "compute_implications")
	if _, _, err := f.put(t.Context(), "b.wasm", "no module"); err != nil { // nothing uses it yet
		t.Fatal(err)
	}
	_, err = f.Deploy(t.Context(), f.request(coded))
	if diff := cmp.Diff([]string{
		events + `/b/handler/wasm: The blob "a.wasm" cannot be used: it has no other. Did you mean "othr"?`,
		events + `/c/implications/0/wasm/blob_name: The blob "b.wasm" cannot be loaded: it is no WebAssembly module. Upload the file that the compiler has made.`,
		events + `/c/implications/1/pipeline/0/wasm/blob_name: The blob "b.wasm" has no such version in production. The latest is v1.`,
	}, fieldErrors(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f.Spec(f.instance, j17.Prod) != nil {
		t.Error("a spec whose code is missing was deployed")
	}

	source := strings.Replace(strings.ReplaceAll(coded, "a.wasm:v1", "a.wasm:v2"), "b.wasm:v3", "b.wasm:v2", 1)
	f.upload(t, "a.wasm", "apply_handler other")
	f.upload(t, "b.wasm", "compute_implications")
	f.deploy(t, source)
	if diff := cmp.Diff([]string{
		events + "/a/handler/wasm a.wasm 2", events + "/b/handler/wasm/blob_name a.wasm 2",
		events + "/c/implications/0/wasm/blob_name b.wasm 2", events + "/c/implications/1/pipeline/0/wasm/blob_name b.wasm 2",
	}, f.Bindings(f.instance, j17.Prod)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	functions := f.Functions(f.instance, j17.Prod)
	for at, want := range map[string]string{
		"/a/handler/wasm":                   "apply_handler other apply_handler 100ms",
		"/b/handler/wasm":                   "apply_handler other other 7ms",
		"/c/implications/0/wasm":            "compute_implications compute_implications 100ms",
		"/c/implications/1/pipeline/0/wasm": "compute_implications compute_implications 100ms",
	} {
		fn := functions[events+at]
		if fn == nil {
			t.Errorf("%s has no function", at)
			continue
		}
		if got, err := fn.Call(t.Context(), nil); string(got) != want || err != nil ||
			fn.Digest() != function(want).Digest() {
			t.Errorf("%s calls %q, want %q (%v)", at, got, want, err)
		}
	}

	// A module is compiled once for as long as it is in use.
	before := f.modules.count()
	f.deploy(t, strings.Replace(source, `"c":`, `"d": {"schema": {}, "handler": {"wasm": "a.wasm"}}, "c":`, 1))
	if n := f.modules.count() - before; n != 0 {
		t.Errorf("%d modules were compiled again", n)
	}
}

func TestNearestBlob(t *testing.T) {
	f := start(t)
	f.upload(t, "order-handler.wasm", "apply_handler")
	_, err := f.Deploy(t.Context(), f.request(simple(`{"wasm":"order_handler.wasm"}`)))
	if got := fieldErrors(err); len(got) != 1 || !strings.HasSuffix(got[0], `Did you mean "order-handler.wasm"?`) {
		t.Errorf("%q", got)
	}
}

func TestContainersAreOff(t *testing.T) {
	f := start(t)
	_, err := f.Deploy(t.Context(), f.request(simple(`[],"implications":[{"binary_container":{"image":"blob:x"}},{"runtime_container":{"runtime":"node","entrypoint":"x.js"}}]`)))
	wantCode(t, "containers are off", err, j17.CodeInvalidSpec)
	got := fieldErrors(err)
	if len(got) != 2 || !strings.Contains(got[0], "/implications/0/binary_container: Containers are switched off") ||
		!strings.Contains(got[1], "/implications/1/runtime_container: Containers are switched off") {
		t.Errorf("%q", got)
	}
}

// containers makes functions that answer with what they are made of.
type containers struct{ tb testing.TB }

func (c containers) content(ctx context.Context, a *deploy.Archive) string {
	if a == nil {
		return "no archive"
	}
	r, err := a.Open(ctx)
	if err != nil {
		c.tb.Error(err)
		return ""
	}
	content, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		c.tb.Error(err)
	}
	return string(content)
}

func (c containers) Image(ctx context.Context, reference string, a *deploy.Archive) (sandbox.Function, error) {
	if reference == "refused" {
		return nil, j17.Errorf(j17.CodeInvalidSpec, "The engine has no such image.")
	}
	if reference == "broken" {
		return nil, errors.New("open /var/lib/secret: no space left")
	}
	return function("image " + reference + " " + c.content(ctx, a)), nil
}

func (c containers) Source(ctx context.Context, runtime, file string, a *deploy.Archive) (sandbox.Function, error) {
	return function("source " + runtime + " " + file + " " + c.content(ctx, a)), nil
}

func TestContainers(t *testing.T) {
	f := start(t)
	f.Service = deploy.New(deploy.Options{
		Registry: f.registry, Engine: f.engine, Blobs: f.blobs, Containers: containers{t}, Clock: f.clock,
		Logger: slog.New(slog.NewTextHandler(&locked{w: f.log}, nil)),
	})
	const spec = `[],"implications":[{"binary_container":{"image":"blob:x:v1"}},{"binary_container":{"image":"local:2"}},
		{"runtime_container":{"runtime":"node","entrypoint":"x.js"}}]`
	for name, content := range map[string]string{"x": "the image", deploy.RuntimeBlob("node"): "the code"} {
		if _, _, err := f.put(t.Context(), name, content); err != nil {
			t.Fatal(err)
		}
	}
	f.deploy(t, simple(spec))
	calls := func() (all []string) {
		functions := f.Functions(f.instance, j17.Prod)
		const at = "/aggregate_types/note/events/was_written/implications/"
		for _, place := range []string{"0/binary_container", "1/binary_container", "2/runtime_container"} {
			got, _ := functions[at+place].Call(t.Context(), nil)
			all = append(all, string(got))
		}
		return all
	}
	if diff := cmp.Diff(
		[]string{"image blob:x:v1 the image", "image local:2 no archive", "source node x.js the code"}, calls(),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, content := range map[string]string{"x": "another", deploy.RuntimeBlob("node"): "new code"} {
		if _, _, err := f.put(t.Context(), name, content); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(
		[]string{"image blob:x:v1 the image", "image local:2 no archive", "source node x.js new code"}, calls(),
	); diff != "" {
		t.Errorf("after uploads (-want +got):\n%s", diff)
	}
	_, err := f.Deploy(t.Context(), f.request(simple(`[],"implications":[{"binary_container":{"image":"refused"}},{"binary_container":{"image":"broken"}},
		{"binary_container":{"image":"blob:x:vx"}},{"wasm":"x"}]`)))
	const at = "/aggregate_types/note/events/was_written/implications/"
	if diff := cmp.Diff([]string{
		at + "0/binary_container: It cannot be loaded: The engine has no such image.",
		at + "1/binary_container: It cannot be loaded. It is no fault of yours: the server's log says more.",
		at + `2/binary_container/image: The blob "x" has no such version in production. The latest is v2.`,
		at + "3/wasm: This server cannot run WebAssembly.",
	}, fieldErrors(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(f.log.String(), "no space left") {
		t.Errorf("the log does not say more: %s", f.log)
	}
}

func TestMissingBlobNamesTheEnvironment(t *testing.T) {
	f := start(t)
	for env, want := range map[j17.Environment]string{
		j17.Prod:    "'j17 blobs put FILE a.wasm --env prod'",
		j17.Staging: "'j17 blobs put FILE a.wasm --env staging'",
		j17.Test:    "'j17 blobs put FILE a.wasm --env test'",
	} {
		r := f.request(simple(`{"wasm":"a.wasm"}`))
		r.Environment = env
		_, err := f.Deploy(t.Context(), r)
		wantCode(t, string(env), err, j17.CodeInvalidSpec)
		if got := fieldErrors(err); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %q says nothing of %s", env, got, want)
		}
	}
}

func TestLenient(t *testing.T) {
	f := start(t)
	r := f.request(simple(`{"wasm":"a.wasm"}`))
	r.Lenient = true
	result, err := f.Deploy(t.Context(), r)
	if err != nil || !result.Created {
		t.Fatalf("%+v, %v", result, err)
	}
	if !slices.ContainsFunc(
		result.Warnings(), func(d diag.Diagnostic) bool { return strings.Contains(d.Message, "there is no blob") },
	) {
		t.Errorf("it does not warn: %v", result.Warnings())
	}
	if n := len(f.Functions(f.instance, j17.Prod)); n != 0 {
		t.Errorf("%d functions out of nothing", n)
	}
	_, _, err = f.put(t.Context(), "a.wasm", "\x00asm nothing")
	wantCode(t, "not what the spec needs", err, j17.CodeInvalidBlob)
	f.upload(t, "a.wasm", "apply_handler")
	if n := len(f.Functions(f.instance, j17.Prod)); n != 1 {
		t.Errorf("after the upload there are %d functions", n)
	}
}

func TestUpload(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler one")
	f.upload(t, "b.wasm", "apply_handler")
	f.deploy(t, simple(`{"wasm":"a.wasm"}},"pinned":{"schema":{},"handler":{"wasm":"a.wasm:v1"}},"b":{"schema":{},"handler":{"wasm":"b.wasm"}`))
	digest := func(event string) [32]byte {
		return f.Functions(f.instance, j17.Prod)["/aggregate_types/note/events/"+event+"/handler/wasm"].Digest()
	}
	latest, pinned := digest("was_written"), digest("pinned")
	if latest != pinned {
		t.Error("the same module has two digests")
	}
	for what, content := range map[string]string{"an entry point is gone": "\x00asm one", "no module": "text"} {
		_, _, err := f.put(t.Context(), "a.wasm", content)
		wantCode(t, what, err, j17.CodeInvalidBlob)
		if got := fieldErrors(err); len(got) != 1 || !strings.HasPrefix(got[0], "/aggregate_types/note/events/was_written/handler/wasm: ") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if b, err := f.blobs.Find(t.Context(), deploy.Tenant(f.instance, j17.Prod), "a.wasm", 0); err != nil ||
		b.Version != 1 {
		t.Errorf("a refused upload was stored: %+v, %v", b, err)
	}
	if digest("was_written") != latest {
		t.Error("a refused upload has changed the code")
	}
	if _, created, err := f.put(t.Context(), "a.wasm", "\x00asm apply_handler one"); created || err != nil {
		t.Errorf("the same content: %v, %v", created, err)
	}
	f.upload(t, "a.wasm", "apply_handler two")
	if digest("was_written") == latest || digest("pinned") != pinned {
		t.Error("the latest has not changed, or the pinned version has")
	}
	records, _, err := f.registry.Audit.List(t.Context(), control.AuditQuery{Instance: f.instance, Action: "blob"}, 10)
	if err != nil || len(records) != 3 || records[0].Target != "a.wasm" || records[0].Details["version"] != "2" {
		t.Errorf("the audit log: %+v, %v", records, err)
	}
	for what, u := range map[string]deploy.Upload{
		"no instance":    {Instance: "x", Environment: j17.Prod, Name: "a", Content: strings.NewReader("x")},
		"no environment": {Instance: f.instance, Environment: "qa", Name: "a", Content: strings.NewReader("x")},
	} {
		if _, _, err := f.PutBlob(t.Context(), u); err == nil {
			t.Errorf("%s: uploaded", what)
		}
	}
}

// TestABlobThatNobodyHeardOf uploads again what was stored although nobody was told: the deployed spec uses it then.
func TestABlobThatNobodyHeardOf(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler one")
	f.deploy(t, simple(`{"wasm":"a.wasm"}`))
	digest := func() [32]byte {
		return f.Functions(f.instance, j17.Prod)["/aggregate_types/note/events/was_written/handler/wasm"].Digest()
	}
	before := digest()
	upload, err := f.blobs.Upload(
		t.Context(), deploy.Tenant(f.instance, j17.Prod), "a.wasm", "opr_x",
		strings.NewReader("\x00asm apply_handler two"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := upload.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, created, err := f.put(t.Context(), "a.wasm", "\x00asm apply_handler two"); err != nil || created ||
		b.Version != 2 {
		t.Fatal(b, created, err)
	}
	if digest() == before {
		t.Error("the deployed spec uses the former version")
	}
}

func TestDeleteBlob(t *testing.T) {
	f := start(t)
	for i := range 3 {
		f.upload(t, "a.wasm", fmt.Sprint("apply_handler v", i+1))
	}
	f.deploy(t, simple(`{"wasm":"a.wasm:v1"}},"latest":{"schema":{},"handler":{"wasm":"a.wasm"}`))
	remove := func(name string, version int) error {
		return f.DeleteBlob(t.Context(), f.instance, j17.Prod, name, version)
	}
	for _, version := range []int{0, 1, 3} {
		err := remove("a.wasm", version)
		wantCode(t, fmt.Sprint("version ", version), err, j17.CodeBlobInUse)
		if version == 3 {
			if diff := cmp.Diff([]string{"/aggregate_types/note/events/latest/handler/wasm: Version 3 of the blob is used here."}, fieldErrors(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
	if err := remove("a.wasm", 2); err != nil {
		t.Errorf("a version that nothing uses: %v", err)
	}
	wantCode(t, "gone already", remove("a.wasm", 2), j17.CodeNotFound)
	wantCode(t, "never there", remove("b.wasm", 0), j17.CodeNotFound)
	f.deploy(t, `{"force":true,"spec":`+simple(keep)+`}`)
	if err := remove("a.wasm", 0); err != nil {
		t.Errorf("after the spec has changed: %v", err)
	}
}

func TestRestore(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler")
	f.upload(t, "b.wasm", "apply_handler b")
	f.deploy(t, simple(`{"wasm":"a.wasm"}},"b":{"schema":{},"handler":{"wasm":"b.wasm"}`))
	f.restart(t)
	if n := len(f.Functions(f.instance, j17.Prod)); n != 2 || f.Spec(f.instance, j17.Prod) == nil {
		t.Errorf("after a restart there are %d functions", n)
	}
	if f.log.Len() > 0 {
		t.Errorf("it is not silent: %s", f.log)
	}
	// Behind the service's back.
	if err := f.blobs.Delete(t.Context(), deploy.Tenant(f.instance, j17.Prod), "a.wasm", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.registry.Specs.Put(t.Context(), control.Deployment{
		Instance: f.instance, Environment: j17.Test, Source: []byte("{}"),
	}); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	if n := len(f.Functions(f.instance, j17.Prod)); n != 1 || f.Spec(f.instance, j17.Prod) == nil {
		t.Errorf("without one of its blobs the spec has %d functions, or is not deployed", n)
	}
	if f.Spec(f.instance, j17.Test) != nil {
		t.Error("an invalid spec was deployed")
	}
	for _, want := range []string{"/aggregate_types/note/events/was_written/handler/wasm", "is not valid for this version"} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("the log has no %q: %s", want, f.log)
		}
	}
	f.upload(t, "a.wasm", "apply_handler")
	if n := len(f.Functions(f.instance, j17.Prod)); n != 2 {
		t.Errorf("after the upload there are %d functions", n)
	}
}

func (f *fixture) write(tb testing.TB, id, data string) {
	tb.Helper()
	body, err := value.ParseString(`{"data":` + data + `,"metadata":{"actor":{"type":"user","id":"global"}}}`)
	if err != nil {
		tb.Fatal(err)
	}
	c := engine.Command{Tenant: deploy.Tenant(f.instance, j17.Prod), Command: command.Read("was_written", body)}
	c.Writes[0].Type, c.Writes[0].ID = "note", id
	_, err = f.engine.Execute(tb.Context(), &c)
	if err != nil {
		tb.Fatal(err)
	}
}
