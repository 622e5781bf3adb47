package server

import (
	"context"
	"sync"
	"time"

	"j17/internal/base/clock"
)

// turnstile limits the writes of clients while a clock is moved: at each moment some pass at once, and all others when
// it opens, after pauses that grow. So the work of a moment comes to an end, however many clients write. A write never
// has to wait for the end of a move, so that a listener which writes back before it answers can do so.
type turnstile struct {
	// clock is the real clock, which is never moved.
	clock clock.Clock

	mu sync.Mutex
	// moving is cancelled when the move is over; nil if the clock was never moved.
	moving context.Context //nolint:containedctx // it is the signal that a move is over
	// writes counts the writes that passed at this moment without a pause.
	writes int
	// opens is when waiting writes may pass, pause how long it was closed the last time; 0 if there was no pause at
	// this moment.
	opens time.Time
	pause time.Duration
}

func newTurnstile(c clock.Clock) *turnstile { return &turnstile{clock: c} }

const (
	// writesAtOnce is how many writes pass at one moment without a pause.
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

// next is called when the work of a moment is done. After a moment with pauses, the next one begins with a pause.
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
	_ = s.clock.Wait(waiting, until) // an end of the move does not end the write
	return ctx.Err()
}

// closed counts a write, and reports whether it has to wait until the turnstile opens, or until the move is over.
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
