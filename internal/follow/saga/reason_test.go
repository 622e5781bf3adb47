package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/follow/saga"
)

// reasons is a spec whose saga writes down what has become of it, if it is to, and why.
const reasons = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"trip": {"events": {"was_asked": {"schema": {}, "handler": []}, "was_done": {"schema": {}, "handler": []}, "was_failed": {"schema": {}, "handler": []}}},
		"seat": {"events": {"was_held": {"schema": {}, "handler": []}, "was_let_go": {"schema": {}, "handler": []}, "was_confirmed": {"schema": {}, "handler": []}}},
		"slot": {"events": {"was_taken": {
			"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": [],
			"requires": [{"that": {"not_equals": ["$.data.n", 13]}, "code": "no_slot", "message": "There is no slot."}, {"that": {"not_equals": ["$.data.n", 14]}, "message": "Nor is this one."}]}}}
	},
	"modules": {"sagas": {"trip": {
		"trigger": {"aggregate_type": "trip", "event_type": "was_asked"},
		"steps": [
			{"name": "seat", "emit": {"aggregate_type": "seat", "id": "$.id", "event_type": "was_held"},
			 "compensate": {"aggregate_type": "seat", "id": "$.id", "event_type": "was_let_go", "data": {"why": "$error"}}},
			{"name": "slot", "emit": {"aggregate_type": "slot", "id": "$.id", "event_type": "was_taken", "data": {"n": "$.data.n"}}},
			{"name": "wait", "condition": {"exists": "$.data.wait"}, "emit": {"aggregate_type": "seat", "id": "$.id", "event_type": "was_held"},
			 "await": {"aggregate_type": "seat", "event_types": ["was_confirmed"]}, "timeout_ms": 60000}],
		"on_complete": {"aggregate_type": "trip", "id": "$.key", "event_type": "was_done", "condition": {"not_equals": ["$.data.quiet", true]}},
		"on_failed": {"aggregate_type": "trip", "id": "$.key", "event_type": "was_failed", "data": "$error", "condition": {"not_equals": ["$.data.quiet", true]}}
	}}}
}`

// TestSagasKnowTheReason lets steps fail in several ways: compensations and the last event see the code, the guard, the
// step, and a sentence without places in the spec.
func TestSagasKnowTheReason(t *testing.T) {
	for name, tc := range map[string]struct{ data, want string }{
		"a guard": {`{"n":13}`, `{"code":"requirement_failed","requirement":"no_slot","step":"slot","message":"The event was refused, because the requirement no_slot does not hold."}`},
		"a guard without a code": {
			`{"n":14}`, `{"code":"requirement_failed","requirement":null,"step":"slot","message":"The event was refused, because what its type requires does not hold."}`,
		},
		"a schema": {
			`{"n":"x"}`, `{"code":"validation_failed","requirement":null,"step":"slot","message":"The event was refused, because its data do not fit the schema of its type."}`,
		},
		"no answer": {
			`{"n":1,"wait":true}`, `{"code":"await_timeout","requirement":null,"step":"wait","message":"No was_confirmed of seat:` + id(1) + ` has come within 1m0s."}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 0)
			h.deploy(reasons)
			h.post("trip/"+id(1)+"/was_asked", tc.data)
			h.pass(2 * time.Minute)
			if got := h.events("trip", id(1)); len(got) != 2 || got[1] != "was_failed "+tc.want {
				t.Errorf("the last event is %v, want %s", got, tc.want)
			}
			seat := h.events("seat", id(1))
			if got := seat[len(seat)-1]; got != `was_let_go {"why":`+tc.want+"}" {
				t.Errorf("the compensation is %s", got)
			}
			g := h.one()
			if !strings.Contains(tc.want, `"code":"`+g.Error.Code+`"`) ||
				g.Error.Requirement != "" && !strings.Contains(tc.want, g.Error.Requirement) {
				t.Errorf("the saga has the error %+v", g.Error)
			}
		})
	}
}

// TestEndsOfSagasHaveConditions ends sagas whose last event is left out, well and badly. Their status is the same.
func TestEndsOfSagasHaveConditions(t *testing.T) {
	for data, want := range map[string]struct {
		status saga.Status
		events []string
	}{
		`{"n":1}`:               {saga.Completed, []string{`was_asked {"n":1}`, "was_done {}"}},
		`{"n":1,"quiet":true}`:  {saga.Completed, []string{`was_asked {"n":1,"quiet":true}`}},
		`{"n":13,"quiet":true}`: {saga.Failed, []string{`was_asked {"n":13,"quiet":true}`}},
	} {
		h := newHouse(t, 0)
		h.deploy(reasons)
		h.post("trip/"+id(1)+"/was_asked", data)
		h.settle()
		if g := h.one(); g.Status != want.status {
			t.Errorf("%s: the saga is %s", data, g.Status)
		}
		if diff := cmp.Diff(want.events, h.events("trip", id(1))); diff != "" {
			t.Errorf("%s: %s", data, diff)
		}
		if left := h.left(); left != nil {
			t.Errorf("%s: what is left: %v", data, left)
		}
	}
}
