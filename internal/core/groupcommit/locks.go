package groupcommit

import (
	"container/list"
	"context"
	"errors"
	"slices"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

const (
	// calmAcquisitions is the number of consecutive acquisitions without contention after which a lock is removed.
	calmAcquisitions = 64
	// maxUnused bounds the locks that no writer needs at the moment.
	maxUnused = 1024
	// maxWaiting bounds the writers that wait for one lock.
	maxWaiting = 1000
)

// ErrTooManyWaiting is returned to a writer that would wait behind too many others.
var ErrTooManyWaiting = errors.New("groupcommit: too many writers wait for the lock of a stream")

// streamLock is the lock of one stream, with the waiting writers and the state that the last writer leaves. It is
// guarded by Committer.mu.
type streamLock struct {
	key j17.Key
	// shared counts the writers that share the lock; exclusive is set while one holds it alone.
	shared    int
	exclusive bool
	waiting   []*waiter
	// pending, if not nil, is the state that the last writer leaves and that is not stored yet.
	pending *pending
	calm    int
	spare   *list.Element
}

// pending is a state that is not stored yet. Only writers may see it.
type pending struct {
	by *Append
	// state is nil if unknown: a writer that needs it waits until it is stored.
	state *decider.State
	// held has the unique values that the aggregate holds by writes that are not stored yet. Those of other sets are in
	// the store.
	held map[*spec.UniqueSet]pendingValue
}

// pendingValue is what an aggregate holds in a set, nil for nothing, once an append is stored.
type pendingValue struct {
	by  *Append
	own *[32]byte
}

// waiter waits for one lock.
type waiter struct {
	exclusive bool
	granted   chan struct{}
}

// Lock is the lock of a stream that a writer needs: exclusive if it writes to the stream that it reads, else shared.
type Lock struct {
	Key       j17.Key
	Exclusive bool
}

// Locks are sorted by key, with each key once.
type Locks []Lock

// Find returns the position of a key.
func (c Locks) Find(key j17.Key) (int, bool) {
	return slices.BinarySearchFunc(c, key, func(a Lock, key j17.Key) int { return a.Key.Compare(key) })
}

// With returns the locks with one more, or with one of them made exclusive.
func (c Locks) With(key j17.Key, exclusive bool) Locks {
	i, ok := c.Find(key)
	if !ok {
		return slices.Insert(c, i, Lock{key, exclusive})
	}
	c[i].Exclusive = c[i].Exclusive || exclusive
	return c
}

// Cover reports whether a writer that holds c needs no further lock for other.
func (c Locks) Cover(other Locks) bool {
	for _, o := range other {
		if i, ok := c.Find(o.Key); !ok || o.Exclusive && !c[i].Exclusive {
			return false
		}
	}
	return true
}

// Contended reports whether a stream has a lock, because there was contention lately.
func (c *Committer) Contended(key j17.Key) bool {
	if c.count.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locks[key] != nil
}

// lock returns the lock of a stream, a new one if there is none. The caller holds mu.
func (c *Committer) lock(key j17.Key) *streamLock {
	l := c.locks[key]
	if l == nil {
		l = &streamLock{key: key}
		c.locks[key] = l
		c.count.Add(1)
	}
	if l.spare != nil {
		c.unused.Remove(l.spare)
		l.spare = nil
	}
	return l
}

// Lock waits until the caller holds all locks that it needs. It takes them in the order of their keys, which is the
// same for all writers, so that there is no deadlock. waited reports whether it had to wait. The error is that of ctx,
// or ErrTooManyWaiting.
func (c *Committer) Lock(ctx context.Context, want Locks) (waited bool, err error) {
	for i, need := range want {
		w, err := c.join(need)
		if err == nil && w != nil {
			waited = true
			err = c.wait(ctx, need.Key, w)
		}
		if err != nil {
			c.Unlock(want[:i])
			return waited, err
		}
	}
	return waited, nil
}

// join takes a lock, or queues for it. The waiter is nil if the caller got the lock at once.
func (c *Committer) join(need Lock) (*waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lock(need.Key)
	if l.shared == 0 && !l.exclusive && len(l.waiting) == 0 && l.pending == nil {
		l.calm++
	} else {
		l.calm = 0
	}
	switch {
	case len(l.waiting) >= maxWaiting:
		return nil, ErrTooManyWaiting
	case len(l.waiting) == 0 && l.free(need.Exclusive):
		l.hold(need.Exclusive)
		return nil, nil
	}
	w := &waiter{exclusive: need.Exclusive, granted: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	return w, nil
}

func (l *streamLock) free(exclusive bool) bool { return !l.exclusive && (!exclusive || l.shared == 0) }

func (l *streamLock) hold(exclusive bool) {
	if exclusive {
		l.exclusive = true
	} else {
		l.shared++
	}
}

// wait blocks until the waiter holds its lock.
func (c *Committer) wait(ctx context.Context, key j17.Key, w *waiter) error {
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.locks[key]
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else {
		l.drop(w.exclusive)
	}
	c.settle(l)
	return ctx.Err()
}

func (l *streamLock) drop(exclusive bool) {
	if exclusive {
		l.exclusive = false
	} else {
		l.shared--
	}
}

// Unlock releases the locks that Lock has taken.
func (c *Committer) Unlock(held Locks) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, had := range held {
		l := c.locks[had.Key]
		l.drop(had.Exclusive)
		c.settle(l)
	}
}

// settle grants a lock to the waiting writers that may hold it now, and moves one that no writer needs to unused, or
// removes it. The caller holds mu.
func (c *Committer) settle(l *streamLock) {
	for len(l.waiting) > 0 && l.free(l.waiting[0].exclusive) {
		l.hold(l.waiting[0].exclusive)
		close(l.waiting[0].granted)
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
	}
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	switch {
	case l.exclusive || l.shared > 0 || l.waiting != nil || l.pending != nil:
	case l.calm >= calmAcquisitions:
		c.forget(l)
	default:
		l.spare = c.unused.PushBack(l)
		if c.unused.Len() > maxUnused {
			oldest, _ := c.unused.Front().Value.(*streamLock)
			c.forget(oldest)
		}
	}
}

// forget removes an unused lock. The caller holds mu.
func (c *Committer) forget(l *streamLock) {
	if l.spare != nil {
		c.unused.Remove(l.spare)
		l.spare = nil
	}
	delete(c.locks, l.key)
	c.count.Add(-1)
}

// holds returns the unique values that the aggregate holds after an append that has changed or read some of them.
func (l *streamLock) holds(by *Append, own map[*spec.UniqueSet]*[32]byte) (held map[*spec.UniqueSet]pendingValue) {
	keep := func(set *spec.UniqueSet, v pendingValue) {
		if held == nil {
			held = map[*spec.UniqueSet]pendingValue{}
		}
		held[set] = v
	}
	if l.pending != nil {
		for set, v := range l.pending.held {
			if v.by.open() {
				keep(set, v)
			}
		}
	}
	for set, v := range own {
		keep(set, pendingValue{by, v})
	}
	return held
}
