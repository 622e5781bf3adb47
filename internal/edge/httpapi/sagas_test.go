package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/saga"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

const sagaSpec = `{"agent_types": ["user"], "singletons": ["main"], "aggregate_types": {
	"trip": {"events": {"was_asked": {"schema": {}, "handler": []}, "had_failure": {"schema": {}, "handler": []}}},
	"desk": {"events": {"was_asked": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": []},
		"was_undone": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": []}, "was_answered": {"schema": {}, "handler": []}}}},
	"modules": {"sagas": {"trip": {"trigger": {"aggregate_type": "trip", "event_type": "was_asked"}, "steps": [
		{"name": "ask", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_asked", "data": {"n": 1}},
			"await": {"aggregate_type": "desk", "event_types": ["was_answered"]}, "timeout_ms": 60000,
			"compensate": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_undone", "data": {"n": "$.data.undo"}}},
		{"name": "check", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_asked", "data": {"n": "$prev.data.n"}}}],
		"on_failed": {"aggregate_type": "trip", "id": "$.key", "event_type": "had_failure", "data": {}}}}}}`

// oneSpec is a spec that was deployed everywhere.
type oneSpec struct{ compiled *spec.Compiled }

// Deployed is part of saga.Specs.
func (oneSpec) Deployed(context.Context, j17.Tenant) (int, error) { return 1, nil }

// Compiled is part of saga.Specs.
func (s oneSpec) Compiled(context.Context, j17.Tenant, int) (*spec.Compiled, error) {
	return s.compiled, nil
}

// TestSagasOverHTTP lists sagas that end in all ways, shows and retries them, refuses what their status does not allow,
// and counts them.
func TestSagasOverHTTP(t *testing.T) {
	var service *saga.Service
	c, found := spec.Compile([]byte(sagaSpec))
	if c == nil {
		t.Fatal(found)
	}
	a := administerWith(t, func(o *httpapi.Options) {
		st, ok := o.Store.(store.Store)
		if !ok {
			t.Fatal("the fixture's store is not whole")
		}
		e := engine.New(engine.Options{Store: st, Clock: o.Clock, Logger: o.Logger}).Use(enginetest.Effects(
			func(ctx context.Context, d *part.Decided) (part.Effects, error) { return service.Effects(ctx, d) },
		)...)
		service = saga.New(saga.Options{
			Store: st, Engine: e, Specs: oneSpec{c}, Clock: o.Clock, Logger: o.Logger,
			Worker: worker.New(o.Clock, o.Logger), Most: 3,
		})
		o.Engine, o.Sagas = e, service
	})
	a.Engine.Deploy(j17.TenantOf(a.instance.ID, j17.Prod), c, nil)
	settle := func() {
		t.Helper()
		if err := service.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, data string) {
		t.Helper()
		if got := a.do(t, "POST", path, `{"data":`+data+`,"metadata":{"actor":{"type":"user","id":"global"}}}`); got.status != 201 {
			t.Fatal(got)
		}
	}

	// Four of which three may run: one completes, one fails, one is given up because it cannot be undone, and one is
	// not answered.
	const completes, fails, stays, waits = "0b6e9d4e-6f0a-4f3c-8c53-000000000001",
		"0b6e9d4e-6f0a-4f3c-8c53-000000000002", "0b6e9d4e-6f0a-4f3c-8c53-000000000003",
		"0b6e9d4e-6f0a-4f3c-8c53-000000000004"
	for _, data := range []string{
		`{"desk":"` + completes + `","undo":1}`, `{"desk":"` + fails + `","undo":1}`,
		`{"desk":"` + stays + `","undo":"x"}`, `{"desk":"` + waits + `"}`,
	} {
		write("/trip/global/was_asked", data)
	}
	settle()
	write("/desk/"+completes+"/was_answered", `{"n":1}`)
	write("/desk/"+fails+"/was_answered", `{"n":"no"}`)
	write("/desk/"+stays+"/was_answered", `{"n":"no"}`)
	settle()
	for range 3 {
		a.clock.Advance(time.Minute)
		settle()
	}
	type row struct {
		SagaID string `json:"saga_id"`
		Status string
	}
	var page struct {
		OK    bool
		Sagas []row
		Next  *int
	}
	list := func(target string) []row {
		t.Helper()
		page.Sagas, page.Next = nil, nil
		got := a.ops(t, "GET", target, "")
		if err := json.Unmarshal([]byte(got.body), &page); err != nil || got.status != 200 || !page.OK {
			t.Fatal(got, err)
		}
		return page.Sagas
	}
	var statuses []string
	for _, g := range list("sagas") {
		statuses = append(statuses, g.Status)
	}
	if diff := cmp.Diff([]string{"failed", "dead_lettered", "failed", "completed"}, statuses); diff != "" ||
		page.Next != nil {
		t.Fatal(diff)
	}
	if first := list("sagas?limit=1&type=trip"); len(first) != 1 || page.Next == nil || *page.Next != 1 {
		t.Errorf("a page: %v, the next one at %v", first, page.Next)
	}
	dead, completed := "sagas/"+list("sagas?status=dead_lettered")[0].SagaID,
		"sagas/"+list("sagas?status=completed")[0].SagaID

	// What may be done with them.
	for _, tc := range []struct {
		method, target string
		want           int
	}{
		{"GET", dead, 200},
		{"POST", dead + "/retry", 200},
		{"POST", dead + "/retry", 409},
		{"POST", completed + "/retry", 409},
		{"GET", "sagas/sag_zzzzzzzzzzzzzzz", 404},
		{"POST", "sagas/%00/retry", 404},
		{"GET", "sagas?status=nonsense", 400},
		{"GET", "sagas?limit=0", 400},
	} {
		if got := a.ops(t, tc.method, tc.target, ""); got.status != tc.want {
			t.Errorf("%s %s: %d %s, want %d", tc.method, tc.target, got.status, got.body, tc.want)
		}
	}

	// What is counted.
	w := httptest.NewRecorder()
	a.Internal().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, line := range []string{
		"sagas_started_total 4", "sagas_queued_total 1", "sagas_completed_total 1", "sagas_failed_total 2",
		"sagas_dead_lettered_total 1", "sagas_retried_total 1",
		"saga_events_total 8", "saga_compensations_total 1", "saga_timeouts_total 1",
	} {
		if !strings.Contains(w.Body.String(), "\nj17_"+line+"\n") {
			_, rest, _ := strings.Cut(w.Body.String(), "\nj17_"+strings.Fields(line)[0])
			t.Errorf("want %s among the metrics, there is%.20s", line, rest)
		}
	}
}
