package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/schedule"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

const laterSpec = `{"agent_types": ["user"], "singletons": ["main"], "aggregate_types": {
	"job": {"events": {"was_timed": {"schema": {}, "handler": [], "implications": [
		{"schedule": {"delay": "5m", "emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}}}}]},
		"was_taken": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": []}}}}}`

// TestScheduledOverHTTP lists, cancels and retries scheduled events, and refuses what their status does not allow.
func TestScheduledOverHTTP(t *testing.T) {
	var service *schedule.Service
	a := administerWith(t, func(o *httpapi.Options) {
		st, ok := o.Store.(store.Store)
		if !ok {
			t.Fatal("the fixture's store is not whole")
		}
		var e *engine.Engine
		service = schedule.New(schedule.Options{
			Store: st, Clock: o.Clock, Logger: o.Logger, Worker: worker.New(o.Clock, o.Logger),
			Execute: func(ctx context.Context, t j17.Tenant, commands []*engine.Command) []engine.Outcome {
				return e.ExecuteInOrder(ctx, t, commands)
			},
		})
		e = engine.New(engine.Options{
			Store: st, Clock: o.Clock, Logger: o.Logger,
		}).Use(enginetest.Effects(service.Effects)...)
		o.Engine, o.Schedule = e, service
	})
	c, found := spec.Compile([]byte(laterSpec))
	if c == nil {
		t.Fatal(found)
	}
	a.Engine.Deploy(j17.TenantOf(a.instance.ID, j17.Prod), c, nil)
	for _, n := range []string{"1", "2", `"three"`} {
		if got := a.do(t, "POST", "/job/global/was_timed", `{"data":{"n":`+n+`},"metadata":{"actor":{"type":"user","id":"global"}}}`); got.status != 201 {
			t.Fatal(got)
		}
	}
	type page struct {
		OK        bool
		Scheduled []struct {
			ScheduledID string `json:"scheduled_id"`
			Status      string
			Attempts    int
			Emit        struct{ Data json.RawMessage }
		}
		Next *int
	}
	list := func(target string) (p page) {
		t.Helper()
		got := a.ops(t, "GET", target, "")
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != 200 || !p.OK {
			t.Fatal(got, err)
		}
		return p
	}

	// A page, the one behind it, and changes.
	first, rest := list("scheduled?status=pending&limit=1"), list("scheduled?limit=2&offset=1")
	if len(first.Scheduled) != 1 || first.Next == nil || *first.Next != 1 ||
		string(first.Scheduled[0].Emit.Data) != `{"n":"three"}` ||
		len(rest.Scheduled) != 2 || rest.Next != nil || string(rest.Scheduled[0].Emit.Data) != `{"n":2}` {
		t.Fatalf("%+v %+v", first, rest)
	}
	two, one := "scheduled/"+rest.Scheduled[0].ScheduledID, "scheduled/"+rest.Scheduled[1].ScheduledID
	if got := a.ops(t, "DELETE", two, ""); got.status != 200 || !strings.Contains(got.body, `"status":"canceled"`) {
		t.Errorf("cancel: %+v", got)
	}
	a.clock.Advance(5 * time.Minute)
	for range 10 {
		if err := service.Queues()[0].Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.clock.Advance(time.Minute)
	}
	dead := list("scheduled/dead")
	if again := list("scheduled/dead_letters"); len(dead.Scheduled) != 1 || dead.Scheduled[0].Attempts != 10 ||
		len(again.Scheduled) != 1 || len(list("scheduled?status=fired").Scheduled) != 1 {
		t.Fatalf("%+v %+v", dead, again)
	}
	three := "scheduled/" + dead.Scheduled[0].ScheduledID
	for _, tc := range []struct {
		method, target string
		want           int
	}{
		{"POST", one + "/cancel", 409},
		{"POST", one + "/retry", 409},
		{"POST", two + "/retry", 409},
		{"POST", three + "/retry", 200},
		{"POST", three + "/retry", 409},
		{"POST", three + "/cancel", 200},
		{"DELETE", "scheduled/sch_zzzzzzzzzzzzzzz", 404},
		{"POST", "scheduled/%00/retry", 404},
		{"GET", "scheduled?status=nonsense", 400},
		{"GET", "scheduled?limit=0", 400},
		{"GET", "scheduled/dead?status=fired", 400},
	} {
		if got := a.ops(t, tc.method, tc.target, ""); got.status != tc.want {
			t.Errorf("%s %s: %d %s, want %d", tc.method, tc.target, got.status, got.body, tc.want)
		}
	}

	// What is counted.
	w := httptest.NewRecorder()
	a.Internal().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, line := range []string{
		"created_total 3", "fired_total 1", "canceled_total 2", "dead_lettered_total 1", "refused_total 0",
	} {
		if !strings.Contains(w.Body.String(), "\nj17_scheduled_"+line+"\n") {
			t.Errorf("no %s among the metrics", line)
		}
	}
}
