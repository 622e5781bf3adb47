package saga_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/follow/saga"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// fate carries out some sagas at once, in which everything happens that can, and returns all that was written and has
// become of them. The process ends after some writes; the next one goes on.
func fate(t *testing.T, left int, late bool) (got []string, died bool) {
	t.Helper()
	h := newHouse(t, 3) // two of the five have to wait
	h.deploy(strings.Replace(shop, "30000", "300000", 1))
	m := storetest.NewCrashing(h.disk, left, late)
	alive := h.another(h.disk) // for those who write meanwhile
	do := func(work func(h *house) error) {
		for {
			err := work(h)
			if !m.IsDead() {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			// What was leased is due again when the lease is over.
			died = true
			h = h.another(h.disk)
			m = storetest.NewCrashing(h.disk, -1, false)
		}
	}
	h.work(m)
	settle := func(h *house) error { return h.Settle(t.Context()) }
	calm := func() { // leases of the process that has ended are over then
		do(settle)
		for range 2 {
			h.clock.Advance(lease)
			do(settle)
		}
	}

	alive.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(11)+`","n":3,"fly":1}`)
	alive.post("trip/"+id(2)+"/was_requested", `{"leg":"`+id(12)+`","n":"three"}`)
	alive.post("trip/"+id(3)+"/was_asked", `{"leg":"`+id(13)+`","desk":"`+id(13)+`","n":3}`)
	alive.post("trip/"+id(4)+"/was_asked", `{"leg":"`+id(14)+`","desk":"`+id(14)+`","n":4,"undo":"wrong"}`)
	alive.post("trip/"+id(5)+"/was_asked", `{"leg":"`+id(15)+`","desk":"`+id(15)+`","how":"at once"}`)
	calm()
	alive.post("desk/"+id(13)+"/was_answered", `{"n":7}`)
	calm()
	for range 30 {
		h.clock.Advance(lease)
		do(settle)
	}

	for _, g := range alive.sagas() {
		got = append(got, fmt.Sprint(g.Trigger.Key, g.Status, steps(g), untimed(timeline(g))))
	}
	for _, typ := range []string{"trip", "leg", "desk", "measure"} {
		for n := range 20 {
			for _, ev := range alive.events(typ, id(n)) {
				got = append(got, typ+" "+id(n)+" "+ev)
			}
		}
	}
	got = append(got, alive.left()...)
	slices.Sort(got)
	return got, died
}

const lease = 20 * time.Second

// untimed leaves out what depends on how fast others are: whether a saga had to wait for room.
func untimed(timeline []string) string {
	return strings.Join(slices.DeleteFunc(timeline, func(s string) bool { return s == "queued" }), ", ")
}

// TestCrashesNeitherRepeatNorSkip ends the process before and after each of its writes, and compares what becomes of
// all sagas with what does without that: every event is written once, and nothing else is left. Outside of soaks it is
// every other write, before the even ones and after the odd ones.
func TestCrashesNeitherRepeatNorSkip(t *testing.T) {
	want, _ := fate(t, -1, false)
	if n := len(want); n < 5+25 {
		t.Fatalf("only %d lines:\n%s", n, strings.Join(want, "\n"))
	}
	stride := 2
	if os.Getenv("J17_SOAK") != "" {
		stride = 1
	}
	for first, late := range []bool{false, true} {
		crashes := 0
		for left := first; ; left += stride {
			got, died := fate(t, left, late)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("the process ends at write %d, stored: %v:\n%s", left, late, diff)
			}
			if !died {
				break
			}
			crashes++
		}
		if crashes < 15 {
			t.Errorf("it has ended %d times only", crashes)
		}
	}
}

// held is a store in which an append waits until it is let go.
type held struct {
	store.Store
	mu   sync.Mutex
	hook func()
}

// Append is part of store.Store.
func (h *held) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	h.mu.Lock()
	hook := h.hook
	h.hook = nil
	h.mu.Unlock()
	if hook != nil {
		hook()
	}
	return h.Store.Append(ctx, t, units)
}

// TestAnAnswerIsNeverMissed decides the answer before the question is committed, and stores it afterwards: at that
// moment it is decided again.
func TestAnAnswerIsNeverMissed(t *testing.T) {
	for _, known := range []bool{false, true} { // whether another saga has waited for such events before
		h := newHouse(t, 0)
		others := &held{Store: h.disk}
		o := h.another(others)
		if known {
			h.asked(2, "")
		}
		h.post("trip/"+id(1)+"/was_asked", `{"leg":"`+id(1)+`","desk":"`+id(1)+`","n":1}`)
		others.hook = h.settle // the question
		o.post("desk/"+id(1)+"/was_answered", `{"n":7}`)
		h.settle()
		if diff := cmp.Diff(told(1), h.events("desk", id(1))); diff != "" {
			t.Error(diff)
		}
		// An answer that stands before the question counts for nothing.
		h.post("desk/"+id(3)+"/was_answered", `{"n":7}`)
		h.asked(3, "")
		if n := len(h.events("desk", id(3))); n != 2 {
			t.Errorf("an early answer counts: %d events", n)
		}
	}
}

// TestAnswerAgainstTimeout lets the answer and the end of the wait overtake each other: whoever is stored first counts.
func TestAnswerAgainstTimeout(t *testing.T) {
	// The answer is decided in time and stored when the wait is over.
	h := newHouse(t, 0)
	others := &held{Store: h.disk}
	o := h.another(others)
	h.asked(1, "")
	others.hook = func() { h.pass(30 * time.Second) }
	o.post("desk/"+id(1)+"/was_answered", `{"n":7}`)
	h.settle()
	if g, left := h.one(), h.left(); g.Status != saga.Failed || left != nil {
		t.Errorf("the saga is %s, and there are %v", g.Status, left)
	}

	// The wait is found to be over, and before the compensation is stored an answer is that was decided in time.
	h = newHouse(t, 0)
	h.asked(1, "")
	mine := &held{Store: h.disk}
	w := h.another(mine)
	h.clock.Advance(30 * time.Second)
	mine.hook = func() {
		h.clock.Advance(-time.Second)
		h.post("desk/"+id(1)+"/was_answered", `{"n":7}`)
		h.clock.Advance(time.Second)
	}
	w.settle()
	if diff := cmp.Diff(told(1), h.events("desk", id(1))); diff != "" || h.one().Status != saga.Completed ||
		len(h.events("measure", id(1))) != 0 {
		t.Errorf("the saga is %s\n%s", h.one().Status, diff)
	}
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}
}

// TestTwoSetsOfWorkers lets two sets carry out the same sagas beside each other, while others answer at any moment.
func TestTwoSetsOfWorkers(t *testing.T) {
	inBubble(t, 7, func(t *testing.T, h *house) {
		t.Helper()
		o := h.another(h.disk)
		const sagas = 24
		for n := range sagas {
			h.post(fmt.Sprintf("trip/%s/was_asked", id(n)), fmt.Sprintf(`{"leg":%q,"desk":%q,"n":%d}`, id(n), id(n), n))
		}
		ctx, stop := context.WithCancel(t.Context())
		var working, answering sync.WaitGroup
		for _, w := range []*house{h, o} {
			working.Go(func() { _ = w.Run(ctx) })
		}

		// until waits for events of a desk.
		until := func(n, events int) {
			for {
				extent, err := h.disk.Extent(ctx, prod)
				if err != nil || len(h.events("desk", id(n))) >= events {
					return
				}
				if h.disk.AwaitFeed(ctx, prod, extent.Last) != nil {
					return
				}
			}
		}
		for n := range sagas {
			answering.Go(func() {
				until(n, 1)
				h.post(fmt.Sprintf("desk/%s/was_answered", id(n)), `{"n":7}`)
				until(n, 3)
			})
		}
		answering.Wait()
		synctest.Wait()
		stop()
		working.Wait()
		h.settle()

		for n := range sagas {
			if diff := cmp.Diff(told(n), h.events("desk", id(n))); diff != "" {
				t.Error(diff)
			}
			if got := len(h.events("leg", id(n))); got != 1 {
				t.Errorf("%d events of a leg", got)
			}
		}
		if left := h.left(); left != nil {
			t.Errorf("what is left: %v", left)
		}
	})
}

// TestAFrozenSetDoesNoHarm freezes one set of workers in the middle of a step until its lease is over and another one
// has gone on.
func TestAFrozenSetDoesNoHarm(t *testing.T) {
	h := newHouse(t, 0)
	frozen := &held{Store: h.disk}
	f := h.another(frozen)
	h.post("trip/"+id(1)+"/was_requested", `{"leg":"`+id(2)+`","n":3}`)
	frozen.hook = func() {
		h.clock.Advance(lease)
		h.settle()
	}
	f.settle()
	if n := len(h.events("leg", id(2))); n != 2 || h.one().Status != saga.Completed {
		t.Errorf("%d events, the saga is %s", n, h.one().Status)
	}
}
