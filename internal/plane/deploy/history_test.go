package deploy_test

import (
	"testing"

	"j17"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
)

func TestHistory(t *testing.T) {
	f := start(t)
	one, two := simple(keep), simple(keep+`},"more":{"schema":{},"handler":[]`)
	f.deploy(t, one)
	f.deploy(t, two)
	rollback := deploy.Rollback{Instance: f.instance, Environment: j17.Prod, Version: 1}
	_, err := f.Rollback(t.Context(), rollback)
	wantCode(t, "a rollback that removes an event type", err, j17.CodeIncompatibleSpec)
	rollback.Force, rollback.Note = true, "two was wrong"
	r, err := f.Rollback(t.Context(), rollback)
	if err != nil || r.Spec.Version != 3 || r.Spec.How != control.RolledBack || r.Spec.From.Version != 1 ||
		r.Spec.Note != "two was wrong" {
		t.Errorf("%+v, %v", r.Spec, err)
	}
	rollback.Version = 9
	_, err = f.Rollback(t.Context(), rollback)
	wantCode(t, "no such version", err, j17.CodeNotFound)

	promotion := deploy.Promotion{Instance: f.instance, From: j17.Prod, To: j17.Staging, Version: 2}
	r, err = f.Promote(t.Context(), promotion)
	if err != nil || r.Environment != j17.Staging || r.Spec.Version != 1 ||
		*r.Spec.From != (control.SpecOrigin{Environment: j17.Prod, Version: 2}) {
		t.Errorf("%+v, %v", r.Spec, err)
	}
	promotion.Version = 0
	_, err = f.Promote(t.Context(), promotion)
	wantCode(t, "a promotion that removes an event type", err, j17.CodeIncompatibleSpec)
	promotion.To = j17.Prod
	_, err = f.Promote(t.Context(), promotion)
	wantCode(t, "to itself", err, j17.CodeInvalidField)
	_, err = f.Promote(t.Context(), deploy.Promotion{Instance: f.instance, From: j17.Test, To: j17.Prod})
	wantCode(t, "of nothing", err, j17.CodeNotFound)
	_, err = f.Promote(t.Context(), deploy.Promotion{Instance: f.instance, From: j17.Prod, To: j17.Test, Version: 9})
	wantCode(t, "of no version", err, j17.CodeNotFound)

	d, err := f.Diff(t.Context(), f.instance, j17.Prod, 1, 2)
	if err != nil || len(d.Changes) != 1 || d.Changes[0].Name != "note.more" || len(d.Incompatible) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err = f.Diff(t.Context(), f.instance, j17.Prod, 2, 3); err != nil || len(d.Changes) != 1 ||
		len(d.Incompatible) != 1 {
		t.Errorf("back: %+v, %v", d, err)
	}
	_, err = f.Diff(t.Context(), f.instance, j17.Prod, 1, 7)
	wantCode(t, "with no version", err, j17.CodeNotFound)
	_, err = f.Diff(t.Context(), f.instance, j17.Prod, 7, 7)
	wantCode(t, "no version with itself", err, j17.CodeNotFound)

	// Versions with the same text are not compiled: also one that is not valid is equal to itself, and to the same text
	// deployed again.
	for base, source := range []string{"{}", "{ }", "{}"} {
		if _, err := f.registry.Specs.Put(t.Context(), control.Deployment{
			Instance: f.instance, Environment: j17.Test, Source: []byte(source), Base: base,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, to := range []int{1, 3} {
		if d, err = f.Diff(t.Context(), f.instance, j17.Test, 1, to); err != nil || d.To != to || d.Changes == nil ||
			len(d.Changes)+len(d.Incompatible) != 0 {
			t.Errorf("1 and %d: %+v, %v", to, d, err)
		}
	}
	_, err = f.Diff(t.Context(), f.instance, j17.Test, 1, 2)
	wantCode(t, "versions that are not valid", err, j17.CodeInvalidSpec)

	// A promotion needs the blobs where it goes to.
	f.upload(t, "a.wasm", "apply_handler")
	f.deploy(t, `{"force":true,"spec":`+simple(`{"wasm":"a.wasm"}`)+`}`)
	_, err = f.Promote(t.Context(), deploy.Promotion{Instance: f.instance, From: j17.Prod, To: j17.Test})
	wantCode(t, "the blob is not there", err, j17.CodeInvalidSpec)
}
