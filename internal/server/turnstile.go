package server

import (
	"context"
	"sync"
	"time"

	"j17/internal/base/clock"
)

// turnstile lets in what clients write while a clock is moved: at each moment some writes at once, and all others when
// it opens, each time after a longer pause. So what is done at a moment comes to an end, however many write beside it.
// Nobody has to wait for the end of a move, so that a listener which writes back before it answers gets its turn.
type turnstile struct {
	// clock is that of the machine, which nobody moves.
	clock clock.Clock

	mu sync.Mutex
	// moving is done when the clock is no longer moved; nil while it is not moved.
	moving context.Context //nolint:containedctx // it is the signal that a move is over
	// writes counts those that were let in at this moment without a pause.
	writes int
	// opens is when those are let in that wait, pause how long it stays closed the next time; 0 where there was no
	// pause at this moment.
	opens time.Time
	pause time.Duration
}

func newTurnstile(c clock.Clock) *turnstile { return &turnstile{clock: c} }

const (
	// writesAtOnce is how many writes are let in at one moment without a pause.
	writesAtOnce = 64
	// firstWait and lastWait are the first pause of a moment and the longest one.
	firstWait = time.Millisecond
	lastWait  = time.Second
)

// begin is called before the clock is moved, with the context of the move.
func (s *turnstile) begin(moving context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving, s.writes, s.pause = moving, 0, 0
}

// next is called when all is done at a moment. Where there were pauses, the next moment begins with one.
func (s *turnstile) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause == 0 {
		s.writes = 0
	}
	s.pause = 0
}

// pass waits until a write may begin.
func (s *turnstile) pass(ctx context.Context) error {
	moving, until, closed := s.closed()
	if !closed {
		return ctx.Err()
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(moving, stop)()
	_ = s.clock.Wait(waiting, until) // the end of the move is none of the write
	return ctx.Err()
}

// closed counts a write, and reports whether it has to wait until the turnstile opens, or the move is over.
func (s *turnstile) closed() (moving context.Context, until time.Time, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moving == nil || s.moving.Err() != nil {
		return nil, until, false
	}
	if s.writes < writesAtOnce {
		s.writes++
		return nil, until, false
	}
	if now := s.clock.Now(); !now.Before(s.opens) {
		s.pause = min(max(2*s.pause, firstWait), lastWait)
		s.opens = now.Add(s.pause)
	}
	return s.moving, s.opens, true
}
