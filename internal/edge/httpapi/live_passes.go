package httpapi

import (
	"cmp"
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/work"
)

const (
	// livePace is how long after a read what live views show is not read again: the changes of that time are sent as
	// their result.
	livePace = 50 * time.Millisecond
	// paidUnits is how many units of work a second the live views of one API key may take: about a tenth of a
	// processor.
	paidUnits = work.Command
	// lookUnits is what a stream is charged for each time it is woken, beside what it reads and sends.
	lookUnits = 1000
)

// pace is the rate at which the live views of one API key may read, one after the other: as fast as their cost is paid
// for.
type pace struct {
	mu sync.Mutex
	// paid is the time at which everything charged so far will have been paid for.
	paid time.Time
}

// reserve charges units and returns when what costs them may begin.
func (p *pace) reserve(now time.Time, units int64) (start time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	start = later(now, p.paid.Add(-livePace))
	p.paid = later(p.paid, now).Add(timeOf(units))
	return start
}

// earliest returns when something could begin now.
func (p *pace) earliest(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return later(now, p.paid.Add(-livePace))
}

// charge charges what something has cost.
func (p *pace) charge(now time.Time, units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paid = later(p.paid, now).Add(timeOf(units))
}

// giveBack gives back what was reserved.
func (p *pace) giveBack(units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paid = p.paid.Add(-timeOf(units))
}

// timeOf is how long it takes until units are paid for.
func timeOf(units int64) time.Duration { return time.Duration(units) * time.Second / paidUnits }

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// livePasses are the questions of all open live views. Streams that ask the same question share one pass that reads the
// answer.
type livePasses struct {
	mu  sync.Mutex
	all map[string]*question
	// read counts passes, shared counts how often a stream got what another one has read, and compared counts the rows
	// that were compared to find changes.
	read, shared, compared atomic.Uint64
}

// question is what one or more streams ask.
type question struct {
	mu sync.Mutex
	// streams is how many streams ask it.
	streams atomic.Int64
	// reader is the stream that makes the next pass, from starts on, nil for none; reading reports that it has begun.
	reader  *living
	starts  time.Time
	reading bool
	// next is when the next pass may begin at the earliest, cost is what the last one has taken.
	next time.Time
	cost int64
	// round is the pass that streams are waiting for. last is the pass before it, at when it ended: it is kept for a
	// moment for streams that come late.
	round, last *round
	at          time.Time
}

// round is one pass, and the streams that wait for it in groups: they are woken one group after the other.
type round struct {
	waiting int
	groups  []chan struct{}
	// turn is what the reader's watch had reported when the pass began, state what it has read. Both are zero where the
	// reader left without reading.
	turn  uint64
	state *liveState
	err   error
}

// asks returns the question of a call, which the stream has to leave in the end.
func (all *livePasses) asks(c *call) (of string, q *question) {
	with := url.Values{}
	for _, some := range []map[string]string{c.query, c.further} {
		for name, given := range some {
			if name != "heartbeat" {
				with.Set(name, given)
			}
		}
	}
	of = string(c.tenant) + " " + c.request.URL.Path + "?" + with.Encode()
	all.mu.Lock()
	defer all.mu.Unlock()
	if q = all.all[of]; q == nil {
		q = &question{round: &round{}}
		all.all[of] = q
	}
	q.streams.Add(1)
	return of, q
}

// learn notes what a pass over it has cost, where that is not known yet.
func (q *question) learn(cost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cost = cmp.Or(q.cost, cost)
}

// leave forgets a question that nobody asks any more.
func (all *livePasses) leave(of string, q *question) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if q.streams.Add(-1) == 0 {
		delete(all.all, of)
	}
}

// join returns the pass that a stream is to wait for. done is nil where the last pass will do: there is nothing to wait
// for. leads reports that the stream is to make the pass itself, from start on: no other stream is reading, and none
// could begin earlier.
func (q *question) join(l *living, now time.Time) (r *round, done <-chan struct{}, leads bool, start time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if last := q.last; last != nil && last.turn >= l.need && last.turn > l.have {
		return last, nil, false, start
	}
	if !q.reading && (q.reader == nil || later(q.next, l.pace.earliest(now)).Before(q.starts)) {
		l.reserved = q.cost
		start = later(q.next, l.pace.reserve(now, q.cost))
		q.reader, q.starts = l, start
		return q.round, nil, true, start
	}
	r = q.round
	if r.waiting%wokenAtOnce == 0 {
		r.groups = append(r.groups, make(chan struct{}))
	}
	r.waiting++
	return r, r.groups[len(r.groups)-1], false, start
}

// begin begins the pass of a stream, and reports false where another stream makes it. What was reserved for the pass is
// given back: its actual cost is charged.
func (q *question) begin(l *living) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.pace.giveBack(l.reserved)
	q.reading = q.reader == l
	return q.reading
}

// land hands what a pass has read to the streams that are waiting for it. If it has read nothing, one of them reads
// next.
func (q *question) land(r *round, cost int64, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reader, q.reading, q.round = nil, false, &round{}
	if r.state != nil || r.err != nil {
		q.cost, q.next = cost, now.Add(livePace)
	}
	if q.last, q.at = nil, now; r.state != nil && q.streams.Load() > 1 {
		q.last = r
	}
}

// forget releases what was read for streams that come late, except what was read since a time.
func (all *livePasses) forget(since time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, q := range all.all {
		q.mu.Lock()
		if q.at.Before(since) {
			q.last = nil
		}
		q.mu.Unlock()
	}
}

// abandon removes a stream that was to make the next pass.
func (q *question) abandon(ctx context.Context, l *living) {
	q.mu.Lock()
	l.pace.giveBack(l.reserved)
	r := q.round
	leads := q.reader == l
	if leads {
		q.reader, q.round = nil, &round{}
	}
	q.mu.Unlock()
	if leads {
		r.wake(ctx)
	}
}

// wake wakes the streams that have waited for the round, group by group.
func (r *round) wake(ctx context.Context) {
	for i, group := range r.groups {
		close(group)
		if i < len(r.groups)-1 {
			rest, over := context.WithTimeout(ctx, wakeRest)
			<-rest.Done()
			over()
		}
	}
}

// next returns the next pass over what the stream shows, and makes it itself where no other stream does. It reports
// false at the end of the stream.
func (l *living) next(ctx context.Context) (*round, bool) {
	for {
		r, done, leads, start := l.question.join(l, l.now())
		if !leads {
			if done != nil && !l.wait(ctx, done) {
				return nil, false
			}
			if r.state == nil && r.err == nil {
				continue // the stream that was to read has left
			}
			l.all.passes.shared.Add(1)
			return r, true
		}

		// Wait for the start, unless another stream begins earlier.
		until, over := context.WithDeadline(ctx, start)
		alive := l.wait(ctx, until.Done())
		over()
		if !alive {
			l.question.abandon(ctx, l)
			return nil, false
		}
		if !l.question.begin(l) {
			continue
		}
		l.make(ctx, r)
		return r, true
	}
}

// make makes a pass.
func (l *living) make(ctx context.Context, r *round) {
	r.turn = l.watch.Told()
	cost := int64(0)
	defer func() { // even after a panic, so that the other streams do not wait for it
		l.question.land(r, cost, l.now())
		r.wake(ctx)
	}()
	state, units, err := l.read(ctx)
	cost = units
	if ctx.Err() == nil && !l.ended() { // a stream that has ended may have read nothing
		r.state, r.err = state, err
	}
}

// read makes a pass, in one of the places for streams that read the store and in a turn of the environment: it counts
// as heavy from its first unit of work on. It returns its cost, which is charged to the key.
func (l *living) read(ctx context.Context) (*liveState, int64, error) {
	c := l.call
	got, err := c.api.resources.looks.Take(ctx, string(c.tenant), 1)
	if err != nil {
		return nil, 0, err
	}
	defer c.api.resources.looks.Give(string(c.tenant), got)
	c.slot.Rouse()
	l.all.passes.read.Add(1)
	state, err := l.view.read(ctx)
	units := c.slot.Spent()
	c.slot.Renew()
	l.pace.charge(l.now(), units)
	return state, units, err
}

// wait waits until a channel is closed, and sends heartbeats meanwhile. It reports false at the end of the stream.
func (l *living) wait(ctx context.Context, until <-chan struct{}) bool {
	return l.sleep(ctx, until, func() (j17.StreamID, bool) { return maxPosition(l.seen, l.told), true })
}
