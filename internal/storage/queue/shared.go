package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// largeBytes is the size of events and values above which a call shares no batch, since others would wait for it.
const largeBytes = 4 << 20

// shared is the state of a queue of several committers. The calls of each tenant are in a line. The lines of tenants
// that no committer is working on take turns: after each batch, a tenant with many calls comes after the others.
type shared[B any] struct {
	// most bounds the units that Take returns, mostLarge the committers that are working on large calls.
	most, mostLarge int
	lines           map[j17.Tenant]*line[B]
	// turns are the lines with calls that a committer may take, in their order.
	turns []*line[B]
	// waiting is the number of calls in all lines, large the number of committers working on large calls.
	waiting, large int

	// now returns the time. taken counts the calls that committers have taken, waited is how long these waited in all.
	now    func() time.Time
	taken  uint64
	waited time.Duration

	// number is the number of the last call, open has the numbers of the unanswered calls, for Settled.
	number  uint64
	open    map[uint64]bool
	closing sync.Cond
}

// line has the calls of one tenant.
type line[B any] struct {
	tenant j17.Tenant
	calls  []*Call[B]
	// busy reports that a committer is working on the tenant, large that it is working on a large call.
	busy, large bool
	// stalled, if not nil, is the error with which calls are refused while the committer is busy.
	stalled error
}

// NewShared returns an empty queue for several committers. Take then returns calls of tenants that no other committer
// is working on, with about most units in all, and the committer gives the tenants back by Release. A large call is
// returned alone, and at most half of the committers work on such calls. The waits of calls are measured by now.
func NewShared[B any](admit func(Need) error, committers, most int, now func() time.Time) *Writes[B] {
	q := New[B](admit)
	q.shared = &shared[B]{
		most: most, mostLarge: max(committers/2, 1), lines: map[j17.Tenant]*line[B]{}, open: map[uint64]bool{},
		now: now,
	}
	q.shared.closing.L = &q.mu
	return q
}

// bytesOf returns the approximate size of units in bytes.
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
	c.number, c.since = s.number, s.now()
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

// takeShared is Take for a shared queue. It needs mu.
func (q *Writes[B]) takeShared(calls []*Call[B]) []*Call[B] {
	s := q.shared
	units, now := 0, s.now()
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
			s.taken++
			s.waited += now.Sub(c.since)
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

// Waits returns how many calls the committers of a shared queue have taken, and how long these waited for it in all.
func (q *Writes[B]) Waits() (taken uint64, waited time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shared.taken, q.shared.waited
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

// Stall refuses the calls of tenants that a committer is working on, waiting and new ones, until the tenants are given
// back.
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

// Settled returns when all calls that were queued before it are answered, and no tenant is stalled; or the error of
// ctx. The queue must be shared.
func (q *Writes[B]) Settled(ctx context.Context) error { return q.settled(ctx, true) }

// Answered is Settled, except that tenants may be stalled.
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
