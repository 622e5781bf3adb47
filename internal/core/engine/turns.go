package engine

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

// turns lets the writers of one tenant that look at the same streams decide one after the other, each on the states that
// the one before it leaves behind. A stream has a lane from the moment in which writers got in each other's way there until
// they have not for a while; streams without a lane cost nothing.
//
// A turn is held while a writer decides, not while its events are stored. What was decided and is not stored yet is the
// lane's pending state: who comes next decides on it, and what it decides is stored in the same append or a later one, and
// only if that which it builds on was. So a lane takes as many writers a sync as come.
type turns struct {
	// count is the number of lanes, for those who only want to know that there are none.
	count atomic.Int64

	mu    sync.Mutex
	lanes map[j17.Key]*lane
	// unused has the lanes that nobody needs at the moment, those longest unused first.
	unused list.List // of *lane
	// open has the tickets that wait for their append, in order. flying tells that an append is under way.
	open   []*ticket
	flying bool
}

const (
	// calmTurns is after how many turns in a row without anybody in the way a lane is given up.
	calmTurns = 64
	// keptLanes bounds the lanes that nobody needs at the moment.
	keptLanes = 1024
	// maxWaiting bounds who waits for a turn in one lane.
	maxWaiting = 1000
)

// lane is where the writers of one stream wait. turns.mu guards it.
type lane struct {
	key j17.Key
	// shared is how many hold the lane together with others, alone whether one holds it for itself.
	shared int
	alone  bool
	queue  []*waiter
	// pending, if not nil, is the state that the last writer leaves behind which is not stored yet.
	pending *pending
	calm    int
	spare   *list.Element
}

// pending is a state that is not stored yet. It must never be shown to anyone who is not about to write.
type pending struct {
	ticket *ticket
	// state is nil where it is not known: who needs it waits until it is stored.
	state *decider.State
	// held is what the aggregate holds in sets of unique values by writes that are not stored yet. Of other sets, what is stored says it.
	held map[*spec.UniqueSet]pendingValue
}

// pendingValue is what an aggregate holds in a set, nil for nothing, when a ticket is stored.
type pendingValue struct {
	ticket *ticket
	own    *[32]byte
}

// waiter waits for one lane.
type waiter struct {
	alone   bool
	granted chan struct{}
}

// claim is a stream that a writer needs: alone if it writes what it looks at, else together with others.
type claim struct {
	key   j17.Key
	alone bool
}

// claims are sorted by key, with each key once.
type claims []claim

// of returns the position of a key.
func (c claims) of(key j17.Key) (int, bool) {
	return slices.BinarySearchFunc(c, key, func(a claim, key j17.Key) int { return a.key.Compare(key) })
}

// with returns the claims with one more, or with one of them made stronger.
func (c claims) with(key j17.Key, alone bool) claims {
	i, ok := c.of(key)
	if !ok {
		return slices.Insert(c, i, claim{key, alone})
	}
	c[i].alone = c[i].alone || alone
	return c
}

// cover reports whether whoever has c needs nothing more for other.
func (c claims) cover(other claims) bool {
	for _, o := range other {
		if i, ok := c.of(o.key); !ok || o.alone && !c[i].alone {
			return false
		}
	}
	return true
}

// crowded reports whether a stream has a lane.
func (t *turns) crowded(key j17.Key) bool {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lanes[key] != nil
}

// lane returns the lane of a stream, a new one if there is none. The caller holds mu.
func (t *turns) lane(key j17.Key) *lane {
	l := t.lanes[key]
	if l == nil {
		l = &lane{key: key}
		t.lanes[key] = l
		t.count.Add(1)
	}
	if l.spare != nil {
		t.unused.Remove(l.spare)
		l.spare = nil
	}
	return l
}

// take waits until the caller has all that it claims. It takes the lanes one after the other in the order of their keys, which
// is the same for all, so that nobody waits for somebody who waits for him. waited tells that it had to wait. The error is that
// of ctx, or errCrowd.
func (t *turns) take(ctx context.Context, want claims) (waited bool, err error) {
	for i, c := range want {
		w, err := t.join(c)
		if err == nil && w != nil {
			waited = true
			err = t.wait(ctx, c.key, w)
		}
		if err != nil {
			t.release(want[:i])
			return waited, err
		}
	}
	return waited, nil
}

// join takes a place in a lane. The waiter is nil when it is the caller's turn already.
func (t *turns) join(c claim) (*waiter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lane(c.key)
	if l.shared == 0 && !l.alone && len(l.queue) == 0 && l.pending == nil {
		l.calm++
	} else {
		l.calm = 0
	}
	switch {
	case len(l.queue) >= maxWaiting:
		return nil, errCrowd
	case len(l.queue) == 0 && l.free(c.alone):
		l.hold(c.alone)
		return nil, nil
	}
	w := &waiter{alone: c.alone, granted: make(chan struct{})}
	l.queue = append(l.queue, w)
	return w, nil
}

func (l *lane) free(alone bool) bool { return !l.alone && (!alone || l.shared == 0) }

func (l *lane) hold(alone bool) {
	if alone {
		l.alone = true
	} else {
		l.shared++
	}
}

// wait blocks until it is the waiter's turn.
func (t *turns) wait(ctx context.Context, key j17.Key, w *waiter) error {
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[key]
	if i := slices.Index(l.queue, w); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	} else {
		l.drop(w.alone)
	}
	t.settle(l)
	return ctx.Err()
}

func (l *lane) drop(alone bool) {
	if alone {
		l.alone = false
	} else {
		l.shared--
	}
}

// release gives back what take has taken.
func (t *turns) release(held claims) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range held {
		l := t.lanes[c.key]
		l.drop(c.alone)
		t.settle(l)
	}
}

// settle lets those go on whose turn it is now, and puts away a lane that nobody needs. The caller holds mu.
func (t *turns) settle(l *lane) {
	for len(l.queue) > 0 && l.free(l.queue[0].alone) {
		l.hold(l.queue[0].alone)
		close(l.queue[0].granted)
		l.queue[0] = nil
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		l.queue = nil
	}
	switch {
	case l.alone || l.shared > 0 || l.queue != nil || l.pending != nil:
	case l.calm >= calmTurns:
		t.forget(l)
	default:
		l.spare = t.unused.PushBack(l)
		if t.unused.Len() > keptLanes {
			oldest, _ := t.unused.Front().Value.(*lane)
			t.forget(oldest)
		}
	}
}

// forget removes a lane that nobody needs. The caller holds mu.
func (t *turns) forget(l *lane) {
	if l.spare != nil {
		t.unused.Remove(l.spare)
		l.spare = nil
	}
	delete(t.lanes, l.key)
	t.count.Add(-1)
}

// holds returns what is held in the lane after a ticket that has changed some of it, or looked at it.
func (l *lane) holds(tk *ticket, own map[*spec.UniqueSet]*[32]byte) (held map[*spec.UniqueSet]pendingValue) {
	keep := func(set *spec.UniqueSet, v pendingValue) {
		if held == nil {
			held = map[*spec.UniqueSet]pendingValue{}
		}
		held[set] = v
	}
	if l.pending != nil {
		for set, v := range l.pending.held {
			if v.ticket.open() {
				keep(set, v)
			}
		}
	}
	for set, v := range own {
		keep(set, pendingValue{tk, v})
	}
	return held
}

// heldIn returns what an aggregate holds in a set by a write that is not stored yet; the ticket is nil where there is none.
func (t *turns) heldIn(key j17.Key, set *spec.UniqueSet) pendingValue {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lanes[key]; l != nil && l.pending != nil {
		if v, ok := l.pending.held[set]; ok && v.ticket.open() {
			return v
		}
	}
	return pendingValue{}
}

// peek returns what is pending in the lane of a stream, nil for nothing.
func (t *turns) peek(key j17.Key) *pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lanes[key]; l != nil {
		return l.pending
	}
	return nil
}
