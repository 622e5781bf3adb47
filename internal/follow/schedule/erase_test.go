package schedule_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/core/part"
	"j17/internal/follow/schedule"
	"j17/internal/storage/store"
)

// erased reports that streams were erased after all that has happened.
func (h *house) erased(keys ...string) part.Erased {
	h.tb.Helper()
	extent, err := h.store.Extent(h.tb.Context(), prod)
	if err != nil {
		h.tb.Fatal(err)
	}
	e := part.Erased{Note: extent.Last, TombstoneID: "tmb_test", At: h.clock.Now()}
	for _, text := range keys {
		key, ok := j17.ParseKey(text)
		if !ok {
			h.tb.Fatal(text)
		}
		e.Keys, e.Ends = append(e.Keys, key), append(e.Ends, part.End{Own: extent.Last, Others: extent.Last})
	}
	return e
}

// held returns all that the spaces of scheduled events hold.
func (h *house) held() string {
	h.tb.Helper()
	var all strings.Builder
	for _, space := range []store.Space{
		"scheduled", "scheduled.pending", "scheduled.canceled", "scheduled.fired", "scheduled.dead_letter",
		"scheduled.waiting", "scheduled.id",
	} {
		items, err := h.store.Scan(h.tb.Context(), prod, space, store.Range{}, 1000)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, it := range items {
			all.WriteString(it.Key + " " + string(it.Value) + "\n")
		}
	}
	return all.String()
}

// TestErasure erases what events were scheduled for, and what has scheduled some: those that wait are cancelled, and no
// row has data of them. What comes after the erasure, and what others wait for, stays.
func TestErasure(t *testing.T) {
	h := newHouse(t, 0)
	h.post("job/"+id(1), "was_timed", `{"n":"fired 1"}`)
	h.post("job/"+id(4), "was_picky", `{"n":"dead 4"}`)
	h.advance(time.Hour)
	h.post("job/"+id(1), "was_timed", `{"n":"for 1"}`)
	h.post("job/"+id(2), "was_touched", `{"n":"of 2"}`)
	h.post("job/"+id(3), "was_timed", `{"n":"kept"}`)
	if h.counts() != "3 pending, 1 fired, 1 dead_letter" {
		t.Fatal(h.counts())
	}
	e := h.erased("note:"+id(1), "job:"+id(2), "meter:"+id(4))
	h.post("job/"+id(2), "was_timed", `{"n":"later"}`)
	e.Note = h.erased().Note // which all are told of later
	for range 2 {            // it can be repeated
		if err := h.service.Erase(t.Context(), prod, e); err != nil {
			t.Fatal(err)
		}
	}
	if h.counts() != "2 pending, 1 fired, 3 canceled" || h.service.Stats().Canceled != 2 {
		t.Errorf("%s, %+v", h.counts(), h.service.Stats())
	}
	held := h.held()
	for _, gone := range []string{"fired 1", "dead 4", "for 1", "of 2", "validation", correct} {
		if n := strings.Count(held, gone); gone != correct && n > 0 || gone == correct && n != 2 {
			t.Errorf("%d times %q in %s", n, gone, held)
		}
	}
	for _, r := range h.rows(prod, schedule.Canceled) {
		if !json.Valid(r.Emit.Data) || string(r.Emit.Data) != "null" || r.LastError != nil || r.Emit.ID == "" {
			t.Errorf("%+v", r)
		}
	}

	// Time goes on: what is left comes, once, and is counted.
	h.advance(time.Hour)
	if h.log(3) != `["kept"]` || h.log(2) != `["later"]` || h.log(1) != `["fired 1"]` ||
		h.items("scheduled.count") != 0 || h.items("scheduled.waiting") > 1 {
		t.Errorf("%s %s %s, %d counts", h.log(1), h.log(2), h.log(3), h.items("scheduled.count"))
	}
}

// TestErasureUnderTries erases the target of an event while a try of it is under way, which then finds that it is
// cancelled.
func TestErasureUnderTries(t *testing.T) {
	for event, target := range map[string]string{"was_timed": "note", "was_picky": "meter"} {
		h := newHouse(t, 0)
		h.post("job/"+id(1), event, `{"n":"much"}`)
		e := h.erased(target + ":" + id(1))
		_, _, s := h.workersWith(func() {
			if err := h.service.Erase(t.Context(), prod, e); err != nil {
				t.Error(err)
			}
		})
		h.clock.Advance(5 * time.Minute)
		if err := s.Queues()[0].Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h.counts() != "1 canceled" || h.log(1) != "" || strings.Contains(h.held(), "much") ||
			h.items("scheduled.count") != 0 {
			t.Errorf("%s: %s, %s", event, h.counts(), h.held())
		}
	}
}

// TestARefusedEventIsErased: of an event that was refused, and whose data was erased, nothing is tried again.
func TestARefusedEventIsErased(t *testing.T) {
	h := newHouse(t, 0)
	const written = `"was_written": {"schema": {}, `
	h.engine.Deploy(prod, h.compile(strings.Replace(specText("integer"), written, written+`"requires": [{"that": {"equals": ["$.data.n", 0]}, "message": "Paid"}], `, 1)), nil)
	h.post("job/"+id(1), "was_timed", `{"n":1}`)
	h.advance(5 * time.Minute)
	refused := h.only(schedule.Refused)
	if err := h.service.Erase(t.Context(), prod, h.erased("job:"+id(1))); err != nil {
		t.Fatal(err)
	}

	// The cause is mended.
	h.engine.Deploy(prod, h.compile(specText("integer")), nil)
	if _, err := h.service.Retry(t.Context(), prod, refused.ScheduledID); j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("tried again: %v", err)
	}
	h.advance(time.Hour)
	if h.counts() != "1 canceled" || h.log(1) != "" || h.service.Stats().Canceled != 0 {
		t.Errorf("%s, %s, %+v", h.counts(), h.log(1), h.service.Stats())
	}
}
