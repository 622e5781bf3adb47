package index_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// named counts the names that are read of a feed, and how often somebody begins to.
type named struct {
	store.Store
	names, reads atomic.Uint64
}

// ReadNames is part of store.Store.
func (n *named) ReadNames(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	n.reads.Add(1)
	return func(yield func(store.Entry, error) bool) {
		for e, err := range n.Store.ReadNames(ctx, t, after, limit) {
			n.names.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestAPanicInABacklogIsRepeated lets a definition panic for a row of a backlog, whoever computes it: that ends the
// turn and not the process.
func TestAPanicInABacklogIsRepeated(t *testing.T) {
	for items, rows := range map[int]int{60: 7, 600: 600} {
		// the second commit, and one that all processors have a part of
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			h.hasty = true
			var panics atomic.Int64
			d := source{h.disk}.definition(func(_ context.Context, ids []string) error {
				if slices.Contains(ids, fmt.Sprintf("x%03d", items*3/4)) && panics.Add(-1) >= 0 {
					panic("of the definition")
				}
				return nil
			})
			h.label(items, "before")
			p := h.start(h.disk)
			p.Bulk(items, rows)
			h.ready(p, prod, d)
			h.at(p, prod)
			h.unasked()
			panics.Store(1)
			h.label(items, "behind")
			h.pass(time.Minute)
			h.at(p, prod)
			if panics.Load() >= 0 || !strings.Contains(h.log.String(), "panicked") {
				t.Errorf("nothing has panicked, or nobody has logged it: %s", h.log)
			}
			h.verify(p, prod)
			p.stop()
		})
	}
}

// TestABacklogWithoutRowsIsReadOnce works off many events from which no row follows.
func TestABacklogWithoutRowsIsReadOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		d := source{h.disk}.definition(nil)
		h.write(prod, event("item", "i00", `{"label":"a"}`))
		p := h.start(h.disk)
		h.ready(p, prod, d)
		p.stop()
		const events = 3000
		for n := range events {
			h.write(prod, event("shop", "x"+strconv.Itoa(n), `{"name":"n"}`))
		}

		n := &named{Store: h.disk}
		p = h.start(n)
		p.Bulk(math.MaxInt, 7)
		p.Know(t.Context(), prod, d)
		h.pass(time.Minute)
		h.at(p, prod)
		if names := n.names.Load(); names == 0 || names > 2*events {
			t.Errorf("%d names were read of %d events", names, events)
		}
		h.verify(p, prod)
		p.stop()
	})
}

// TestABacklogThatChangesNothingIsReadOnce works off many events, behind many of other types, that leave all rows as
// they are: nothing is written into the slot then, and what was handled before is not looked at again.
func TestABacklogThatChangesNothingIsReadOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		const events, atOnce = 6000, 1000
		d := source{h.disk}.definition(nil)
		h.write(prod, event("item", "i00", `{"label":"a"}`))
		n := &named{Store: h.disk}
		p := h.start(n)
		p.Bulk(atOnce, 7)
		h.ready(p, prod, d)
		h.at(p, prod)
		for range 2 * atOnce {
			h.write(prod, event("other", "x", `{}`))
		}
		h.pass(time.Minute)
		before := n.names.Load()
		for range events {
			h.write(prod, event("item", "i00", `{"label":"a"}`))
		}
		h.pass(time.Minute)
		h.at(p, prod)
		if names := n.names.Load() - before; names < events/2 || names > events*4/3 {
			t.Errorf("%d names were read of %d events", names, events)
		}
		h.verify(p, prod)
		p.stop()
	})
}

// TestABacklogIsGoneOnWithAsItWasBegun: a process that takes fewer events at a time goes on with all of what another
// one has begun.
func TestABacklogIsGoneOnWithAsItWasBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		const items = 60
		h.label(items, "before")
		p := h.start(h.disk)
		d := source{h.disk}.definition(nil)
		h.ready(p, prod, d)
		p.stop()
		h.label(items, "behind")

		const writes = 6
		p = h.start(storetest.NewCrashing(h.disk, writes, false))
		p.Know(t.Context(), prod, d)
		h.pass(time.Second)
		p.stop()
		status, err := p.Status(t.Context(), prod, "one")
		if err != nil || status.Fanout == nil || status.Fanout.Total != items {
			t.Fatalf("nothing is left half done: %+v, %v", status.Fanout, err)
		}

		p = h.start(h.disk)
		p.Bulk(items/4, 7)
		h.ready(p, prod, d)
		h.pass(time.Minute) // the lease of the one before is over
		h.at(p, prod)
		h.verify(p, prod)
		p.stop()
	})
}

// TestWhoHasBegunComesBeforeWhoBegins lets an index with a backlog that was begun wait for another one that has much to
// do: that one begins with no more before the first is done.
func TestWhoHasBegunComesBeforeWhoBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		const items, behind = 60, 3000
		first := source{h.disk}.definition(nil)
		held, hold := make(chan struct{}), atomic.Bool{}
		second := source{h.disk}.definition(func(context.Context, []string) error {
			if hold.Load() {
				<-held
			}
			return nil
		})
		second.ID = "two"
		write := func(n int) {
			for i := range n {
				h.write(prod, event("item", fmt.Sprintf("x%03d", i%items), `{"label":`+strconv.Itoa(n)+`}`))
			}
		}
		write(items)
		p := h.start(h.disk)
		h.ready(p, prod, first)
		h.ready(p, prod, second)
		p.stop()
		write(items)
		const writes = 6
		p = h.start(storetest.NewCrashing(h.disk, writes, false))
		p.Know(t.Context(), prod, first)
		h.pass(time.Second)
		p.stop()
		if status, err := p.Status(t.Context(), prod, "one"); err != nil || status.Fanout == nil {
			t.Fatalf("nothing is left half done: %+v, %v", status, err)
		}
		write(behind)

		// The second is at it, and the first one waits.
		n := &named{Store: h.disk}
		p = h.start(n)
		p.Bulk(items, 7)
		hold.Store(true)
		p.Know(t.Context(), prod, second)
		h.pass(time.Minute) // the lease of the one before is over
		p.Know(t.Context(), prod, first)
		h.pass(10 * time.Second)
		reads := n.reads.Load()
		if status, err := p.Status(t.Context(), prod, "one"); err != nil || status.Fanout == nil || reads != 1 {
			t.Fatalf("it does not wait: %+v, %v, %d reads", status.Fanout, err, reads)
		}
		hold.Store(false)
		close(held)
		h.pass(time.Second)
		if again := n.reads.Load() - reads; again > behind/items/2 {
			t.Errorf("the second has begun again and again, with %d reads", again)
		}
		h.at(p, prod)
		h.verify(p, prod)
		h.same(p, prod, "two")
		p.stop()
	})
}

// TestABacklogTakesItsTime: where others write and nobody waits for the rows of a backlog, the processors are theirs
// for as long as each part has taken. Who asks in between waits no longer than the rows take.
func TestABacklogTakesItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		const items, rows, each = 70, 7, 100 * time.Millisecond
		slow := false
		d := source{h.disk}.definition(func(context.Context, []string) error {
			if slow {
				for range 6 {
					h.write(prod, event("other", "x", `{}`))
				}
				h.wait(each)
			}
			return nil
		})
		h.label(items, "before")
		p := h.start(h.disk)
		p.Bulk(items, rows)
		h.ready(p, prod, d)
		h.at(p, prod)
		slow = true

		// Nobody asks.
		h.unasked()
		h.label(items, "behind")
		began := time.Now()
		for h.lag(p) > 0 && time.Since(began) < time.Minute {
			h.pass(each / 10)
		}
		if took := time.Since(began); took < (2*items/rows-1)*each || took > (2*items/rows+5)*each {
			t.Errorf("%d rows took %s, where %d of them take %s", items, took, rows, each)
		}

		// Somebody asks when some parts are done, behind one of which it pauses.
		h.unasked()
		h.label(items, "asked for")
		for rest := h.lag(p); rest > items*2/3; rest = h.left(p) {
			h.pass(each / 10)
		}
		began = time.Now()
		h.at(p, prod)
		if took := time.Since(began); took > (items/rows)*each {
			t.Errorf("what was asked for took %s", took)
		}
		slow = false
		h.verify(p, prod)
		p.stop()
	})
}

// left returns how many rows of a backlog are left, all where it was not begun.
func (h *house) left(p *process) uint64 {
	h.tb.Helper()
	status, err := p.Status(h.tb.Context(), prod, "one")
	if err != nil {
		h.tb.Fatal(err)
	}
	if status.Fanout == nil {
		return status.Lag
	}
	return status.Fanout.Total - status.Fanout.Done
}

// label gives some items a label, each in a unit of its own.
func (h *house) label(items int, label string) {
	h.tb.Helper()
	for n := range items {
		h.write(prod, event("item", fmt.Sprintf("x%03d", n), `{"label":"`+label+`"}`))
	}
}

// deferring counts how many have deferred compaction, and how many had.
type deferring struct {
	store.Store
	now, ever atomic.Int64
}

// DeferCompaction is part of store.Store.
func (h *deferring) DeferCompaction() func() {
	h.ever.Add(1)
	h.now.Add(1)
	done := h.Store.DeferCompaction()
	return func() {
		h.now.Add(-1)
		done()
	}
}

// TestABacklogDefersCompactionWhereSomebodyWaits: the store is to do nothing else while somebody waits for the rows of
// a backlog, and only then.
func TestABacklogDefersCompactionWhereSomebodyWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		const items = 60
		h.label(items, "before")
		var held chan struct{}
		st := &deferring{Store: h.disk}
		d := source{h.disk}.definition(func(context.Context, []string) error {
			if held != nil {
				<-held
			}
			return nil
		})
		p := h.start(st)
		h.ready(p, prod, d)
		p.stop()
		for _, waits := range []bool{false, true} {
			h.label(items, "behind "+strconv.FormatBool(waits))
			st.ever.Store(0)
			held = make(chan struct{})
			p = h.start(st)
			p.Bulk(items, 1) // a row each commit, so that it has several turns
			p.Know(t.Context(), prod, d)
			h.pass(time.Second) // it has begun
			var asking sync.WaitGroup
			if waits {
				asking.Go(func() { h.at(p, prod) })
				synctest.Wait()
			}
			close(held)
			h.pass(time.Minute)
			asking.Wait()
			if deferred := st.ever.Load() > 0; deferred != waits || st.now.Load() != 0 {
				t.Errorf("somebody waits is %t: compaction was deferred %d times, and %d behind it", waits, st.ever.Load(), st.now.Load())
			}
			h.at(p, prod)
			h.verify(p, prod)
			p.stop()
		}
	})
}
