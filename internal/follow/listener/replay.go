package listener

import (
	"context"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Replay selects events to be delivered again.
type Replay struct {
	// After is the position after which the replay begins, Until the last position; zero means the end of the feed.
	After, Until j17.StreamID
	// OnlyFailed leaves out events that were delivered to the listener.
	OnlyFailed bool
}

const (
	// maxReplayed bounds the events that a replay looks at.
	maxReplayed = 1_000_000
	// maxReplays bounds the concurrent replays of a listener.
	maxReplays = 10
	// countWork bounds the work of counting them.
	countWork = 32 * work.Command
	// pageOf is how many events of a replay are looked at in one page, pageBytes the size of the events delivered in
	// one page.
	pageOf    = 1000
	pageBytes = 1 << 20
)

// CountReplay returns how many events a replay would deliver.
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

// Replay delivers events again, in order, each by a new delivery. It returns their number. It is a *j17.Error of
// CodeConflict if the listener is not active, or has maxReplays replays under way.
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

// mustBeActive returns the reason why nothing can be delivered to a listener now, nil if it is active.
func mustBeActive(l *listener) error {
	if l.state.Status != Active {
		return j17.Errorf(j17.CodeConflict, "The listener is %s. Resume it first.", l.state.Status)
	}
	return nil
}

// nextPage returns the next events of a replay, and the position up to which it has searched: as many as may be in
// memory at a time, and as are found within the work of a page.
func (s *Service) nextPage(
	ctx context.Context, l *listener, r replay,
) (events []*j17.Event, at j17.StreamID, err error) {
	b, done := s.budget(ctx, l.tenant)
	defer done()
	size := 0
	at, err = s.source.replayed(ctx, l, r, pageOf, b, func(ev *j17.Event, failed *delivery) (more bool, err error) {
		if failed == nil {
			ev = ev.Clone()
		} else if ev, err = s.log.event(ctx, job{at: l.at, delivery: failed}); upcast.Failure(err) != nil {
			err = nil // the delivery fails
		}
		if err != nil {
			return false, err
		}
		if failed != nil && ev.Erased() && ev.Type != failed.Type {
			return true, nil // an erased event is not a failed one
		}
		events = append(events, ev)
		size += len(ev.Raw)
		return size < pageBytes, nil
	})
	if spent(err) && at.Compare(r.After) > 0 {
		err = nil // the rest comes with the next page
	}
	return events, at, err
}

// replayPage creates the next deliveries of a replay.
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
			return nil // it is resumed, and comes again when the lease ends
		}
		return err
	}

	// As many as there is room for.
	line := s.pool.use(l.at)
	defer s.pool.leave(line)
	later := c.Replace(c.Value, s.o.Clock.Now().Add(time.Second))
	if !s.pool.awaitRoom(ctx, line) {
		return s.o.Store.Write(ctx, c.Tenant, []store.Side{later}) // frees this worker's place for others
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
