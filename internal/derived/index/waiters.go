package index

import (
	"context"
	"sync"
	"time"

	"j17/internal/base/clock"

	"j17"
)

// slotWaiters has the readers that wait for a slot to advance.
type slotWaiters struct {
	// next is the wait for the next step, nil if no reader has joined since the last one.
	next *wait
	// looking is how many woken readers have not looked yet. looked, if not nil, is called when it becomes 0.
	looking int
	looked  func()
}

// wait is the wait for the next step of a slot.
type wait struct {
	ws *waiters
	of place
	// moved is closed at the step; waiting is how many readers wait for it. woken is set when moved is closed. All
	// fields are guarded by mu of waiters.
	moved   chan struct{}
	waiting int
	woken   bool
}

// waiters has the readers that wait for slots to advance.
type waiters struct {
	clock clock.Clock

	mu    sync.Mutex
	slots map[place]*slotWaiters
}

// next returns the wait for the next step of a slot, for a reader that looks at the slot now and waits afterwards. The
// reader leaves it after its next look.
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

// leave notes that a reader has looked again, or no longer waits. On a nil wait it does nothing.
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
		c.next = nil // the next reader gets a new wait
	}
	if c.next == nil && c.looking == 0 {
		delete(w.ws.slots, w.of)
	}
}

// wake wakes the readers that wait for a slot.
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

// onLooked has looked called when all woken readers of a slot have looked. It reports false if they already have.
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

// lookTime is how long a change of many rows waits at most for woken readers to look at the slot.
const lookTime = time.Second

// show lets waiting readers look at a slot before a change of many rows makes it unreadable for a while. Without it
// they might miss the slot between two such changes.
func (w *waiters) show(ctx context.Context, t j17.Tenant, slot string) {
	w.wake(t, slot)
	looking, end := context.WithCancel(ctx)
	defer end()
	if w.onLooked(t, slot, end) {
		_ = w.clock.Wait(looking, w.clock.Now().Add(lookTime)) // in either case the wait is over
	}
}
