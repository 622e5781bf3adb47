package deploy_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/lang/diag"
	"j17/internal/plane/deploy"
)

// TestUniqueSets deploys a set of which two aggregates have one value: a dry run tells of it, a deployment is refused
// with both keys, whether the spec is prepared or not, and by force the first one has it.
func TestUniqueSets(t *testing.T) {
	const (
		first, second, third = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10", "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11",
			"0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f12"

		plain  = `{"agent_types": ["user"], "aggregate_types": {"note": {"events": {"was_written": {"schema": {}, "handler": []}}}}}`
		titles = `{"agent_types": ["user"], "aggregate_types": {"note": {"events": {"was_written": {"schema": {}, "handler": [], "unique": {"title": {"value": "$.data.title"}}}}}}}`
		at     = "/aggregate_types/note/events/was_written/unique/title"
	)
	f := start(t)
	f.deploy(t, plain)
	for _, id := range []string{second, first} { // by the feed, not by their names
		f.write(t, id, `{"title":"same"}`)
	}
	f.write(t, third, `{"title":"other"}`)
	pair := "note:" + second + " and note:" + first

	// What the dry run says.
	r := f.request(titles)
	r.Aggregates = 10
	tried, err := f.Deploy(t.Context(), r)
	if err != nil || len(tried.Breaks()) != 1 || !strings.Contains(tried.Breaks()[0].Message, pair) ||
		string(tried.Breaks()[0].Pointer) != at || tried.Breaks()[0].Line == 0 || !tried.Replay.Complete {
		t.Fatalf("the dry run says %v: %v", tried.Breaks(), err)
	}

	// Deployments are refused, and change nothing.
	for _, prepare := range []bool{false, true} {
		r := f.request(titles)
		r.Prepare = prepare
		_, err := f.Deploy(t.Context(), r)
		wantCode(t, "a deployment over two holders", err, j17.CodeIncompatibleSpec)
		e, _ := errors.AsType[*j17.Error](err)
		if e == nil || !strings.Contains(e.Message, pair) || len(e.Errors) != 1 || e.Errors[0].Pointer != at ||
			!strings.Contains(e.Errors[0].Message, pair) {
			t.Fatalf("the error is %+v", e)
		}
		f.write(t, third, `{"title":"same"}`)
		f.write(t, third, `{"title":"other"}`)
		if _, err := f.Prepared(t.Context(), deploy.Tenant(f.instance, j17.Prod)); j17.CodeOf(err) != j17.CodeNotFound {
			t.Fatalf("a spec is still prepared: %v", err)
		}
	}

	// By force the first one has it.
	r = f.request(titles)
	r.Force = true
	result, err := f.Deploy(t.Context(), r)
	if err != nil || !result.Spec.Forced || !slices.ContainsFunc(
		diag.FieldErrors(result.Breaks()), func(e j17.FieldError) bool { return strings.Contains(e.Message, pair) },
	) {
		t.Fatalf("by force: %+v, %v", result, err)
	}
	body, err := value.ParseString(`{"data":{"title":"same"},"metadata":{"actor":{"type":"user","id":"global"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	c := engine.Command{Tenant: deploy.Tenant(f.instance, j17.Prod), Command: command.Read("was_written", body)}
	c.Writes[0].Type, c.Writes[0].ID = "note", third
	_, err = f.engine.Execute(t.Context(), &c)
	wantCode(t, "a value that is held", err, j17.CodeNotUnique)
	if e, _ := errors.AsType[*j17.Error](err); e != nil {
		if details, _ := e.Details.(decider.RefusalDetails); details.Holder != "note:"+second {
			t.Errorf("it is held by %q", details.Holder)
		}
	}
}
