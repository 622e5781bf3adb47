package schedule

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Effects returns what events schedule and what they cancel; it is one of an engine's effects. An event cancels what
// was scheduled before it in the order of the feed, in its own commit too, but nothing that it schedules itself.
func (s *Service) Effects(ctx context.Context, d *part.Decided) (part.Effects, error) {
	w, err := s.watchOf(ctx, d.Tenant, d.Decider)
	if err != nil {
		return part.Effects{}, store.UserError(err)
	}
	if len(d.Scheduled) == 0 && !w.any(d.Events) {
		return part.Effects{}, nil
	}
	e := effects{
		ends: s.ends(d.Tenant), d: d, watch: w, seen: map[decider.Awaited]bool{}, awaiting: map[decider.Awaited][]int{},
	}
	e.tried = d.Tried
	e.known()
	for i := range d.Events {
		if err := e.event(ctx, i); err != nil {
			return part.Effects{}, store.UserError(err)
		}
	}
	if e.deepest > maxDepth {
		return part.Effects{}, tooDeep()
	}
	if err := e.sums(ctx); err != nil {
		return part.Effects{}, err
	}
	return part.Effects{
		Side: e.sides, Fences: e.fences, Full: e.full,
		Changed: func(c *store.SideConflict) {
			if c.Space == waiting && !d.Tried {
				s.contend(d.Tenant, c.Key)
			}
		},
		Committed:    func([]j17.StreamID) { s.committed(context.WithoutCancel(ctx), &e) },
		Consequences: e.consequences(),
	}, nil
}

// consequences returns what a command that is only tried schedules and cancels.
func (e *effects) consequences() (c part.Consequences) {
	if !e.tried {
		return c
	}
	for i := range e.own {
		if !e.own[i].over {
			c.Scheduled = append(c.Scheduled, e.own[i].row.later(""))
		}
	}
	for _, r := range e.taken {
		c.Canceled = append(c.Canceled, r.later(r.id))
	}
	return c
}

// effects collects what one command schedules and cancels.
type effects struct {
	ends
	d     *part.Decided
	watch *watch
	// next is the index of the first scheduled event that was not processed yet; own has those before it, and awaiting
	// the indexes in own of those that an event cancels.
	next     int
	own      []own
	awaiting map[decider.Awaited][]int
	// seen has the events whose waiting items were read, marked the names of those that leave a mark.
	seen   map[decider.Awaited]bool
	marked []string
	// deepest is the greatest depth of the events that the command schedules.
	deepest int
	// most is the bound of all pending events; fired is how many pending events the command itself removes.
	most, fired int64

	fences []store.Fence
	// created has the IDs of scheduled events, types the types that are awaited for the first time.
	created []string
	types   []pair
}

// own is an event that the command itself schedules.
type own struct {
	*decider.Scheduled
	row *row
	// over reports that another event of the command has canceled it.
	over bool
}

// known records which pending events the command itself removes by writing them, so that it does not cancel them.
func (e *effects) known() {
	for i := range e.d.Asked {
		if side := &e.d.Asked[i]; side.Space == Pending.space() && side.Op == store.Delete {
			e.over[side.Key] = true
			e.fired++
		}
	}
}

// event adds what one event cancels, and then what it schedules.
func (e *effects) event(ctx context.Context, i int) error {
	o := &e.d.Events[i]
	for _, name := range o.ReadAs() {
		if !e.watch.has(pair{o.Key.Type, name}) {
			continue
		}
		on := decider.Awaited{Key: o.Key, Type: name}
		for _, n := range e.awaiting[on] {
			if w := &e.own[n]; !w.over {
				w.over = true
				e.end(w, i)
			}
		}
		delete(e.awaiting, on)
		if !e.seen[on] {
			e.seen[on] = true
			if err := e.cancel(ctx, on, i); err != nil {
				return err
			}
		}
	}
	for n := 0; e.next < len(e.d.Scheduled) && e.d.Scheduled[e.next].Cause == i; n++ {
		e.schedule(&e.d.Scheduled[e.next], n)
		e.next++
	}
	return nil
}

// maxDepth is the maximum length of a chain of events that schedule each other, each within soon, in seconds, which is
// less than any delay. This ends a circle of events that each give a time in the past.
const (
	maxDepth = 50
	soon     = 5 * 60
)

// tooDeep returns the error for an event that would schedule another one beyond maxDepth.
func tooDeep() error {
	err := j17.Errorf(j17.CodeImplicationLimit, "Events schedule each other %d deep at most where each is due within %d minutes, and the event would schedule another one. "+
		"Nothing was written. Let the spec end the circle by a condition, or by times that lie further ahead.", maxDepth, soon/60)
	err.Plain = true
	return err
}

// schedule adds a scheduled event; n numbers those of one event.
func (e *effects) schedule(later *decider.Scheduled, n int) {
	cause := &e.d.Events[later.Cause]
	r := &row{
		by: cause.Key.String(), id: e.mint.Handle(ident.ScheduledPrefix), data: later.JSON, N: n, ByEvent: cause.Type,
		FireAt: later.FireAt(e.d.Timestamp), CreatedAt: e.d.Timestamp,
		Type: later.Key.Type, ID: later.Key.ID, Event: later.Type, Generation: later.Generation,
		CorrelationID: e.d.CorrelationID,
	}
	if r.FireAt < e.d.Timestamp+soon {
		r.Depth = e.d.Depth + 1
		e.deepest = max(e.deepest, r.Depth)
	}
	for _, on := range later.CancelOn {
		r.CancelOn = append(r.CancelOn, named(on))
	}
	e.pending[r.by]++
	e.created = append(e.created, r.id)
	stamp := []int{later.Cause}
	e.sides = append(
		e.sides,
		store.Side{Op: store.Put, Space: rows, Key: r.key(), Value: r.value(), Stamps: stamp},
		store.Side{Op: store.Put, Space: ids, Key: r.id, Value: []byte(strconv.Itoa(n) + " " + r.by), Stamps: stamp},
	)
	for _, on := range later.CancelOn {
		e.awaiting[on] = append(e.awaiting[on], len(e.own))
	}
	e.own = append(e.own, own{Scheduled: later, row: r})
}

// end cancels an event that the command itself has scheduled.
func (e *effects) end(w *own, i int) {
	e.pending[w.row.by]--
	e.canceled = append(e.canceled, w.row.id)
	if e.tried {
		w.row.id = "" // it is never stored
		e.taken = append(e.taken, w.row)
	}
	e.sides = append(e.sides, store.Side{
		Op: store.Put, Space: Canceled.space(), Key: suffix(w.row.N), Value: []byte(w.row.key()), Due: e.forgottenAt(),
		Stamps: []int{w.Cause}, StampKey: true,
	})
	if w.row.id != "" { // a tried event has no ID
		e.sides = append(e.sides, e.endedBy(w.row.id, i)...)
	}
}

// sums adds the items of the command's own scheduled events that remain, and the counters of pending ones.
func (e *effects) sums(ctx context.Context) error {
	// A pending event waits for its time, and for the events that cancel it.
	now := e.Clock.Now()
	for i := range e.own {
		w := &e.own[i]
		if w.over {
			continue
		}
		stamp := []int{w.Cause}
		e.sides = append(e.sides, store.Side{
			Op: store.Put, Space: Pending.space(), Key: suffix(w.row.N), Value: []byte(w.row.key()),
			Due: time.Unix(w.row.FireAt, 0), Stamps: stamp, StampKey: true,
		})
		items, notes := w.row.await(now)
		for i := range items {
			items[i].Stamps = stamp
		}
		e.sides = append(append(e.sides, items...), notes...)
		for _, on := range w.CancelOn {
			p := pair{on.Key.Type, on.Type}
			if !slices.Contains(e.types, p) && !e.watch.isStored(p) {
				e.types = append(e.types, p)
				e.sides = append(e.sides, p.put())
			}
		}
	}

	// The counters, of each aggregate and in all.
	all := int64(0)
	for _, by := range slices.Sorted(maps.Keys(e.pending)) {
		n := e.pending[by]
		all += n
		switch {
		case n > MaxPerAggregate:
			return e.full(&store.SideConflict{Space: counts, Key: by, Full: true})
		case n > 0:
			e.sides = append(e.sides, add(by, n, MaxPerAggregate))
		case n < 0:
			e.sides = append(e.sides, add(by, n, 0))
		}
	}
	if all < 0 {
		e.sides = append(e.sides, add(total, all, 0))
	}
	if all <= 0 {
		return nil
	}
	if all <= e.fired {
		e.sides = append(e.sides, add(total, all, 0)) // no more than before
		return nil
	}
	var err error
	if e.most, err = e.room(ctx, e.d.Tenant); err != nil {
		return store.UserError(err)
	}
	if e.most < all-e.fired {
		return e.tooMany()
	}
	e.sides = append(e.sides, add(total, all, e.most))
	return nil
}

// room returns how many events may be pending in an environment, given the pending ones in the others of its instance.
func (s *Service) room(ctx context.Context, t j17.Tenant) (int64, error) {
	most := int64(s.MaxPerInstance)
	for _, other := range t.Siblings() {
		n, err := store.Counter(ctx, s.Store, other, counts, total)
		if err != nil {
			return 0, err
		}
		most -= n
	}
	return max(most, 0), nil
}

// limited has the details of the error for an event that exceeds a bound.
type limited struct {
	Limit int `json:"limit"`
}

// full returns the error for a counter of pending events that is at its bound.
func (s *Service) full(c *store.SideConflict) error {
	switch {
	case c.Space != counts:
		return nil
	case c.Key == total:
		return s.tooMany()
	}
	err := j17.Errorf(j17.CodeScheduleLimit, "%s may have %d scheduled events pending, and this would be more. Nothing was written. Cancel some of them, or wait until they have come.",
		c.Key, MaxPerAggregate)
	err.Details = limited{MaxPerAggregate}
	return err
}

// tooMany returns the error for an instance with too many pending events.
func (s *Service) tooMany() error {
	err := j17.Errorf(j17.CodeScheduleLimit, "The instance may have %d scheduled events pending, and this would be more. Nothing was written. Cancel some of them, or wait until they have come.",
		s.MaxPerInstance)
	err.Details = limited{s.MaxPerInstance}
	return err
}

// committed updates the counters, and logs what is stored.
func (s *Service) committed(ctx context.Context, e *effects) {
	s.counts.created.Add(uint64(len(e.created)))
	s.counts.canceled.Add(uint64(len(e.canceled)))
	s.tell(ctx, e.d.Tenant, Pending, e.created)
	s.tell(ctx, e.d.Tenant, Canceled, e.canceled)
	e.watch.keep(e.types)
	e.uncontend()
}

// pair is an event type of an aggregate type.
type pair struct{ aggregateType, eventType string }

func (p pair) put() store.Side {
	return store.Side{Op: store.Put, Space: watched, Key: p.aggregateType + "/" + p.eventType}
}

// watch has the event types that cancel scheduled events under one spec: those that the spec names, and those of
// earlier specs that events may still wait for. It does not change: items written under another spec were stored before
// this one was deployed.
type watch struct {
	decider *decider.Decider
	pairs   map[pair]bool

	mu     sync.Mutex
	stored map[pair]bool
}

// has reports whether events of a type cancel anything.
func (w *watch) has(p pair) bool { return w.pairs[p] }

// any reports whether one of the events may cancel something.
func (w *watch) any(events []decider.Event) bool {
	return len(w.pairs) > 0 &&
		slices.ContainsFunc(events, func(o decider.Event) bool {
			return o.Is(func(name string) bool { return w.has(pair{o.Key.Type, name}) })
		})
}

// isStored reports whether a type is known to be stored as awaited.
func (w *watch) isStored(p pair) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored[p]
}

// keep records that types are stored.
func (w *watch) keep(types []pair) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range types {
		w.stored[p] = true
	}
}

// Forget drops the cached state of a tenant that is gone.
func (s *Service) Forget(t j17.Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, t)
}

// watchOf returns the watch of a tenant.
func (s *Service) watchOf(ctx context.Context, t j17.Tenant, d *decider.Decider) (*watch, error) {
	s.mu.Lock()
	w := s.known[t]
	s.mu.Unlock()
	if w != nil && w.decider == d {
		return w, nil
	}

	// The stored awaited types.
	w = &watch{decider: d, pairs: map[pair]bool{}, stored: map[pair]bool{}}
	const page = 1000
	for it, err := range store.Items(ctx, s.Store, t, watched, store.Range{}, page) {
		if err != nil {
			return nil, err
		}
		aggregateType, eventType, _ := strings.Cut(it.Key, "/")
		w.pairs[pair{aggregateType, eventType}], w.stored[pair{aggregateType, eventType}] = true, true
	}

	// The types that the spec may wait for.
	for _, typ := range d.Types {
		for _, et := range typ.Events {
			w.read(et.Implications)
		}
	}

	// Cache the watch.
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[t] = w
	return w, nil
}

// maxKnown is the number of tenants whose watches are cached.
const maxKnown = 1000

// read adds the types that implications name.
func (w *watch) read(implications []*spec.Implication) {
	for _, imp := range implications {
		if imp.Schedule != nil {
			for i := range imp.Schedule.CancelOn {
				on := &imp.Schedule.CancelOn[i]
				w.pairs[pair{on.AggregateType, on.EventType}] = true
			}
		}
		w.read(imp.Pipeline)
	}
}
