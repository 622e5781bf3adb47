package saga_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/follow/saga"
	"j17/internal/storage/store"
)

// giveUpTime is longer than ten tries take with the pauses between them.
const giveUpTime = 10 * time.Minute

// TestADefinitionThatIsNotValidAnyMore starts the server again with a program that does not accept the spec of a saga:
// after some tries the saga is given up, wherever it was, and another one gets its place. With a program that accepts
// the spec an operator makes it go on.
func TestADefinitionThatIsNotValidAnyMore(t *testing.T) {
	for _, tc := range []struct {
		name string
		// meanwhile is what happens while the definition cannot be had.
		meanwhile func(h *house)
		status    saga.Status
		desk      []string
	}{
		{"before its first event", nil, saga.Running, told(1)[:1]},
		{"at an answer", func(h *house) { h.answer(1) }, saga.Completed, told(1)},
		{"at a time-out", func(h *house) { h.pass(30 * time.Second) }, saga.Failed, told(1)[:1]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHouse(t, 1)
			h.ask(prod, 1, 2)
			if tc.meanwhile != nil {
				h.settle()
			}
			h.deploy(shop)
			h.ask(prod, 2, 3)
			h.specs.refuse(1)
			h.work(h.disk)
			if tc.meanwhile != nil {
				tc.meanwhile(h)
			}
			h.pass(giveUpTime)
			g, next := h.sagas()[0], h.sagas()[1]
			if g.Status != saga.DeadLettered || g.Error == nil || g.Error.Step != g.CurrentStep() || !strings.Contains(g.Error.Message, "is not valid for this version of the program") {
				t.Fatalf("the saga is %s: %+v", g.Status, g.Error)
			}
			if next.StartedAt == 0 {
				t.Errorf("the next one is %s", next.Status)
			}
			if n := h.Stats().DeadLettered; n != 1 {
				t.Errorf("%d were given up", n)
			}

			// While the cause is there, a retry ends in the same way.
			if _, err := h.Retry(t.Context(), prod, g.ID); err != nil {
				t.Fatal(err)
			}
			h.pass(giveUpTime)
			if g = h.sagas()[0]; g.Status != saga.DeadLettered {
				t.Fatalf("after a retry the saga is %s", g.Status)
			}

			// Then it goes on where it was.
			h.specs.refuse(0)
			if _, err := h.Retry(t.Context(), prod, g.ID); err != nil {
				t.Fatal(err)
			}
			h.settle()
			g = h.sagas()[0]
			if diff := cmp.Diff(tc.desk, h.events("desk", id(1))); diff != "" || g.Status != tc.status ||
				(g.Error != nil) != (g.Status == saga.Failed) {
				t.Errorf("%s the saga is %s: %+v", diff, g.Status, g.Error)
			}
			h.pass(time.Hour)
			if left := h.left(); left != nil {
				t.Errorf("what is left: %v", left)
			}
		})
	}
}

// TestAStepThatTakesLongerThanATry: a saga whose event takes longer than a try may is given up after so many of them,
// with the reason, and an operator makes it go on.
func TestAStepThatTakesLongerThanATry(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, h *house) {
		t.Helper()
		h.ask(prod, 1, 2)
		h.hangs = true
		for range 30 {
			h.settle()
			if err := h.time.Wait(t.Context(), h.time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		g := h.sagas()[0]
		if g.Status != saga.DeadLettered || g.Error == nil || !strings.Contains(g.Error.Message, "within 20 seconds") {
			t.Fatalf("the saga is %s: %+v", g.Status, g.Error)
		}
		h.hangs = false
		if _, err := h.Retry(t.Context(), prod, g.ID); err != nil {
			t.Fatal(err)
		}
		h.settle()
		if got := h.events("leg", id(900)); len(got) != 1 {
			t.Errorf("after a retry: %v", got)
		}
	})
}

// TestARetryThatQueuesKeepsTheAnswer gives a saga up that was woken by an answer, and retries it while there is no
// room.
func TestARetryThatQueuesKeepsTheAnswer(t *testing.T) {
	h := newHouse(t, 1)
	h.asked(1, "")
	h.deploy(shop)
	h.specs.refuse(1)
	h.work(h.disk)
	h.answer(1)
	h.pass(giveUpTime)
	h.specs.refuse(0)
	h.ask(prod, 2, 3)
	h.settle()
	g, err := h.Retry(t.Context(), prod, h.sagas()[0].ID)
	if err != nil || g.Status != saga.Queued {
		t.Fatalf("%+v, %v", g, err)
	}
	h.settle()
	h.answer(2)
	h.settle()
	if diff := cmp.Diff(told(1), h.events("desk", id(1))); diff != "" {
		t.Error(diff)
	}
	if left := h.left(); left != nil || h.statuses(prod)[saga.Completed] != 2 {
		t.Errorf("what is left: %v of %v", left, h.statuses(prod))
	}
}

// TestAPanicIsNoWayToHoldAPlace lets the program panic whenever it compiles the spec of two sagas: both are given up.
func TestAPanicIsNoWayToHoldAPlace(t *testing.T) {
	h := newHouse(t, 2)
	h.ask(prod, 1, 3)
	h.specs.panics = true
	h.specs.refuse(1)
	h.work(h.disk)
	h.pass(giveUpTime)
	for _, g := range h.sagas() {
		if g.Status != saga.DeadLettered || !strings.Contains(g.Error.Message, "out of its bounds") {
			t.Errorf("the saga is %s: %+v", g.Status, g.Error)
		}
	}
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}
}

// broken is a store of which some things cannot be read.
type broken struct {
	store.Store
	feed bool
	row  string
	err  error
	// few, if not 0, is after how many failures the feed can be read again.
	few int
}

// ReadFeed is part of store.Store.
func (b *broken) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	if b.feed {
		if b.few > 0 {
			b.few--
			b.feed = b.few > 0
		}
		return func(yield func(*j17.Event, error) bool) { yield(nil, b.err) }
	}
	return b.Store.ReadFeed(ctx, t, after, limit)
}

// Get is part of store.Store.
func (b *broken) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if space == "saga.rows" && key == b.row {
		return store.Item{}, b.err
	}
	return b.Store.Get(ctx, t, space, key)
}

// TestATriggerThatCannotBeRead gives the saga up; its place is free.
func TestATriggerThatCannotBeRead(t *testing.T) {
	h := newHouse(t, 1)
	h.ask(prod, 1, 2)
	b := &broken{
		Store: h.disk, feed: true, err: &store.CorruptionError{Where: "feed", Err: errors.New("a damaged block")},
	}
	h.work(b)
	h.pass(giveUpTime)
	g := h.one()
	if left := h.left(); g.Status != saga.DeadLettered || left != nil || g.Error.Step != "first" ||
		!strings.Contains(g.Error.Message, "damaged") {
		t.Fatalf("the saga is %s, and there are %v", g.Status, left)
	}
	b.feed = false
	if _, err := h.Retry(t.Context(), prod, g.ID); err != nil {
		t.Fatal(err)
	}
	h.settle()
	h.answer(1)
	h.settle()
	if g := h.one(); g.Status != saga.Completed {
		t.Errorf("the saga is %s: %+v", g.Status, g.Error)
	}
}

// TestASagaThatCannotBeRead frees its place too.
func TestASagaThatCannotBeRead(t *testing.T) {
	h := newHouse(t, 1)
	h.ask(prod, 1, 2)
	g := h.one()
	h.ask(prod, 2, 3)
	b := &broken{
		Store: h.disk, row: g.ID, err: &store.CorruptionError{Where: "saga.rows", Err: errors.New("a damaged block")},
	}
	h.work(b)
	h.pass(giveUpTime)
	b.row = ""
	if all := h.sagas(); all[1].Status != saga.Failed || all[1].Error.Step != "ask" {
		t.Errorf("the one behind it is %s: %+v", all[1].Status, all[1].Error)
	}
	if left := h.left(); left != nil {
		t.Errorf("what is left: %v", left)
	}
}

// TestAServerThatCannotWriteGivesNothingUp lets a saga wait for a server that is short of space, for long, and then
// fail for another reason, for which it has all its tries.
func TestAServerThatCannotWriteGivesNothingUp(t *testing.T) {
	h := newHouse(t, 1)
	h.ask(prod, 1, 2)
	b := &broken{Store: h.disk, feed: true, err: store.ErrFull}
	h.work(b)
	h.pass(time.Hour)
	b.err = &store.CorruptionError{Where: "feed", Err: errors.New("a damaged block")}
	b.few = 2
	h.pass(time.Hour)
	if g := h.one(); len(h.events("desk", id(1))) == 0 || g.Status == saga.DeadLettered {
		t.Errorf("the saga is %s: %+v", g.Status, g.Error)
	}
}

// TestWhatIsStillBuilt lets a step come while the server builds what writes need: the saga neither fails nor is given
// up, and goes on when that is built.
func TestWhatIsStillBuilt(t *testing.T) {
	h := newHouse(t, 1)
	h.asked(1, "")
	h.answer(1)
	h.fault = j17.Errorf(j17.CodeIndexNotReady, "Who holds values is not known yet.")
	h.pass(time.Minute)
	if g := h.one(); g.Status != saga.Running || g.Error != nil {
		t.Fatalf("while it is built the saga is %s: %+v", g.Status, g.Error)
	}
	h.fault = nil
	h.pass(time.Minute)
	if diff := cmp.Diff(told(1), h.events("desk", id(1))); diff != "" || h.one().Status != saga.Completed {
		t.Errorf("%s the saga is %s", diff, h.one().Status)
	}
}
