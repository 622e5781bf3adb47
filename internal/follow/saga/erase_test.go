package saga_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/part"
	"j17/internal/follow/saga"
	"j17/internal/storage/store"
)

// erased reports that the trips of some numbers were erased after all that has happened.
func (h *house) erased(numbers ...int) part.Erased {
	h.tb.Helper()
	extent, err := h.store.Extent(h.tb.Context(), prod)
	if err != nil {
		h.tb.Fatal(err)
	}
	e := part.Erased{Note: extent.Last}
	for _, n := range numbers {
		e.Keys, e.Ends = append(e.Keys, j17.Key{Type: "trip", ID: id(n)}), append(e.Ends, part.End{
			Own: extent.Last, Others: extent.Last,
		})
	}
	return e
}

// TestErasure erases the triggers of sagas that wait, that were answered just now, that are queued, and that are over:
// those have failed, nothing of them is undone, nobody can retry them, and the next ones have their places.
func TestErasure(t *testing.T) {
	h := newHouse(t, 2)
	h.post("trip/"+id(10)+"/was_requested", fmt.Sprintf(`{"leg":%q,"n":"wrong"}`, id(800)))
	h.settle()
	h.ask(prod, 0, 4)
	h.settle()
	h.answer(1)
	if diff := cmp.Diff(
		map[saga.Status]int{saga.Running: 2, saga.Queued: 2, saga.Failed: 1}, h.statuses(prod),
	); diff != "" {
		t.Fatal(diff)
	}
	undone := len(h.events("measure", id(900)))
	e := h.erased(0, 1, 2, 10)
	h.ask(prod, 0, 1)        // which is after the erasure
	e.Note = h.erased().Note // which all are told of later
	for range 2 {
		if err := h.Erase(t.Context(), prod, e); err != nil {
			t.Fatal(err)
		}
	}

	// What has become of them, also when somebody goes on.
	h.settle()
	h.clock.Advance(time.Second)
	h.settle()
	if diff := cmp.Diff(map[saga.Status]int{saga.Failed: 4, saga.Running: 2}, h.statuses(prod)); diff != "" {
		t.Error(diff)
	}
	for _, g := range h.sagas() {
		raw, err := json.Marshal(g)
		if err != nil || g.Status == saga.Failed != g.Erased ||
			g.Erased && strings.Contains(string(raw), "validation_failed") {
			t.Errorf("%s, %v", raw, err)
		}
		if !g.Erased {
			continue
		}
		if _, err := h.Retry(t.Context(), prod, g.ID); j17.CodeOf(err) != j17.CodeConflict {
			t.Errorf("a retry: %v", err)
		}
	}
	if n := len(h.events("measure", id(900))); n != undone || len(h.events("trip", id(2))) != 1 {
		t.Errorf("%d events that undo something", n-undone)
	}

	// The others go on to their ends, and nothing is left.
	h.answer(3, 0)
	h.pass(time.Minute)
	if n := h.statuses(prod); n[saga.Completed] != 2 || len(h.left()) != 0 {
		t.Errorf("%v, what is left: %v", n, h.left())
	}
}

// TestErasureUnderSteps erases the trigger of a saga while a step of it is under way, which comes to nothing.
func TestErasureUnderSteps(t *testing.T) {
	h := newHouse(t, 2)
	h.ask(prod, 0, 1)
	e := h.erased(0)
	slow := &interrupted{Store: h.disk, before: func() {
		if err := h.Erase(t.Context(), prod, e); err != nil {
			t.Error(err)
		}
	}}
	o := h.another(slow)
	if err := o.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := h.one(); g.Status != saga.Failed || !g.Erased || len(h.left()) != 0 || len(h.events("leg", id(900))) != 0 {
		t.Errorf("%+v, %v", g, h.left())
	}
}

// interrupted calls before once, before the first read of the feed: by a step that has its claim.
type interrupted struct {
	store.Store
	before func()
}

func (s *interrupted) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.ReadFeed(ctx, t, after, limit)
}
