package container_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/code/container"
	"j17/internal/code/sandbox"
)

// TestProcessorTimeDecides has a call that lasts longer than its time without using it, as calls do on a busy machine,
// and one that uses it.
func TestProcessorTimeDecides(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		t.Parallel()
		opts.Timeout = 200 * time.Millisecond
		f, err := open(t, opts).Image(t.Context(), container.ImageSource{Archive: archiveOf(image(t, object{
			"Entrypoint": []string{"/bin/guest"}, "Labels": map[string]string{"j17.calls": "many"},
		}, guest(t)))})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := call(t, f, `{"do":"nap"}`); got != `"rested"` {
				t.Error(got)
			}
		}
		spun(t.Context(), t, f, "200ms")
		started(t, f)
		// A replay has its own limit, and reports that one.
		spun(sandbox.ForReplay(t.Context()), t, f, "2s")
		started(t, f)
		// Naps take nothing from what the calls for a command have together, which four of them would otherwise use up.
		command := sandbox.ForCommand(t.Context())
		for range 3 {
			if _, err := f.Call(command, []byte(`{"do":"nap"}`)); err != nil {
				t.Error(err)
			}
		}
	})
}

// started calls until a worker answers: after several that ended without an answer, as those that have spun did, the
// next one starts a little later.
func started(t *testing.T, f sandbox.Function) {
	t.Helper()
	machine := clock.System{}
	for tries := 0; ; tries++ {
		_, err := f.Call(t.Context(), []byte(`{"do":"nap"}`))
		if err == nil {
			return
		}
		fault, ok := errors.AsType[*sandbox.Fault](err)
		if !ok || fault.Kind != sandbox.Start || tries == 1000 {
			t.Fatalf("%d tries: %v", tries, err)
		}
		if err := machine.Wait(t.Context(), machine.Now().Add(10*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// spun makes a call that does nothing but use the processor, until it is ended for having used so much of it. Where the
// processor has hardly any time for it, the clock ends it before, which is as right.
func spun(ctx context.Context, t *testing.T, f sandbox.Function, limit string) {
	t.Helper()
	for tries := 1; ; tries++ {
		_, err := f.Call(ctx, []byte(`{"do":"spin"}`))
		fault, ok := errors.AsType[*sandbox.Fault](err)
		if ok && fault.Kind == sandbox.Timeout &&
			fault.Detail == "the call took more than "+limit+" of processor time" {
			return
		}
		if !ok || fault.Kind != sandbox.Timeout || !strings.HasPrefix(fault.Detail, "no answer came within ") ||
			tries == 50 {
			t.Fatalf("%d tries: %v", tries, err)
		}
	}
}
