package index_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/derived/index"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// behindHand is a store whose feed ends earlier for who reads it here, as long as end is set.
type behindHand struct {
	store.Store

	end atomic.Pointer[j17.StreamID]
}

// ReadChanges ends behind the end.
func (s *behindHand) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range s.Store.ReadChanges(ctx, t, after, limit) {
			if end := s.end.Load(); err == nil && end != nil && e.Event != nil && e.Event.StreamID.Compare(*end) > 0 {
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestWhoHasLostTheUpkeepKnowsNothing: a process has handled two events that together change nothing, so that it has
// written nothing, and is taken over by one that goes on between them. What the first one knows of its own is not true
// of what the index shows then.
func TestWhoHasLostTheUpkeepKnowsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		d := source{h.disk}.definition(nil)
		h.write(prod, event("item", "i1", `{"label":"a"}`))
		first := h.start(h.disk)
		h.ready(first, prod, d)
		h.at(first, prod)
		h.write(prod, event("item", "i2", `{"label":"ab"}`))
		h.at(first, prod)

		// The label goes away and comes back in one unit.
		h.write(prod, event("item", "i1", `{"label":1}`), event("item", "i1", `{"label":"a"}`))
		h.at(first, prod)
		if held := first.feed.Counts().Held; held != 1 {
			t.Fatalf("the first process holds %d tenants", held)
		}

		// Whoever takes over has got as far as the first of the two.
		st := &behindHand{Store: h.disk}
		var between j17.StreamID
		for e, err := range h.disk.ReadStream(t.Context(), prod, j17.Key{Type: "item", ID: "i1"}, 2, 2) {
			if err != nil {
				t.Fatal(err)
			}
			between = e.StreamID
			break
		}
		st.end.Store(&between)
		second := h.start(st, func(o *feed.Options) { o.Sole = true }) // which waits for nobody's lease
		second.Know(t.Context(), prod, d)
		h.pass(100 * time.Millisecond)
		if taken := second.feed.Counts().Taken; taken != 1 {
			t.Fatalf("the second process has taken %d leases", taken)
		}
		v, err := second.At(t.Context(), prod, "one", j17.StreamID{})
		if err != nil {
			t.Fatal(err)
		}
		h.check(prod, v)
		if at := v.Position(); at != between {
			t.Errorf("the second process has got as far as %s, want %s", at, between)
		}
		v.Close()
		if held := first.feed.Counts().Held; held != 1 {
			t.Fatalf("the first process holds %d tenants: the test is too slow", held)
		}

		// The first one waits for the second one, and shows nothing meanwhile that is not so.
		moment, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		v, err = first.At(moment, prod, "one", h.end(prod))
		if err == nil {
			hits, err := v.Scan(
				plenty(), index.Query{Lanes: [][]index.Range{{index.All(labels, 2).Equal(value.StringValue("a"))}}}, "",
				10,
			)
			t.Errorf("there is a view as of %s, of %s; %v have the label, %v", v.Position(), h.end(prod), hits, err)
			v.Close()
		}
		st.end.Store(nil)
		h.write(prod, event("item", "i3", `{}`))
		h.at(first, prod)
		h.at(second, prod)
		second.stop()
		first.stop()
	})
}

// TestRemovedWhileABuildTakesOver ends a process before and after each write with which an index is rebuilt, and
// removes the index, or cancels the build and removes it then: nothing is left of either slot.
func TestRemovedWhileABuildTakesOver(t *testing.T) {
	for _, late := range []bool{false, true} {
		for left, over := 0, false; !over; left++ {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				d := source{h.disk}.definition(nil)
				h.write(prod, event("item", "i1", `{"label":"a","title":"red"}`), event("item", "i2", `{"label":"b"}`))
				first := h.start(h.disk)
				h.ready(first, prod, d)
				first.stop()

				m := storetest.NewCrashing(h.disk, left, late)
				second := h.start(m)
				second.Know(t.Context(), prod, d)
				_ = second.Rebuild(t.Context(), prod, d.ID) // it ends with the store
				h.pass(10 * time.Second)
				over = !m.IsDead()
				second.stop()

				// What the process was about is leased for a while.
				next := h.start(h.disk)
				if err := next.Remove(t.Context(), prod, d.ID); err != nil {
					t.Fatal(err)
				}
				h.pass(time.Minute)
				for _, space := range []store.Space{
					"index.slots", "index.heads", "index.counts", "index.entries", "index.rows", "index.sources",
					"build.jobs", "build.progress",
					"build.removals", "feed.subscriptions",
				} {
					if n, err := h.disk.Count(t.Context(), prod, space, store.Range{}, 100); err != nil || n != 0 {
						t.Errorf("a process that ends after %d writes (late %v): %d items in %s, %v", left, late, n, space, err)
					}
				}
				next.stop()
			})
		}
	}
}

// told is a store that tells of writes of a head, or of builds that are ended, before they are made and when they are.
type told struct {
	store.Store

	before, after func(space store.Space)
}

// Write is part of store.Store.
func (s *told) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	of := sides[0].Space
	if s.before != nil {
		s.before(of)
	}
	err := s.Store.Write(ctx, t, sides, fences...)
	if s.after != nil && err == nil {
		s.after(of)
	}
	return err
}

// TestCancelledWhileABuildTakesOver cancels a build before it takes over, and while it does: either it is cancelled or
// it serves, and nothing is left that nobody knows of.
func TestCancelledWhileABuildTakesOver(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			d := source{h.disk}.definition(nil)
			h.write(prod, event("item", "i1", `{"label":"a","title":"red"}`), event("item", "i2", `{"label":"b"}`))
			other := &told{Store: h.disk}
			canceller, builder := h.start(other), &told{Store: h.disk}
			h.ready(canceller, prod, d)
			canceller.stop()

			// The build's process waits before it takes over until the build is cancelled; or, until somebody is about
			// to do that, who waits until it has.
			once, about, over, done := sync.Once{}, make(chan struct{}), make(chan struct{}), make(chan error, 1)
			other.before = func(of store.Space) {
				if of == "build.jobs" && meanwhile {
					close(about)
					<-over
					other.before = nil
				}
			}
			builder.before = func(of store.Space) {
				if of != "index.heads" {
					return
				}
				once.Do(func() {
					go func() { done <- canceller.Cancel(t.Context(), prod, d.ID) }()
					if meanwhile {
						<-about
					} else {
						done <- <-done
					}
				})
			}
			builder.after = func(of store.Space) {
				if of == "index.heads" && meanwhile {
					close(over)
					done <- <-done
				}
			}
			p := h.start(builder)
			p.Know(t.Context(), prod, d)
			if err := p.Rebuild(t.Context(), prod, d.ID); err != nil {
				t.Fatal(err)
			}
			h.pass(time.Minute)
			if err := <-done; meanwhile != errors.Is(err, store.ErrNotFound) || !meanwhile && err != nil {
				t.Errorf("meanwhile %v: cancelled with %v", meanwhile, err)
			}
			h.at(p, prod)
			if !meanwhile {
				if err := p.Rebuild(t.Context(), prod, d.ID); err != nil {
					t.Fatal(err)
				}
				h.pass(time.Minute)
			}
			h.at(p, prod)
			h.accounted(p)
			p.stop()
		})
	}
}

// TestRemovedWhileItIsWanted removes an index right after somebody has begun it who wants it: it is begun again.
func TestRemovedWhileItIsWanted(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		d := source{h.disk}.definition(nil)
		h.write(prod, event("item", "i1", `{"label":"a"}`))
		other := h.start(h.disk)
		defer other.stop()
		st, begun := &told{Store: h.disk}, atomic.Bool{}
		p := h.start(st)
		p.stop()
		st.after = func(of store.Space) {
			if of == "build.jobs" && begun.CompareAndSwap(false, true) {
				if err := other.Remove(t.Context(), prod, d.ID); err != nil {
					t.Error(err)
				}
			}
		}
		if status, err := p.Ensure(t.Context(), prod, d); err != nil || status.Build == nil {
			t.Errorf("%+v, %v", status, err)
		}
		h.ready(other, prod, d)
		h.at(other, prod)
		h.pass(time.Minute)
		h.accounted(other)
	})
}

// TestWantedWhileItIsRemoved begins an index again right after it was removed, before the process that has removed it
// has let go of what it knows: the index is built.
func TestWantedWhileItIsRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		d := source{h.disk}.definition(nil)
		h.write(prod, event("item", "i1", `{"label":"a"}`))
		st, armed := &told{Store: h.disk}, atomic.Bool{}
		var p *process
		st.after = func(of store.Space) {
			if of == "build.jobs" && armed.CompareAndSwap(true, false) {
				if _, err := p.Ensure(t.Context(), prod, d); err != nil {
					t.Error(err)
				}
			}
		}
		p = h.start(st)
		defer p.stop()
		h.ready(p, prod, d)
		h.pass(time.Second)
		armed.Store(true)
		if err := p.Remove(t.Context(), prod, d.ID); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Minute)
		if status, err := p.Status(t.Context(), prod, d.ID); err != nil || !status.Ready {
			t.Errorf("%+v, %v\n%s", status, err, h.log)
		}
	})
}

// TestAnotherProcessTakesOver has two processes know an index: one of them keeps it, and both show it. That one ends
// without giving anything back, and the other one keeps it when the lease is over; until then it shows what is there.
func TestAnotherProcessTakesOver(t *testing.T) {
	const lease = 30 * time.Second
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		d := source{h.disk}.definition(nil)
		crashing := map[*process]*storetest.Crashing{}
		start := func() *process {
			m := storetest.NewCrashing(h.disk, -1, false)
			p := h.start(m)
			crashing[p] = m
			return p
		}
		keeps, other := start(), start()
		h.write(prod, event("item", "i1", `{"label":"a"}`))
		h.ready(keeps, prod, d)
		h.ready(other, prod, d)
		for n := range 10 {
			h.write(prod, event("item", "i2", some("item", n)))
			h.at(keeps, prod)
			h.at(other, prod)
		}
		if keeps.feed.Counts().Held == 0 {
			keeps, other = other, keeps
		}
		if a, b := keeps.Stats().Batches, other.Stats().Batches; a == 0 || b > 0 || other.feed.Counts().Held > 0 {
			t.Errorf("one process has handled %d parts of the feed, the other one %d", a, b)
		}

		crashing[keeps].End()
		h.write(prod, event("item", "i3", `{"label":"b"}`))
		behind := h.end(prod)
		v, err := other.At(t.Context(), prod, d.ID, j17.StreamID{})
		if err != nil {
			t.Fatal(err)
		}
		h.check(prod, v)
		v.Close()
		for ended := time.Now(); ; {
			v, err := other.At(t.Context(), prod, d.ID, behind)
			if err == nil {
				h.check(prod, v)
				v.Close()
				break
			}
			if _, is := errors.AsType[*index.NotReadyError](err); !is || time.Since(ended) > lease {
				t.Fatalf("%s after the other process has ended: %v", time.Since(ended), err)
			}
		}
		if other.feed.Counts().Held != 1 {
			t.Error("the lease is not taken over")
		}
		keeps.stop()
		h.at(other, prod)
		h.verify(other, prod)
		other.stop()
	})
}

// TestAProcessEndsWhileItHandlesAnEvent ends a process before and after each write with which it handles what changes
// some rows, after which nothing touches them: the index has what follows from it none the less, once.
func TestAProcessEndsWhileItHandlesAnEvent(t *testing.T) {
	for _, hasty := range []bool{false, true} {
		for _, late := range []bool{false, true} {
			ends := 0
			for left, over := 0, false; !over; left++ {
				inBubble(t, func(t *testing.T, h *house) {
					t.Helper()
					h.hasty = hasty
					d := source{h.disk}.definition(nil)
					for n := range 10 {
						h.write(prod, event("item", fmt.Sprintf("i%02d", n), `{"label":"a","shop":"s0"}`))
					}
					first := h.start(h.disk)
					h.ready(first, prod, d)
					first.stop()

					m := storetest.NewCrashing(h.disk, left, late)
					second := h.start(m)
					second.Know(t.Context(), prod, d)
					h.write(
						prod, event("item", "i01", `{"label":"b","shop":"s0"}`), event("note", "n0", `{"about":"i02"}`),
						event("shop", "s0", `{"name":"c"}`),
					)
					h.pass(time.Second)
					if over = !m.IsDead(); !over {
						ends++
					}
					second.stop()

					next := h.start(h.disk)
					h.ready(next, prod, d)
					h.pass(time.Minute) // the lease of the one before is over
					h.at(next, prod)
					h.verify(next, prod)
					h.accounted(next)
					next.stop()
				})
			}
			if ends < 2 {
				t.Errorf("it has ended %d times only", ends)
			}
		}
	}
}
