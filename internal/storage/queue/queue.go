// Package queue gathers the writes of several callers, so that an engine makes many of them durable by one commit.
//
// Callers wait in Append and Do. The engine's committer takes the calls that wait, stages them in a batch of the type
// B, and answers them when the batch is durable.
package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"j17"
	"j17/internal/storage/store"
)

// Writes holds the calls that wait for the committer, or for several committers that work on different tenants at a
// time (NewShared).
type Writes[B any] struct {
	// admit, if not nil, returns the error of a call that is refused before it is queued.
	admit func(Need) error

	mu      sync.Mutex
	filled  sync.Cond
	waiting []*Call[B]
	// taken are the calls that wait for the commit that is under way. They are answered by Abandon or by the caller of
	// End, whichever removes them first.
	taken []*Call[B]
	// refused, if not nil, is the answer to new calls.
	refused error
	faulted chan struct{}
	pool    sync.Pool

	// shared, if not nil, has the waiting calls by tenant; waiting is then unused.
	shared *shared[B]
}

// New returns an empty queue. admit, if not nil, returns the error of a call that is refused before it is queued.
func New[B any](admit func(Need) error) *Writes[B] {
	q := &Writes[B]{admit: admit, faulted: make(chan struct{})}
	q.filled.L = &q.mu
	return q
}

// Append queues valid units, waits until they are decided and durable, and returns their results.
func (q *Writes[B]) Append(ctx context.Context, t j17.Tenant, units []store.Append, need Need) ([]store.Result, error) {
	results := make([]store.Result, len(units))
	c := q.get()
	c.Tenant, c.Units, c.Results, c.need = t, units, results, need
	c.large = q.shared != nil && bytesOf(units) > largeBytes
	err := q.submit(ctx, c)
	q.release(c)
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Do executes an operation in the committer, in a batch of its own.
func (q *Writes[B]) Do(ctx context.Context, need Need, op func(B) error) error {
	return q.DoFor(ctx, "", need, op)
}

// DoFor is Do for an operation on one tenant: other committers of a shared queue work on other tenants meanwhile.
func (q *Writes[B]) DoFor(ctx context.Context, t j17.Tenant, need Need, op func(B) error) error {
	return q.submit(ctx, &Call[B]{Tenant: t, op: op, need: need, answered: make(chan struct{}, 1)})
}

// submit queues a call and waits for its answer. A call that ctx cancels before the committer has taken it is not
// executed; after that, ctx has no influence, and the answer comes with the commit.
func (q *Writes[B]) submit(ctx context.Context, c *Call[B]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if q.admit != nil {
		if err := q.admit(c.need); err != nil {
			return err
		}
	}
	if err := q.push(c); err != nil {
		return err
	}
	select {
	case <-c.answered:
	case <-ctx.Done():
		if c.state.CompareAndSwap(queued, cancelled) {
			q.drop(c)
			q.answeredCall(c)
			return ctx.Err()
		}
		<-c.answered
	}
	q.answeredCall(c)
	return c.err
}

// get returns an empty call.
func (q *Writes[B]) get() *Call[B] {
	c, ok := q.pool.Get().(*Call[B])
	if !ok {
		c = &Call[B]{answered: make(chan struct{}, 1)}
	}
	return c
}

// release returns a call to the pool, unless it was cancelled: it may then still be in the queue.
func (q *Writes[B]) release(c *Call[B]) {
	if c.state.Load() == cancelled {
		return
	}
	*c = Call[B]{answered: c.answered}
	q.pool.Put(c)
}

// push adds a call to the end of the queue.
func (q *Writes[B]) push(c *Call[B]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused != nil {
		return q.refused
	}
	if q.shared != nil {
		return q.pushShared(c)
	}
	q.waiting = append(q.waiting, c)
	if len(q.waiting) == 1 {
		q.filled.Signal()
	}
	return nil
}

// count returns how many calls wait, and whether Take would return any. It needs mu.
func (q *Writes[B]) count() (n int, ready bool) {
	if q.shared != nil {
		return q.shared.waiting, q.shared.ready()
	}
	return len(q.waiting), len(q.waiting) > 0
}

// drop removes a cancelled call, so that such calls do not accumulate during a long commit.
func (q *Writes[B]) drop(c *Call[B]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shared != nil {
		q.shared.drop(c)
		return
	}
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// gatherRounds bounds how often Wait lets others run before a batch is taken.
const gatherRounds = 8

// Wait blocks until there are calls. It then yields to goroutines that are ready to run, as long as they push more
// calls: a batch costs one sync, however many calls it holds. A single caller does not wait. Wait reports false when
// the queue refuses new calls and none are left.
func (q *Writes[B]) Wait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, ready := q.count()
	for ; !ready; n, ready = q.count() {
		if q.refused != nil && n == 0 {
			return false
		}
		q.filled.Wait()
	}
	for range gatherRounds {
		before := n
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		if n, _ = q.count(); n == before {
			break
		}
	}
	return true
}

// Take appends the waiting calls that can share a batch to calls. An operation shares no batch.
func (q *Writes[B]) Take(calls []*Call[B]) []*Call[B] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shared != nil {
		return q.takeShared(calls)
	}
	n := 0
	for _, c := range q.waiting {
		if c.op != nil && len(calls) > 0 {
			break
		}
		n++
		if !c.state.CompareAndSwap(queued, taken) {
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

// Begin marks calls as waiting for a commit, so that Abandon can answer them. After a fault it returns their answer
// instead.
func (q *Writes[B]) Begin(calls []*Call[B]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if errors.Is(q.refused, store.ErrFailed) {
		return q.refused
	}
	q.taken = calls
	return nil
}

// End removes the mark that Begin made. It reports false if Abandon has answered the calls.
func (q *Writes[B]) End() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ours := q.taken != nil
	q.taken = nil
	return ours
}

// Shut makes the queue refuse new calls. Those that wait are still executed. It must be called at most once with the
// error of a fault, store.ErrFailed.
func (q *Writes[B]) Shut(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = err
	if errors.Is(err, store.ErrFailed) {
		close(q.faulted)
	}
	q.filled.Broadcast()
}

// Abandon answers all calls when a commit may never end: those that are part of it with Unknown(cause), the others with
// refused.
func (q *Writes[B]) Abandon(cause, refused error) {
	q.mu.Lock()
	running, waiting := q.taken, q.waiting
	q.taken, q.waiting = nil, nil
	q.mu.Unlock()
	for _, c := range running {
		c.Answer(Unknown(cause))
	}
	for _, c := range waiting {
		if c.state.CompareAndSwap(queued, taken) {
			c.Answer(refused)
		}
	}
}

// Refusal returns the error that new calls are refused with, nil while they are accepted.
func (q *Writes[B]) Refusal() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused
}

// Faulted is closed when a fault has stopped writes for good.
func (q *Writes[B]) Faulted() <-chan struct{} { return q.faulted }

// Refuse answers calls of which nothing was written; with Unknown(err) if earlier batches hold some of their units.
func Refuse[B any](calls []*Call[B], err error) {
	for _, c := range calls {
		if c.split && !errors.Is(err, store.ErrUnknown) {
			c.Answer(Unknown(err))
			continue
		}
		c.Answer(err)
	}
}

// Unknown is ErrUnknown with a cause, which it does not wrap: the cause may be an error that promises that nothing was
// written.
func Unknown(cause error) error { return fmt.Errorf("%w: %v", store.ErrUnknown, cause) } //nolint:errorlint // see above
