package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/follow/schedule"
	"j17/internal/storage/store"
)

// share lets a number of events wait for the hall, a hundred of a job at most, from the job with a number on.
func (h *house) share(from, many int) {
	h.tb.Helper()
	for ; many > 0; many -= 100 {
		h.post("job/"+id(from), "was_shared", slices.Repeat([]string{`{}`}, min(many, 100))...)
		from++
	}
}

// TestOneEventCancelsMany: an event cancels thousands at once, of which its own commit takes some away and later ones
// the others.
func TestOneEventCancelsMany(t *testing.T) {
	h := newHouse(t, 0)
	const many, atOnce = 700, 500
	h.share(0, many)
	h.post("hall/"+id(0), "was_locked", `{}`)
	if got := h.counts(); got != fmt.Sprintf("%d pending", many) {
		t.Errorf("another one's: %s", got)
	}

	// From the commit on all of them are cancelled, whoever looks, and what is scheduled afterwards is not.
	sample := h.rows(prod, schedule.Pending)
	h.post("hall/global", "was_locked", `{}`)
	if left := h.items("scheduled.pending"); left != many-atOnce {
		t.Errorf("one commit has left %d of %d", left, many)
	}
	h.share(many, 3)
	if got := h.counts(); got != fmt.Sprintf("3 pending, %d canceled", atOnce) {
		t.Errorf("right after the event: %s", got)
	}
	for _, e := range sample[:5] {
		if _, err := h.service.Cancel(t.Context(), prod, e.ScheduledID); j17.CodeOf(err) != j17.CodeConflict ||
			!strings.Contains(err.Error(), "canceled") {
			t.Errorf("cancelled again: %v", err)
		}
	}
	h.clock.Advance(2 * time.Hour)
	if err := h.service.Queues()[0].Settle(t.Context()); err != nil { // nothing else is done meanwhile
		t.Fatal(err)
	}
	if s := h.service.Stats(); s.Fired != 3 {
		t.Errorf("%d were fired", s.Fired)
	}

	// Then they are taken away, and counted as what they are. A restart is no matter.
	h.open()
	h.advance(time.Minute)
	if got := h.counts(); got != fmt.Sprintf("3 fired, %d canceled", many) || h.items("scheduled.count") != 0 ||
		h.items("scheduled.waiting") != 0 || h.items("scheduled.marks") != 0 {
		t.Errorf(
			"%s, %d numbers, %d wait, %d marks", got, h.items("scheduled.count"), h.items("scheduled.waiting"),
			h.items("scheduled.marks"),
		)
	}
	if s := h.service.Stats(); s.Canceled != many-atOnce {
		t.Errorf("%d were cancelled since the restart", s.Canceled)
	}
}

// TestABatchCancelsMany: the order of the feed counts within a commit too.
func TestABatchCancelsMany(t *testing.T) {
	h := newHouse(t, 0)
	h.share(10, 600)
	h.post("job/"+id(1), "", `was_touched|{"n":1}`, `was_closed|{}`, `was_touched|{"n":2}`)
	h.post("hall/global", "was_locked", `{}`, `{}`)
	h.post("hall/global", "was_locked", `{}`)
	h.advance(0)
	if got := h.counts(); got != "1 pending, 601 canceled" || h.items("scheduled.marks") != 0 {
		t.Error(got)
	}
}

// hooked is a store that calls something before it appends for the first time.
type hooked struct {
	store.Store
	before func()
	once   sync.Once
}

// Append is part of store.Store.
func (s *hooked) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	s.once.Do(s.before)
	return s.Store.Append(ctx, t, units)
}

// before makes an engine with a hook before what it stores first.
func (h *house) before(hook func()) *engine.Engine {
	s := &hooked{Store: h.store, before: hook}
	e := engine.New(engine.Options{
		Store: s, Clock: h.clock, Logger: slog.New(slog.DiscardHandler),
	}).Use(enginetest.Effects(h.service.Effects)...)
	e.Deploy(prod, h.compile(specText("integer")), nil)
	return e
}

// TestAMarkOvertakesWhatFires leaves a mark when what it cancels is decided to be written and not stored yet.
func TestAMarkOvertakesWhatFires(t *testing.T) {
	h := newHouse(t, 0)
	h.share(0, 3)
	h.clock.Advance(time.Hour)
	h.service.Execute = h.before(func() {
		h.post("hall/"+id(0), "was_locked", `{}`) // for its position
		at := h.events("hall/" + id(0))[0].StreamID
		mark := store.Side{
			Op: store.Put, Space: "scheduled.marks", Key: "hall:global/was_locked/", Value: store.AppendStamp(nil, at),
			Due: h.clock.Now(),
		}
		if err := h.store.Write(t.Context(), prod, []store.Side{mark}); err != nil {
			t.Error(err)
		}
	}).ExecuteInOrder
	for _, q := range h.service.Queues() {
		if err := q.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.advance(time.Minute)
	if got := h.counts(); got != "3 canceled" {
		t.Error(got)
	}
}

// TestSchedulingDoesNotHoldUpWhatCancels schedules more that waits for an event, each time that event is about to be
// stored.
func TestSchedulingDoesNotHoldUpWhatCancels(t *testing.T) {
	h := newHouse(t, 0)
	h.share(0, 3)
	plain, tries := h.engine, 0
	h.engine = engine.New(engine.Options{
		Store: h.store, Clock: h.clock, Logger: slog.New(slog.DiscardHandler),
	}).Use(enginetest.Effects(
		h.service.Effects,
		func(_ context.Context, d *part.Decided) (part.Effects, error) {
			if d.Events[0].Type == "was_locked" {
				tries++
				of := *h
				of.engine = plain
				of.share(100*tries, 1)
			}
			return part.Effects{}, nil
		},
	)...)
	h.engine.Deploy(prod, h.compile(specText("integer")), nil)
	h.post("hall/global", "was_locked", `{}`)
	if got := h.counts(); tries > 2 || got != fmt.Sprintf("%d canceled", 3+1) {
		t.Errorf("after %d tries: %s", tries, got)
	}
	h.advance(0)
	if got := h.counts(); got != fmt.Sprintf("%d canceled", 3+tries) || h.items("scheduled.count") != 0 ||
		h.items("scheduled.marks") != 0 {
		t.Errorf("after %d tries: %s", tries, got)
	}
}
