package listener

import (
	"context"
	"errors"
	"slices"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/follow/feed"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// maxTries bounds how often a decision is repeated because its premises have changed.
const maxTries = 100

// errContended is the error after maxTries.
var errContended = errors.New("others change the same deliveries over and over; it is tried again")

// filter reports which events a listener selects, for as many as the work of a page allows.
func (s *Service) filter(ctx context.Context, t j17.Tenant, name string, events []*j17.Event) ([]bool, error) {
	l := s.definition(t, name)
	wanted := make([]bool, 0, len(events))
	if l == nil {
		// Without a spec the selection is unknown, and hand waits for the spec. A removed listener receives nothing.
		all := !s.restored(t)
		for range events {
			wanted = append(wanted, all)
		}
		return wanted, nil
	}
	b, done := s.budget(ctx, t)
	defer done()
	matches := matcher(l, b)
	for _, ev := range events {
		ev, err := s.o.shown(ctx, t, ev)
		if err != nil {
			return nil, err
		}
		is, err := matches(ev)
		switch {
		case err == nil:
			wanted = append(wanted, is)
			continue
		case len(wanted) > 0 && spent(err):
			return wanted, nil // the rest comes with the next page
		case j17.CodeOf(err) == j17.CodeBusy:
			return nil, feed.Later{For: crowdedFor}
		}
		return nil, err
	}
	return wanted, nil
}

// budget returns the budget for a page of a tenant's events. When they take much work, it waits for a processor turn of
// the tenant, like requests, so that the tenant's conditions slow nobody else. The caller ends it with done.
func (s *Service) budget(ctx context.Context, t j17.Tenant) (b *work.Budget, done func()) {
	slot := new(work.Slot)
	slot.Open(s.turns, string(t))
	return work.New(context.WithValue(ctx, work.SlotKey(), slot), pageWork), slot.End
}

// spent reports whether a budget ended because it was too small, or because its turn did not come: another one may
// continue.
func spent(err error) bool {
	code := j17.CodeOf(err)
	return code == j17.CodeWorkLimit || code == j17.CodeBusy
}

// hand creates the deliveries of events.
func (s *Service) hand(ctx context.Context, b *feed.Batch) error {
	l, err := s.find(ctx, b.Tenant, b.Name)
	switch {
	case err != nil:
		return err
	case l == nil && !s.restored(b.Tenant):
		return feed.Later{For: crowdedFor}
	case l == nil && s.definition(b.Tenant, b.Name) == nil:
		return nil // a removed listener receives nothing
	case l == nil || l.state.Status != Active:
		return feed.Later{For: pausedFor}
	}
	events := make([]*j17.Event, len(b.Entries))
	for i := range b.Entries {
		if events[i], err = s.o.shown(ctx, b.Tenant, b.Entries[i].Event); err != nil {
			return err
		}
	}
	taken, err := s.take(ctx, l, "", events, false, b.Done)
	if err == nil && taken < len(events) {
		return feed.Later{For: crowdedFor} // it is woken when a delivery makes room
	}
	return err
}

// take creates deliveries for as many of the events as there is room for, from the first on, in one commit with the
// writes of done for that number, and begins to send them. It returns the number of events taken. With listed, exactly
// these events are delivered, even if the listener does not select them.
func (s *Service) take(
	ctx context.Context, l *listener, track string, events []*j17.Event, listed bool, done func(int) []store.Side,
) (int, error) {
	line := s.pool.use(l.at)
	defer s.pool.leave(line)
	if err := s.countLanes(ctx, line); err != nil {
		return 0, err
	}
	for range maxTries {
		taken, again, err := s.takeOnce(ctx, l, line, track, events, listed, done)
		if !again {
			return taken, err
		}
		// The state may be what has changed.
		if l, err = s.find(ctx, l.tenant, l.name); err != nil {
			return 0, err
		}
		if l == nil || l.state.Status != Active {
			return 0, nil
		}
	}
	return 0, errContended
}

// takeOnce is one try of take. It asks for another one if the state that it rests on has changed.
func (s *Service) takeOnce(
	ctx context.Context, l *listener, line *line, track string, events []*j17.Event, listed bool,
	done func(int) []store.Side,
) (taken int, again bool, err error) {
	line.decide.Lock()
	defer line.decide.Unlock()

	// Deliveries or notes for the events, as far as there is room.
	p := plan{
		s: s, l: l, track: track, listed: listed, room: s.pool.room(line), now: s.o.Clock.Now(),
		behind: map[string]*behind{},
	}
	for _, ev := range events {
		more, err := p.add(ctx, ev)
		if err != nil {
			return 0, false, err
		}
		if !more {
			break
		}
		taken++
	}
	if taken < len(events) {
		s.pool.starve(line)
	}
	if taken == 0 {
		return 0, false, nil
	}

	// The commit, on the condition that nothing has changed meanwhile.
	for key, waiting := range p.behind {
		p.sides = append(p.sides, put(behindSpace, key, waiting, time.Time{}))
	}
	p.sides = append(p.sides, done(taken)...)
	err = s.o.Store.Write(ctx, l.tenant, p.sides, append(p.fences, l.state.fence(l.name))...)
	if overtaken(err) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, err
	}

	// The new deliveries begin.
	s.pool.count(line, len(p.made))
	for _, job := range p.made {
		err = errors.Join(err, s.ready(line, job))
	}
	return taken, false, err
}

// countLanes counts the deliveries of a listener that have not ended, if this process does not know their number.
func (s *Service) countLanes(ctx context.Context, line *line) error {
	s.pool.mu.Lock()
	known := line.lanes >= 0
	s.pool.mu.Unlock()
	if known {
		return nil
	}
	items, err := s.o.Store.Scan(ctx, line.at.tenant, laneSpace, store.Prefix(line.at.name+"/"), maxLanes+1)
	if err != nil {
		return err
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	line.lanes = len(items)
	return nil
}

// job is a delivery to be tried, with its event and a recent state of the listener if they are at hand.
type job struct {
	at       at
	delivery *delivery
	// due is when another process takes the delivery over, unless it has begun before.
	due      time.Time
	event    *j17.Event
	listener *listener
	// generation is the generation of the event's stream when the try began.
	generation uint64
}

// plan collects the deliveries and notes for events.
type plan struct {
	s      *Service
	l      *listener
	track  string
	listed bool
	room   int
	now    time.Time

	sides  []store.Side
	fences []store.Fence
	made   []job
	// behind has the notes about waiting events by the keys of their lanes.
	behind map[string]*behind
}

// maxListed bounds the versions that a note can list.
const maxListed = 1000

// add plans a delivery of an event, or a note that it waits for its aggregate's delivery under way. It reports false if
// there is no room.
func (p *plan) add(ctx context.Context, ev *j17.Event) (bool, error) {
	// A delivery if the lane is empty; otherwise the note of the lane.
	key := laneKey(p.l.name, p.track, ev.Key.String())
	waiting := p.behind[key]
	if waiting == nil && !slices.ContainsFunc(p.made, func(j job) bool { return j.delivery.lane() == key }) {
		it, err := p.s.o.Store.Get(ctx, p.l.tenant, laneSpace, key)
		if errors.Is(err, store.ErrNotFound) {
			if len(p.made) >= p.room {
				return false, nil
			}
			p.make(ev)
			return true, nil
		}
		if err != nil {
			return false, err
		}
		p.fences = append(p.fences, store.Fence{Space: laneSpace, Key: key, Rev: it.Rev})
		known, rev, err := read[behind](ctx, p.s.o.Store, p.l.tenant, behindSpace, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
		p.fences = append(p.fences, store.Fence{Space: behindSpace, Key: key, Rev: rev})
		waiting = &known
	}
	if waiting == nil {
		waiting = &behind{}
	}

	// The event waits behind them.
	if p.listed {
		if len(waiting.Listed) >= maxListed {
			return false, nil
		}
		waiting.Listed = append(waiting.Listed, ev.Version)
	} else {
		waiting.Last = ev.Version
	}
	p.behind[key] = waiting
	return true, nil
}

// make plans a delivery.
func (p *plan) make(ev *j17.Event) {
	d := p.s.newDelivery(p.l, p.track, ev, p.now)
	d.Created += int64(len(p.made)) // in lists the later event counts as the newer one
	claimed := claimedLane(d, p.now)
	p.sides = append(p.sides, put(deliverySpace, d.ID, d, time.Time{}), d.found(p.now), claimed.On(0))
	p.made = append(p.made, job{at: p.l.at, delivery: d, due: claimed.Due, event: kept(ev)})
}

// keptEvent is the size in bytes up to which a ready delivery keeps its event in memory. Larger events are read when
// they are sent, so that deliveries waiting for slow endpoints take little memory.
const keptEvent = 8 << 10

// kept returns a copy of an event for a ready delivery, nil if it is to be read again, and may fail then.
func kept(ev *j17.Event) *j17.Event {
	if ev.Raw == nil || len(ev.Raw) > keptEvent {
		return nil
	}
	return ev.Clone()
}

// newDelivery returns a delivery of an event.
func (s *Service) newDelivery(l *listener, track string, ev *j17.Event, now time.Time) *delivery {
	d := &delivery{
		ID: s.mint.Handle(ident.DeliveryPrefix), Listener: l.name, Track: track, Status: Pending, StreamID: ev.StreamID,
		Key:  ev.Key.String(),
		Type: ev.Type, Version: ev.Version, Created: now.UnixNano(), Again: track != "",
	}
	if l.definition.Format == spec.FormatCloudEvents {
		d.Format, d.Source = spec.FormatCloudEvents, l.source
	}
	return d
}

// claimedLane returns the write that puts a delivery into its lane as made ready by this process. It is due for others
// when the lease ends, or at once if this process ends before.
func claimedLane(d *delivery, now time.Time) store.Side {
	side := laneSide(d, now.Add(lease))
	side.Claimed = now
	return side
}

// laneSide returns the write that puts a delivery into its lane.
func laneSide(d *delivery, due time.Time) store.Side {
	return store.Side{Op: store.Put, Space: laneSpace, Key: d.lane(), Value: []byte(d.ID), Due: due}
}
