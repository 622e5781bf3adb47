package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
)

// outlook tries a command.
func (f *fixture) outlook(t *testing.T, c *engine.Command) *engine.Outlook {
	t.Helper()
	o, err := f.DryRun(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// lines writes the events and the states of an outlook down.
func lines(o *engine.Outlook) []string {
	var all []string
	for i := range o.Events {
		ev := &o.Events[i]
		all = append(all, fmt.Sprintf("%d %s %s %s", ev.Cause, ev.Key, ev.Type, ev.JSON))
	}
	for _, s := range o.States {
		all = append(all, fmt.Sprintf("%s %d %s", s.Key, s.Length, s.JSON))
	}
	return all
}

const tallySpec = `{"agent_types": ["user"], "project_key": "TAL", "aggregate_types": {
  "list": {"identity": {"handle": "lst", "sequence": true}, "events": {
    "was_made": {"schema": {}, "handler": [{"set": {"target": "name", "value": "$.data.name"}}]},
    "had_item": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "handler": [{"increment": {"target": "sum", "by": "$.data.n"}}], "implications": [
      {"condition": {"gt": ["$.data.n", 5]}, "emit": {"aggregate_type": "tally", "id": "global", "event_type": "was_raised", "data": {"by": "$.data.n"}}}]},
    "had_items": {"schema": {}, "handler": [], "implications": [
      {"map": {"in": "$.data.of", "as": "$item", "emit": {"aggregate_type": "tally", "id": "$item", "event_type": "was_raised", "data": {"by": 1}}}}]}}},
  "tally": {"events": {
    "was_raised": {"schema": {"type": "object", "properties": {"by": {"type": "integer", "maximum": 50}}}, "handler": [{"increment": {"target": "n", "by": "$.data.by"}}], "implications": [
      {"condition": {"gt": ["$.data.by", 20]}, "emit": {"aggregate_type": "tally", "id": "global", "event_type": "was_capped", "data": {"at": 20}}}]},
    "was_capped": {"schema": {}, "handler": [{"set": {"target": "at", "value": "$.data.at"}}]}}}
}}`

// TestADryRunIsWhatTheWriteDoes compares what is told before with what comes to be.
func TestADryRunIsWhatTheWriteDoes(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, tallySpec)
	f.Post(t, "list/"+id+"/was_made", enginetest.Body(`{"name":"a"}`))
	f.Post(t, "tally/global/was_raised", enginetest.Body(`{"by":3}`))
	c := enginetest.Command(t, "list/"+id, `{"events":[{"type":"had_item","data":{"n":30}},{"type":"had_item","data":{"n":1}},{"type":"had_item","data":{"n":7}}],`+meta+`}`)
	o := f.outlook(t, c)
	stamps := `"created_at":1700000000,"updated_at":1700000000`
	want := []string{
		"-1 list:" + id + ` had_item {"n":30}`, "-1 list:" + id + ` had_item {"n":1}`,
		"-1 list:" + id + ` had_item {"n":7}`,
		`0 tally:global was_raised {"by":30}`, `2 tally:global was_raised {"by":7}`,
		`3 tally:global was_capped {"at":20}`,
		"list:" + id + ` 4 {"name":"a",` + stamps + `,"sum":38}`, `tally:global 4 {"n":40,` + stamps + `,"at":20}`,
	}
	if diff := cmp.Diff(want, lines(o)); diff != "" || len(o.Refusals) > 0 || o.Truncated {
		t.Error(diff, o.Refusals, o.Truncated)
	}
	if r, err := f.Execute(t.Context(), c); err != nil || r.Implied != 3 {
		t.Fatal(r, err)
	}
	for _, s := range o.States {
		got, err := f.Load(t.Context(), tenant, s.Key.Type, s.Key.ID, engine.LoadOptions{})
		if err != nil || got.Length != s.Length || string(got.JSON) != string(s.JSON) {
			t.Errorf("%s has %d events and the state %s, was told to have %d and %s", s.Key, got.Length, got.JSON, s.Length, s.JSON)
		}
	}
}

// TestADryRunKeepsNothing tries commands that would make aggregates with names, under an idempotency key, and some that
// would be refused.
func TestADryRunKeepsNothing(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, tallySpec)
	f.Create(t, "list/_new/was_made", enginetest.Body(`{}`))
	before := f.Stats()
	c := enginetest.Creation(t, "list/_new/was_made", enginetest.Body(`{}`))
	c.IdempotencyKey = "once"
	ids := map[string]bool{}
	for range 3 {
		o := f.outlook(t, c)
		if len(o.Refusals) > 0 || o.Repeated || len(o.Events) != 1 {
			t.Fatalf("%+v", o)
		}
		ids[o.Events[0].Key.ID] = true
	}
	if len(ids) != 3 {
		t.Error("ids that mean nothing are the same ones")
	}
	refused := enginetest.Command(t, "list/"+id+"/had_item", enginetest.Body(`{"n":60}`))
	if o := f.outlook(t, refused); j17.CodeOf(o.Refusals[0]) != j17.CodeImplicationFailed || len(o.States) > 0 {
		t.Errorf("%+v", o)
	}
	if failed, _, err := f.ImplicationFailures(t.Context(), tenant, 0, 10); err != nil || len(failed) > 0 {
		t.Error(failed, err)
	}
	if after := f.Stats(); after.Events != before.Events || after.Conflicts != before.Conflicts ||
		after.Replanned != before.Replanned {
		t.Errorf("%+v, before %+v", after, before)
	}
	r, err := f.Execute(t.Context(), c)
	if one := enginetest.One(r); err != nil || one.PublicID != "TAL-2" || one.Replayed || ids[one.ID] {
		t.Errorf("the write after it: %+v, %v", r, err)
	}

	// What was carried out is not carried out again, and the key is good for nothing else.
	if o := f.outlook(t, c); !o.Repeated || len(o.Events)+len(o.States)+len(o.Refusals) > 0 {
		t.Errorf("%+v", o)
	}
	c.Fingerprint[0]++
	if o, err := f.DryRun(t.Context(), c); j17.CodeOf(err) != j17.CodeIdempotencyReuse {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestADryRunTellsRefusalsFromFaults: what is wrong with the request is an error, what the write would be refused for
// is in the outlook, in the words of the write.
func TestADryRunTellsRefusalsFromFaults(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, tallySpec)
	f.Post(t, "list/"+id+"/was_made", enginetest.Body(`{}`))
	expecting := func(n string) string {
		return `{"data":{"n":60},"metadata":{"actor":{"type":"user","id":"global"},"previous_length":` + n + `}}`
	}
	for _, tc := range []struct {
		name, path, body, match string
		refused                 bool
		events                  int
	}{
		{"an unknown type", "list/" + id + "/nothing", enginetest.Body(`{}`), "", false, 0},
		{"no identifier", "list/x/had_item", enginetest.Body(`{"n":1}`), "", false, 0},
		{"no actor", "list/" + id + "/had_item", `{"data":{"n":1},"metadata":{}}`, "", false, 0},
		{"a schema", "list/" + id + "/had_item", enginetest.Body(`{"n":"x"}`), "", true, 1},
		{"a schema in a batch", "list/" + id, `{"events":[{"type":"was_made"},{"type":"had_item"}],` + meta + `}`, "", true, 2},
		{"a tag before a length", "list/" + id + "/had_item", expecting("7"), `"nonsense"`, true, 1},
		{"a length before what is implied", "list/" + id + "/had_item", expecting("7"), "", true, 1},
		{"what is implied", "list/" + id + "/had_item", enginetest.Body(`{"n":60}`), "", true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := enginetest.Command(t, tc.path, tc.body)
			if tc.match != "" {
				c.IfMatch = []string{tc.match}
			}
			_, want := f.Execute(t.Context(), c)
			o, err := f.DryRun(t.Context(), c)
			if want == nil || tc.refused == (err != nil) {
				t.Fatalf("%+v, %v; the write is answered with %v", o, err, want)
			}
			if tc.refused {
				err = o.Refusals[0]
				if len(o.States) > 0 || len(o.Events) != tc.events || o.Events[0].Key.String() != "list:"+id {
					t.Errorf("%+v", o)
				}
			}
			if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestADryRunTellsAllGuards: of the first event that is refused all guards that do not hold, in their order.
func TestADryRunTellsAllGuards(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {
		"note": {"events": {"was_kept": {"schema": {}, "handler": [{"set": {"target": "n", "value": "$.data.n"}}], "requires": [
			{"that": {"gt": ["$.data.n", 1]}, "message": "not over one", "code": "one"},
			{"that": {"gt": ["$.data.n", 2]}, "message": "not over two"},
			{"that": {"lt": ["$.data.n", 9]}, "message": "not below nine", "code": "nine"},
			{"that": {"gt": ["$.data.n", 3]}, "message": "not over three", "code": "three"}],
			"implications": [{"condition": {"equals": ["$.data.n", 8]}, "emit": {"aggregate_type": "pad", "id": "global", "event_type": "was_used"}}]}}},
		"pad": {"events": {"was_used": {"schema": {}, "handler": [], "creates": false, "requires": [{"that": {"equals": [1, 2]}, "message": "never", "code": "never"}]}}}}}`)
	for _, tc := range []struct {
		numbers string
		want    []string
	}{
		{"4", nil},
		{"4,1,0", []string{"one", "", "three"}},
		{"9", []string{"nine"}},
		{"8", []string{"never"}},
	} {
		var events []string
		for n := range strings.SplitSeq(tc.numbers, ",") {
			events = append(events, `{"type":"was_kept","data":{"n":`+n+`}}`)
		}
		o := f.outlook(t, enginetest.Command(t, "note/"+id, `{"events":[`+strings.Join(events, ",")+`],`+meta+`}`))
		var got []string
		for _, err := range o.Refusals {
			e, ok := errors.AsType[*j17.Error](err)
			details, _ := e.Details.(decider.RefusalDetails)
			if !ok || e.Code != j17.CodeRequirementFailed || *e.EventIndex != min(len(events)-1, 1) {
				t.Errorf("%s: %+v", tc.numbers, err)
			}
			got = append(got, details.Requirement)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || (len(o.States) == 0) != (tc.want != nil) {
			t.Errorf("%s: %s%+v", tc.numbers, diff, o.States)
		}
	}
}

// meddled is a store in which something happens before heads are read.
type meddled struct {
	store.Store
	meddle func()
}

func (m *meddled) Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	if m.meddle != nil {
		m.meddle()
	}
	return m.Store.Heads(ctx, t, keys)
}

// TestADryRunIsOfOneMoment overtakes a dry run between what it looks at and the end: it is told anew, and given up
// where there is no end of it.
func TestADryRunIsOfOneMoment(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.DeploySource(t, accountSpec)
	f.Post(t, "account/"+id+"/was_opened", enginetest.Body(`{}`))
	m := &meddled{Store: f.Store}
	slow := engine.New(engine.Options{Store: m, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	slow.Deploy(tenant, enginetest.Compiled(t, accountSpec), nil)
	heads, overtaken := 0, 1
	m.meddle = func() {
		if heads++; heads%2 == 0 && overtaken > 0 {
			// the first look is at the state, the second one at what has become of it
			overtaken--
			f.Post(t, "account/"+id+"/was_deposited", enginetest.Body(`{"amount":5}`))
		}
	}
	c := enginetest.Command(t, "account/"+id+"/was_paid", paid())
	o, err := slow.DryRun(t.Context(), c)
	if err != nil || string(o.Events[1].JSON) != `{"balance":5}` || o.States[0].Length != 4 ||
		!strings.Contains(string(o.States[0].JSON), `"balance":6`) {
		t.Errorf("%+v, %v", o, err)
	}
	heads, overtaken = 0, 1000
	if _, err := slow.DryRun(t.Context(), c); j17.CodeOf(err) != j17.CodeBusy || overtaken < 900 {
		t.Errorf("overtaken %d times: %v", 1000-overtaken, err)
	}
}

// TestADryRunIsBounded implies events of more aggregates than are shown, with their lengths all the same.
func TestADryRunIsBounded(t *testing.T) {
	f := newFixture(t, engine.Options{MaxImplied: 5000})
	f.DeploySource(t, tallySpec)
	const n = 1500
	var of []string
	for i := range n {
		of = append(of, fmt.Sprintf(`"%08x-0000-4000-8000-000000000000"`, i))
	}
	o := f.outlook(
		t, enginetest.Command(t, "list/"+id+"/had_items", enginetest.Body(`{"of":[`+strings.Join(of, ",")+`]}`)),
	)
	shown := 0
	for _, s := range o.States {
		if s.JSON != nil {
			shown++
		}
		if s.Length != 1 {
			t.Fatalf("%s has %d events", s.Key, s.Length)
		}
	}
	if len(o.Events) != n+1 || len(o.States) != n+1 || shown != 1000 || !o.Truncated {
		t.Errorf("%d events, %d states of which %d are shown", len(o.Events), len(o.States), shown)
	}
}
