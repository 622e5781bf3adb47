package listener

import (
	"context"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Replay asks for events to be delivered again.
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
	// pageOf is how many events of a replay are looked at in one go, pageBytes how many bytes of them are delivered in
	// one go.
	pageOf    = 1000
	pageBytes = 1 << 20
)

// CountReplay returns how many events a replay would tell.
func (s *Service) CountReplay(ctx context.Context, t j17.Tenant, name string, r Replay) (n int, err error) {
	l, err := s.known(ctx, t, name)
	if err != nil {
		return 0, err
	}
	if r, err = s.source.bounded(ctx, t, r); err != nil {
		return 0, err
	}
	return s.source.countReplay(ctx, l, r)
}

// Replay delivers events again, each by a new delivery, in their order. It returns how many there are. It is a
// *j17.Error of CodeConflict where the listener is not active, or has enough replays under way.
func (s *Service) Replay(ctx context.Context, t j17.Tenant, name string, r Replay) (n int, err error) {
	l, err := s.known(ctx, t, name)
	if err != nil {
		return 0, err
	}
	if err := mustBeActive(l); err != nil {
		return 0, err
	}
	if r, err = s.source.bounded(ctx, t, r); err != nil {
		return 0, err
	}
	if n, err = s.source.countReplay(ctx, l, r); err != nil || n == 0 {
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

// mustBeActive returns why nothing can be delivered to a listener now.
func mustBeActive(l *listener) error {
	if l.state.Status != Active {
		return j17.Errorf(j17.CodeConflict, "The listener is %s. Resume it first.", l.state.Status)
	}
	return nil
}

// nextPage returns the events that a replay tells next, and how far it has looked for them: as many as may be in memory
// at a time, and as are found at the cost of a page.
func (s *Service) nextPage(
	ctx context.Context, l *listener, r replay,
) (events []*j17.Event, at j17.StreamID, err error) {
	b, done := s.budget(ctx, l.tenant)
	defer done()
	size := 0
	at, err = s.source.replayed(ctx, l, r, pageOf, b, func(ev *j17.Event, failed *delivery) (more bool, err error) {
		if failed == nil {
			ev = ev.Clone()
		} else if ev, err = s.log.event(ctx, job{at: l.at, delivery: failed}); err != nil {
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
	r, err := store.Decode[replay](replaySpace, &store.Item{Key: c.Key, Value: c.Value})
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
