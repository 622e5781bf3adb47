package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/value"
	wanted "j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
)

const (
	tenant    = enginetest.Tenant
	elsewhere = j17.Tenant("ins_test/staging")
	user      = enginetest.User
	id        = enginetest.ID
	meta      = enginetest.Meta
)

// fixture is an engine with enginetest.CounterSpec, unless a test puts another one into it.
type fixture struct{ *enginetest.Fixture }

func newFixture(tb testing.TB, o engine.Options, parts ...part.Part) *fixture {
	tb.Helper()
	f := &fixture{enginetest.New(tb, o, parts...)}
	f.DeploySource(tb, enginetest.CounterSpec)
	return f
}

// on is a fixture of an engine on a store of its own.
func on(e *engine.Engine) *fixture { return &fixture{&enginetest.Fixture{Engine: e}} }

func count(by int) string { return fmt.Sprintf(`{"data":{"by":%d},%s}`, by, meta) }

// TestAdmission goes through the checks of a write in their order.
func TestAdmission(t *testing.T) {
	f := newFixture(t, engine.Options{})
	actor := func(s string) string { return `{"data":{"by":1},"metadata":{"actor":` + s + `}}` }
	with := func(s string) string {
		return `{"data":{"by":1},"metadata":{"actor":{"type":"user","id":"` + user + `"},` + s + `}}`
	}
	ok := `{"type":"was_counted","data":{"by":1}}`
	batch := func(events string) string { return `{"events":` + events + `,` + meta + `}` }
	at := func(i int) *int { return &i }
	for _, tc := range []struct {
		name, path, body string
		code             j17.Code
		where            string
		index            *int
	}{
		{"type before everything", "ghost/x/was_counted", `[]`, j17.CodeUnknownType, "", nil},
		{"event type before the body", "counter/x/ghost", `[]`, j17.CodeUnknownEventType, "", nil},
		{"reserved event type", "counter/x/_was_tombstoned", `[]`, j17.CodeReservedEventType, "", nil},
		{"body is no object", "counter/x/was_counted", `[]`, j17.CodeInvalidField, "", nil},
		{"misspelt member", "counter/x/was_counted", `{"dta":{}}`, j17.CodeUnknownField, "dta", nil},
		{"key before metadata", "counter/x/was_counted", `{"data":{}}`, j17.CodeInvalidIdentifier, "key", nil},
		{"no metadata", "counter/global/was_counted", `{"data":{}}`, j17.CodeMissingField, "metadata", nil},
		{
			"metadata is no object", "counter/global/was_counted", `{"data":{},"metadata":1}`, j17.CodeInvalidField,
			"metadata", nil,
		},
		{
			"unknown metadata", "counter/global/was_counted", with(`"previus_length":1`), j17.CodeUnknownField,
			"metadata.previus_length", nil,
		},
		{
			"no actor", "counter/global/was_counted", `{"data":{},"metadata":{}}`, j17.CodeMissingField,
			"metadata.actor", nil,
		},
		{
			"actor without type", "counter/global/was_counted", actor(`{"id":"` + user + `"}`), j17.CodeMissingField,
			"metadata.actor.type", nil,
		},
		{
			"actor without id", "counter/global/was_counted", actor(`{"type":"user"}`), j17.CodeMissingField,
			"metadata.actor.id", nil,
		},
		{
			"actor type no string", "counter/global/was_counted", actor(`{"type":1,"id":"global"}`),
			j17.CodeInvalidField, "metadata.actor.type", nil,
		},
		{
			"undeclared actor", "counter/global/was_counted", actor(`{"type":"robot","id":"x"}`),
			j17.CodeUndeclaredType, "metadata.actor.type", nil,
		},
		{
			"actor's id", "counter/global/was_counted", actor(`{"type":"user","id":"x"}`), j17.CodeInvalidIdentifier,
			"metadata.actor.id", nil,
		},
		{
			"system actor's id", "counter/global/was_counted", actor(`{"type":"system_agent","id":"x"}`),
			j17.CodeInvalidIdentifier, "metadata.actor.id", nil,
		},
		{"system actor", "counter/global/was_counted", actor(`{"type":"system_agent","id":"event_scheduler"}`), j17.CodeForbidden, "metadata.actor.type", nil},
		{
			"undeclared target", "counter/global/was_counted", with(`"target":{"type":"x","id":"x"}`),
			j17.CodeUndeclaredType, "metadata.target.type", nil,
		},
		{
			"target's id", "counter/global/was_counted", with(`"target":{"type":"thing","id":"x"}`),
			j17.CodeInvalidIdentifier, "metadata.target.id", nil,
		},
		{
			"previous_length text", "counter/global/was_counted", with(`"previous_length":"5"`), j17.CodeInvalidField,
			"metadata.previous_length", nil,
		},
		{
			"previous_length negative", "counter/global/was_counted", with(`"previous_length":-1`),
			j17.CodeInvalidField, "metadata.previous_length", nil,
		},
		{
			"previous_length fraction", "counter/global/was_counted", with(`"previous_length":1.5`),
			j17.CodeInvalidField, "metadata.previous_length", nil,
		},
		{
			"skip_occ text", "counter/global/was_counted", with(`"skip_occ":"yes"`), j17.CodeInvalidField,
			"metadata.skip_occ", nil,
		},
		{
			"skip_occ with previous_length", "counter/global/was_counted", with(`"skip_occ":true,"previous_length":0`),
			j17.CodeInvalidField, "metadata.skip_occ", nil,
		},
		{
			"skip_occ not allowed", "counter/global/was_named", with(`"skip_occ":true`), j17.CodeSkipOCCNotAllowed,
			"metadata.skip_occ", nil,
		},
		{"no data", "counter/global/was_counted", `{` + meta + `}`, j17.CodeMissingField, "data", nil},
		{
			"schema", "counter/global/was_counted", `{"data":{"by":"1"},` + meta + `}`, j17.CodeSchemaViolation,
			"data.by", nil,
		},
		{
			"schema, required", "counter/global/was_counted", `{"data":{},` + meta + `}`, j17.CodeSchemaViolation,
			"data.by", nil,
		},
		{"conflict last", "counter/global/was_counted", with(`"previous_length":7`), j17.CodeConflict, "", nil},
		{"batch without events", "counter/global", `{` + meta + `}`, j17.CodeMissingField, "events", nil},
		{"batch events no array", "counter/global", batch(`{}`), j17.CodeInvalidField, "events", nil},
		{"batch empty", "counter/global", batch(`[]`), j17.CodeInvalidField, "events", nil},
		{"batch event no object", "counter/global", batch(`[1]`), j17.CodeInvalidField, "", at(0)},
		{
			"batch event without type", "counter/global", batch(`[` + ok + `,{"data":{}}]`), j17.CodeMissingField,
			"type", at(1),
		},
		{
			"batch event of unknown type", "counter/global", batch(`[` + ok + `,{"type":"ghost"}]`),
			j17.CodeUnknownEventType, "type", at(1),
		},
		{"batch event with metadata", "counter/global", batch(`[{"type":"was_counted","metadata":{}}]`), j17.CodeUnknownField, "metadata", at(0)},
		{"of two faults, the event's type before the next one's form", "counter/global", batch(`[{"type":"ghost"},1]`), j17.CodeUnknownEventType, "type", at(0)},
		{"of two faults, the form of the events before the key", "counter/x", batch(`[1]`), j17.CodeInvalidField, "", at(0)},
		{"of two faults, the key before the form of the metadata", "counter/x/was_counted", `{"data":{},"metadata":1}`, j17.CodeInvalidIdentifier, "key", nil},
		{"of two faults, the actor before the form of the target", "counter/global/was_counted", `{"data":{},"metadata":{"actor":{"type":"robot","id":"x"},"target":1}}`, j17.CodeUndeclaredType, "metadata.actor.type", nil},
		{"of two faults, the target before the form of the length", "counter/global/was_counted", with(`"target":{"type":"x","id":"x"},"previous_length":"5"`), j17.CodeUndeclaredType, "metadata.target.type", nil},
		{"of two faults, the form of the length before the data", "counter/global/was_counted", `{"metadata":{"actor":{"type":"user","id":"` + user + `"},"previous_length":"5"}}`, j17.CodeInvalidField, "metadata.previous_length", nil},
		{
			"batch event fails schema", "counter/global", batch(`[` + ok + `,` + ok + `,{"type":"was_counted"}]`),
			j17.CodeSchemaViolation, "data.by", at(2),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := f.Execute(t.Context(), enginetest.Command(t, tc.path, tc.body))
			var e *j17.Error
			if !errors.As(err, &e) || e.Code != tc.code || e.Path != tc.where || !cmp.Equal(e.EventIndex, tc.index) ||
				e.Message == "" {
				t.Errorf("got %+v, want %s at %q", err, tc.code, tc.where)
			}
		})
	}
	if n := f.State(t, "counter/global", engine.LoadOptions{}); n != "{}" {
		t.Errorf("something was written: %s", n)
	}
}

// TestReservedEventTypes: the refusal says what was meant instead, where that can be told.
func TestReservedEventTypes(t *testing.T) {
	f := newFixture(t, engine.Options{})
	for path, want := range map[string]string{
		"counter/global/_batch":          "Event types that start with an underscore are written by the system only; '_batch' cannot be posted. A batch is posted to /counter/{id}, with no event type behind the id",
		"counter/global/_was_tombstoned": "Event types that start with an underscore are written by the system only; '_was_tombstoned' cannot be posted",
	} {
		_, err := f.Execute(t.Context(), enginetest.Command(t, path, `{}`))
		var e *j17.Error
		if !errors.As(err, &e) || e.Code != j17.CodeReservedEventType || e.Message != want {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

// TestACommandFromInside writes as a worker does: as one of the platform's own actors, with metadata of its own, which
// events that are implied do not have.
func TestACommandFromInside(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"a":{"events":{
		"was_started":{"schema":{"type":"object"},"handler":[],"implications":[{"emit":{"aggregate_type":"a","id":"global","event_type":"was_noted","data":{}}}]},
		"was_noted":{"schema":{"type":"object"},"handler":[]}}}}}`)
	c := &engine.Command{Tenant: tenant, Command: wanted.Command{
		Writes: wanted.One("a", id, "was_started", value.ObjectValue(), wanted.Newest),
		Actor:  j17.Agent{Type: "system_agent", ID: "saga_coordinator"},
		Cause: wanted.Cause{CorrelationID: user, Members: []value.Member{
			{Key: "saga", Value: value.ObjectValue(value.Member{Key: "step", Value: value.StringValue("pay")})},
		}},
	}}
	if _, err := f.Execute(t.Context(), c); j17.CodeOf(err) != j17.CodeForbidden {
		t.Errorf("an actor of the platform without trust: %v", err)
	}
	c.Trusted = true
	if _, err := f.Execute(t.Context(), &engine.Command{
		Tenant:  tenant,
		Command: wanted.Command{Writes: []wanted.Write{{Type: "a", ID: id}}, Actor: c.Actor, Trusted: true},
	}); j17.CodeOf(err) != j17.CodeInvalidField {
		t.Errorf("no events: %v", err)
	}
	if _, err := f.Execute(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var got []string
	for ev, err := range f.Store.ReadFeed(t.Context(), tenant, j17.StreamID{}, 10) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(ev.Metadata))
	}
	actor := `{"actor":{"type":"system_agent","id":"saga_coordinator"},"correlation_id":"` + user + `"`
	want := []string{
		actor + `,"saga":{"step":"pay"},"timestamp":1700000000}`,
		actor + `,"implied_by":{"key":"a:` + id + `","event_type":"was_started","depth":1},"timestamp":1700000000}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSchemaFailureDetails(t *testing.T) {
	f := newFixture(t, engine.Options{})
	_, err := f.Execute(
		t.Context(), enginetest.Command(t, "counter/global/was_counted", `{"data":{"by":"1","x":2},`+meta+`}`),
	)
	var e *j17.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	raw := fmt.Sprintf("%+v", e.Details)
	if !strings.Contains(raw, "Field:by Constraint:type") || len(e.Errors) != 2 || e.Errors[0].Pointer != "/data/by" ||
		e.Errors[1].Pointer != "/data/x" {
		t.Errorf("details %s, errors %+v", raw, e.Errors)
	}
}

func TestEventsAreStoredInCanonicalForm(t *testing.T) {
	f := newFixture(t, engine.Options{})
	c := enginetest.Command(t, "counter/"+strings.ToUpper(id)+"/was_named", `{ "data" : {"name":"\u00e9", "n":1.10}, "metadata":{"target":{"type":"thing","id":"main"},"actor":{"id":"global","type":"user"}}}`)
	c.CorrelationID = user
	r, err := f.Execute(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	page, err := f.Events(t.Context(), tenant, "counter", id, j17.StreamID{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"stream_id":"` + r.Writes[0].IDs[0].String() + `","key":"counter:` + id + `","type":"was_named","data":{"name":"é","n":1.10},` +
		`"metadata":{"actor":{"type":"user","id":"global"},"target":{"type":"thing","id":"main"},"correlation_id":"` + user + `","timestamp":1700000000}}`
	for ev, err := range page {
		if err != nil || string(ev.Raw) != want {
			t.Errorf("got  %s, %v\nwant %s", ev.Raw, err, want)
		}
	}
}

func TestReads(t *testing.T) {
	f := newFixture(t, engine.Options{})
	for i := range 5 {
		f.Post(t, "counter/"+id+"/was_counted", count(i+1))
		f.Clock.Advance(10 * time.Second)
	}
	stamped := func(n, seconds int) string {
		return fmt.Sprintf(`{"n":%d,"created_at":1700000000,"updated_at":%d}`, n, 1_700_000_000+seconds)
	}
	for _, tc := range []struct {
		name, path, want string
		options          engine.LoadOptions
	}{
		{"now", "counter/" + id, stamped(15, 40), engine.LoadOptions{}},
		{"cached", "counter/" + id, stamped(15, 40), engine.LoadOptions{}},
		{"replayed", "counter/" + id, stamped(15, 40), engine.LoadOptions{Replay: true}},
		{"first two", "counter/" + id, stamped(3, 10), engine.LoadOptions{Length: new(uint64(2))}},
		{"more than there are", "counter/" + id, stamped(15, 40), engine.LoadOptions{Length: new(uint64(9))}},
		{"none of them", "counter/" + id, "aggregate_not_found", engine.LoadOptions{Length: new(uint64(0))}},
		{"at the very second", "counter/" + id, stamped(6, 20), engine.LoadOptions{Until: new(int64(1_700_000_020))}},
		{"between two", "counter/" + id, stamped(6, 20), engine.LoadOptions{Until: new(int64(1_700_000_029))}},
		{
			"before the first", "counter/" + id, "aggregate_not_found",
			engine.LoadOptions{Until: new(int64(1_699_999_999))},
		},
		{"later than all", "counter/" + id, stamped(15, 40), engine.LoadOptions{Until: new(int64(1_800_000_000))}},
		{
			"both", "counter/" + id, stamped(1, 0),
			engine.LoadOptions{Until: new(int64(1_700_000_020)), Length: new(uint64(1))},
		},
		{"replayed past", "counter/" + id, stamped(3, 10), engine.LoadOptions{Length: new(uint64(2)), Replay: true}},
		{"absent", "counter/" + user, "aggregate_not_found", engine.LoadOptions{}},
		{"singleton", "counter/global", "{}", engine.LoadOptions{}},
		{"declared singleton", "counter/main", "{}", engine.LoadOptions{}},
		{"singleton's past", "counter/main", "aggregate_not_found", engine.LoadOptions{Length: new(uint64(1))}},
		{"no identifier", "counter/nope", "invalid_identifier", engine.LoadOptions{}},
		{"no type", "ghost/" + id, "unknown_aggregate_type", engine.LoadOptions{}},
	} {
		if got := f.State(t, tc.path, tc.options); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	if n, err := f.Length(t.Context(), tenant, "counter", id); n != 5 || err != nil {
		t.Errorf("length %d, %v", n, err)
	}
}

func TestEventsArePaged(t *testing.T) {
	f := newFixture(t, engine.Options{})
	var ids []j17.StreamID
	for i := range 7 {
		ids = append(ids, f.Post(t, "counter/"+id+"/was_counted", count(i)).IDs...)
		f.Post(t, "counter/global/was_counted", count(i))
	}
	page := func(after j17.StreamID, n int) []j17.StreamID {
		var got []j17.StreamID
		events, err := f.Events(t.Context(), tenant, "counter", id, after, n)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ev.StreamID)
		}
		return got
	}
	for _, tc := range []struct {
		after j17.StreamID
		n     int
		want  []j17.StreamID
	}{
		{j17.StreamID{}, 3, ids[:3]},
		{ids[2], 3, ids[3:6]},
		{ids[5], 3, ids[6:]},
		{ids[6], 3, nil},
		{j17.StreamID{Ms: ids[2].Ms, Seq: ids[2].Seq + 1}, 1, ids[3:4]}, // the position of another stream's event
	} {
		if diff := cmp.Diff(tc.want, page(tc.after, tc.n)); diff != "" {
			t.Errorf("after %s: %s", tc.after, diff)
		}
	}
}

func TestIDsArePaged(t *testing.T) {
	f := newFixture(t, engine.Options{})
	for i := range 5 {
		f.Post(t, fmt.Sprintf("counter/0000000%d-0000-4000-8000-000000000000/was_counted", 5-i), count(1))
	}
	f.Post(t, "other/global/was_seen", `{"data":{},`+meta+`}`)
	first, more, err := f.IDs(t.Context(), tenant, "counter", "", 3)
	if err != nil || !more || len(first) != 3 {
		t.Fatal(first, more, err)
	}
	rest, more, err := f.IDs(t.Context(), tenant, "counter", first[2], 3)
	if err != nil || more || len(rest) != 2 || rest[1] != "00000005-0000-4000-8000-000000000000" {
		t.Fatal(rest, more, err)
	}
}

func TestSingletonByName(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.Post(t, "counter/main/was_counted", count(3))
	states, ok, err := f.Singleton(t.Context(), tenant, "main")
	if err != nil || !ok || len(states) != 1 || states[0].Key.Type != "counter" {
		t.Fatal(states, ok, err)
	}
	if _, ok, _ := f.Singleton(t.Context(), tenant, "global"); ok {
		t.Error("global was answered without a type")
	}
}

func TestConcurrencyControl(t *testing.T) {
	f := newFixture(t, engine.Options{})
	expecting := func(n int) string {
		return fmt.Sprintf(`{"data":{"by":1},"metadata":{"actor":{"type":"user","id":"%s"},"previous_length":%d}}`, user, n)
	}
	f.Post(t, "counter/"+id+"/was_counted", expecting(0))
	_, err := f.Execute(t.Context(), enginetest.Command(t, "counter/"+id+"/was_counted", expecting(3)))
	if j17.CodeOf(err) != j17.CodeConflict || err.Error() != "Concurrent write detected. Stream has 1 events, expected 3." {
		t.Errorf("got %v", err)
	}
	s, err := f.Load(t.Context(), tenant, "counter", id, engine.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		tags []string
		path string
		want j17.Code
	}{
		{[]string{`"x"`, s.EntityTag}, id, ""},
		{[]string{s.EntityTag}, id, j17.CodePreconditionFailed},
		{[]string{"*"}, id, ""},
		{[]string{"*"}, user, j17.CodePreconditionFailed},
	} {
		c := enginetest.Command(t, "counter/"+tc.path+"/was_counted", count(1))
		c.IfMatch = tc.tags
		if _, err := f.Execute(t.Context(), c); j17.CodeOf(err) != tc.want {
			t.Errorf("If-Match %v: %v", tc.tags, err)
		}
	}

	// Where neither the tag nor the length is right, the tag answers.
	for tag, want := range map[string]j17.Code{s.EntityTag: j17.CodePreconditionFailed, "*": j17.CodeConflict} {
		c := enginetest.Command(t, "counter/"+id+"/was_counted", expecting(99))
		c.IfMatch = []string{tag}
		if _, err := f.Execute(t.Context(), c); j17.CodeOf(err) != want {
			t.Errorf("If-Match %s and a length of 99: %v", tag, err)
		}
	}
}

// TestConcurrentWriters lets many writers race and checks that exactly the accepted events are there.
func TestConcurrentWriters(t *testing.T) {
	f := newFixture(t, engine.Options{SnapshotEvery: 50})
	stop := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	readers.Go(func() { _ = f.Run(ctx) })
	for range 3 {
		readers.Go(func() { // states never go backward and are always the sum of a prefix
			last := 0
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := f.Load(t.Context(), tenant, "counter", "global", engine.LoadOptions{})
				n, _ := s.Data.Get("n").Int64()
				if err != nil || int(n) != int(s.Length) || int(n) < last {
					t.Errorf("read n=%d at length %d after %d: %v", n, s.Length, last, err)
					return
				}
				last = int(n)
			}
		})
	}
	const each = 100
	for range 8 {
		writers.Go(func() {
			for range each {
				f.Post(t, "counter/global/was_counted", count(1)) // never conflicts: nothing was read
			}
		})
	}
	var mu sync.Mutex
	won := map[int]int{}
	for range 8 {
		writers.Go(func() { // each length is won by exactly one writer
			for n := range each {
				body := fmt.Sprintf(`{"data":{"by":1},"metadata":{"actor":{"type":"user","id":"%s"},"previous_length":%d}}`, user, n)
				if _, err := f.Execute(
					t.Context(), enginetest.Command(t, "counter/"+id+"/was_counted", body),
				); err == nil {
					mu.Lock()
					won[n]++
					mu.Unlock()
				} else if j17.CodeOf(err) != j17.CodeConflict {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	cancel()
	readers.Wait()
	if got := f.State(t, "counter/global", engine.LoadOptions{Replay: true}); !strings.HasPrefix(got, `{"n":800,`) {
		t.Error(got)
	}
	for n := range each {
		if won[n] != 1 {
			t.Errorf("length %d was won %d times", n, won[n])
		}
	}
}

func TestIdempotency(t *testing.T) {
	f := newFixture(t, engine.Options{})
	c := enginetest.Command(t, "counter/global/was_counted", count(1))
	c.IdempotencyKey = "k"
	var wg sync.WaitGroup
	receipts := make([]engine.Receipt, 16)
	for i := range receipts {
		wg.Go(func() {
			var err error
			if receipts[i], err = f.Execute(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	fresh := 0
	for _, r := range receipts {
		if !r.Replayed {
			fresh++
		}
		r.Replayed = receipts[0].Replayed
		if diff := cmp.Diff(receipts[0], r); diff != "" {
			t.Error(diff)
		}
	}
	if fresh != 1 {
		t.Errorf("%d executions", fresh)
	}
	f.Post(t, "counter/global/was_counted", count(1))
	other := enginetest.Command(t, "counter/global/was_counted", count(2))
	other.IdempotencyKey = "k"
	if _, err := f.Execute(t.Context(), other); j17.CodeOf(err) != j17.CodeIdempotencyReuse {
		t.Errorf("another request with the same key: %v", err)
	}
	failing := enginetest.Command(t, "counter/global/was_counted", `{"data":{},`+meta+`}`)
	failing.IdempotencyKey = "k2"
	if _, err := f.Execute(t.Context(), failing); j17.CodeOf(err) != j17.CodeSchemaViolation {
		t.Error(err)
	}
	other.IdempotencyKey = "k2" // failures are not remembered
	if r, err := f.Execute(t.Context(), other); err != nil || r.Replayed {
		t.Error(r, err)
	}
	f.Clock.Advance(24*time.Hour + time.Second)
	if r, err := f.Execute(t.Context(), c); err != nil || r.Replayed {
		t.Error("after a day the key was still known", r, err)
	}
}

func TestADeployTakesEffectAtOnce(t *testing.T) {
	f := newFixture(t, engine.Options{SnapshotEvery: 2})
	for range 5 {
		f.Post(t, "counter/"+id+"/was_counted", count(1))
	}
	before, _ := f.Load(t.Context(), tenant, "counter", id, engine.LoadOptions{})
	other, _ := f.Load(t.Context(), tenant, "other", "global", engine.LoadOptions{})
	f.DeploySource(t, strings.Replace(enginetest.CounterSpec, `{"increment":{"target":"n","by":"$.data.by"}}`, `{"decrement":{"target":"n","by":"$.data.by"}}`, 1))
	after, _ := f.Load(t.Context(), tenant, "counter", id, engine.LoadOptions{})
	if !strings.HasPrefix(string(after.JSON), `{"n":-5,`) || after.EntityTag == before.EntityTag {
		t.Errorf("%s with tag %s, before %s", after.JSON, after.EntityTag, before.EntityTag)
	}
	if same, _ := f.Load(
		t.Context(), tenant, "other", "global", engine.LoadOptions{},
	); same.EntityTag != other.EntityTag {
		t.Error("the tag of a type whose definition did not change has changed")
	}
	if err := f.noSpec(t); j17.CodeOf(err) != j17.CodeNoSpec {
		t.Error(err)
	}
}

func (f *fixture) noSpec(t *testing.T) error {
	t.Helper()
	_, err := f.Load(t.Context(), "ins_test/staging", "counter", id, engine.LoadOptions{})
	return err
}

// TestSnapshots checks that a cold read starts at the last snapshot, and that snapshots change no state.
func TestSnapshots(t *testing.T) {
	f := newFixture(t, engine.Options{SnapshotEvery: 10})
	for i := range 35 {
		f.Post(t, "counter/"+id+"/was_counted", count(i))
	}
	f.snapshot(t)
	want := f.State(t, "counter/"+id, engine.LoadOptions{Replay: true})
	f.Post(t, "counter/"+id+"/was_counted", count(1000))
	f.Open(t, engine.Options{SnapshotEvery: 10})
	f.DeploySource(t, enginetest.CounterSpec)
	if got := f.State(t, "counter/"+id, engine.LoadOptions{Length: new(uint64(35))}); got != want {
		t.Errorf("from the snapshot %s, replayed %s", got, want)
	}
	got := f.State(t, "counter/"+id, engine.LoadOptions{})
	if folded := f.Stats().Folded; folded > 10 {
		t.Errorf("a cold read folded %d events", folded)
	}
	if replayed := f.State(t, "counter/"+id, engine.LoadOptions{Replay: true}); got != replayed {
		t.Errorf("from the snapshot %s, replayed %s", got, replayed)
	}
	if past := f.State(t, "counter/"+id, engine.LoadOptions{
		Length: new(uint64(3)),
	}); !strings.HasPrefix(past, `{"n":3,`) {
		t.Errorf("before the snapshot: %s", past)
	}
}

// snapshot runs the background work until a snapshot has been written.
func (f *fixture) snapshot(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { _ = f.Run(ctx) })
	for f.Stats().Snapshots == 0 {
		f.State(t, "counter/"+id, engine.LoadOptions{})
	}
	cancel()
	background.Wait()
}

func TestTheCacheIsBounded(t *testing.T) {
	const limit = 1 << 20
	f := newFixture(t, engine.Options{CacheBytes: limit})
	name := strings.Repeat("x", 2000)
	for i := range 400 {
		path := fmt.Sprintf("counter/%08d-0000-4000-8000-000000000000", i)
		f.Post(t, path+"/was_named", `{"data":{"name":"`+name+`"},`+meta+`}`)
		if got := f.State(t, path, engine.LoadOptions{}); !strings.Contains(got, name) {
			t.Fatal(got)
		}
	}
	if s := f.Stats(); s.CacheBytes > limit || s.CacheStates == 0 || s.CacheStates == 400 {
		t.Errorf("%+v", s)
	}
}
