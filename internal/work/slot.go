package work

import (
	"context"
	"sync"
	"time"

	"j17"
)

// HeavyAfter is how many units a request may spend, with all of its budgets, before it needs a turn on a processor. Ordinary writes and reads
// stay far below it.
const HeavyAfter = 256 << 10

// Turn is how many units a request works in one turn on a processor while others wait for theirs: less than half a second. Then it gives
// way to them.
const Turn = 8 << 20

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
	// done is how many units were done for the request, worked how many of them in the turn.
	done, worked int64
	// back is closed when the request has its turn again after it gave way; nil while it does not.
	back chan struct{}
}

// Open makes the slot one of a tenant, with turns from a pool. It is called before the slot is used.
func (s *Slot) Open(pool *Pool, tenant string) { s.pool, s.tenant = pool, tenant }

// Take waits for a turn, unless the request has one or has ended. The error is one of Busy, or that of the context.
func (s *Slot) Take(ctx context.Context) error {
	wanted, back := s.wanted()
	for back != nil { // another goroutine of the request waits for it
		select {
		case <-back:
		case <-ctx.Done():
			return ctx.Err()
		}
		wanted, back = s.wanted()
	}
	if !wanted {
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
	s.keep()
	return nil
}

func (s *Slot) wanted() (wanted bool, back chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool != nil && !s.held && !s.ended, s.back
}

// keep makes a turn that was taken from the pool the slot's, if it still wants one. The caller holds mu.
func (s *Slot) keep() {
	if s.held || s.ended { // meanwhile
		s.pool.Give(s.tenant, 1)
		return
	}
	s.held, s.worked = true, 0
}

// work notes that n units are done. A request that is heavy by now does them in its turn, which it takes if it has none. Where that has had its
// units and others wait for theirs, the request gives way and goes on in its next turn. The error is that of Take.
func (s *Slot) work(ctx context.Context, n int64) error {
	if s.light(n) {
		return nil
	}
	if err := s.Take(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.worked += n
	over := s.held && s.worked >= Turn && s.pool.Wanted()
	if over {
		s.held, s.back = false, make(chan struct{})
	}
	s.mu.Unlock()
	if !over {
		return nil
	}
	return s.giveWay(ctx)
}

// light counts n more units, and reports whether the request is not heavy yet.
func (s *Slot) light(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += n
	return s.done < HeavyAfter
}

// giveWay hands the turn to those who wait and takes the next one behind them. Where it waits for that in vain it goes on all the same, as
// one more than there may be: what has worked for so long is not thrown away.
func (s *Slot) giveWay(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	err := s.pool.GiveWay(waiting, s.tenant, 1)
	if err != nil && ctx.Err() == nil {
		s.pool.Insist(s.tenant, 1)
		err = nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.keep()
	}
	close(s.back)
	s.back = nil
	return err
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

// Renew is Give for a request that lasts, and does a little now and then: what it does from now on is counted anew.
func (s *Slot) Renew() {
	s.Give()
	s.mu.Lock()
	s.done = 0
	s.mu.Unlock()
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
