package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// openDev opens a development server with a spec, which does not run.
func openDev(t *testing.T, file string) *Dev {
	t.Helper()
	d, err := OpenDev(t.Context(), DevOptions{Options: Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: clock.System{},
		Logger: slog.New(slog.DiscardHandler),
	}, SpecFile: file})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestAFirstDeploymentDoesNotWaitForIndexes opens a server with a spec whose lists need indexes. Nobody builds them
// before it runs.
func TestAFirstDeploymentDoesNotWaitForIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := clock.System{}
		began := machine.Now()
		d := openDev(t, "../../examples/storefinder/spec.json")
		if waited := machine.Now().Sub(began); waited != 0 {
			t.Errorf("it has waited for %v", waited)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUniqueSetsAreAdoptedAgain takes away what is known of who holds unique values, and lets the server fail to find
// it out. It finds it out once it goes on by itself, without another deployment.
func TestUniqueSetsAreAdoptedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sets = store.Space("unique.sets")
		file := filepath.Join(t.TempDir(), "spec.json")
		if err := os.WriteFile(file, []byte(`{"agent_types": ["user"], "aggregate_types": {"user": {"events": {
			"was_registered": {"schema": {}, "handler": [], "unique": {"email": {"value": "$.data.email"}}}}}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		d := openDev(t, file)
		s := d.server
		inForce := func(tenant j17.Tenant) []store.Item {
			items, err := s.store.Scan(t.Context(), tenant, sets, store.Range{}, 10)
			if err != nil {
				t.Fatal(err)
			}
			return items
		}
		var tenant j17.Tenant
		for _, owned := range s.owned() {
			if at := j17.TenantOf(owned.instance, owned.env); len(inForce(at)) == 1 {
				tenant = at
			}
		}
		items := inForce(tenant)
		if len(items) != 1 {
			t.Fatalf("at first there are %d sets", len(items))
		}

		// It fails on a record that is damaged, and nothing is in force.
		write := func(op store.SideOp, space store.Space, key, value string) {
			if err := s.store.Write(t.Context(), tenant, []store.Side{
				{Op: op, Space: space, Key: key, Value: []byte(value)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		write(store.Delete, sets, items[0].Key, "")
		write(store.Put, "unique.fillings", "deployment", "damaged")
		instance, env, _ := strings.Cut(string(tenant), "/")
		s.deploy.Forget(instance)
		if err := s.deploy.Adopt(t.Context(), instance, j17.Environment(env)); err != nil {
			t.Fatal(err)
		}
		write(store.Delete, "unique.fillings", "deployment", "")
		if items := inForce(tenant); len(items) != 0 {
			t.Fatalf("there are %d sets in force already", len(items))
		}

		// The server goes on.
		running, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.deploy.Run(running) }()
		synctest.Wait()
		machine := clock.System{}
		for tries := 0; len(inForce(tenant)) == 0 && tries < 100; tries++ { // seconds of the bubble, which cost nothing
			if err := machine.Wait(t.Context(), machine.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if items := inForce(tenant); len(items) != 1 {
			t.Errorf("there are %d sets in force", len(items))
		}
		stop()
		if err := errors.Join(<-done, d.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
