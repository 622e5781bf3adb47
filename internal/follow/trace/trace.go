// Package trace finds the graph that an event belongs to: its causes, its consequences, and which of these were
// refused, canceled or are still pending.
//
// The decisions behind it are in docs/internals/follow.md.
package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/upcast"
	"j17/internal/follow/listener"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/storage/store"
)

// MaxNodes is the maximum number of nodes in a graph.
const MaxNodes = 500

// Options configures a Service. All fields are required.
type Options struct {
	Store interface {
		store.Feed
		store.Sides
	}
	Schedule  *schedule.Service
	Sagas     *saga.Service
	Listeners *listener.Service
	// Shown knows as which types events are read.
	Shown *upcast.Reader
}

// Service finds graphs. It is safe for concurrent use.
type Service struct{ Options }

// New returns a service.
func New(o Options) *Service { return &Service{o} }

// Graph returns the graph that the event at a position belongs to, which is the same for all of its events while it has
// at most MaxNodes nodes. Of a larger graph it returns the nodes closest to the event by the number of edges, the
// earlier ones among equally close ones, and after them events that are only related by a correlation ID. inspects
// reports whether the caller may see deliveries and errors. The error is CodeNotFound if there is no such event,
// CodeIndexNotReady while events are not indexed by their correlation IDs yet.
func (s *Service) Graph(ctx context.Context, t j17.Tenant, at j17.StreamID, inspects bool) (*wire.Trace, error) {
	w := &walk{
		Service: s, ctx: ctx, tenant: t, inspects: inspects, seen: map[string]bool{}, near: map[j17.StreamID]*event{},
		whole:   map[string]bool{},
		implied: map[j17.StreamID][]*event{}, emitted: map[string][]*event{},
		events: map[j17.StreamID]*event{}, scheduled: map[string]*schedule.Caused{}, sagas: map[string]*saga.Saga{},
		leaves: map[string]leaf{},
	}
	if err := w.seeAt(at); err != nil {
		return nil, err
	}
	if len(w.next) == 0 {
		return nil, j17.Errorf(j17.CodeNotFound, "There is no event with this stream_id. GET events lists those that there are.")
	}
	if err := w.run(); err != nil {
		return nil, err
	}
	w.draw()
	slices.SortStableFunc(w.out.Nodes, func(a, b wire.TraceNode) int { return cmp.Compare(a.AtMs, b.AtMs) })
	w.out.Truncated = w.truncated
	return &w.out, nil
}

// event is an event of a graph, with the causes in its metadata.
type event struct {
	id       j17.StreamID
	key      j17.Key
	typ      string
	erased   bool
	metadata metadata
}

type metadata struct {
	CorrelationID any `json:"correlation_id"`
	ImpliedBy     *struct {
		Key       string `json:"key"`
		EventType string `json:"event_type"`
		Depth     int    `json:"depth"`
	} `json:"implied_by"`
	Scheduled *struct {
		ID string `json:"scheduled_id"`
	} `json:"scheduled"`
	Saga *struct {
		ID    string `json:"saga_id"`
		Step  string `json:"step"`
		Phase string `json:"phase"`
	} `json:"saga"`
}

// by returns the IDs of the scheduled event and of the saga that an event came from, "" if there is none.
func (m *metadata) by() (scheduled, saga string) {
	if m.Scheduled != nil {
		scheduled = m.Scheduled.ID
	}
	if m.Saga != nil {
		saga = m.Saga.ID
	}
	return scheduled, saga
}

// item is a discovered node, with what it stands for.
type item struct {
	id        string
	at        int64 // milliseconds
	event     *event
	scheduled *schedule.Caused
	saga      *saga.Saga
	leaf      *leaf
}

// before orders nodes at the same distance.
func before(a, b item) int {
	if byTime := cmp.Compare(a.at, b.at); byTime != 0 {
		return byTime
	}
	if a.event != nil && b.event != nil {
		return a.event.id.Compare(b.event.id)
	}
	return cmp.Compare(a.id, b.id)
}

// leaf is a node without further edges: a refusal or a delivery.
type leaf struct {
	by, how string
	node    wire.TraceNode
	at      time.Time
}

const (
	// maxNear is how many events are read for their correlation IDs.
	maxNear = 20 * MaxNodes
	// maxLevel is how many nodes of one distance are discovered before the earliest of them are chosen.
	maxLevel = 10 * MaxNodes
)

// walk collects a graph, outwards from the requested event.
type walk struct {
	*Service
	ctx      context.Context
	tenant   j17.Tenant
	inspects bool

	// seen has the IDs of all discovered nodes, next the nodes of the next distance.
	seen map[string]bool
	next []item

	// near has events that share a correlation ID with one of the graph, whether they are a part of it or not. whole
	// has the tags of the correlation IDs whose events are all near, implied the events that an event has implied,
	// emitted what scheduled events and sagas have led to.
	near    map[j17.StreamID]*event
	whole   map[string]bool
	implied map[j17.StreamID][]*event
	emitted map[string][]*event

	// The nodes of the graph.
	events    map[j17.StreamID]*event
	scheduled map[string]*schedule.Caused
	sagas     map[string]*saga.Saga
	leaves    map[string]leaf
	truncated bool
	out       wire.Trace
}

// run adds nodes to the graph, the closest ones first.
func (w *walk) run() error {
	for room := MaxNodes; len(w.next) > 0; {
		level := w.next
		w.next = nil
		slices.SortFunc(level, before)
		if len(level) > room {
			level, w.truncated = level[:room], true
		}
		if room -= len(level); len(level) == 0 {
			return nil
		}
		for _, it := range level {
			w.keep(it)
		}
		if err := w.around(level); err != nil {
			return err
		}

		// When no edge leads further, the graph continues with events that share its correlation IDs.
		if len(w.next) == 0 {
			for _, e := range inOrder(w.near) {
				w.seeEvent(e)
			}
		}
	}
	return nil
}

// keep adds a node to the graph.
func (w *walk) keep(it item) {
	switch {
	case it.event != nil:
		w.events[it.event.id] = it.event
	case it.scheduled != nil:
		w.scheduled[it.id] = it.scheduled
	case it.saga != nil:
		w.sagas[it.id] = it.saga
	default:
		w.leaves[it.id] = *it.leaf
	}
}

// see adds a node to the next distance, unless it was discovered before.
func (w *walk) see(it item) {
	switch {
	case w.seen[it.id]:
	case len(w.next) == maxLevel:
		w.truncated = true
	default:
		w.seen[it.id] = true
		w.next = append(w.next, it)
	}
}

func (w *walk) seeEvent(e *event) { w.see(item{id: e.id.String(), at: e.id.Ms, event: e}) }

// seeAt sees the event at a position, if there is one.
func (w *walk) seeAt(at j17.StreamID) error {
	if e := w.near[at]; e != nil {
		w.seeEvent(e)
		return nil
	}
	if at.IsZero() || w.seen[at.String()] {
		return nil
	}
	for ev, err := range w.Store.ReadFeed(w.ctx, w.tenant, at.Previous(), 1) {
		if err != nil {
			return store.UserError(err)
		}
		if ev.StreamID == at {
			w.seeEvent(w.read(ev))
		}
	}
	return nil
}

// read returns what a graph needs of an event.
func (w *walk) read(ev *j17.Event) *event {
	e := &event{id: ev.StreamID, key: ev.Key, typ: w.Shown.Type(w.tenant, ev), erased: ev.Erased()}
	if e.erased || json.Unmarshal(ev.Metadata, &e.metadata) != nil {
		e.metadata = metadata{} // history may have members of these names with other types
	}
	return e
}

// seeScheduled sees a scheduled event by its ID.
func (w *walk) seeScheduled(id string) error {
	if id == "" || w.seen[id] {
		return nil
	}
	c, err := w.Schedule.Caused(w.ctx, w.tenant, id)
	if j17.CodeOf(err) == j17.CodeNotFound {
		return nil
	}
	if err == nil {
		w.see(item{id: id, at: time.Unix(c.FireAt, 0).UnixMilli(), scheduled: c})
	}
	return err
}

// seeSaga sees a saga by its ID.
func (w *walk) seeSaga(id string) error {
	if id == "" || w.seen[id] {
		return nil
	}
	g, err := w.Sagas.Get(w.ctx, w.tenant, id)
	if j17.CodeOf(err) == j17.CodeNotFound {
		return nil
	}
	if err == nil {
		trigger, _ := j17.ParseStreamID(g.Trigger.StreamID)
		w.see(item{id: id, at: trigger.Ms, saga: g})
	}
	return err
}

func (w *walk) seeLeaf(l leaf) {
	w.see(item{id: l.node.ID, at: l.at.UnixMilli(), leaf: &l})
}

// around sees the nodes that edges lead to from nodes of the graph.
func (w *walk) around(level []item) error {
	var positions []j17.StreamID
	for _, it := range level {
		var err error
		switch {
		case it.event != nil:
			positions = append(positions, it.event.id)
			err = w.aroundEvent(it.event)
		case it.scheduled != nil:
			err = w.aroundScheduled(it.id, it.scheduled)
		case it.saga != nil:
			err = w.aroundSaga(it.id, it.saga)
		}
		if err != nil {
			return err
		}
	}

	// The sagas, scheduled events and deliveries that the positions of events lead to.
	slices.SortFunc(positions, j17.StreamID.Compare)
	if err := w.Schedule.CausedBy(w.ctx, w.tenant, positions, w.seeScheduled); err != nil {
		return err
	}
	if err := w.Sagas.CausedBy(w.ctx, w.tenant, positions, w.seeSaga); err != nil {
		return err
	}
	if !w.inspects {
		return nil
	}
	return w.Listeners.OfEvents(w.ctx, w.tenant, positions, func(d listener.Delivery) bool {
		w.seeLeaf(leaf{
			d.StreamID.String(), "delivered",
			wire.TraceNode{
				ID: d.ID, Kind: "delivery", Key: d.Key, Type: d.Listener, Status: string(d.Status), Error: d.LastError,
			},
			d.Created,
		})
		return len(w.next) < maxLevel
	})
}

// aroundEvent sees the events that have implied an event, those that it has implied, and the causes in its metadata.
func (w *walk) aroundEvent(e *event) error {
	if err := w.load(e); err != nil {
		return err
	}
	for _, other := range w.implied[e.id] {
		w.seeEvent(other)
	}
	scheduled, saga := e.metadata.by()
	if err := w.seeScheduled(scheduled); err != nil {
		return err
	}
	return w.seeSaga(saga)
}

func (w *walk) aroundScheduled(id string, c *schedule.Caused) error {
	for _, e := range w.emitted[id] {
		w.seeEvent(e)
	}
	for _, r := range refusalsOfScheduled(id, c) {
		w.seeLeaf(r)
	}
	if err := w.seeAt(c.By); err != nil {
		return err
	}
	return w.seeAt(c.Ended)
}

func (w *walk) aroundSaga(id string, g *saga.Saga) (err error) {
	for _, e := range w.emitted[id] {
		w.seeEvent(e)
	}
	for _, r := range refusalsOfSaga(id, g) {
		w.seeLeaf(r)
	}
	g.Causes(func(position string) {
		at, failed := j17.ParseStreamID(position)
		if failed == nil && err == nil {
			err = w.seeAt(at)
		}
	})
	return err
}

// load adds the events with an event's correlation ID to near: all of them or, if they are more than a graph may have,
// those around the event.
func (w *walk) load(e *event) error {
	id, _ := e.metadata.CorrelationID.(string)
	tag := j17.CorrelationTag(id)
	if tag == "" || w.whole[tag] || w.near[e.id] != nil {
		return nil
	}
	if len(w.near) >= maxNear {
		w.truncated = true
		return nil
	}
	all, err := w.tagged(tag, j17.StreamID{}, nil, MaxNodes+1)
	if err != nil {
		return err
	}
	if w.whole[tag] = len(all) <= MaxNodes; !w.whole[tag] {
		if all, err = w.window(tag, e.id); err != nil {
			return err
		}
	}
	for i, other := range all {
		if known := w.near[other.id]; known != nil {
			all[i] = known
		} else {
			w.near[other.id] = other
		}
	}
	w.link(all)
	return nil
}

// tagged reads up to limit events with a tag after a position and, if until is not nil, before another one.
func (w *walk) tagged(tag string, after j17.StreamID, until *j17.StreamID, limit int) (found []*event, err error) {
	for ev, err := range w.Store.ReadTagged(w.ctx, w.tenant, store.Tagged{Tags: []string{tag}}, after, limit, nil) {
		if err != nil {
			return nil, store.UserError(err)
		}
		if until != nil && ev.StreamID.Compare(*until) >= 0 {
			break
		}
		found = append(found, w.read(ev))
	}
	return found, nil
}

// window reads the events with a tag around a position, on each side as many as a graph may have. The earlier ones are
// searched for backwards in stretches of increasing length.
func (w *walk) window(tag string, around j17.StreamID) ([]*event, error) {
	all, err := w.tagged(tag, around.Previous(), nil, MaxNodes+1)
	if err != nil {
		return nil, err
	}
	const firstStretch, longer, shorter = 10, 4, 16 // milliseconds, and factors
	until, found := around, 0
	for stretch := int64(firstStretch); until.Ms > 0 && found < MaxNodes; {
		from := j17.StreamID{Ms: max(0, until.Ms-stretch)}
		earlier, err := w.tagged(tag, from.Previous(), &until, maxNear)
		if err != nil {
			return nil, err
		}
		if len(earlier) == maxNear && stretch > 1 { // it may have more, which are closer
			stretch = max(1, stretch/shorter)
			continue
		}
		earlier = earlier[max(0, len(earlier)-MaxNodes+found):]
		all, found, until = append(earlier, all...), found+len(earlier), from
		stretch *= longer
	}
	return all, nil
}

// link records which events of a correlation ID, given in order, have led to which, and what scheduled events and sagas
// have led to.
func (w *walk) link(all []*event) {
	for e, cause := range causesOf(all, func(*event) bool { return false }) {
		scheduled, saga := e.metadata.by()
		if s, g := cause.metadata.by(); s == scheduled && g == saga {
			// otherwise a schedule or a saga lies between them
			w.implied[e.id] = append(w.implied[e.id], cause)
			w.implied[cause.id] = append(w.implied[cause.id], e)
		}
	}
	for _, e := range all {
		scheduled, saga := e.metadata.by()
		for _, by := range []string{scheduled, saga} {
			if by == "" {
				continue
			}
			w.emitted[by] = append(w.emitted[by], e)
			if w.scheduled[by] != nil || w.sagas[by] != nil { // and was looked around already
				w.seeEvent(e)
			}
		}
	}
}

// causesOf returns which event has implied each of the events, given in order: the latest event before it that has the
// name of its cause. Events for which began reports true are left out, since something else has led to them.
func causesOf(all []*event, began func(*event) bool) map[*event]*event {
	type name struct {
		key, typ string
		depth    int
	}
	const anyDepth = -1
	causes, latest := map[*event]*event{}, map[name]*event{}
	for _, e := range all {
		depth := 0
		if by := e.metadata.ImpliedBy; by != nil && !began(e) {
			depth = by.Depth
			if cause := cmp.Or(
				latest[name{by.Key, by.EventType, depth - 1}], latest[name{by.Key, by.EventType, anyDepth}],
			); cause != nil {
				causes[e] = cause
			}
		}
		key := e.key.String()
		latest[name{key, e.typ, depth}], latest[name{key, e.typ, anyDepth}] = e, e
	}
	return causes
}
