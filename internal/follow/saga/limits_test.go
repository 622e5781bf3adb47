package saga_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/follow/saga"
	"j17/internal/storage/store"
)

// begun returns the items that sagas keep in prod, of whatever kind.
func (h *house) begun() (n int) {
	h.tb.Helper()
	for _, space := range []store.Space{"saga.rows", "saga.list"} {
		all, err := h.store.Scan(h.tb.Context(), prod, space, store.Range{}, 1000)
		if err != nil {
			h.tb.Fatal(err)
		}
		n += len(all)
	}
	return n + len(h.left())
}

// TestAWriteStartsAtMostAHundredSagas triggers one saga too many in one write, and then as many as there may be.
func TestAWriteStartsAtMostAHundredSagas(t *testing.T) {
	h := newHouse(t, 0)
	requests := slices.Repeat([]string{`{"leg":"` + id(2) + `","n":3}`}, saga.DefaultPerWrite+1)
	_, err := h.try(prod, "trip/"+id(1)+"/was_requested", requests...)
	refused, _ := errors.AsType[*j17.Error](err)
	if refused == nil || refused.Code != j17.CodeImplicationLimit {
		t.Fatalf("101 sagas: %v", err)
	}
	if details, err := json.Marshal(refused.Details); err != nil || string(details) != `{"limit":100,"sagas":101}` {
		t.Errorf("the details are %s (%v)", details, err)
	}
	if !strings.Contains(refused.Message, "at most 100 sagas") ||
		!strings.Contains(refused.Message, "would start 101") {
		t.Errorf("the message is %q", refused.Message)
	}
	if n := h.begun(); n != 0 || h.events("trip", id(1)) != nil {
		t.Errorf("a refused write has left %d items and the events %v", n, h.events("trip", id(1)))
	}

	h.post("trip/"+id(1)+"/was_requested", requests[1:]...)
	h.settle()
	if n := h.statuses(prod)[saga.Completed]; n != saga.DefaultPerWrite {
		t.Errorf("%d sagas are completed", n)
	}
}

// TestSagasAreFiftyDeep starts a circle of sagas that was deployed when nothing refused it. It ends by itself: the step
// that would trigger another saga is refused, and its saga fails.
func TestSagasAreFiftyDeep(t *testing.T) {
	h := newHouse(t, 0)
	h.deployStored(`{"agent_types":["user"],"aggregate_types":{"trip":{"events":{"was_made":{"schema":{},"handler":[]},"was_ended":{"schema":{},"handler":[]}}}},
		"modules":{"sagas":{"again":{"trigger":{"aggregate_type":"trip","event_type":"was_made"},
			"steps":[{"name":"more","emit":{"aggregate_type":"trip","id":"$.key","event_type":"was_made"}}],
			"on_failed":{"aggregate_type":"trip","id":"$.key","event_type":"was_ended","data":{"code":"$error.code"}}}}}}`)
	h.post("trip/"+id(1)+"/was_made", `{}`)
	h.settle()

	events := h.events("trip", id(1))
	if len(events) != 51 || events[50] != `was_ended {"code":"implication_limit"}` {
		t.Errorf("%d events, the last one %s", len(events), events[len(events)-1])
	}
	all := h.sagas()
	if n := h.statuses(prod); n[saga.Completed] != 49 || n[saga.Failed] != 1 || len(all) != 50 || all[49].Depth != 49 {
		t.Errorf("%d sagas, %v", len(all), n)
	}
	if why := all[49].Error; why == nil || why.Step != "more" || !strings.Contains(why.Message, "50 deep") {
		t.Errorf("the last one has the error %+v", why)
	}

	// What comes from elsewhere begins a chain of its own.
	h.post("trip/"+id(2)+"/was_made", `{}`)
	h.settle()
	if n := len(h.events("trip", id(2))); n != 51 {
		t.Errorf("%d events of a second one", n)
	}
}
