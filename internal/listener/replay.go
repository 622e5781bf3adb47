package listener

import (
	"context"
	"errors"
	"time"

	"j17"
	"j17/internal/ident"
	"j17/internal/store"
	"j17/internal/worker"
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
	// pageOf is how many events of a replay are looked at in one go.
	pageOf = 1000
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
	looked := 0
	for at := r.After; ; {
		events, next, err := s.replayed(ctx, l, replay{After: at, Until: r.Until, OnlyFailed: r.OnlyFailed}, pageOf)
		if err != nil {
			return 0, failure(err)
		}
		n += len(events)
		if next.Compare(r.Until) >= 0 || next == at {
			return n, nil
		}
		at = next
		if looked += pageOf; looked >= maxReplayed {
			return 0, j17.Errorf(j17.CodeWorkLimit, "The replay would go through more than %d events. Give 'until', and replay them in parts.", maxReplayed)
		}
	}
}

// replayed returns the events that a replay tells next, and how far it has looked for them.
func (s *Service) replayed(ctx context.Context, l *listener, r replay, limit int) (events []*j17.Event, at j17.StreamID, err error) {
	if r.OnlyFailed {
		return s.replayedFailures(ctx, l, r, limit)
	}
	matches := matcher(l.definition)
	at = r.After
	n := 0
	for ev, err := range s.o.Store.ReadFeed(ctx, l.tenant, r.After, limit) {
		if err != nil {
			return nil, at, err
		}
		if n++; ev.StreamID.Compare(r.Until) > 0 {
			return events, r.Until, nil
		}
		if at = ev.StreamID; matches(ev) {
			events = append(events, ev.Clone())
		}
	}
	if n < limit {
		at = r.Until
	}
	return events, at, nil
}

// replayedFailures is replayed for what has failed.
func (s *Service) replayedFailures(ctx context.Context, l *listener, r replay, limit int) (events []*j17.Event, at j17.StreamID, err error) {
	keys := store.Range{From: l.name + "/" + place(r.After), To: l.name + "/" + place(r.Until.Next())}.After(l.name + "/" + place(r.After))
	items, err := s.o.Store.Scan(ctx, l.tenant, failedSpace, keys, limit)
	if err != nil {
		return nil, r.After, err
	}
	at = r.After
	for i := range items {
		d, _, err := read[*delivery](ctx, s.o.Store, l.tenant, deliverySpace, string(items[i].Value))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, at, err
		}
		ev, err := s.event(ctx, job{at: l.at, delivery: d})
		if err != nil {
			return nil, at, err
		}
		events = append(events, ev)
		at = d.StreamID
	}
	if len(items) < limit {
		at = r.Until
	}
	return events, at, nil
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
	if err := s.pool.awaitRoom(ctx, line); err != nil {
		return err
	}
	events, at, err := s.replayed(ctx, l, r, pageOf)
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
		err = s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Replace(c.Value, s.o.Clock.Now().Add(time.Second))})
	}
	return err
}
