package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/plane/deploy"
)

// Specs before and after: "n" of notes has to be a number.
const (
	older = `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object","required":["n"]},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`
	newer = `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object","required":["n"]},
		"generations":{"1":{"schema":{"type":"object","required":["n"]},"upcast":[{"set":{"target":"n","value":{"$add":["@.n",1]}}}]}},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`
)

func note(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f%02d", n) }

// TestStoredEventsAreTried deploys a spec under which an event fails: it is refused, whether it is prepared or not, and
// by promotion and rollback; a dry run shows why, and by force the event fails where it is read.
func TestStoredEventsAreTried(t *testing.T) {
	f := start(t)
	f.deploy(t, older)
	for n := range 4 {
		f.write(t, note(n), fmt.Sprintf(`{"n":%d}`, n))
	}
	f.write(t, note(4), `{"n":"text"}`)

	refused := func(what string, err error) {
		t.Helper()
		wantCode(t, what, err, j17.CodeIncompatibleSpec)
		e, _ := errors.AsType[*j17.Error](err)
		if e == nil || len(e.Errors) != 1 || e.Errors[0].FailedEvent == nil || e.Errors[0].Key != "note:"+note(4) ||
			!strings.HasPrefix(e.Errors[0].Pointer, "/aggregate_types/note/events/was_written/generations/1/upcast/0") {
			t.Fatalf("%s: %+v", what, err)
		}
		if details, _ := json.Marshal(e.Details); string(details) != `{"trial":{"events":5,"failed":1}}` {
			t.Fatalf("%s: %s", what, details)
		}
	}
	for _, prepare := range []bool{false, true} {
		r := f.request(newer)
		r.Prepare = prepare
		_, err := f.Deploy(t.Context(), r)
		refused(fmt.Sprint("prepared: ", prepare), err)
	}
	r := f.request(newer)
	r.Environment = j17.Test
	if _, err := f.Deploy(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	_, err := f.Promote(t.Context(), deploy.Promotion{Instance: f.instance, From: j17.Test, To: j17.Prod})
	refused("a promotion", err)

	// A dry run.
	r = f.request(newer)
	r.Aggregates = 10
	dry, err := f.Deploy(t.Context(), r)
	if err != nil || dry.Trial == nil || dry.Trial.Events != 5 || dry.Trial.Failed != 1 || len(dry.Failures) != 1 ||
		len(dry.Trial.Examples) != 3 || dry.Trial.Examples[2].After != `{"n":3}` {
		t.Fatalf("the dry run: %+v %+v %v", dry.Trial, dry.Failures, err)
	}

	// By force, and then in a way that it fits.
	r = f.request(newer)
	r.Force = true
	if forced, err := f.Deploy(t.Context(), r); err != nil || forced.Trial != nil {
		t.Fatalf("by force: %+v %v", forced.Trial, err)
	}
	list := func(want string) {
		t.Helper()
		all, err := f.trials.List(t.Context(), deploy.Tenant(f.instance, j17.Prod))
		if got, _ := json.Marshal(all); err != nil || string(got) != want {
			t.Fatalf("the list: %s %v", got, err)
		}
	}
	list(`{"types":[{"type":"note.was_written","newest":2,"assume":2,"retired":false,"stored":[{"name":"was_written","generation":1,"events":5,"failed":1}]}],"trial":{"events":5,"failed":1}}`)
	mild := strings.Replace(newer, `"upcast":[`, `"upcast":[{"if":{"equals":["@.n","text"]},"then":{"set":{"target":"n","value":0}}},`, 1)
	if done := f.deploy(t, mild); done.Trial == nil || done.Trial.Events != 5 || done.Trial.Failed != 0 {
		t.Fatalf("what fits: %+v", done.Trial)
	}
	list(`{"types":[{"type":"note.was_written","newest":2,"assume":2,"retired":false,"stored":[{"name":"was_written","generation":1,"events":5,"failed":0}]}],"trial":{"events":5,"failed":0}}`)

	// Back to the first one: all of them fit it, and none is in a later generation.
	back, err := f.Rollback(t.Context(), deploy.Rollback{Instance: f.instance, Environment: j17.Prod, Version: 1})
	if err != nil || back.Trial == nil || back.Trial.Events != 5 {
		t.Fatalf("back: %+v %v %v", back.Trial, err, fieldErrors(err))
	}
}

// TestTrialsGoOnInTheBackground prepares a spec over more events than are tried at once: the answer tells how far it
// is, and the background goes on after a restart.
func TestTrialsGoOnInTheBackground(t *testing.T) {
	f := start(t)
	f.pages = 2
	f.restart(t)
	f.deploy(t, older)
	for n := range 10 {
		f.write(t, note(n), fmt.Sprintf(`{"n":%d}`, n))
	}
	r := f.request(newer)
	r.Prepare = true
	begun, err := f.Deploy(t.Context(), r)
	if err != nil || begun.Prepared == nil {
		t.Fatalf("%+v %v", begun, err)
	}
	if b := begun.Prepared.Wire(j17.Prod).Build; b.Kind != "trial" || b.Status != "running" || b.Done != 4 ||
		b.Total != 10 {
		t.Fatalf("the build is %+v", b)
	}

	f.restart(t)
	rounds := 0
	for ; rounds < 10; rounds++ {
		due, err := f.NextDue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if due.IsZero() {
			break
		}
		f.clock.Set(due)
		if err := f.Settle(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if e := f.Spec(f.instance, j17.Prod).EventType("note", "was_written"); e.Generation != 2 || rounds != 2 {
		t.Fatalf("after %d rounds the newest generation is %d", rounds, e.Generation)
	}
}
