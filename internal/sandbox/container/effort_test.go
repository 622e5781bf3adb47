package container_test

import (
	"errors"
	"testing"
	"time"

	"j17/internal/sandbox"
	"j17/internal/sandbox/container"
)

// TestProcessorTimeDecides has a call that lasts longer than its time without using it, as calls do on a busy machine, and one
// that uses it.
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
		if fault := fails(t, f, `{"do":"spin"}`, sandbox.Timeout); fault.Detail != "the call took more than 200ms of processor time" {
			t.Error(fault.Detail)
		}
		// A replay has its own limit, and tells that one.
		_, err = f.Call(sandbox.ForReplay(t.Context()), []byte(`{"do":"spin"}`))
		if fault, ok := errors.AsType[*sandbox.Fault](err); !ok || fault.Kind != sandbox.Timeout || fault.Detail != "the call took more than 2s of processor time" {
			t.Error(err)
		}
		// Naps take nothing from what the calls for a command have together, which four of them would otherwise use up.
		command := sandbox.ForCommand(t.Context())
		for range 3 {
			if _, err := f.Call(command, []byte(`{"do":"nap"}`)); err != nil {
				t.Error(err)
			}
		}
	})
}
