package index

import (
	"context"
	"time"

	"j17"
)

// crowd is who waits for a slot to get on.
type crowd struct {
	// next is what they wait for, nil where nobody has since the slot has got on.
	next *turn
	// looking is how many were told that it has and have not looked yet. looked, if not nil, is called when these are none.
	looking int
	looked  func()
}

// turn is one time that a slot gets on.
type turn struct {
	s  *Service
	of place
	// moved is closed when it has; waiting is how many wait for that. told says that they know. All is under the service's mu.
	moved   chan struct{}
	waiting int
	told    bool
}

// awaited returns the next turn of a slot, for one who looks at the slot now and waits then. He leaves it when he has looked again.
func (s *Service) awaited(t j17.Tenant, slot string) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{t, slot}
	c := s.crowds[at]
	if c == nil {
		c = &crowd{}
		s.crowds[at] = c
	}
	if c.next == nil {
		c.next = &turn{s: s, of: at, moved: make(chan struct{})}
	}
	c.next.waiting++
	return c.next
}

// leave says that somebody has looked at the slot behind a turn, or waits for it no more. Nobody leaves none.
func (w *turn) leave() {
	if w == nil {
		return
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	c := w.s.crowds[w.of]
	w.waiting--
	switch {
	case w.told:
		if c.looking--; c.looking == 0 && c.looked != nil {
			c.looked()
			c.looked = nil
		}
	case w.waiting == 0:
		c.next = nil // whoever comes now begins anew
	}
	if c.next == nil && c.looking == 0 {
		delete(w.s.crowds, w.of)
	}
}

// tell lets those look who wait for a slot.
func (s *Service) tell(t j17.Tenant, slot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.crowds[place{t, slot}]
	if c == nil || c.next == nil {
		return
	}
	close(c.next.moved)
	c.next.told = true
	c.looking += c.next.waiting
	if c.next = nil; c.looking == 0 {
		delete(s.crowds, place{t, slot})
	}
}

// look lets looked be called when all have looked who were told that a slot has got on. It reports false where they have.
func (s *Service) look(t j17.Tenant, slot string, looked func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.crowds[place{t, slot}]
	if c == nil || c.looking == 0 {
		return false
	}
	c.looked = looked
	return true
}

// lookTime is for how long a change of many rows waits at most for those to look who wait for the slot.
const lookTime = time.Second

// show lets those look at a slot who wait for it, before it is not read for a while: they would not find it as it is between two changes of many
// rows else.
func (s *Service) show(ctx context.Context, t j17.Tenant, slot string) {
	s.tell(t, slot)
	looking, end := context.WithCancel(ctx)
	defer end()
	if s.look(t, slot, end) {
		_ = s.o.Clock.Wait(looking, s.o.Clock.Now().Add(lookTime)) // either way it is over
	}
}
