package trial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/trial"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

const id = enginetest.ID

func dryRun(t *testing.T, c *spec.Compiled, src string, now int64) trial.DryRunResult {
	t.Helper()
	r, err := trial.DryRun(t.Context(), c, nil, src, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDryRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := trial.DryRun(
		ctx, enginetest.Compiled(t, enginetest.CounterSpec), nil, "{}", 0,
	); !errors.Is(err, context.Canceled) || r.Events > 0 {
		t.Error(r, err)
	}
}

func TestDryRunFindings(t *testing.T) {
	const actor = `"metadata":{"actor":{"type":"user","id":"global"}}`
	const good = `{"key":"counter:global","type":"was_counted","data":{"by":1},` + actor + `}`
	for _, tc := range []struct{ name, src, want string }{
		{"good", good, ""},
		{"aggregate type and id", `{"aggregate_type":"counter","id":"main","type":"was_counted","data":{"by":1},` + actor + `}`, ""},
		{"a timestamp", `{"key":"counter:global","type":"was_seen","data":{},"metadata":{"actor":{"type":"user","id":"global"},"timestamp":5,"correlation_id":"c"}}`, ""},
		{"no JSON", good + "\n  {\"key\":}", "2:10 invalid_json "},
		{"no object", `7`, "1:1 invalid_field "},
		{
			"everything at once", `{"key":"counter:x","type":"was_counted","data":{"by":"1","too":2},"metadata":{"actor":{"type":"robot","id":"global"},"timestamp":-1}}`,
			"1:8 invalid_identifier key|1:54 validation_failed data.by|1:64 validation_failed data.too|1:95 undeclared_type metadata.actor.type|1:130 invalid_field metadata.timestamp",
		},
		{"nothing at all", `{}`, "1:1 missing_field key|1:1 missing_field type"},
		{"no metadata and no data", `{"key":"counter:global","type":"was_seen"}`, "1:1 missing_field metadata|1:1 missing_field data"},
		{"unknown members", `{"key":"counter:global","type":"was_seen","data":{},"metdata":{}}`, "1:53 unknown_field metdata"},
		{"unknown metadata", `{"key":"counter:global","type":"was_seen","data":{},"metadata":{"actor":{"type":"user","id":"global"},"implied_by":1}}`, "1:103 unknown_field metadata.implied_by"},
		{"two names of the aggregate", `{"key":"counter:global","id":"global","type":"was_seen","data":{},` + actor + `}`, "1:8 invalid_field key"},
		{"half a key", `{"key":"counter","type":"was_seen","data":{},` + actor + `}`, "1:8 invalid_field key"},
		{"a key that is no text", `{"key":7,"type":"was_seen","data":{},` + actor + `}`, "1:8 invalid_field key"},
		{"unknown aggregate type", `{"aggregate_type":"nothing","id":"global","type":"was_seen","data":{},` + actor + `}`, "1:19 unknown_aggregate_type aggregate_type"},
		{"bad id", `{"aggregate_type":"counter","id":"?","type":"was_seen","data":{},` + actor + `}`, "1:34 invalid_identifier id"},
		{"unknown event type", `{"key":"counter:global","type":"was_eaten","data":{},` + actor + `}`, "1:32 unknown_event_type type"},
		{"an event of the platform", `{"key":"counter:global","type":"_was_tombstoned","data":{},` + actor + `}`, "1:32 reserved_event_type type"},
		{"an actor of the platform", `{"key":"counter:global","type":"was_seen","data":{},"metadata":{"actor":{"type":"system_agent","id":"saga_coordinator"}}}`, "1:81 forbidden metadata.actor.type"},
		{"skip_occ", `{"key":"counter:global","type":"was_seen","data":{},"metadata":{"actor":{"type":"user","id":"global"},"skip_occ":true}}`, "1:114 skip_occ_not_allowed metadata.skip_occ"},
		{
			"previous_length", good + "\n" + strings.Replace(good, `"actor"`, `"previous_length":2,"actor"`, 1) + "\n" +
				strings.Replace(good, `"actor"`, `"previous_length":1,"actor"`, 1),
			"2:92 conflict metadata.previous_length",
		},
		{"a stream id that is none", `{"stream_id":"1-1","key":"counter:global","type":"was_seen","data":{},` + actor + `}`, "1:14 invalid_field stream_id"},
		{
			"stream ids that do not ascend",
			`[{"stream_id":"1700000000000-1","key":"counter:global","type":"was_seen","data":{},` + actor + `},` + "\n" +
				` {"stream_id":"1700000000000-1","key":"counter:global","type":"was_seen","data":{},` + actor + `}]`,
			"2:15 invalid_field stream_id",
		},
		{"a broken array", "[{}", "1:4 invalid_json "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := dryRun(t, enginetest.Compiled(t, enginetest.CounterSpec), tc.src, 1_700_000_000)
			var got []string
			bad := map[int]bool{}
			for _, f := range r.Findings {
				got = append(got, fmt.Sprintf("%d:%d %s %s", f.Line, f.Column, f.Code, f.Path))
				if f.Event > 0 {
					bad[f.Event] = true
				}
				if f.Message == "" {
					t.Error("a finding without a message")
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "|")); diff != "" {
				t.Error(diff)
			}
			if r.Accepted != r.Events-len(bad) {
				t.Errorf("%d of %d events are accepted, %d have findings", r.Accepted, r.Events, len(bad))
			}
		})
	}
}

func body(t *testing.T, src string) value.Value {
	t.Helper()
	v, err := value.ParseString(src)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDryRunOfRecordedEvents(t *testing.T) {
	const src = `{"stream_id":"1700000000000-0","key":"counter:global","type":"was_named","data":{"name":"x"},"metadata":{"actor":{"type":"system_agent","id":"saga_coordinator"},"implied_by":{"deep":[1]},"timestamp":1600000000}}
{"stream_id":"1700000000000-1","key":"counter:global","type":"_was_tombstoned","data":{},"metadata":{"actor":{"type":"system","id":"system"},"timestamp":1600000009}}`
	r := dryRun(t, enginetest.Compiled(t, enginetest.CounterSpec), src, 0)
	if len(r.Findings) > 0 || len(r.States) != 1 {
		t.Fatalf("%+v", r)
	}
	if got := string(r.States[0].JSON); got != `{"name":"x","created_at":1600000000,"updated_at":1600000009}` || r.States[0].Length != 2 {
		t.Error(got, r.States[0].Length)
	}
}

const faultySpec = `{"agent_types": ["user", "clerk"], "aggregate_types": {"note": {"events": {
  "was_written": {"schema": {"type": "object", "properties": {"name": {"type": "string"}}},
    "handler": [
      {"set": {"target": "name", "value": "$.data.name"}},
      {"append": {"target": "name", "value": 1}},
      {"set": {"target": "by", "value": ["$.metadata.actor", "$.metadata.timestamp", "$.key"]}}]}}}}}`

func TestDryRunFaults(t *testing.T) {
	const src = "\n" + `{"key":"note:global","type":"was_written","data":{"name":"x"},"metadata":{"actor":{"type":"user","id":"global"}}}`
	r := dryRun(t, enginetest.Compiled(t, faultySpec), src, 1_700_000_000)
	if len(r.Findings) > 0 || len(r.Faults) != 1 {
		t.Fatalf("%+v", r)
	}
	f := r.Faults[0]
	if f.Line != 5 || f.Column != 7 || f.EventLine != 2 || f.Event != 1 || f.Key.String() != "note:global" ||
		f.Type != "was_written" ||
		f.Pointer != "/aggregate_types/note/events/was_written/handler/1" {
		t.Errorf("%+v", f)
	}
	const want = `{"name":"x","by":[{"type":"user","id":"global"},1700000000,"note:global"],"created_at":1700000000,"updated_at":1700000000}`
	if got := string(r.States[0].JSON); got != want {
		t.Error(got)
	}
}

func TestDryRunBoundsWhatItKeeps(t *testing.T) {
	r := dryRun(t, enginetest.Compiled(t, enginetest.CounterSpec), strings.Repeat("x\n", 1234), 0)
	if len(r.Findings) != 1000 || r.Dropped != 234 || r.Events != 1234 || r.Accepted != 0 {
		t.Errorf("%d findings, %d dropped, %d of %d accepted", len(r.Findings), r.Dropped, r.Accepted, r.Events)
	}
}

func TestTryHandler(t *testing.T) {
	c := enginetest.Compiled(t, faultySpec)
	try := func(h trial.HandlerTrial) (trial.HandlerOutcome, []trial.EventFinding, error) {
		h.Now = 1_700_000_000
		if h.AggregateType == "" {
			h.AggregateType, h.EventType = "note", "was_written"
		}
		return trial.TryHandler(t.Context(), c, h)
	}
	out, found, err := try(trial.HandlerTrial{
		State: body(t, `{"name":"old","x":1.0}`), Data: body(t, `{"name":"new"}`),
	})
	if err != nil || found != nil {
		t.Fatal(found, err)
	}
	const want = `{"name":"new","x":1.0,"by":[{"type":"clerk","id":"global"},1700000000,"note:global"]}`
	if out.State.String() != want || !out.Changed || len(out.Faults) != 1 || out.Faults[0].Line != 5 {
		t.Errorf("%s %+v", out.State, out.Faults)
	}
	out, _, err = try(trial.HandlerTrial{
		State: out.State, Data: body(t, `{"name":"new"}`), ID: strings.ToUpper(id),
		Metadata: body(t, `{"timestamp":5}`),
	})
	if err != nil || out.Key.ID != id || !strings.Contains(out.State.String(), `,5,"note:`+id) {
		t.Error(out, err)
	}
	_, found, err = try(trial.HandlerTrial{Data: body(t, `{"name":7}`), Metadata: body(t, `{"actor":{"type":"user","id":"nobody?"}}`)})
	if err != nil || len(found) != 2 || found[0].Pointer != "/metadata/actor/id" || found[1].Pointer != "/data/name" {
		t.Error(found, err)
	}
	for _, tc := range []struct {
		trial trial.HandlerTrial
		want  j17.Code
	}{
		{trial.HandlerTrial{AggregateType: "x", EventType: "was_written"}, j17.CodeUnknownType},
		{trial.HandlerTrial{AggregateType: "note", EventType: "x"}, j17.CodeUnknownEventType},
		{trial.HandlerTrial{AggregateType: "note", EventType: "_was_tombstoned"}, j17.CodeReservedEventType},
		{trial.HandlerTrial{ID: "?"}, j17.CodeInvalidIdentifier},
	} {
		if _, _, err := try(tc.trial); j17.CodeOf(err) != tc.want {
			t.Errorf("%+v: %v", tc.trial, err)
		}
	}
}

// FuzzDryRun feeds it files of all kinds: it must come back, and every finding must have its place in the file.
func FuzzDryRun(f *testing.F) {
	raw, err := os.ReadFile("../../../examples/counter/spec.json")
	if err != nil {
		f.Fatal(err)
	}
	c := enginetest.Compiled(f, string(raw))
	f.Add(`{"key":"counter:global","type":"was_raised","data":{"by":1},"metadata":{"actor":{"type":"user","id":"global"}}}`)
	f.Add("[{},\n{\"stream_id\":\"1700000000000-0\",\"metadata\":[]}]")
	f.Add("{\"metadata\":{\"timestamp\":1e300,\"a/b~\":0}}\n\n]")
	f.Fuzz(func(t *testing.T, src string) {
		r := dryRun(t, c, src, 0)
		lines := strings.Count(src, "\n") + 1
		for _, found := range r.Findings {
			if found.Line < 1 || found.Line > lines || found.Column < 1 || found.Message == "" {
				t.Errorf("%+v is no place in a file of %d lines", found, lines)
			}
		}
		if r.Accepted > r.Events || len(r.States) > r.Accepted {
			t.Errorf("%d events, %d accepted, %d states", r.Events, r.Accepted, len(r.States))
		}
	})
}

// TestDryRunRunsCustomCode: what code refuses has not happened, and neither has what led to it.

// TestScheduledIsBounded schedules more events than are kept.
func TestScheduledIsBounded(t *testing.T) {
	c, found := spec.Compile([]byte(`{"agent_types": ["user"], "aggregate_types": {"job": {"events": {"was_timed": {"schema": {}, "handler": [], "implications": [
		{"schedule": {"delay": "5m", "emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_timed"},
			"cancel_on": [{"aggregate_type": "job", "id": "$.key", "event_type": "was_timed"}]}}]}}}}}`))
	if c == nil {
		t.Fatal(found)
	}
	event := `{"key":"job:global","type":"was_timed","data":{},"metadata":{"actor":{"type":"user","id":"global"}}}` + "\n"
	const more = 20
	r, err := trial.DryRun(t.Context(), c, nil, strings.Repeat(event, diag.MaxKept+more), 1000)
	if err != nil || len(r.Scheduled) != diag.MaxKept || r.Dropped != more || r.Accepted != diag.MaxKept+more {
		t.Fatalf("%d of %d are kept, %d were dropped: %v", len(r.Scheduled), r.Accepted, r.Dropped, err)
	}
	for i, s := range r.Scheduled {
		if s.EventLine != i+1 || s.CanceledBy != i+2 || s.FireAt != 1300 {
			t.Fatalf("the event on line %d schedules %+v", i+1, s)
		}
	}
}

const guardedSpec = `{"agent_types": ["user"], "aggregate_types": {"account": {"events": {
  "was_opened": {"schema": {}, "creates": "only", "handler": [{"set": {"target": "balance", "value": 0}}]},
  "was_paid": {"schema": {}, "creates": false, "handler": [{"decrement": {"target": "balance", "by": "$.data.amount"}}],
    "reads": {"to": {"aggregate_type": "account", "id": "$.data.to"}},
    "requires": [{"that": {"gte": ["$.state.balance", "$.data.amount"]}, "message": {"concat": ["The balance is ", "$.state.balance"]}, "code": "short"},
      {"that": {"not_equals": ["$.reads.to", null]}, "message": "Nobody is paid"}],
    "implications": [{"emit": {"aggregate_type": "account", "id": "$.data.to", "event_type": "was_paid_in", "data": {"amount": "$.data.amount", "before": "$.reads.to.balance"}}}]},
  "was_paid_in": {"schema": {}, "creates": false, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}],
    "requires": [{"that": {"lt": ["$.state.balance", 10]}, "message": "Full", "code": "full"}]}}}}}`

// TestDryRunIsGuarded: events that the spec forbids where they stand are not valid, nor are those that imply such
// events. What a server has written before is not asked.
func TestDryRunIsGuarded(t *testing.T) {
	const other = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11"
	line := func(more, id, typ, data string) string {
		return `{` + more + `"key":"account:` + id + `","type":"` + typ + `","data":` + data + `,"metadata":{"actor":{"type":"user","id":"global"}}}` + "\n"
	}
	src := line("", id, "was_paid_in", `{"amount":1}`) + line("", id, "was_opened", `{}`) + line(
		"", id, "was_opened", `{}`,
	) + line("", id, "was_paid_in", `{"amount":9}`) +
		line("", id, "was_paid", `{"amount":10}`) + line("", id, "was_paid", `{"amount":4}`) + line(
		"", id, "was_paid", `{"amount":4,"to":"`+other+`"}`,
	) +
		line("", other, "was_opened", `{}`) + line("", id, "was_paid", `{"amount":4,"to":"`+other+`"}`) + line(
		"", other, "was_paid_in", `{"amount":9}`,
	) +
		line("", id, "was_paid", `{"amount":1,"to":"`+other+`"}`) + line(
		`"stream_id":"1700000000000-0",`, id, "was_paid", `{"amount":100}`,
	)
	r := dryRun(t, enginetest.Compiled(t, guardedSpec), src, 1_700_000_000)
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf(
			"%d:%d %s %s %s %s %s", f.Line, f.Column, f.Code, f.Path, f.Requirement,
			strings.TrimPrefix(string(f.Rule), "/aggregate_types/account/events"), f.Message,
		))
	}
	want := []string{
		"1:8 aggregate_not_found key  /was_paid_in/creates account:" + id + " does not exist, and was_paid_in cannot be its first event.",
		"3:1 already_exists   /was_opened/creates account:" + id + " exists already, and was_opened can only be its first event.",
		"5:1 requirement_failed  short /was_paid/requires/0 The balance is 9",
		"6:1 requirement_failed   /was_paid/requires/1 Nobody is paid",
		"7:1 requirement_failed   /was_paid/requires/1 Nobody is paid",
		"11:1 requirement_failed  full /was_paid_in/requires/0 Full",
	}
	if diff := cmp.Diff(want, got); diff != "" || r.Accepted != 6 {
		t.Error(diff, r.Accepted)
	}
	var states []string
	for _, s := range r.States {
		states = append(states, fmt.Sprintf("%s %d %s", s.Key.ID, s.Length, s.Data.Get("balance")))
	}
	if diff := cmp.Diff([]string{id + " 4 -95", other + " 3 13"}, states); diff != "" {
		t.Error(diff)
	}
}

// TestTryHandlerIsGuarded tries events on states that their guards like or do not, with what they read of others.
func TestTryHandlerIsGuarded(t *testing.T) {
	c := enginetest.Compiled(t, guardedSpec)
	const paid = `{"amount":4,"to":"0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11"}`
	for _, tc := range []struct{ event, state, data, reads, want string }{
		{"was_opened", ``, `{}`, ``, `{"balance":0}`},
		{"was_opened", `{}`, `{}`, ``, `{"balance":0}`},
		{"was_opened", `{"balance":1}`, `{}`, ``, "already_exists "},
		{"was_paid_in", ``, `{"amount":1}`, ``, "requirement_failed full"},
		{"was_paid_in", `{"balance":3}`, `{"amount":1}`, ``, `{"balance":4}`},
		{"was_paid", `{"balance":3}`, paid, `{"to":{}}`, "requirement_failed short"},
		{"was_paid", `{"balance":4}`, paid, ``, "requirement_failed "},
		{"was_paid", `{"balance":4}`, paid, `{"to":null}`, "requirement_failed "},
		{"was_paid", `{"balance":4}`, paid, `{"to":{"balance":70}}`, `{"balance":0} {"amount":4,"before":70}`},
		{"was_paid", `{"balance":4}`, paid, `{"too":{}}`, "invalid_field"},
		{"was_paid", `{"balance":4}`, paid, `{"to":1}`, "invalid_field"},
		{"was_paid", `{"balance":4}`, paid, `[]`, "invalid_field"},
		{"was_opened", ``, `{}`, `{"to":{}}`, "invalid_field"},
	} {
		h := trial.HandlerTrial{AggregateType: "account", EventType: tc.event, Data: body(t, tc.data), Now: 1}
		if tc.state != "" {
			h.State = body(t, tc.state)
		}
		if tc.reads != "" {
			h.Reads = body(t, tc.reads)
		}
		out, found, err := trial.TryHandler(t.Context(), c, h)
		got := out.State.String()
		for _, o := range out.Implied {
			got += " " + o.Data.String()
		}
		if err != nil {
			got = string(j17.CodeOf(err))
		} else if len(found) > 0 {
			got = string(found[0].Code) + " " + found[0].Requirement
		}
		if got != tc.want {
			t.Errorf("%s on %s with %s: %s, want %s", tc.event, tc.state, tc.reads, got, tc.want)
		}
	}
}

// TestTryHandlerTellsWhatCannotBeAsked: a guard that calculates with what is not there is told apart from one that does
// not hold.
func TestTryHandlerTellsWhatCannotBeAsked(t *testing.T) {
	c := enginetest.Compiled(t, `{"agent_types": ["user"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": [],
		"requires": [{"that": {"gte": [{"$subtract": ["@.n", 1]}, 0]}, "message": "No"}]}}}}}`)
	const at = "the spec forbids it here, at /aggregate_types/a/events/e/requires/0"
	for state, want := range map[string]string{`{"n":0}`: at, `{}`: at + ", which cannot be evaluated: something that it calculates with is missing, or is of another kind"} {
		_, found, err := trial.TryHandler(t.Context(), c, trial.HandlerTrial{
			AggregateType: "a", EventType: "e", Data: body(t, `{}`), State: body(t, state), Now: 1,
		})
		if err != nil || len(found) != 1 || found[0].Message != "No" || found[0].Hint != want {
			t.Errorf("on %s: %+v, %v", state, found, err)
		}
	}
}

// TestDryRunKeepsValuesUnique: of the events of a file those are not valid that take what another aggregate holds by
// those before them.
func TestDryRunKeepsValuesUnique(t *testing.T) {
	const other, src = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11", `{"agent_types": ["user"], "aggregate_types": {"user": {"events": {
		"was_named": {"schema": {}, "handler": [], "unique": {"name": {"value": "$.data.name"}}},
		"has_left": {"schema": {}, "handler": [], "releases": ["name"]}}}}}`
	line := func(more, id, typ, data string) string {
		return `{` + more + `"key":"user:` + id + `","type":"` + typ + `","data":` + data + `,"metadata":{"actor":{"type":"user","id":"global"}}}` + "\n"
	}
	r := dryRun(t, enginetest.Compiled(t, src), line(`"stream_id":"1700000000000-0",`, id, "was_named", `{"name":"a"}`)+
		line("", other, "was_named", `{"name":"a"}`)+line("", id, "was_named", `{"name":"b"}`)+line(
		"", other, "was_named", `{"name":"a"}`,
	)+
		line("", id, "was_named", `{"name":"a"}`)+line("", other, "has_left", `{}`)+line(
		"", id, "was_named", `{"name":"a"}`,
	), 1_700_000_000)
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprint(f.Line, " ", f.Code, " ", f.Path, ": ", f.Hint))
	}
	const held = " not_unique data.name: the spec forbids it here, at /aggregate_types/user/events/was_named/unique/name; user:"
	if diff := cmp.Diff(
		[]string{"2" + held + id + " holds the value", "5" + held + other + " holds the value"}, got,
	); diff != "" || r.Accepted != 5 {
		t.Error(diff, r.Accepted)
	}
}
