package listener

import (
	"context"
	"errors"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// follow moves the next event that waits for a delivery into its lane, now that the delivery has ended.
func (e *ending) follow(ctx context.Context, active bool) error {
	found, err := e.waiting(ctx)
	if err != nil {
		return err
	}
	lane := e.d.lane()
	note := func() store.Side { return put(behindSpace, lane, found.behind, time.Time{}).On(found.rev) }
	switch {
	case found.more:
		// The search takes so much work that it is continued later.
		side := store.Side{Op: store.Put, Space: laneSpace, Key: lane, Due: e.o.at.Add(found.pause)}
		e.sides = append(e.sides, side.On(e.rev), note())
	case found.event == nil:
		e.freed = true
		e.sides = append(e.sides, remove(laneSpace, lane).On(e.rev))
		if found.rev != 0 {
			e.sides = append(e.sides, remove(behindSpace, lane).On(found.rev))
		} else {
			e.fences = append(e.fences, store.Fence{Space: behindSpace, Key: lane})
		}
	default:
		next := e.s.newDelivery(e.l, e.d.Track, found.event, e.o.at)
		side := laneSide(next, time.Time{})
		if active {
			side = claimedLane(next, e.o.at)
			e.next = &job{at: e.j.at, delivery: next, due: side.Due, event: kept(found.event)}
		}
		e.sides = append(e.sides, put(deliverySpace, next.ID, next, time.Time{}), next.found(e.o.at), side.On(e.rev))
		if found.changed {
			e.sides = append(e.sides, note())
		}
	}
	return nil
}

// waiters has what waits behind a lane, with the revision of the note about it, 0 if there is none.
type waiters struct {
	behind
	rev     uint64
	changed bool
	// event is the next one, nil for none; more reports that it was not found yet, and is to be searched for after a
	// pause.
	event *j17.Event
	more  bool
	pause time.Duration
}

// searchPause is the pause of a search that got no turn on a processor.
const searchPause = time.Second

// waiting finds the next event that waits for the delivery, within the work of a page. If that does not suffice, the
// result says where to continue.
func (e *ending) waiting(ctx context.Context) (w waiters, err error) {
	// The note about waiting events, if there is one.
	if e.alone {
		return w, nil
	}
	known, rev, err := read[behind](ctx, e.s.o.Store, e.j.at.tenant, behindSpace, e.d.lane())
	if errors.Is(err, store.ErrNotFound) {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	if w.behind, w.rev = known, rev; e.l == nil {
		return w, nil // a removed listener receives nothing more
	}

	// Individually requested events come first, one by one; otherwise all events up to the last one seen.
	from, to := max(e.d.Version+1, known.From), known.Last
	listed := len(known.Listed) > 0
	if listed {
		from, to = known.Listed[0], known.Listed[0]
		w.Listed, w.changed = known.Listed[1:], true
	}
	if from > to {
		return w, nil
	}

	// The next of them that the listener selects.
	b, done := e.s.budget(ctx, e.j.at.tenant)
	defer done()
	matches := matcher(e.l.definition, b)
	for ev, err := range e.s.o.Store.ReadStream(ctx, e.j.at.tenant, e.d.parsedKey(), from, to) {
		if err != nil {
			return w, err
		}
		if ev, err = e.s.o.shown(ctx, e.j.at.tenant, ev); err != nil {
			return w, err
		}
		is := listed
		if !listed {
			is, err = matches(ev)
		}
		if spent(err) {
			if w.From, w.more = ev.Version, true; j17.CodeOf(err) == j17.CodeBusy {
				w.pause = searchPause
			}
			return w, nil
		}
		if err != nil {
			return w, err
		}
		if is {
			w.event = ev.Clone()
			return w, nil
		}
	}
	return w, nil
}

// search continues the search for what waits in a lane.
func (s *Service) search(ctx context.Context, c *worker.Claim) error {
	name, track, key := cutKey(c.Key)
	line := s.pool.use(at{c.Tenant, name})
	defer s.pool.leave(line)
	d := delivery{Listener: name, Track: track, Key: key}
	for range maxTries {
		next, again, err := s.searchOnce(ctx, c, d, line)
		if again {
			// The lane may have changed hands.
			it, err := s.o.Store.Get(ctx, c.Tenant, laneSpace, c.Key)
			if err == nil && it.Rev == c.Remove().Rev {
				continue
			}
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
			return err
		}
		if err != nil {
			return err
		}
		return s.goOn(ctx, line, next)
	}
	return errContended
}

// searchOnce is one try of search. It asks for another one if the state that it rests on has changed.
func (s *Service) searchOnce(
	ctx context.Context, c *worker.Claim, d delivery, line *line,
) (next *job, again bool, err error) {
	line.decide.RLock()
	defer line.decide.RUnlock()
	l, err := s.find(ctx, c.Tenant, line.at.name)
	if err != nil {
		return nil, false, err
	}
	if l == nil && !s.restored(c.Tenant) {
		return nil, false, errNoSpec
	}
	e := ending{s: s, l: l, j: job{at: line.at}, rev: c.Remove().Rev, o: outcome{at: s.o.Clock.Now()}, d: d}
	if l != nil {
		e.fences = append(e.fences, l.state.fence(l.name))
	}
	if err := e.follow(ctx, l != nil && l.state.Status == Active); err != nil {
		return nil, false, err
	}
	return s.commit(ctx, &e, line)
}

// commit commits an ending.
func (s *Service) commit(ctx context.Context, e *ending, line *line) (next *job, again bool, err error) {
	err = s.o.Store.Write(ctx, line.at.tenant, e.sides, e.fences...)
	if overtaken(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	if e.freed {
		s.pool.count(line, -1)
	}
	return e.next, false, nil
}

// wake wakes the feed if it waits for room of a listener, and there is room again.
func (s *Service) wake(ctx context.Context, line *line) error {
	if s.pool.sated(line) {
		return s.o.Feed.Wake(ctx, line.at.tenant, kind, line.at.name)
	}
	return nil
}
