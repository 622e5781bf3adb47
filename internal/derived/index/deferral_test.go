package index_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"j17/internal/core/part"
	"j17/internal/storage/storetest"
)

// unasked lets so much time pass that nobody has asked for an index lately.
func (h *house) unasked() {
	h.tb.Helper()
	h.pass(18 * time.Second)
}

// burst writes some events of items in each of some rounds, which follow each other soon, and returns how far behind
// the index was at most after one.
func (h *house) burst(p *process, rounds, each int) (most uint64) {
	h.tb.Helper()
	for round := range rounds {
		for i := range each {
			n := round*each + i
			h.write(prod, event("item", fmt.Sprintf("i%02d", n%12), `{"label":`+strconv.Itoa(n)+`}`))
		}
		h.pass(10 * time.Millisecond)
		most = max(most, h.lag(p))
	}
	return most
}

// lag returns how many events an index is behind.
func (h *house) lag(p *process) uint64 {
	h.tb.Helper()
	status, err := p.Status(h.tb.Context(), prod, "one")
	if err != nil {
		h.tb.Fatal(err)
	}
	return status.Lag
}

// busily writes an event now and then while something is done that nobody may wait long for.
func (h *house) busily(what string, do func()) {
	h.tb.Helper()
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
				h.write(prod, event("item", "i00", `{"label":`+strconv.Itoa(n)+`}`))
				h.wait(20 * time.Millisecond)
			}
		}
	})
	began := time.Now()
	do()
	if took := time.Since(began); took > 100*time.Millisecond {
		h.tb.Errorf("%s has taken %s", what, took)
	}
	close(done)
	writing.Wait()
}

// TestUpkeepRests: while events come fast and nobody asks for an index, its upkeep leaves them for later, up to a
// number. It goes on when writes pause, or somebody asks. Slow writes are followed at once, and so are all writes where
// somebody has asked lately.
func TestUpkeepRests(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		p := h.start(h.disk)
		h.write(prod, event("item", "i00", `{"label":"a"}`))
		h.ready(p, prod, source{h.disk}.definition(nil))

		// Slow writes, and fast ones of an index that somebody has asked for.
		h.unasked()
		if most := h.burst(p, 30, 4); most > 0 {
			t.Errorf("slow writes: %d events behind", most)
		}
		h.at(p, prod)
		if most := h.burst(p, 30, 6); most > 0 {
			t.Errorf("somebody has asked: %d events behind", most)
		}

		// Fast ones. When they end, each row is rebuilt once, but for what came first.
		h.unasked()
		rows := p.Stats().Rows
		if most, lag := h.burst(p, 20, 6), p.Stats().Lag; most < 100 || p.Stats().Rows-rows > 24 ||
			lag < 150*time.Millisecond || lag > 220*time.Millisecond {
			t.Errorf("%d events behind, %d rows were made, events wait for %s", most, p.Stats().Rows-rows, lag)
		}
		h.pass(300 * time.Millisecond)
		if lag, made := h.lag(p), p.Stats().Rows-rows; lag != 0 || made > 40 || p.Stats().Lag != 0 {
			t.Errorf("%d events behind, %d rows were made; %+v", lag, made, p.Stats())
		}
		h.at(p, prod)

		// Up to a number, over and over.
		h.unasked()
		rows = p.Stats().Rows
		if most := h.burst(p, 200, 6); most < 190 || most > 200 {
			t.Errorf("%d events behind at most", most)
		}
		if made := p.Stats().Rows - rows; made < 12*5 || made > 12*20 {
			t.Errorf("%d rows were made of 1,200 events", made)
		}
		h.pass(300 * time.Millisecond)
		h.at(p, prod)

		// Somebody asks.
		h.unasked()
		h.burst(p, 20, 6)
		h.busily("a view of what has rested", func() { h.at(p, prod) })
		p.stop()
	})
}

// TestUpkeepThatRestsIsNeeded: upkeep that rests goes on where another process asks, an erasure waits for it, or
// another process takes over.
func TestUpkeepThatRestsIsNeeded(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.hasty = true
		d := source{h.disk}.definition(nil)
		first, second := h.start(h.disk), h.start(h.disk)
		h.write(prod, event("item", "i00", `{"label":"a"}`))
		h.ready(first, prod, d)
		second.Know(t.Context(), prod, d)
		h.at(first, prod)
		keeps, other := first, second
		rests := func() {
			t.Helper()
			h.unasked()
			h.burst(keeps, 10, 6)
			if keeps.feed.Counts().Held == 0 {
				keeps, other = other, keeps
			}
			if lag := h.lag(keeps); lag < 40 || other.feed.Counts().Held > 0 {
				t.Errorf("%d events behind", lag)
			}
		}

		// Another process asks.
		rests()
		h.busily("a view in another process", func() { h.at(other, prod) })
		h.pass(300 * time.Millisecond)

		// An erasure, whose note is among what was left.
		rests()
		h.rewrite(prod, "i03", `{}`)
		note := h.end(prod)
		h.busily("an erasure", func() {
			if err := other.Erase(t.Context(), prod, part.Erased{Note: note}); err != nil {
				t.Error(err)
			}
		})
		h.pass(300 * time.Millisecond)
		h.at(keeps, prod)

		// It ends, and another one goes on.
		rests()
		keeps.stop()
		h.pass(300 * time.Millisecond)
		if lag := h.lag(other); lag != 0 {
			t.Errorf("%d events behind after a process has ended", lag)
		}
		h.at(other, prod)
		other.stop()
	})
}

// TestManyRowsFollowFromABacklog has rows that follow from an event of a backlog, first some and then too many to be
// worked off in bulk.
func TestManyRowsFollowFromABacklog(t *testing.T) {
	for _, items := range []int{100, 160} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			h.hasty = true
			for n := range items {
				h.write(prod, event("item", fmt.Sprintf("x%03d", n), `{"shop":"s0"}`))
			}
			p := h.start(h.disk)
			h.ready(p, prod, source{h.disk}.definition(nil))
			h.at(p, prod)
			h.unasked()
			for n := range 5 {
				h.burst(p, 5, 6)
				h.write(prod, event("shop", "s0", `{"name":"n`+strconv.Itoa(n)+`"}`))
			}
			before := p.Stats().Rows
			h.pass(time.Second)
			if made := p.Stats().Rows - before; made < uint64(items)+12 {
				t.Errorf("%d rows were made", made)
			}
			h.at(p, prod)
			h.verify(p, prod)
			p.stop()
		})
	}
}

// TestABacklogThatWasBegunIsGoneOnWith ends the process at each of its writes while it works off a backlog in bulk: the
// next one goes on with the rows that are left.
func TestABacklogThatWasBegunIsGoneOnWith(t *testing.T) {
	begun := 0
	for left := 1; left < 25; left++ {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			h.hasty = true
			const items = 60
			write := func(label string) {
				for n := range items {
					h.write(
						prod, event(
							"item", fmt.Sprintf("x%03d", n), `{"shop":"s`+strconv.Itoa(n%2)+`","label":"`+label+`"}`,
						),
					)
				}
			}
			write("before")
			p := h.start(h.disk)
			d := source{h.disk}.definition(nil)
			h.ready(p, prod, d)
			h.at(p, prod)
			p.stop()
			write("behind")
			h.write(prod, event("shop", "s0", `{"name":"n"}`))

			p = h.start(storetest.NewCrashing(h.disk, left, false))
			p.Know(t.Context(), prod, d)
			h.pass(time.Second)
			p.stop()
			status, err := p.Status(t.Context(), prod, "one")
			if err != nil {
				t.Fatal(err)
			}
			if f := status.Fanout; f != nil && f.Done > 0 && f.Total == items {
				begun++
			}

			p = h.start(h.disk)
			h.ready(p, prod, d)
			h.pass(time.Minute) // the lease of the one before is over
			h.at(p, prod)
			if f, made := status.Fanout, p.Stats().Rows; f != nil && made > items-f.Done {
				t.Errorf("%d rows were made, and %d of %d were there", made, f.Done, items)
			}
			h.verify(p, prod)
			p.stop()
		})
	}
	if begun < 5 {
		t.Errorf("a backlog was left half done %d times", begun)
	}
}
