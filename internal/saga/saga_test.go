package saga_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/saga"
)

// TestStepsInOrder carries a saga out whose steps await nothing, and looks at what its templates see and its events say.
func TestStepsInOrder(t *testing.T) {
	h := newHouse(t, 0)
	first := h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":3,"fly":true}`)
	g := h.one()
	if g.Status != saga.Running || g.Trigger.StreamID != first.IDs[0].String() || g.CurrentStep() != "hotel" {
		t.Errorf("in the commit of its trigger the saga is %+v", g)
	}
	h.settle()
	g = h.one()
	trip := "trip:" + id(1)
	want := []string{
		`was_booked {"what":"hotel","of":"` + trip + `"}`, `was_booked {"what":"flight","prev":"hotel"}`,
		`was_booked {"what":"car","prev":"flight","hotel":"` + trip + `"}`,
	}
	if diff := cmp.Diff(want, h.events("leg", id(2))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{`was_requested {"leg":"` + id(2) + `","n":3,"fly":true}`, "was_completed {}"}, h.events("trip", id(1))); diff != "" {
		t.Error(diff)
	}
	if g.Status != saga.Completed || g.CurrentStep() != "" {
		t.Errorf("the saga is %s at %q", g.Status, g.CurrentStep())
	}
	if diff := cmp.Diff([]string{"completed", "completed", "completed", "completed"}, steps(g)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"started", "emitted hotel", "emitted flight", "emitted car", "emitted meter", "completed"}, timeline(g)); diff != "" {
		t.Error(diff)
	}
	m := h.metadata("leg", id(2), 2)
	if diff := cmp.Diff(map[string]any{"saga_id": g.ID, "type": "trip", "step": "flight", "phase": "step"}, m["saga"]); diff != "" {
		t.Error(diff)
	}
	if m["correlation_id"] != "c-"+id(1) || m["actor"].(map[string]any)["id"] != "saga_coordinator" {
		t.Errorf("the metadata are %v", m)
	}
	if diff := cmp.Diff(map[string]any{"saga_id": g.ID, "type": "trip", "phase": "completed"}, h.metadata("trip", id(1), 2)["saga"]); diff != "" {
		t.Error(diff)
	}
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}
	_ = fmt.Sprint(time.Second)
}
