package server

import (
	"context"
	"sync"
	"time"

	"j17/internal/clock"
)

// turnstile lets in what clients write while a clock is moved: at each moment some writes at once, and each one after those after a longer
// pause than the one before. So what is done at a moment comes to an end, however many write beside it. Nobody has to wait for the end of a
// move, so that a listener which writes back before it answers gets its turn.
type turnstile struct {
	// clock is that of the machine, which nobody moves.
	clock clock.Clock
	// turn has room for one: whoever waits for the end of his pause.
	turn chan struct{}

	mu sync.Mutex
	// moving is done when the clock is not moved any more; nil while it is not moved.
	moving context.Context //nolint:containedctx // it is the signal that a move is over
	// writes counts those that were let in at this moment.
	writes int
}

func newTurnstile(c clock.Clock) *turnstile {
	return &turnstile{clock: c, turn: make(chan struct{}, 1)}
}

const (
	// writesAtOnce is how many writes are let in at one moment without a pause.
	writesAtOnce = 64
	// firstWait and lastWait are how long the first write after those waits, and the longest that one waits.
	firstWait = time.Millisecond
	lastWait  = time.Second
)

// begin is called before the clock is moved, with the context of the move.
func (s *turnstile) begin(moving context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moving, s.writes = moving, 0
}

// next is called when all is done at a moment. Where there were pauses, the next moment begins with the shortest one.
func (s *turnstile) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes > writesAtOnce {
		s.writes = writesAtOnce
	} else {
		s.writes = 0
	}
}

// pass waits until a write may begin.
func (s *turnstile) pass(ctx context.Context) error {
	s.mu.Lock()
	moving := s.moving
	free := moving == nil || moving.Err() != nil || s.writes < writesAtOnce
	if free {
		s.writes++
	}
	s.mu.Unlock()
	if free {
		return ctx.Err()
	}

	// One at a time, until the move is over.
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(moving, stop)()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
		_ = s.clock.Wait(waiting, s.clock.Now().Add(s.pause())) // an end of the move is none of the write
	case <-waiting.Done():
	}
	return ctx.Err()
}

// pause counts a write and returns how long it has to wait.
func (s *turnstile) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := firstWait
	for range s.writes - writesAtOnce {
		pause = min(pause+pause/4, lastWait)
	}
	s.writes++
	return pause
}
