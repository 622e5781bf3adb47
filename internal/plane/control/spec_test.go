package control_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

func TestSpecs(t *testing.T) {
	s := start(t)
	app, other := s.instance(t, "app"), s.instance(t, "other")
	_, err := s.Specs.Current(t.Context(), app.ID, j17.Prod)
	want(t, "none yet", err, j17.CodeNoSpec, "")

	put := func(d control.Deployment) control.Spec {
		t.Helper()
		sp, err := s.Specs.Put(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Specs.Current(t.Context(), d.Instance, d.Environment)
		if diff := cmp.Diff(sp, got); diff != "" || err != nil {
			t.Errorf("Spec (-want +got): %v\n%s", err, diff)
		}
		return sp
	}
	// Bytes are kept as they are, whatever they are.
	first := put(control.Deployment{
		Instance: app.ID, Environment: j17.Prod, Source: []byte("{\"a\": \"<ü>\\u0041\"}\r\n\xff"),
	})
	if diff := cmp.Diff(control.Spec{
		ID: first.ID, Version: 1, Hash: "bde5d659fbafee263e1f8f53b8f3da4ad7684873dceee7e18893cbc1f50429ee", DeployedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		DeployedBy: control.Actor{Kind: control.ActorServer}, How: control.Deployed,
		Source: []byte("{\"a\": \"<ü>\\u0041\"}\r\n\xff"), Fence: first.Fence,
	}, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.clock.Advance(time.Hour)
	second := put(control.Deployment{Instance: app.ID, Environment: j17.Prod, Source: []byte("{}"), Base: 1})
	if second.Version != 2 || second.ID == first.ID || second.DeployedAt != first.DeployedAt.Add(time.Hour) {
		t.Errorf("the second version is %+v", second)
	}
	if diff := cmp.Diff(second, put(control.Deployment{
		Instance: app.ID, Environment: j17.Prod, Source: []byte("{}"), Base: 2,
	})); diff != "" {
		t.Errorf("deploying the same again (-want +got):\n%s", diff)
	}
	if third := put(control.Deployment{
		Instance: app.ID, Environment: j17.Prod, Source: first.Source, Base: 2,
	}); third.Version != 3 {
		t.Errorf("going back makes version %d", third.Version)
	}

	for _, base := range []int{0, 1, 2, 4, -1} {
		_, err := s.Specs.Put(t.Context(), control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte("[]"), Base: base,
		})
		want(t, "out of date", err, j17.CodeConflict, "")
	}
	for _, d := range []control.Deployment{
		{Instance: app.ID, Environment: j17.Staging}, {Instance: other.ID, Environment: j17.Prod},
	} {
		_, err := s.Specs.Current(t.Context(), d.Instance, d.Environment)
		want(t, "elsewhere", err, j17.CodeNoSpec, "")
		d.Source = []byte(`{"elsewhere":true}`)
		if sp := put(d); sp.Version != 1 {
			t.Errorf("elsewhere, the first version is %d", sp.Version)
		}
	}
	s.restart(t)
	if got, err := s.Specs.Current(t.Context(), app.ID, j17.Prod); err != nil || got.Version != 3 ||
		!bytes.Equal(got.Source, first.Source) {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	items, err := s.store.Scan(t.Context(), j17.TenantOf(app.ID, j17.Prod), "spec.versions", store.Range{}, 10)
	if err != nil || len(items) != 2*3 {
		t.Errorf("%d items are kept, want 3 versions with their sources: %v", len(items), err)
	}

	for _, d := range []control.Deployment{
		{Instance: "app", Environment: j17.Prod}, {Instance: "", Environment: j17.Prod},
	} {
		_, err := s.Specs.Put(t.Context(), d)
		want(t, "no instance", err, j17.CodeNotFound, "")
		_, err = s.Specs.Current(t.Context(), d.Instance, d.Environment)
		want(t, "no instance", err, j17.CodeNotFound, "")
	}
	_, err = s.Specs.Put(t.Context(), control.Deployment{Instance: app.ID, Environment: "dev"})
	want(t, "no environment", err, j17.CodeInvalidField, "environment")
	_, err = s.Specs.Put(t.Context(), control.Deployment{
		Instance: app.ID, Environment: j17.Test, Source: make([]byte, store.MaxUnitBytes),
	})
	want(t, "too large", err, j17.CodePayloadTooLarge, "")
}

func TestSpecHistory(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	if all, err := s.Specs.History(t.Context(), app.ID, j17.Prod, 0, 10); err != nil || len(all) != 0 {
		t.Errorf("before the first deployment: %v, %v", all, err)
	}
	who := control.Actor{
		Kind: control.ActorOperator, ID: "opr_4k7vx9tz2nqr8w3", Email: "a@example.com", Address: "192.0.2.1",
	}
	ctx := control.WithActor(t.Context(), who, "req")
	from := &control.SpecOrigin{Environment: j17.Staging, Version: 7}
	for _, d := range []control.Deployment{
		{Source: []byte("one"), Note: "the first"},
		{Source: []byte("two"), How: control.Promoted, From: from, Forced: true, Base: 1},
		{
			Source: []byte("one"), How: control.RolledBack,
			From: &control.SpecOrigin{Environment: j17.Prod, Version: 1}, Base: 2,
		},
	} {
		d.Instance, d.Environment = app.ID, j17.Prod
		if _, err := s.Specs.Put(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	s.restart(t)
	all, err := s.Specs.History(t.Context(), app.ID, j17.Prod, 0, 2)
	if err != nil || len(all) != 2 || all[0].Version != 3 || all[1].Version != 2 || all[0].Source != nil {
		t.Fatalf("the newest two: %+v, %v", all, err)
	}
	who.Address = ""
	if got := all[1]; got.DeployedBy != who || got.How != control.Promoted || !got.Forced || *got.From != *from {
		t.Errorf("a promotion: %+v", got)
	}
	if all, err = s.Specs.History(t.Context(), app.ID, j17.Prod, 2, 2); err != nil || len(all) != 1 ||
		all[0].Note != "the first" || all[0].How != control.Deployed {
		t.Errorf("the oldest: %+v, %v", all, err)
	}
	if got, err := s.Specs.Version(t.Context(), app.ID, j17.Prod, 2); err != nil || string(got.Source) != "two" {
		t.Errorf("version 2: %+v, %v", got, err)
	}
	for _, version := range []int{0, -1, 4} {
		_, err := s.Specs.Version(t.Context(), app.ID, j17.Prod, version)
		want(t, "no such version", err, j17.CodeNotFound, "")
	}
	for _, note := range []string{"two\nlines", "\xff", strings.Repeat("x", 501)} {
		_, err := s.Specs.Put(t.Context(), control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte("x"), Base: 3, Note: note,
		})
		want(t, "a bad note", err, j17.CodeInvalidField, "note")
	}
	records, _, err := s.Audit.List(t.Context(), control.AuditQuery{Instance: app.ID, Action: "spec"}, 10)
	if err != nil || len(records) != 3 || records[0].Action != "spec.rollback" ||
		records[1].Details["forced"] != "true" || records[1].Actor.Address != "192.0.2.1" {
		t.Errorf("the audit log: %+v, %v", records, err)
	}
}

func TestConcurrentDeploymentsHaveOneWinner(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	nodes := []*control.Registry{s.Registry, s.node(t)}
	for base := range 3 {
		got := race(10, func(i int) error {
			_, err := nodes[i%2].Specs.Put(t.Context(), control.Deployment{
				Instance: app.ID, Environment: j17.Prod, Source: []byte{byte(base), byte(i)}, Base: base,
			})
			return err
		})
		if diff := cmp.Diff(map[j17.Code]int{"": 1, j17.CodeConflict: 9}, got); diff != "" {
			t.Errorf("onto version %d (-want +got):\n%s", base, diff)
		}
	}
}
