package server

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// pauses is a clock that notes how long somebody wants to wait, and lets nobody wait: it moves by that, unless it is
// still.
type pauses struct {
	*clock.Manual
	waits []time.Duration
	still bool
}

// Wait notes how long that would be.
func (p *pauses) Wait(ctx context.Context, t time.Time) error {
	p.waits = append(p.waits, t.Sub(p.Now()))
	if !p.still {
		p.Set(t)
	}
	return ctx.Err()
}

// TestWritesBesideAMoveTakeTheirTime looks at the pauses of writes before, while and after a clock is moved.
func TestWritesBesideAMoveTakeTheirTime(t *testing.T) {
	clk := &pauses{Manual: clock.NewManual(time.Unix(1_700_000_000, 0))}
	gate := newTurnstile(clk)
	pass := func(writes int) []time.Duration {
		t.Helper()
		clk.waits = nil
		for range writes {
			if err := gate.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return clk.waits
	}
	if got := pass(3 * writesAtOnce); len(got) > 0 {
		t.Errorf("without a move: %v", got)
	}
	moving, over := context.WithCancel(t.Context())
	defer over()
	gate.begin(moving)
	if got := pass(writesAtOnce); len(got) > 0 {
		t.Errorf("the first writes: %v", got)
	}
	got := pass(100)
	if len(got) != 100 || got[0] != firstWait || !slices.IsSorted(got) || got[1] == got[0] || got[99] != lastWait {
		t.Errorf("the writes after them: %v", got)
	}

	// Who waits at the same time is let in at the same time.
	clk.still = true
	if together := pass(3); !slices.Equal(together, []time.Duration{lastWait, lastWait, lastWait}) {
		t.Errorf("three writes at one time: %v", together)
	}
	clk.still = false
	clk.Advance(lastWait)

	// At the next moment the pauses begin again, and only after a moment without any some writes are let in at once.
	gate.next()
	if again := pass(100); !slices.Equal(again, got) {
		t.Errorf("at the next moment: %v", again)
	}
	gate.next()
	gate.next()
	if got := pass(writesAtOnce); len(got) > 0 {
		t.Errorf("after a moment without writes: %v", got)
	}

	// Who does not wait any more hears of it, and after the move nobody waits.
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := gate.pass(gone); err == nil {
		t.Error("a write that was given up was let in")
	}
	over()
	if got := pass(100); len(got) > 0 {
		t.Errorf("after the move: %v", got)
	}
}

// standing is a clock whose waits only end with their contexts. It tells whoever asks that somebody waits.
type standing struct {
	*clock.Manual
	waiting chan struct{}
}

// Wait waits for the end of the context.
func (s *standing) Wait(ctx context.Context, _ time.Time) error {
	for {
		select {
		case s.waiting <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// beside is work that has nothing to do but at ten moments. It is never done before somebody else has written, or has
// to wait with that.
type beside struct {
	clock  clock.Clock
	next   time.Time
	left   int
	writes <-chan struct{}
	waits  <-chan struct{}
	rounds int
}

// NextDue is that of part.Work.
func (b *beside) NextDue(context.Context) (time.Time, error) { return b.next, nil }

// Settle is that of part.Work.
func (b *beside) Settle(ctx context.Context) error {
	b.rounds++
	for range 2 { // the second write was begun in this round
		select {
		case <-b.writes:
		case <-b.waits:
		case <-ctx.Done():
		}
	}
	if !b.next.IsZero() && !b.clock.Now().Before(b.next) {
		if b.left--; b.left > 0 {
			b.next = b.next.Add(time.Hour)
		} else {
			b.next = time.Time{}
		}
	}
	return nil
}

// TestTheClockMovesBesideAWriter moves a clock over ten moments while somebody writes as fast as he can, and counts the
// rounds.
func TestTheClockMovesBesideAWriter(t *testing.T) {
	const tenant j17.Tenant = "i_prod"
	const moments = 10
	machine := &standing{Manual: clock.NewManual(time.Unix(1_700_000_000, 0)), waiting: make(chan struct{})}
	clk := clock.NewMovable(machine.Manual)
	begin := clk.Now()
	s := testopen.Open(t, clk)

	// The writer, who goes on until the end.
	gate := newTurnstile(machine)
	writing, stop := context.WithCancel(t.Context())
	wrote, ended := make(chan struct{}), make(chan error, 1)
	var total atomic.Int64
	go func() {
		for gate.pass(writing) == nil {
			_, err := s.Append(t.Context(), tenant, []store.Append{{Events: []store.NewEvent{
				{Key: j17.Key{Type: "order", ID: "o"}, Type: "was_placed", Data: []byte(`{}`), Metadata: []byte(`{}`)},
			}}})
			if err != nil {
				ended <- err
				return
			}
			total.Add(1)
			select {
			case wrote <- struct{}{}:
			case <-writing.Done():
			}
		}
		ended <- nil
	}()

	work := &beside{clock: clk, next: begin.Add(time.Hour), left: moments, writes: wrote, waits: machine.waiting}
	st := stepper{
		clock: clk, feed: s, works: []part.Work{{NextDue: work.NextDue, Settle: work.Settle}}, gate: gate,
		busy: make(chan struct{}, 1), move: func(time.Duration) error { return nil },
	}
	now, err := st.advance(t.Context(), 24*time.Hour)
	if err != nil || now.Sub(begin) != 24*time.Hour || work.left != 0 {
		t.Errorf("the clock was moved by %s with %d moments left: %v", now.Sub(begin), work.left, err)
	}
	if most := writesAtOnce + 3*(moments+2); work.rounds > most {
		t.Errorf("%d rounds beside %d writes; at most %d were to be", work.rounds, total.Load(), most)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
