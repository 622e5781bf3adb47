package queue

import (
	"context"
	"maps"
	"slices"
	"sync"

	"j17"
	"j17/internal/storage/store"
)

// largeBytes is the size of events and values from which on a call shares no batch: others would wait for it.
const largeBytes = 4 << 20

// shared is what the queue of several committers has. The calls of each tenant are in a line, and the lines of tenants
// that no committer is at work on take turns: a tenant with many calls is behind the others after each batch.
type shared[B any] struct {
	// most bounds the units that Take returns, mostLarge the committers that are at work on large calls.
	most, mostLarge int
	lines           map[j17.Tenant]*line[B]
	// turns are the lines with calls that a committer may take, in their order.
	turns []*line[B]
	// waiting is the number of calls in all lines, large how many committers are at work on large calls.
	waiting, large int

	// number is the number of the last call, open the numbers of those that are not answered, for Settled.
	number  uint64
	open    map[uint64]bool
	closing sync.Cond
}

// line has the calls of one tenant.
type line[B any] struct {
	tenant j17.Tenant
	calls  []*Call[B]
	// busy says that a committer is at work on the tenant, large that it is at work on a large call of it.
	busy, large bool
	// stalled, if not nil, is why calls do not wait for the committer.
	stalled error
}

// NewShared returns an empty queue for several committers. Take then returns calls of tenants that no other committer
// is at work on, of about most units at most, and the committer gives the tenants back by Release. A large call comes
// alone, and at most half of the committers are at work on such calls.
func NewShared[B any](admit func(Need) error, committers, most int) *Writes[B] {
	q := New[B](admit)
	q.shared = &shared[B]{
		most: most, mostLarge: max(committers/2, 1), lines: map[j17.Tenant]*line[B]{}, open: map[uint64]bool{},
	}
	q.shared.closing.L = &q.mu
	return q
}

// bytesOf is about how much data units have.
func bytesOf(units []store.Append) (n int) {
	for i := range units {
		for j := range units[i].Events {
			n += len(units[i].Events[j].Data) + len(units[i].Events[j].Metadata)
		}
		for j := range units[i].Side {
			n += len(units[i].Side[j].Value)
		}
	}
	return n
}

// alone reports whether the call shares no batch.
func (c *Call[B]) alone() bool { return c.op != nil || c.large }

// pushShared adds a call to the line of its tenant. It needs mu.
func (q *Writes[B]) pushShared(c *Call[B]) error {
	s := q.shared
	l := s.lines[c.Tenant]
	if l == nil {
		l = &line[B]{tenant: c.Tenant}
		s.lines[c.Tenant] = l
	}
	if l.stalled != nil {
		return l.stalled
	}
	s.number++
	c.number = s.number
	s.open[c.number] = true
	s.waiting++
	l.calls = append(l.calls, c)
	if !l.busy && len(l.calls) == 1 {
		s.turns = append(s.turns, l)
		q.filled.Signal()
	}
	return nil
}

// mayTake reports whether a committer may take the first call of a line.
func (s *shared[B]) mayTake(l *line[B]) bool { return !l.calls[0].large || s.large < s.mostLarge }

func (s *shared[B]) ready() bool { return slices.ContainsFunc(s.turns, s.mayTake) }

// takeShared is Take. It needs mu.
func (q *Writes[B]) takeShared(calls []*Call[B]) []*Call[B] {
	s := q.shared
	units := 0
	for i := 0; i < len(s.turns) && units < s.most; {
		l := s.turns[i]
		if l.calls[0].alone() && len(calls) > 0 || !s.mayTake(l) {
			i++
			continue
		}
		s.turns = slices.Delete(s.turns, i, i+1)
		n := 0
		for n < len(l.calls) && units < s.most && (len(calls) == 0 || !l.calls[n].alone()) {
			c := l.calls[n]
			n++
			if !c.state.CompareAndSwap(queued, taken) {
				continue // it is being cancelled
			}
			l.busy = true
			calls = append(calls, c)
			units += max(len(c.Units), 1)
			if c.alone() {
				units = s.most
			}
			if c.large {
				l.large = true
				s.large++
			}
		}
		s.waiting -= n
		l.calls = slices.Delete(l.calls, 0, n)
		if !l.busy && len(l.calls) > 0 {
			s.turns = slices.Insert(s.turns, i, l)
		} else if !l.busy {
			s.tidy(l)
		}
	}
	return calls
}

// drop removes a call that waits. It needs mu.
func (s *shared[B]) drop(c *Call[B]) {
	delete(s.open, c.number)
	s.closing.Broadcast()
	l := s.lines[c.Tenant]
	if l == nil {
		return
	}
	i := slices.Index(l.calls, c)
	if i < 0 {
		return
	}
	l.calls = slices.Delete(l.calls, i, i+1)
	s.waiting--
	s.tidy(l)
}

// tidy forgets a line without calls. It needs mu.
func (s *shared[B]) tidy(l *line[B]) {
	if len(l.calls) > 0 {
		return
	}
	if i := slices.Index(s.turns, l); i >= 0 {
		s.turns = slices.Delete(s.turns, i, i+1)
	}
	if !l.busy {
		delete(s.lines, l.tenant)
	}
}

// Release gives back the tenants of calls that Take has returned.
func (q *Writes[B]) Release(tenants ...j17.Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shared
	for _, t := range tenants {
		l := s.lines[t]
		if l == nil || !l.busy {
			continue // it is named twice
		}
		if l.large {
			s.large--
		}
		l.busy, l.large, l.stalled = false, false, nil
		if len(l.calls) > 0 {
			s.turns = append(s.turns, l)
		}
		s.tidy(l)
	}
	q.filled.Broadcast()
	s.closing.Broadcast()
}

// Stall says that nobody is to wait for a committer that is at work on tenants: their calls are refused until the
// tenants are given back.
func (q *Writes[B]) Stall(why error, tenants ...j17.Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range tenants {
		if l := q.shared.lines[t]; l != nil && l.busy {
			l.stalled = why
			q.shared.refuse(l, why)
		}
	}
}

// RefuseWaiting refuses all calls that no committer has taken.
func (q *Writes[B]) RefuseWaiting(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.shared.lines {
		q.shared.refuse(l, why)
	}
}

// refuse answers the calls of a line. It needs mu.
func (s *shared[B]) refuse(l *line[B], why error) {
	for _, c := range l.calls {
		if c.state.CompareAndSwap(queued, taken) {
			c.Answer(why)
		}
	}
	s.waiting -= len(l.calls)
	l.calls = nil
	s.tidy(l)
}

// answeredCall records that a call has its answer.
func (q *Writes[B]) answeredCall(c *Call[B]) {
	if q.shared == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.shared.open, c.number)
	q.shared.closing.Broadcast()
}

// Settled returns when all calls that were queued before it are answered, and no tenant is stalled. The queue is a
// shared one.
func (q *Writes[B]) Settled(ctx context.Context) error { return q.settled(ctx, true) }

// Answered returns when all calls that were queued before it are answered. The queue is a shared one.
func (q *Writes[B]) Answered(ctx context.Context) error { return q.settled(ctx, false) }

func (q *Writes[B]) settled(ctx context.Context, decided bool) error {
	s := q.shared
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		s.closing.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	before := slices.Collect(maps.Keys(s.open))
	isOpen := func(number uint64) bool { return s.open[number] }
	for slices.ContainsFunc(before, isOpen) || decided && s.stalls() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.closing.Wait()
	}
	return nil
}

// stalls reports whether a tenant is stalled.
func (s *shared[B]) stalls() bool {
	for _, l := range s.lines {
		if l.stalled != nil {
			return true
		}
	}
	return false
}
