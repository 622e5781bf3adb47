package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
	"j17/internal/storage/testopen"
)

// ending is a store whose program ends when it has written a number of times.
type ending struct {
	store.Store
	left int
}

var errEnded = errors.New("the program has ended")

func (e *ending) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if e.left == 0 {
		return errEnded
	}
	e.left--
	return e.Store.Write(ctx, t, side, fences...)
}

func (e *ending) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if e.left == 0 {
		return errEnded
	}
	e.left--
	return e.Store.WriteFreeing(ctx, t, side, fences...)
}

func (e *ending) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	if e.left == 0 {
		return nil, errEnded
	}
	e.left--
	return e.Store.Append(ctx, t, units)
}

// putFormer writes versions of a spec to where they used to be: items of the System tenant.
func putFormer(tb testing.TB, s *server, uuid string, env j17.Environment, sources ...string) {
	tb.Helper()
	at := uuid + "/" + string(env)
	var sides []store.Side
	for i, source := range sources {
		key := fmt.Sprintf("%s/%010d", at, i+1)
		version := fmt.Sprintf(`{"id":"dep_%d","version":%d,"hash":"h%d","deployed_at":"2026-11-21T12:00:00Z","deployed_by":{"kind":"server"},"how":"deploy"}`, i+1, i+1, i+1)
		sides = append(sides,
			store.Side{Op: store.Put, Space: "control.specs", Key: key, Value: []byte(version)},
			store.Side{Op: store.Put, Space: "control.specs", Key: key + "/source", Value: []byte(source)})
	}
	sides = append(sides, store.Side{
		Op: store.Put, Space: "control.spec_heads", Key: at, Value: fmt.Appendf(nil, `{"version":%d}`, len(sources)),
	})
	if err := s.store.Write(tb.Context(), j17.System, sides); err != nil {
		tb.Fatal(err)
	}
}

// uuidOf returns the id under which the store has an instance.
func uuidOf(tb testing.TB, s *server, name string) string {
	tb.Helper()
	it, err := s.store.Get(tb.Context(), j17.System, "control.instance_names", name)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(string(it.Value), `"`)[3]
}

// former counts the items that are left where specs used to be.
func former(tb testing.TB, s *server) int {
	tb.Helper()
	n := 0
	for _, space := range []store.Space{"control.specs", "control.spec_heads"} {
		items, err := s.store.Scan(tb.Context(), j17.System, space, store.Range{}, 1000)
		if err != nil {
			tb.Fatal(err)
		}
		n += len(items)
	}
	return n
}

// TestWhatWasDeployedSinceStays finds specs where they used to be, of an environment that has newer ones: the program
// has ended between the move and the removal.
func TestWhatWasDeployedSinceStays(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	put := func(source string, base int) {
		t.Helper()
		if _, err := s.Specs.Put(t.Context(), control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte(source), Base: base,
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("one", 0)
	put("two", 1)
	putFormer(t, s, uuidOf(t, s, "app"), j17.Prod, "one")
	s.restart(t)
	if got, err := s.Specs.Current(t.Context(), app.ID, j17.Prod); err != nil || string(got.Source) != "two" ||
		former(t, s) != 0 {
		t.Errorf("%+v, %v; %d items are left", got, err, former(t, s))
	}
}

// TestSpecsAreCopiedWithTheirEnvironment takes an environment out of its store and puts it back.
func TestSpecsAreCopiedWithTheirEnvironment(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	tenant := j17.TenantOf(app.ID, j17.Prod)
	deployed, err := s.Specs.Put(t.Context(), control.Deployment{
		Instance: app.ID, Environment: j17.Prod, Source: []byte("one"), Note: "first",
	})
	if err != nil {
		t.Fatal(err)
	}
	const spare = "ins_spare/prod"
	if err := storetest.Copy(t.Context(), s.store, tenant, s.store, spare); err != nil {
		t.Fatal(err)
	}
	if err := s.store.DropTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	_, err = s.Specs.Current(t.Context(), app.ID, j17.Prod)
	want(t, "without its data", err, j17.CodeNoSpec, "")
	if err := storetest.Copy(t.Context(), s.store, spare, s.store, tenant); err != nil {
		t.Fatal(err)
	}
	got, err := s.Specs.Current(t.Context(), app.ID, j17.Prod)
	if diff := cmp.Diff(deployed, got); diff != "" || err != nil {
		t.Errorf("(-before +after): %v\n%s", err, diff)
	}
	if all, err := s.Specs.History(t.Context(), app.ID, j17.Prod, 0, 10); err != nil || len(all) != 1 ||
		all[0].Note != "first" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestNothingIsCommittedUnderAFormerSpec checks what a deployment promises of units that carry its fence.
func TestNothingIsCommittedUnderAFormerSpec(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	tenant := j17.TenantOf(app.ID, j17.Prod)
	unit := func(f store.Fence) store.Outcome {
		t.Helper()
		results, err := s.store.Append(t.Context(), tenant, []store.Append{{
			Fences: []store.Fence{f},
			Events: []store.NewEvent{
				{Key: j17.Key{Type: "a", ID: "1"}, Type: "was", Data: []byte("{}"), Metadata: []byte("{}")},
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return results[0].Outcome
	}
	var before control.Spec
	for base := range 3 {
		spec, err := s.Specs.Put(t.Context(), control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte{byte('0' + base)}, Base: base,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := unit(spec.Fence); got != store.Committed {
			t.Errorf("version %d: outcome %d", spec.Version, got)
		}
		if base > 0 && unit(before.Fence) != store.Conflict {
			t.Errorf("version %d counts after %d", before.Version, spec.Version)
		}
		before = spec
	}
	again, err := s.Specs.Put(t.Context(), control.Deployment{
		Instance: app.ID, Environment: j17.Prod, Source: []byte("2"), Base: 3,
	})
	if err != nil || again.Fence != before.Fence {
		t.Errorf("deploying the same again: %+v, %v", again, err)
	}
	touched, err := s.Specs.Touch(t.Context(), app.ID, j17.Prod, before.Fence)
	if err != nil || unit(before.Fence) != store.Conflict || unit(touched) != store.Committed {
		t.Errorf("what the spec refers to has changed: %+v, %v", touched, err)
	}
	_, err = s.Specs.Touch(t.Context(), app.ID, j17.Prod, before.Fence)
	want(t, "with a fence that does not hold", err, j17.CodeConflict, "")
	if err := s.Instances.Delete(t.Context(), app.ID, "app"); err != nil {
		t.Fatal(err)
	}
	if got := unit(touched); got != store.Conflict {
		t.Errorf("an event of a deleted instance: outcome %d", got)
	}
}

// TestADeploymentIsToldOfLater ends the program between a deployment and its announcement: the audit log has it once
// all the same, as soon as someone looks.
func TestADeploymentIsToldOfLater(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		s := start(t)
		app := s.instance(t, "app")
		for writes := 1; writes <= 3; writes++ {
			e := &ending{s.store, writes}
			r, err := control.Open(t.Context(), control.Options{Store: e, Clock: s.clock})
			if err != nil {
				t.Fatal(err)
			}
			ctx := control.WithActor(
				t.Context(), control.Actor{Kind: control.ActorOperator, Email: "a@example.com", Address: "192.0.2.1"},
				"req",
			)
			deployed, err := r.Specs.Put(ctx, control.Deployment{
				Instance: app.ID, Environment: j17.Prod, Source: []byte{byte('0' + writes)}, Base: writes - 1,
			})
			if err != nil {
				t.Fatal(writes, err)
			}
			s.clock.Advance(time.Second)
			s.restart(t)
			upkeep(t, s)
			s.restart(t)
			upkeep(t, s)
			records, _, err := s.Audit.List(t.Context(), control.AuditQuery{Action: "spec"}, 10)
			if err != nil || len(records) != writes || records[0].Target != deployed.ID ||
				records[0].Actor.Address != "192.0.2.1" || records[0].RequestID != "req" {
				t.Errorf("after %d writes: %+v, %v", writes, records, err)
			}
		}
	})
}

// upkeep lets a registry do what it does in the background, once. The test runs in a bubble.
func upkeep(t *testing.T, s *server) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	synctest.Wait()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestALateRecordHidesNoOther puts the record of a deployment into the log behind records of later times, by whoever
// opens the registry next.
func TestALateRecordHidesNoOther(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		s := start(t)
		app := s.instance(t, "app")
		r, err := control.Open(t.Context(), control.Options{Store: &ending{s.store, 1}, Clock: s.clock})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Specs.Put(t.Context(), control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte("{}"),
		}); err != nil {
			t.Fatal(err)
		}
		s.clock.Advance(time.Hour)
		since := s.clock.Now()
		s.clock.Advance(time.Hour)
		if _, _, err := s.Keys.Create(t.Context(), control.NewKey{
			Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
		}); err != nil {
			t.Fatal(err)
		}
		s.restart(t)
		upkeep(t, s)
		if all, _, err := s.Audit.List(t.Context(), control.AuditQuery{}, 10); err != nil ||
			all[0].Action != "spec.deploy" {
			t.Errorf("%+v, %v", all, err)
		}
		later, _, err := s.Audit.List(t.Context(), control.AuditQuery{From: since}, 10)
		if err != nil || len(later) != 1 || later[0].Action == "spec.deploy" {
			t.Errorf("%+v, %v", later, err)
		}
	})
}
