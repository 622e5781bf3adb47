package work

import (
	"context"
	"sync"
	"time"

	"j17"
)

// HeavyAfter is how many units a request may spend before it needs a turn on a processor. Ordinary writes and reads stay far
// below it.
const HeavyAfter = 256 << 10

// Wait is how long a request waits for a turn or for room before it is refused.
const Wait = 5 * time.Second

// Busy is the error of a request that has waited in vain for what.
func Busy(what string) error {
	return j17.Errorf(j17.CodeBusy, "The server has too much to do for this environment: there was no %s for %d seconds. Try again in a moment.", what, int(Wait.Seconds()))
}

// Slot is the turn of one request on a processor, which it takes when it turns out to be heavy. It is safe for use by
// goroutines that work for the same request. The zero Slot needs no turns.
type Slot struct {
	pool   *Pool
	tenant string

	mu    sync.Mutex
	held  bool
	ended bool
}

// Open makes the slot one of a tenant, with turns from a pool. It is called before the slot is used.
func (s *Slot) Open(pool *Pool, tenant string) { s.pool, s.tenant = pool, tenant }

// Take waits for a turn, unless the request has one or has ended. The error is one of Busy, or that of the context.
func (s *Slot) Take(ctx context.Context) error {
	if !s.wanted() {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	if _, err := s.pool.Take(waiting, s.tenant, 1); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return Busy("turn on a processor")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held || s.ended { // meanwhile
		s.pool.Give(s.tenant, 1)
		return nil
	}
	s.held = true
	return nil
}

func (s *Slot) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool != nil && !s.held && !s.ended
}

// Give gives the turn back, if there is one. It can be taken again.
func (s *Slot) Give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		s.held = false
		s.pool.Give(s.tenant, 1)
	}
}

// End gives the turn back for good: work that goes on for others takes none in the name of this request.
func (s *Slot) End() {
	s.Give()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// slotKey is the key of a request's slot among the values of its context.
type slotKey struct{}

// SlotKey returns the key under which the context of a request has its *Slot.
func SlotKey() any { return slotKey{} }

// WithoutSlot returns ctx for work that goes on without the request: it takes no turns in the request's name.
func WithoutSlot(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotKey{}, (*Slot)(nil))
}

func slotOf(ctx context.Context) *Slot {
	s, _ := ctx.Value(slotKey{}).(*Slot)
	return s
}
