package saga_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/saga"
	"j17/internal/store"
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
	if !strings.Contains(refused.Message, "at most 100 sagas") || !strings.Contains(refused.Message, "would start 101") {
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
