package httpapi_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

const triedSpec = `{"agent_types": ["user"], "singletons": ["main"], "aggregate_types": {
	"order": {"events": {
		"was_placed": {"schema": {}, "handler": [{"set": {"target": "placed", "value": true}}], "implications": [
			{"emit": {"aggregate_type": "shop", "id": "global", "event_type": "had_order", "data": {"n": "$.data.n"}}},
			{"schedule": {"delay": "5m", "emit": {"aggregate_type": "order", "id": "$.key", "event_type": "was_dropped", "data": {"n": 1}},
				"cancel_on": [{"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"}]}}]},
		"was_paid": {"schema": {}, "handler": []}, "was_dropped": {"schema": {}, "handler": []}}},
	"shop": {"events": {
		"had_order": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": [{"set": {"target": "n", "value": "$.data.n"}}], "implications": [
			{"emit": {"aggregate_type": "log", "id": "main", "event_type": "was_written"}}]},
		"was_asked": {"schema": {}, "handler": []}, "was_answered": {"schema": {}, "handler": []}}},
	"log": {"events": {"was_written": {"schema": {}, "handler": []}}}},
	"modules": {"sagas": {"trip": {"trigger": {"aggregate_type": "order", "event_type": "was_placed"}, "steps": [
		{"name": "ask", "emit": {"aggregate_type": "shop", "id": "main", "event_type": "was_asked"},
			"await": {"aggregate_type": "shop", "event_types": ["was_answered"]}, "timeout_ms": 60000}]}}}}`

// TestWritesAreTried asks what writes would do, with the events that they imply, the scheduled ones, and the sagas.
func TestWritesAreTried(t *testing.T) {
	var later *schedule.Service
	var sagas *saga.Service
	c, found := spec.Compile([]byte(triedSpec))
	if c == nil {
		t.Fatal(found)
	}
	a := administerWith(t, func(o *httpapi.Options) {
		st, ok := o.Store.(store.Store)
		if !ok {
			t.Fatal("the fixture's store is not whole")
		}
		e := engine.New(engine.Options{Store: st, Clock: o.Clock, Logger: o.Logger}).Use(enginetest.Effects(
			func(ctx context.Context, d *part.Decided) (part.Effects, error) { return later.Effects(ctx, d) },
			func(ctx context.Context, d *part.Decided) (part.Effects, error) { return sagas.Effects(ctx, d) },
		)...)
		w := worker.New(o.Clock, o.Logger)
		later = schedule.New(schedule.Options{
			Store: st, Clock: o.Clock, Logger: o.Logger, Worker: w, Execute: e.ExecuteInOrder,
		})
		sagas = saga.New(saga.Options{
			Store: st, Engine: e, Specs: oneSpec{c}, Clock: o.Clock, Logger: o.Logger, Worker: w, Most: 3,
		})
		o.Engine, o.Schedule, o.Sagas = e, later, sagas
	})
	a.Engine.Deploy(j17.TenantOf(a.instance.ID, j17.Prod), c, nil)
	const id = "0b6e9d4e-6f0a-4f3c-8c53-000000000001"
	body := func(data string) string {
		return `{"data":` + data + `,"metadata":{"actor":{"type":"user","id":"global"}}}`
	}
	try := func(target, body string) (parts map[string]json.RawMessage) {
		t.Helper()
		got := a.do(t, "POST", target, body)
		if err := json.Unmarshal([]byte(got.body), &parts); err != nil || got.status != 200 ||
			string(parts["dry_run"]) != "true" {
			t.Fatal(got, err)
		}
		return parts
	}
	same := func(got json.RawMessage, want string) {
		t.Helper()
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}

	// What is accepted.
	got := try("/order/"+id+"/was_placed?dry_run=true", body(`{"n":7}`))
	same(got["accepted"], "true")
	same(got["refusals"], "[]")
	same(got["events"], `[{"key":"order:`+id+`","type":"was_placed","data":{"n":7},"implied":[{"key":"shop:global","type":"had_order","data":{"n":7},"implied":[{"key":"log:main","type":"was_written","data":{},"implied":[]}]}]}]`)
	stamps := `"created_at":1700000000,"updated_at":1700000000`
	same(got["states"], `[{"key":"order:`+id+`","length":1,"data":{"placed":true,`+stamps+`}},{"key":"shop:global","length":1,"data":{"n":7,`+stamps+`}},{"key":"log:main","length":1,"data":{`+stamps+`}}]`)
	emit := `"emit":{"aggregate_type":"order","id":"` + id + `","event_type":"was_dropped","data":{"n":1}},"cancel_on":[{"aggregate_type":"order","id":"` + id + `","event_type":"was_paid"}],"implied_by":{"key":"order:` + id + `","event_type":"was_placed"}}]`
	same(got["scheduled"], `[{"fire_at":"2023-11-14T22:18:20Z",`+emit)
	same(got["sagas"], `[{"type":"trip","status":"running","by":{"key":"order:`+id+`","event_type":"was_placed"}}]`)
	if n := a.ops(t, "GET", "scheduled", ""); !strings.Contains(n.body, `"scheduled":[]`) {
		t.Errorf("something is scheduled: %s", n.body)
	}
	if n := a.ops(t, "GET", "sagas", ""); !strings.Contains(n.body, `"sagas":[]`) {
		t.Errorf("a saga has begun: %s", n.body)
	}

	// What would cancel an event, and let a saga go on.
	if got := a.do(t, "POST", "/order/"+id+"/was_placed?dry_run=false", body(`{"n":7}`)); got.status != 201 {
		t.Fatal(got)
	}
	if err := sagas.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got = try("/order/"+id+"?dry_run=true", `{"events":[{"type":"was_paid"},{"type":"was_placed","data":{"n":1}},{"type":"was_paid"}],"metadata":{"actor":{"type":"user","id":"global"}}}`)
		if cancelled := string(got["cancelled"]); strings.Count(cancelled, `"fire_at"`) != 2 ||
			strings.Count(cancelled, `"scheduled_id":"sch_`) != 1 || got["scheduled"] != nil {
			t.Errorf("%s, scheduled %s", cancelled, got["scheduled"])
		}
		got = try("/shop/main/was_answered?dry_run=true", body(`{}`))
		if g := string(got["sagas"]); !strings.HasPrefix(g, `[{"saga_id":"sag_`) || !strings.HasSuffix(g, `"type":"trip","status":"running","by":{"key":"shop:main","event_type":"was_answered"}}]`) {
			t.Error(g)
		}
	}
	if n := a.ops(t, "GET", "scheduled", ""); !strings.Contains(n.body, `"status":"pending"`) {
		t.Errorf("it is not pending any more: %s", n.body)
	}

	// What is refused, and what is no dry run.
	got = try("/order/"+id+"/was_placed?dry_run=1", body(`{"n":"x"}`))
	same(got["accepted"], "false")
	same(got["states"], "[]")
	if r := string(got["refusals"]); !strings.HasPrefix(r, `[{"status":422,"code":"implication_failed","error":"Nothing was written`) || !strings.Contains(r, `"chain":[{"key":"order:`) {
		t.Error(r)
	}
	for target, want := range map[string]int{
		"/order/" + id + "/was_placed?dry_run=perhaps": 400, "/order/" + id + "/was_placed?dry_run=": 400,
		"/order/" + id + "/nothing?dry_run=true": 404, "/order/_new?dry_run=true": 400,
	} {
		if got := a.do(t, "POST", target, body(`{}`)); got.status != want {
			t.Errorf("%s: %v", target, got)
		}
	}
}
