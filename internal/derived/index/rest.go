package index

import (
	"context"
	"time"

	"j17"
)

const (
	// restCalm is for how long nothing is written that concerns a slot when upkeep that rests goes on.
	restCalm = 250 * time.Millisecond
	// wantedFor is for how long a slot is wanted after somebody has asked for it, and restAfter for how long it does not rest then.
	wantedFor, restAfter = time.Second, 5 * time.Second
)

// resting is what is known of a slot whose upkeep may rest. While many events come, and nobody asks for the slot, they
// are left for later: many of them take much less work an event (bulk.go), and those who write have the processors meanwhile. Who asks every few
// seconds finds nothing left. The longer nobody has asked, the more may be: whoever asks then waits for a part of the time in which nobody did.
type resting struct {
	// asked is when somebody asked for the slot last.
	asked time.Time
	// rests tells that the upkeep rests. end is where the last event is that concerns the slot, and since when it has been that one.
	rests bool
	end   j17.StreamID
	since time.Time
	// hurry, if not nil, ends a pause of a backlog that is worked off.
	hurry func()
	// busy tells that a change of many rows is under way: until it is done nobody can read the slot.
	busy bool
	// small is up to where events are worked off as they come, because too many rows follow from some of them.
	small j17.StreamID
}

// restOf returns what is known of a slot. The caller holds mu.
func (s *Service) restOf(t j17.Tenant, slot string) *resting {
	at := place{t, slot}
	r := s.rests[at]
	if r == nil {
		r = &resting{}
		s.rests[at] = r
	}
	return r
}

// mayRest says for how long the upkeep of a slot may rest, unless the feed grows or somebody asks for it: 0 for not at all. behind is how many
// events concern it that it has not passed, end where the last of them is.
func (s *Service) mayRest(t j17.Tenant, slot string, behind uint64, end j17.StreamID) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := s.o.Clock.Now(), s.restOf(t, slot)
	if r.end != end {
		r.end, r.since = end, now
	}
	calm, unasked := now.Sub(r.since), now.Sub(r.asked)
	if r.busy || behind < s.limits.restFrom || behind >= s.limits.left(unasked) || calm < 0 || calm >= restCalm {
		s.endRest(t, slot, r)
		return 0
	}
	if r.rests = true; s.waiting[place{t, slot}].IsZero() {
		s.waiting[place{t, slot}] = now // the first of these events has come just now
	}
	return restCalm - calm
}

// left returns how many events may be left for later where nobody has asked for so long.
func (l limits) left(unasked time.Duration) uint64 {
	return min(uint64(max(unasked-restAfter, 0)/time.Millisecond)*l.restEach/uint64(time.Second/time.Millisecond), l.restMost)
}

// isWanted reports whether somebody has asked for a slot lately: then its rows are not computed beside other work, but before it.
func (s *Service) isWanted(t j17.Tenant, slot string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rests[place{t, slot}]
	if r == nil {
		return false
	}
	unasked := s.o.Clock.Now().Sub(r.asked)
	return unasked >= 0 && unasked < wantedFor
}

// endRest notes that a slot does not rest any more: how long events wait for it is told by those that are handled. The caller holds mu.
func (s *Service) endRest(t j17.Tenant, slot string, r *resting) {
	if r.rests {
		r.rests = false
		delete(s.waiting, place{t, slot})
	}
}

// busy notes whether a change of many rows of a slot is under way.
func (s *Service) busy(t j17.Tenant, slot string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is || s.rests[place{t, slot}] != nil { // nothing is noted of a slot that was removed meanwhile
		s.restOf(t, slot).busy = is
	}
}

// asks notes that somebody wants a slot to show what is there. It goes on if it rests here.
func (s *Service) asks(ctx context.Context, t j17.Tenant, slot string) {
	s.mu.Lock()
	r := s.restOf(t, slot)
	r.asked = s.o.Clock.Now()
	rests := r.rests
	s.endRest(t, slot, r)
	if r.hurry != nil {
		r.hurry()
	}
	s.mu.Unlock()
	if rests {
		s.wake(ctx, t, slot)
	}
}

// pause leaves the processors to others for a while, unless somebody asks for the slot.
func (s *Service) pause(ctx context.Context, t j17.Tenant, slot string, d time.Duration) {
	pausing, end := context.WithCancel(ctx)
	defer end()
	hurry := func(end func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r := s.rests[place{t, slot}]; r != nil {
			r.hurry = end
		}
	}
	hurry(end)
	defer hurry(nil)
	_ = s.o.Clock.Wait(pausing, s.o.Clock.Now().Add(d)) // whoever ends it goes on
}

// wake lets a slot go on that rests, wherever it is kept up to date.
func (s *Service) wake(ctx context.Context, t j17.Tenant, slot string) {
	_ = s.o.Feed.Wake(ctx, t, kind, slot) // else it goes on by itself, a little later
}

// small is up to where the events of a slot are worked off as they come; keepSmall sets it.
func (s *Service) small(t j17.Tenant, slot string) j17.StreamID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restOf(t, slot).small
}

func (s *Service) keepSmall(t j17.Tenant, slot string, upTo j17.StreamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restOf(t, slot).small = upTo
}
