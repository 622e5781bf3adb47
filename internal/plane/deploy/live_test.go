package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/storage/store"
)

func TestTrace(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler")
	f.deploy(t, simple(`{"wasm":"a.wasm"}`))
	call := func(input string) string {
		t.Helper()
		f.log.Reset()
		for _, fn := range f.Functions(f.instance, j17.Prod) {
			if _, err := fn.Call(t.Context(), []byte(input)); (err != nil) != (input == "fail") {
				t.Error(err)
			}
		}
		return f.log.String()
	}
	switched := func(d time.Duration) time.Time {
		t.Helper()
		until, err := f.Trace(t.Context(), f.instance, j17.Prod, d)
		if err != nil {
			t.Fatal(err)
		}
		return until
	}
	if got := call("secret"); got != "" {
		t.Errorf("traced without having been asked to: %s", got)
	}
	if until := switched(10 * time.Minute); !until.Equal(f.clock.Now().Add(10 * time.Minute)) {
		t.Errorf("it ends at %s", until)
	}
	got := call("{input}")
	for _, want := range []string{"level=INFO", "input={input}", `output="apply_handler apply_handler 100ms"`, "environment=prod", "pointer=/aggregate_types/note/events/was_written/handler/wasm", f.instance} {
		if !strings.Contains(got, want) {
			t.Errorf("the log has no %s: %s", want, got)
		}
	}
	if got := call("fail"); !strings.Contains(got, "unreachable") || !strings.Contains(got, `log="parting words"`) {
		t.Errorf("a fault is not traced: %s", got)
	}
	if got := call(strings.Repeat("x", 1<<20)); len(got) > 5<<10 || !strings.Contains(got, "[cut]") {
		t.Errorf("%d bytes for one call", len(got))
	}
	// Code that is deployed later is traced too; other environments are not.
	f.upload(t, "a.wasm", "apply_handler again")
	if got := call("{}"); got == "" {
		t.Error("the new version is not traced")
	}
	if until, err := f.Tracing(f.instance, j17.Test); err != nil || !until.IsZero() {
		t.Errorf("the test environment is traced until %s: %v", until, err)
	}
	f.clock.Advance(10 * time.Minute)
	if got := call("{}"); got != "" {
		t.Errorf("traced after its time: %s", got)
	}
	if until, err := f.Tracing(f.instance, j17.Prod); err != nil || !until.IsZero() {
		t.Errorf("it still says it is: %s, %v", until, err)
	}
	if until := switched(48 * time.Hour); !until.Equal(f.clock.Now().Add(deploy.MaxTrace)) {
		t.Errorf("asked for two days, it ends at %s", until)
	}
	if until := switched(0); !until.IsZero() || call("{}") != "" {
		t.Error("it cannot be switched off")
	}
	if _, err := f.Trace(t.Context(), "x", j17.Prod, time.Minute); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("no instance: %v", err)
	}
	if _, err := f.Tracing("x", j17.Prod); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("no instance: %v", err)
	}
}

// TestRaces uploads, deletes and deploys at the same time. Whatever the order was, in the end the code of the deployed
// spec is there and is the latest where the latest is asked for.
func TestRaces(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler first")
	specs := []string{simple(`{"wasm":"a.wasm"}`), simple(`{"wasm":"a.wasm"}},"pinned":{"schema":{},"handler":{"wasm":"a.wasm:v1"}`), simple(keep)}
	f.deploy(t, specs[0])
	unexpected := func(err error, allowed ...j17.Code) {
		if err == nil {
			return
		}
		for _, code := range allowed {
			if j17.CodeOf(err) == code {
				return
			}
		}
		t.Errorf("%v %q", err, fieldErrors(err))
	}
	var g sync.WaitGroup
	for w := range 4 {
		g.Go(func() {
			for i := range 20 {
				_, _, err := f.put(t.Context(), "a.wasm", fmt.Sprintf("\x00asm apply_handler w%d i%d", w, i))
				unexpected(err)
			}
		})
		g.Go(func() {
			for i := range 20 {
				r := f.request(specs[(w+i)%len(specs)])
				r.Force = true
				_, err := f.Deploy(t.Context(), r)
				unexpected(err)
			}
		})
		g.Go(func() {
			for i := range 20 {
				// Version 1 stays for the pin.
				unexpected(
					f.DeleteBlob(t.Context(), f.instance, j17.Prod, "a.wasm", 2+w*20+i), j17.CodeNotFound,
					j17.CodeBlobInUse,
				)
			}
		})
	}
	g.Wait()
	f.deploy(t, `{"force":true,"spec":`+specs[1]+`}`)
	latest, err := f.blobs.Find(t.Context(), deploy.Tenant(f.instance, j17.Prod), "a.wasm", 0)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint("[/aggregate_types/note/events/pinned/handler/wasm a.wasm 1 /aggregate_types/note/events/was_written/handler/wasm a.wasm ", latest.Version, "]")
	if got := fmt.Sprint(f.Bindings(f.instance, j17.Prod)); got != want {
		t.Errorf("in use is %s, want %s", got, want)
	}
	if err := f.Restore(t.Context()); err != nil || len(f.Functions(f.instance, j17.Prod)) != 2 {
		t.Errorf("something is missing: %v", err)
	}
}

// TestConcurrentDeploys checks that no deployment gets lost: each makes a version, or is told of the one before.
func TestConcurrentDeploys(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	current, err := f.registry.Specs.Current(t.Context(), f.instance, j17.Prod)
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	var mu sync.Mutex
	created := 0
	for i := range 8 {
		g.Go(func() {
			r := f.request(simple(fmt.Sprintf(`[{"set":{"target":"n","value":%d}}]`, i)))
			r.Base = &current.Hash
			result, err := f.Deploy(t.Context(), r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && result.Created:
				created++
			case j17.CodeOf(err) != j17.CodePreconditionFailed:
				t.Error(result.Created, err)
			}
		})
	}
	g.Wait()
	if created != 1 {
		t.Errorf("%d deployments replaced the same spec", created)
	}
}

// TestDeployedElsewhere checks that a spec is compared with what another server has deployed meanwhile.
func TestDeployedElsewhere(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	_, err := f.registry.Specs.Put(t.Context(), control.Deployment{
		Instance: f.instance, Environment: j17.Prod, Base: 1,
		Source: []byte(simple(keep + `},"more":{"schema":{},"handler":[]`)),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Deploy(t.Context(), f.request(simple(keep)))
	wantCode(t, "it would remove an event type", err, j17.CodeIncompatibleSpec)
	if f.Spec(f.instance, j17.Prod).EventType("note", "more") == nil {
		t.Error("what was deployed elsewhere does not count here")
	}
}

// TestServersOfOneStore deploys by one server and writes by another, which has not heard of it: what is written is what
// the deployed spec and its code make of it.
func TestServersOfOneStore(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	other := &fixture{clock: f.clock, modules: f.modules, instance: f.instance}
	other.join(t, f.store)
	write := func() error {
		body, err := value.ParseString(`{"data":{},"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}}`)
		if err != nil {
			t.Fatal(err)
		}
		c := &engine.Command{Command: command.Read("was_written", body), Tenant: deploy.Tenant(f.instance, j17.Prod)}
		c.Writes[0].Type, c.Writes[0].ID = "note", "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
		_, err = other.engine.Execute(t.Context(), c)
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	f.upload(t, "a.wasm", "judge answer:[]")
	coded := `{` + head + keep + `,"implications":[{"wasm":{"blob_name":"a.wasm","entrypoint":"judge"}}]}}}}}`
	f.deploy(t, coded)
	if err := write(); err != nil {
		t.Error(err)
	}
	if got := other.Bindings(f.instance, j17.Prod); len(got) != 1 || !strings.HasSuffix(got[0], "a.wasm 1") {
		t.Errorf("the other server uses %s", got)
	}
	f.upload(t, "a.wasm", "judge answer:[] again")
	if err := write(); err != nil {
		t.Error(err)
	}
	if got := other.Bindings(f.instance, j17.Prod); len(got) != 1 || !strings.HasSuffix(got[0], "a.wasm 2") {
		t.Errorf("after an upload the other server uses %s", got)
	}
	r := f.request(`{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_read":{"schema":{},"handler":[]}}}}}`)
	r.Force = true
	if _, err := f.Deploy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "an event type that is gone", write(), j17.CodeUnknownEventType)
	r.Source = []byte(simple(keep))
	if _, err := f.Deploy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := other.Adopt(t.Context(), f.instance, j17.Prod); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if err := f.registry.Instances.Delete(t.Context(), f.instance, "app"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "an instance that is gone", write(), j17.CodeNoSpec)
}

// TestGivenUp checks that a client that goes away while code is loaded leaves everything as it was.
func TestGivenUp(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler")
	f.deploy(t, simple(keep))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Deploy(ctx, f.request(simple(`{"wasm":"a.wasm"}`))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if history, err := f.registry.Specs.History(t.Context(), f.instance, j17.Prod, 0, 10); err != nil ||
		len(history) != 1 {
		t.Errorf("%+v, %v", history, err)
	}
	f.deploy(t, simple(`{"wasm":"a.wasm"}`))
	if _, _, err := f.put(ctx, "a.wasm", "\x00asm apply_handler two"); err == nil {
		t.Error("uploaded")
	}
	if got := f.Bindings(f.instance, j17.Prod); len(got) != 1 || !strings.HasSuffix(got[0], " 1") {
		t.Errorf("in use is %s", got)
	}
}

// TestModulesAreClosed checks that modules go when nothing can call them any longer, and not before.
func TestModulesAreClosed(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler old")
	f.deploy(t, simple(`{"wasm":"a.wasm"}`))
	func() {
		fn := f.Functions(f.instance, j17.Prod)["/aggregate_types/note/events/was_written/handler/wasm"]
		f.upload(t, "a.wasm", "apply_handler new")
		runtime.GC()
		select {
		case text := <-f.modules.closed:
			t.Fatalf("%q was closed while it can still be called", text)
		default:
		}
		if got, err := fn.Call(t.Context(), nil); err != nil || string(got) != "apply_handler old apply_handler 100ms" {
			t.Errorf("%q, %v", got, err)
		}
	}()
	f.deploy(t, simple(`{"wasm":"a.wasm"}},"b":{"schema":{},"handler":[]`)) // releases the spec before
	for late := time.Now().Add(5 * time.Minute); ; runtime.Gosched() {
		runtime.GC()
		select {
		case text := <-f.modules.closed:
			if text != "apply_handler old" {
				t.Fatalf("%q was closed", text)
			}
			return
		default:
			if time.Now().After(late) {
				t.Fatal("the module is never closed")
			}
		}
	}
}

// TestDamagedBlob checks that content which is not what was uploaded is not run.
func TestDamagedBlob(t *testing.T) {
	f := start(t)
	f.upload(t, "a.wasm", "apply_handler")
	tenant := deploy.Tenant(f.instance, j17.Prod)
	items, err := f.store.Scan(t.Context(), tenant, "blob.chunks", store.Range{}, 1)
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	damage(t, f, items[0].Key)
	_, err = f.Deploy(t.Context(), f.request(simple(`{"wasm":"a.wasm"}`)))
	wantCode(t, "damaged", err, j17.CodeInvalidSpec)
	if got := fieldErrors(err); len(got) != 1 || !strings.Contains(got[0], "damaged") {
		t.Errorf("%q", got)
	}
	if e, ok := errors.AsType[*j17.Error](err); ok && strings.Contains(fmt.Sprint(e.Errors), "blob.versions") {
		t.Errorf("the store shows: %v", e.Errors)
	}
}

func damage(tb testing.TB, f *fixture, chunk string) {
	tb.Helper()
	side := store.Side{Op: store.Put, Space: "blob.chunks", Key: chunk, Value: []byte("\x00asm apply_hander!")}
	if err := f.store.Write(tb.Context(), deploy.Tenant(f.instance, j17.Prod), []store.Side{side}); err != nil {
		tb.Fatal(err)
	}
}
