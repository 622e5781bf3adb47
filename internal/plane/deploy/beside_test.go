package deploy_test

import (
	"context"
	"errors"
	"testing"

	"j17"
	"j17/internal/core/part"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

const besideSpace = "test.beside"

// put is a write of what stands beside the spec.
func put(key string) store.Side {
	return store.Side{Op: store.Put, Space: besideSpace, Key: key, Value: []byte("x")}
}

func (f *fixture) has(tb testing.TB, key string) bool {
	tb.Helper()
	_, err := f.store.Get(tb.Context(), j17.TenantOf(f.instance, j17.Prod), besideSpace, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		tb.Fatal(err)
	}
	return err == nil
}

func TestWhatStandsBesideRefusesASpec(t *testing.T) {
	f := start(t)
	f.beside = func(context.Context, j17.Tenant, *spec.Compiled) (part.Beside, error) {
		return part.Beside{
			Invalid: []string{"kept"},
			Found:   []diag.Diagnostic{{Severity: diag.Error, Pointer: "/projections/kept", Message: "no such type"}},
			Sides:   []store.Side{put("dropped")},
		}, nil
	}
	_, err := f.Deploy(t.Context(), f.request(simple(keep)))
	want := "Projections that were posted to production would not be valid under this spec: kept. Change what 'errors' lists, or deploy with \"force\": true, which removes such projections."
	if j17.CodeOf(err) != j17.CodeIncompatibleSpec || err.Error() != want {
		t.Fatalf("got %v", err)
	}
	if f.has(t, "dropped") || f.Spec(f.instance, j17.Prod) != nil || f.settled.Load() != 0 {
		t.Fatal("the refusal has changed something")
	}

	// By force it goes away, in the commit of the spec, and the audit log says so.
	r := f.request(simple(keep))
	r.Force = true
	result, err := f.Deploy(t.Context(), r)
	if err != nil || !result.Spec.Forced || len(result.Breaks()) != 1 {
		t.Fatal(result, err)
	}
	if !f.has(t, "dropped") || f.settled.Load() != 1 {
		t.Fatal("what belongs to the deployment was not written")
	}
	records, _, err := f.registry.Audit.List(
		t.Context(), control.AuditQuery{Instance: f.instance, Action: "spec.deploy"}, 10,
	)
	if err != nil || len(records) != 1 || records[0].Details["dropped_projections"] != "kept" {
		t.Fatal(records, err)
	}
}

func TestADeploymentThatIsOvertakenLooksAnew(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	tenant := j17.TenantOf(f.instance, j17.Prod)
	asked := 0
	f.beside = func(ctx context.Context, _ j17.Tenant, _ *spec.Compiled) (part.Beside, error) {
		if asked++; asked == 1 { // somebody writes it right after it was looked at
			if err := f.store.Write(ctx, tenant, []store.Side{put("head")}); err != nil {
				t.Fatal(err)
			}
			return part.Beside{
				Sides: []store.Side{put("wrong")}, Fences: []store.Fence{{Space: besideSpace, Key: "head"}},
			}, nil
		}
		it, err := f.store.Get(ctx, tenant, besideSpace, "head")
		return part.Beside{
			Sides: []store.Side{put("right")}, Fences: []store.Fence{{Space: besideSpace, Key: "head", Rev: it.Rev}},
		}, err
	}
	if r := f.deploy(t, simple(`[]`)); !r.Created || asked != 2 {
		t.Fatal(r, asked)
	}
	if f.has(t, "wrong") || !f.has(t, "right") {
		t.Fatal("the deployment was committed with what was outdated")
	}

	// What is deployed already can still change what stands beside it.
	f.beside = func(context.Context, j17.Tenant, *spec.Compiled) (part.Beside, error) {
		return part.Beside{Sides: []store.Side{put("again")}}, nil
	}
	if r := f.deploy(t, simple(`[]`)); r.Created || !f.has(t, "again") {
		t.Fatal(r)
	}
}

func TestHoldHasTheDeployedSpec(t *testing.T) {
	f := start(t)
	tenant := j17.TenantOf(f.instance, j17.Prod)
	never := func(*spec.Compiled, store.Fence) error { t.Fatal("called without a spec"); return nil }
	if err := f.Hold(t.Context(), tenant, never); j17.CodeOf(err) != j17.CodeNoSpec {
		t.Fatal(err)
	}
	if err := f.Hold(t.Context(), j17.TenantOf("ins_unknown", j17.Prod), never); j17.CodeOf(err) != j17.CodeNotFound {
		t.Fatal(err)
	}
	f.deploy(t, simple(keep))
	err := f.Hold(t.Context(), tenant, func(c *spec.Compiled, fence store.Fence) error {
		if c != f.Spec(f.instance, j17.Prod) {
			t.Error("it is not the deployed spec")
		}
		return f.store.Write(t.Context(), tenant, []store.Side{put("held")}, fence)
	})
	if err != nil || !f.has(t, "held") {
		t.Fatal(err)
	}
}
