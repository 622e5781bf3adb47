package deploy_test

import (
	"context"
	"errors"
	"testing"

	"j17"
	"j17/internal/code/sandbox"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/storage/store"
)

// TestEnvironmentsShareWhatIsCompiled restores three environments with the same text.
func TestEnvironmentsShareWhatIsCompiled(t *testing.T) {
	f := start(t)
	const text = `{` + head + `[{"set":{"target":"","value":{"a":1}}}]}}}}}`
	for _, env := range j17.Environments() {
		if _, err := f.Deploy(t.Context(), deploy.Request{
			Instance: f.instance, Environment: env, Source: []byte(text),
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.restart(t)
	first := f.Spec(f.instance, j17.Prod)
	if first == nil {
		t.Fatal("nothing was restored")
	}
	for _, env := range j17.Environments() {
		if f.Spec(f.instance, env) != first {
			t.Errorf("%s has compiled the same text again", env)
		}
	}
}

// TestASpecOfANewerProgramIsNotServedAsTheOldOne has another server of the same store deploy what this one does not
// understand: it serves none until one is deployed that it does.
func TestASpecOfANewerProgramIsNotServedAsTheOldOne(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	if _, err := f.registry.Specs.Put(t.Context(), control.Deployment{
		Instance: f.instance, Environment: j17.Prod, Source: []byte("{}"), Base: 1,
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.Adopt(t.Context(), f.instance, j17.Prod); err != nil {
		t.Fatal(err)
	}
	if old := f.Spec(f.instance, j17.Prod); old != nil {
		t.Error("the old spec is served")
	}
	err := f.Hold(
		t.Context(), j17.TenantOf(f.instance, j17.Prod), func(*spec.Compiled, store.Fence) error { return nil },
	)
	if j17.CodeOf(err) != j17.CodeNoSpec {
		t.Errorf("held: %v", err)
	}
	if f.deploy(t, simple(`[]`)); f.Spec(f.instance, j17.Prod) == nil {
		t.Error("a corrected one is not served")
	}
}

// slow is a compiler that waits for its context where the module says so.
type slow struct {
	modules
	entered chan struct{}
}

func (s *slow) Compile(ctx context.Context, binary []byte) (deploy.Module, error) {
	if string(binary) == "\x00asm slow" {
		s.entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.modules.Compile(ctx, binary)
}

// TestInstancesCompileOneModuleAtATime keeps an instance from compiling several modules at once, and no other from
// compiling.
func TestInstancesCompileOneModuleAtATime(t *testing.T) {
	s := &slow{modules: modules{closed: make(chan string, 100)}, entered: make(chan struct{}, 10)}
	c := deploy.NewModuleCache(s)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Compile(ctx, "one", "slow", "\x00asm slow") }()
	<-s.entered
	if err := c.Compile(t.Context(), "two", "quick", "\x00asm a"); err != nil {
		t.Errorf("another instance: %v", err)
	}
	waiting, leave := context.WithCancel(t.Context())
	leave()
	if err := c.Compile(waiting, "one", "other", "\x00asm b"); !errors.Is(err, context.Canceled) {
		t.Errorf("the same instance, of a client that has left: %v", err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.Compile(t.Context(), "one", "other", "\x00asm b"); err != nil {
		t.Errorf("the same instance afterwards: %v", err)
	}
}

// TestWorkLimitIsADifference reports that dry runs list events that would take too much work.
func TestWorkLimitIsADifference(t *testing.T) {
	if why, ok := deploy.CodeError(j17.Errorf(j17.CodeWorkLimit, "Too much")); !ok || why != "Too much" {
		t.Error(why, ok)
	}
	if _, ok := deploy.CodeError(&sandbox.Fault{Kind: sandbox.Trap}); !ok {
		t.Error("a fault of custom code is none")
	}
	if _, ok := deploy.CodeError(j17.Errorf(j17.CodeCorruption, "Damaged")); ok {
		t.Error("damage is taken for a fault of a handler")
	}
}
