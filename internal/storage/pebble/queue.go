package pebble

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/storage/store"
)

// call is one call that waits for the committer: units to append, or an operation that commits alone.
type call struct {
	tenant  j17.Tenant
	units   []store.Append
	results []store.Result
	// done is the number of units that were staged, split tells that not all are in the same batch.
	done  int
	split bool
	// op stages an operation.
	op func(*batch) error
	// need tells how urgent the call is when disk space is low.
	need need

	err      error
	state    atomic.Int32
	answered chan struct{}
}

// need tells which calls are executed when disk space is low.
type need uint8

const (
	// ordinary calls wait for space.
	ordinary need = iota
	// freeing calls make room, or are on the way to it: they go on while there is some reserve.
	freeing
	// always is for what the store cannot do without.
	always
)

// The states of a call. Whoever moves it on from queued decides whether it is executed.
const (
	callQueued int32 = iota
	callTaken
	callCancelled
)

func (c *call) answer(err error) {
	c.err = err
	c.answered <- struct{}{}
}

// queue holds the calls between their callers and the committer.
type queue struct {
	mu      sync.Mutex
	filled  sync.Cond
	waiting []*call
	// taken are the calls that wait for the write that is under way. Who removes them answers them.
	taken []*call
	// refused, if not nil, is the answer to new calls.
	refused error
	// faulted is closed when writes have stopped for good.
	faulted chan struct{}
	pool    sync.Pool
}

func newQueue() *queue {
	q := &queue{faulted: make(chan struct{})}
	q.filled.L = &q.mu
	return q
}

// get returns a fresh call.
func (q *queue) get() *call {
	c, ok := q.pool.Get().(*call)
	if !ok {
		c = &call{answered: make(chan struct{}, 1)}
	}
	return c
}

// release takes back a call for another use. One that was cancelled may still be in the queue.
func (q *queue) release(c *call) {
	if c.state.Load() == callCancelled {
		return
	}
	*c = call{answered: c.answered}
	q.pool.Put(c)
}

func (q *queue) refusal() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// push adds a call to the end of the queue.
func (q *queue) push(c *call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused != nil {
		return q.refused
	}
	q.waiting = append(q.waiting, c)
	if len(q.waiting) == 1 {
		q.filled.Signal()
	}
	return nil
}

// drop removes a cancelled call, so that those that were given up do not pile up behind a write that takes long.
func (q *queue) drop(c *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// gatherRounds bounds how often wait lets others run before a batch is taken.
const gatherRounds = 8

// wait blocks until there are calls, and then lets whoever is ready to run push its call too, as long as more come: a
// batch costs one sync, however many calls it holds. A lone caller does not wait for anybody. It reports false when
// there will be no calls any more.
func (q *queue) wait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 {
		if q.refused != nil {
			return false
		}
		q.filled.Wait()
	}
	for range gatherRounds {
		n := len(q.waiting)
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		if len(q.waiting) == n {
			break
		}
	}
	return true
}

// take appends the calls that can share a batch to calls: operations are alone.
func (q *queue) take(calls []*call) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, c := range q.waiting {
		if c.op != nil && len(calls) > 0 {
			break
		}
		n++
		if !c.state.CompareAndSwap(callQueued, callTaken) {
			continue
		}
		calls = append(calls, c)
		if c.op != nil {
			break
		}
	}
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return calls
}

// begin hands calls to whoever ends the wait for a write: the committer or abandon. After a fault it returns what to
// answer.
func (q *queue) begin(calls []*call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if errors.Is(q.refused, store.ErrFailed) {
		return q.refused
	}
	q.taken = calls
	return nil
}

// end takes the calls back. It reports false when they have been answered.
func (q *queue) end() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ours := q.taken != nil
	q.taken = nil
	return ours
}

// shut makes the queue refuse new calls. Those that wait are still executed.
func (q *queue) shut(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = err
	if errors.Is(err, store.ErrFailed) {
		close(q.faulted)
	}
	q.filled.Signal()
}

// abandon answers all calls that would have to wait for a write which may never end: with the first error those
// that are part of it, with the second one those that are not.
func (q *queue) abandon(unknown, refused error) {
	q.mu.Lock()
	taken, waiting := q.taken, q.waiting
	q.taken, q.waiting = nil, nil
	q.mu.Unlock()
	for _, c := range taken {
		c.answer(unknown)
	}
	for _, c := range waiting {
		if c.state.CompareAndSwap(callQueued, callTaken) {
			c.answer(refused)
		}
	}
}

// submit queues a call and waits for its answer. A call that ctx cancels before the committer has taken it is not
// executed; later, ctx has no influence: the answer comes with the next fsync.
func (s *Store) submit(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.disk.short.Load() && s.disk.check() && s.disk.refuses(c.need) {
		return store.ErrFull
	}
	if err := s.queue.push(c); err != nil {
		return err
	}
	select {
	case <-c.answered:
	case <-ctx.Done():
		if c.state.CompareAndSwap(callQueued, callCancelled) {
			s.queue.drop(c)
			return ctx.Err()
		}
		<-c.answered
	}
	return c.err
}

// run executes an operation in the committer, in a batch of its own.
func (s *Store) run(ctx context.Context, need need, op func(*batch) error) error {
	return s.submit(ctx, &call{op: op, need: need, answered: make(chan struct{}, 1)})
}

// Barrier waits until all writes before it are decided. See store.Store.
func (s *Store) Barrier(ctx context.Context) error {
	// The committer takes a call when the batch before it is durable, published and answered.
	return s.run(ctx, always, func(*batch) error { return nil })
}
