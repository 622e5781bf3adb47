package index

import (
	"context"
	"sync"
	"time"

	"j17/internal/base/clock"

	"j17"
)

// slotWaiters are the readers that wait for a slot to get on.
type slotWaiters struct {
	// next is what they wait for, nil where nobody has since the slot has got on.
	next *wait
	// looking is how many were woken and have not looked yet. looked, if not nil, is called when these are none.
	looking int
	looked  func()
}

// wait is the wait for the next step of a slot.
type wait struct {
	ws *waiters
	of place
	// moved is closed when it has; waiting is how many wait for that. woken is set once it has. All is under mu of
	// waiters.
	moved   chan struct{}
	waiting int
	woken   bool
}

// waiters has the readers that wait for slots to get on.
type waiters struct {
	clock clock.Clock

	mu    sync.Mutex
	slots map[place]*slotWaiters
}

// next returns the wait for the next step of a slot, for a reader that looks at the slot now and waits then. The reader
// leaves it after its next look.
func (w *waiters) next(t j17.Tenant, slot string) *wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := place{t, slot}
	c := w.slots[at]
	if c == nil {
		c = &slotWaiters{}
		w.slots[at] = c
	}
	if c.next == nil {
		c.next = &wait{ws: w, of: at, moved: make(chan struct{})}
	}
	c.next.waiting++
	return c.next
}

// leave says that the reader has looked again, or no longer waits. A nil wait has nothing to leave.
func (w *wait) leave() {
	if w == nil {
		return
	}
	w.ws.mu.Lock()
	defer w.ws.mu.Unlock()
	c := w.ws.slots[w.of]
	w.waiting--
	switch {
	case w.woken:
		if c.looking--; c.looking == 0 && c.looked != nil {
			c.looked()
			c.looked = nil
		}
	case w.waiting == 0:
		c.next = nil // the next reader begins again
	}
	if c.next == nil && c.looking == 0 {
		delete(w.ws.slots, w.of)
	}
}

// wake lets those look who wait for a slot.
func (w *waiters) wake(t j17.Tenant, slot string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.slots[place{t, slot}]
	if c == nil || c.next == nil {
		return
	}
	close(c.next.moved)
	c.next.woken = true
	c.looking += c.next.waiting
	if c.next = nil; c.looking == 0 {
		delete(w.slots, place{t, slot})
	}
}

// onLooked lets looked be called when all have looked that were woken for a slot. It reports false where they have.
func (w *waiters) onLooked(t j17.Tenant, slot string, looked func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.slots[place{t, slot}]
	if c == nil || c.looking == 0 {
		return false
	}
	c.looked = looked
	return true
}

// lookTime is for how long a change of many rows waits at most for those to look who wait for the slot.
const lookTime = time.Second

// show lets those look at a slot who wait for it, before it is not read for a while: they would not find it as it is
// between two changes of many rows else.
func (w *waiters) show(ctx context.Context, t j17.Tenant, slot string) {
	w.wake(t, slot)
	looking, end := context.WithCancel(ctx)
	defer end()
	if w.onLooked(t, slot, end) {
		_ = w.clock.Wait(looking, w.clock.Now().Add(lookTime)) // either way it is over
	}
}
