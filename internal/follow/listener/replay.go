package listener

import (
	"context"
	"errors"
	"strings"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Replay asks for events to be told again.
type Replay struct {
	// After is the position behind which it begins, Until the last one; the zero one means the end of the feed.
	After, Until j17.StreamID
	// OnlyFailed leaves out the events of which the listener has been told.
	OnlyFailed bool
}

const (
	// maxReplayed bounds the events that a replay goes through.
	maxReplayed = 1_000_000
	// maxReplays bounds the replays of a listener under way.
	maxReplays = 10
	// countWork bounds what it may cost to count them.
	countWork = 32 * work.Command
	// pageOf is how many events of a replay are looked at in one go, pageBytes how many bytes of them are told in one go.
	pageOf    = 1000
	pageBytes = 1 << 20
)

// CountReplay returns how many events a replay would tell.
func (s *Service) CountReplay(ctx context.Context, t j17.Tenant, name string, r Replay) (n int, err error) {
	l, err := s.known(ctx, t, name)
	if err != nil {
		return 0, err
	}
	if r, err = s.bounded(ctx, t, r); err != nil {
		return 0, err
	}
	return s.countReplay(ctx, l, r)
}

// Replay lets events be told again, each by a new delivery, in their order. It returns how many there are. It is a *j17.Error of
// CodeConflict where the listener is not active, or has enough replays under way.
func (s *Service) Replay(ctx context.Context, t j17.Tenant, name string, r Replay) (n int, err error) {
	l, err := s.known(ctx, t, name)
	if err != nil {
		return 0, err
	}
	if err := mustBeActive(l); err != nil {
		return 0, err
	}
	if r, err = s.bounded(ctx, t, r); err != nil {
		return 0, err
	}
	if n, err = s.countReplay(ctx, l, r); err != nil || n == 0 {
		return 0, err
	}
	running, err := s.o.Store.Scan(ctx, t, replaySpace, store.Prefix(name+"/"), maxReplays)
	if err != nil {
		return 0, failure(err)
	}
	if len(running) == maxReplays {
		return 0, j17.Errorf(j17.CodeConflict, "The listener has %d replays under way. Wait until one of them is done.", maxReplays)
	}
	side := put(replaySpace, name+"/"+s.mint.Handle(ident.DeliveryPrefix), replay(r), time.Time{})
	side.Due = s.o.Clock.Now()
	return n, failure(s.o.Store.Write(ctx, t, []store.Side{side}, l.state.fence(name)))
}

// mustBeActive returns why a listener cannot be told anything now.
func mustBeActive(l *listener) error {
	if l.state.Status != Active {
		return j17.Errorf(j17.CodeConflict, "The listener is %s. Resume it first.", l.state.Status)
	}
	return nil
}

// bounded gives a replay its end.
func (s *Service) bounded(ctx context.Context, t j17.Tenant, r Replay) (Replay, error) {
	extent, err := s.o.Store.Extent(ctx, t)
	if err != nil {
		return r, failure(err)
	}
	if r.Until.IsZero() {
		r.Until = extent.Last
		return r, nil
	}
	if r.Until.Compare(r.After) < 0 {
		return r, j17.Errorf(j17.CodeInvalidField, "'until' is a position before 'after': a replay goes from 'after', which it leaves out, to 'until'.").At("until")
	}
	if r.Until.Compare(extent.Last) > 0 {
		r.Until = extent.Last // What is yet to happen is told anyway.
	}
	return r, nil
}

func (s *Service) countReplay(ctx context.Context, l *listener, r Replay) (n int, err error) {
	b := work.New(ctx, s.countWork)
	at, err := s.replayed(ctx, l, replay(r), maxReplayed, b, func(*j17.Event, *delivery) (bool, error) {
		n++
		return true, nil
	})
	if j17.CodeOf(err) == j17.CodeWorkLimit || err == nil && at.Compare(r.Until) < 0 {
		return 0, j17.Errorf(j17.CodeWorkLimit, "The replay would go through more than %d events, or through some that take too much work to look at. Give 'until', and replay them in parts.", maxReplayed)
	}
	return n, failure(err)
}

// replayed hands what a replay tells next to do, until that reports false, having looked at up to limit events: the event or, where only
// what has failed is told, the delivery of it. It returns how far it has looked: after an error, which may be that of the budget, up to
// what it is about.
func (s *Service) replayed(
	ctx context.Context, l *listener, r replay, limit int, b *work.Budget, do func(*j17.Event, *delivery) (more bool, err error),
) (at j17.StreamID, err error) {
	if r.OnlyFailed {
		return s.replayedFailures(ctx, l, r, limit, b, do)
	}
	matches := matcher(l.definition, b)
	at = r.After
	looked := 0
	for ev, err := range s.o.Store.ReadFeed(ctx, l.tenant, r.After, limit) {
		if err != nil {
			return at, err
		}
		if ev.StreamID.Compare(r.Until) > 0 {
			return r.Until, nil
		}
		is, err := matches(ev)
		more := true
		if err == nil && is {
			more, err = do(ev, nil)
		}
		if err != nil {
			return at, err
		}
		if at = ev.StreamID; !more {
			return at, nil
		}
		looked++
	}
	if looked < limit {
		at = r.Until
	}
	return at, nil
}

// replayedFailures is replayed for what has failed.
func (s *Service) replayedFailures(
	ctx context.Context, l *listener, r replay, limit int, b *work.Budget, do func(*j17.Event, *delivery) (more bool, err error),
) (at j17.StreamID, err error) {
	prefix := l.name + "/"
	keys := store.Range{From: prefix + place(r.After), To: prefix + place(r.Until.Next())}.After(prefix + place(r.After))
	at = r.After
	for looked := 0; looked < limit; {
		page := min(limit-looked, pageOf)
		items, err := s.o.Store.Scan(ctx, l.tenant, failedSpace, keys, page)
		if err != nil {
			return at, err
		}
		for i := range items {
			if !b.Spend(unitsPerEvent) {
				return at, b.Err()
			}
			position, err := positionOf(strings.TrimPrefix(items[i].Key, prefix))
			if err != nil {
				return at, err
			}
			d, _, err := read[*delivery](ctx, s.o.Store, l.tenant, deliverySpace, string(items[i].Value))
			more := true
			switch {
			case err == nil:
				more, err = do(nil, d)
			case errors.Is(err, store.ErrNotFound):
				err = nil // It was kept for as long as it is.
			}
			if err != nil {
				return at, err
			}
			if at = position; !more {
				return at, nil
			}
			keys = keys.After(items[i].Key)
		}
		if looked += len(items); len(items) < page {
			return r.Until, nil
		}
	}
	return at, nil
}

// nextPage returns the events that a replay tells next, and how far it has looked for them: as many as may be in memory at a time, and as
// are found at the cost of a page.
func (s *Service) nextPage(ctx context.Context, l *listener, r replay) (events []*j17.Event, at j17.StreamID, err error) {
	b, done := s.budget(ctx, l.tenant)
	defer done()
	size := 0
	at, err = s.replayed(ctx, l, r, pageOf, b, func(ev *j17.Event, failed *delivery) (more bool, err error) {
		if failed == nil {
			ev = ev.Clone()
		} else if ev, err = s.event(ctx, job{at: l.at, delivery: failed}); err != nil {
			return false, err
		} else if ev.Type != failed.Type {
			return true, nil // It was erased, and the marker in its place is nothing that has failed.
		}
		events = append(events, ev)
		size += len(ev.Raw)
		return size < pageBytes, nil
	})
	if spent(err) && at.Compare(r.After) > 0 {
		err = nil // The rest is for the next page.
	}
	return events, at, err
}

// replayPage makes the next deliveries of a replay.
func (s *Service) replayPage(ctx context.Context, c *worker.Claim) error {
	r, err := decode[replay](replaySpace, &store.Item{Key: c.Key, Value: c.Value})
	if err != nil {
		return err
	}
	name, track, _ := cutKey(c.Key)
	l, err := s.find(ctx, c.Tenant, name)
	if err != nil {
		return err
	}
	if l == nil && !s.restored(c.Tenant) {
		return errNoSpec
	}
	if l == nil || r.After.Compare(r.Until) >= 0 {
		return s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Remove()})
	}
	if l.state.Status != Active {
		err := s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Replace(c.Value, time.Time{})}, l.state.fence(name))
		if overtaken(err) {
			return nil // It is resumed, and comes again when the lease is over.
		}
		return err
	}

	// As many as there is room for.
	line := s.pool.use(l.at)
	defer s.pool.leave(line)
	later := c.Replace(c.Value, s.o.Clock.Now().Add(time.Second))
	if !s.pool.awaitRoom(ctx, line) {
		return s.o.Store.Write(ctx, c.Tenant, []store.Side{later}) // So that its place is another one's.
	}
	events, at, err := s.nextPage(ctx, l, r)
	if err != nil {
		return err
	}
	moved := func(to j17.StreamID) store.Side {
		r.After = to
		return c.Replace(put(replaySpace, c.Key, r, time.Time{}).Value, s.o.Clock.Now())
	}
	if len(events) == 0 {
		return s.o.Store.Write(ctx, c.Tenant, []store.Side{moved(at)})
	}
	taken, err := s.take(ctx, l, track, events, r.OnlyFailed, func(n int) []store.Side {
		if n == len(events) {
			return []store.Side{moved(at)}
		}
		return []store.Side{moved(events[n-1].StreamID)}
	})
	if err == nil && taken == 0 {
		err = s.o.Store.Write(ctx, c.Tenant, []store.Side{later})
	}
	return err
}
