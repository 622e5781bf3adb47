package server

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"j17/internal/clock"
)

// TestAFirstDeploymentDoesNotWaitForIndexes opens a server with a spec whose lists need indexes. Nobody builds them before it runs.
func TestAFirstDeploymentDoesNotWaitForIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := clock.System{}
		began := machine.Now()
		d, err := OpenDev(t.Context(), DevOptions{Options: Options{
			Dir: t.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: machine, Logger: slog.New(slog.DiscardHandler),
		}, SpecFile: "../../examples/storefinder/spec.json"})
		if err != nil {
			t.Fatal(err)
		}
		if waited := machine.Now().Sub(began); waited != 0 {
			t.Errorf("it has waited for %v", waited)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
