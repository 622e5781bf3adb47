package work

import (
	"context"
	"sync"
	"time"

	"j17"
)

// HeavyAfter is how many units a request may spend, with all of its budgets, before it needs a turn on a processor.
// Ordinary writes and reads stay far below it.
const HeavyAfter = 256 << 10

// Turn is how many units a request works in one turn on a processor while others wait for theirs: less than half a
// second. Then it gives way to them.
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
	// done is how many units were done for the request, worked how many of them in the turn. heavy reports that it is
	// heavy from the first one on.
	done, worked int64
	heavy        bool
	// coming is the turn that one goroutine of the request is waiting for, nil for none.
	coming *coming
}

// coming is a turn that one goroutine of a request is waiting for: the others wait for the outcome.
type coming struct {
	over chan struct{}
	busy bool // the wait ended without a turn
}

// Open makes the slot one of a tenant, with turns from a pool. It is called before the slot is used.
func (s *Slot) Open(pool *Pool, tenant string) { s.pool, s.tenant = pool, tenant }

// Take waits for a turn, unless the request has one or has ended. The error is one of Busy, or that of the context.
func (s *Slot) Take(ctx context.Context) error {
	for {
		c, first := s.join()
		if c == nil {
			return nil
		}
		if first {
			err := s.take(ctx)
			s.came(c, err)
			return err
		}
		select {
		case <-c.over:
		case <-ctx.Done():
			return ctx.Err()
		}
		if c.busy {
			return busy()
		}
	}
}

// join returns the turn that is being waited for, nil where the request has one or needs none. The first one to join
// waits for it.
func (s *Slot) join() (c *coming, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.coming != nil:
		return s.coming, false
	case s.pool == nil || s.held || s.ended:
		return nil, false
	}
	s.coming = &coming{over: make(chan struct{})}
	return s.coming, true
}

// take waits for a turn from the pool.
func (s *Slot) take(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	_, err := s.pool.Take(waiting, s.tenant, 1)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return busy()
}

func busy() error { return Busy("turn on a processor") }

// came publishes the outcome of a wait for a turn.
func (s *Slot) came(c *coming, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.keep()
	}
	c.busy = j17.CodeOf(err) == j17.CodeBusy
	close(c.over)
	s.coming = nil
}

// keep makes a turn that was taken from the pool the slot's, if it still wants one. The caller holds mu.
func (s *Slot) keep() {
	if s.held || s.ended { // meanwhile
		s.pool.Give(s.tenant, 1)
		return
	}
	s.held, s.worked = true, 0
}

// work notes that n units are done. A request that has become heavy does them in its turn, which it takes if it has
// none. When that turn is used up and others are waiting, the request gives way and goes on in its next turn. The error
// is that of Take.
func (s *Slot) work(ctx context.Context, n int64) error {
	if s.light(n) {
		return nil
	}
	if err := s.Take(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.worked += n
	var next *coming
	if s.held && s.worked >= Turn && s.pool.Wanted() {
		next = &coming{over: make(chan struct{})}
		s.held, s.coming = false, next
	}
	s.mu.Unlock()
	if next == nil {
		return nil
	}
	err := s.giveWay(ctx)
	s.came(next, err)
	return err
}

// light counts n more units, and reports whether the request is not heavy yet.
func (s *Slot) light(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += n
	return s.done < HeavyAfter && !s.heavy
}

// giveWay hands the turn to waiting requests and queues behind them for the next one. Where that wait times out, it
// goes on all the same, beyond the pool's size, so that long work is not thrown away.
func (s *Slot) giveWay(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	err := s.pool.GiveWay(waiting, s.tenant, 1)
	if err != nil && ctx.Err() == nil {
		s.pool.Insist(s.tenant, 1)
		return nil
	}
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

// Renew is Give for a long-lived request that does a little now and then: its work is counted from zero again.
func (s *Slot) Renew() {
	s.renew(false)
}

// Rouse is Renew for what a long-lived request does because of what others have done: it works in turns from its first
// unit on.
func (s *Slot) Rouse() { s.renew(true) }

func (s *Slot) renew(heavy bool) {
	s.Give()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done, s.heavy = 0, heavy
}

// Spent returns how many units the slot knows of since it was renewed.
func (s *Slot) Spent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
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
