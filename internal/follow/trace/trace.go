// Package trace finds the graph that an event belongs to: what has caused it, what it has caused, and what of that was
// refused, cancelled or is still to come.
//
// The decisions behind it are in docs/internals/follow.md.
package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/follow/listener"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/storage/store"
)

// MaxNodes is how many nodes a graph has at most.
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
}

// Service finds graphs. It is safe for concurrent use.
type Service struct{ Options }

// New returns a service.
func New(o Options) *Service { return &Service{o} }

// Graph returns the graph that the event at a position belongs to, which is the same for all of its events while it has
// no more than MaxNodes nodes. inspects says that whoever asks may see deliveries and errors. CodeNotFound where there
// is no such event, CodeIndexNotReady while events are not indexed by their correlation ids yet.
func (s *Service) Graph(ctx context.Context, t j17.Tenant, at j17.StreamID, inspects bool) (*wire.Trace, error) {
	w := &walk{
		Service: s, ctx: ctx, tenant: t, inspects: inspects, events: map[j17.StreamID]*event{},
		correlations: map[string]bool{},
		scheduled:    map[string]*schedule.Caused{}, sagas: map[string]*saga.Saga{},
	}
	if err := w.add(at); err != nil {
		return nil, err
	}
	if w.events[at] == nil {
		return nil, j17.Errorf(j17.CodeNotFound, "There is no event with this stream_id. GET events lists those that there are.")
	}
	for len(w.fresh) > 0 && !w.truncated {
		if err := w.step(); err != nil {
			return nil, err
		}
	}
	w.draw()
	if inspects {
		if err := w.deliveries(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(w.out.Nodes, func(a, b wire.TraceNode) int { return cmp.Or(cmp.Compare(a.AtMs, b.AtMs), 0) })
	w.out.Truncated = w.truncated
	return &w.out, nil
}

// event is an event of a graph, with what its metadata say of its causes.
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

// walk gathers a graph.
type walk struct {
	*Service
	ctx      context.Context
	tenant   j17.Tenant
	inspects bool

	events       map[j17.StreamID]*event
	correlations map[string]bool
	scheduled    map[string]*schedule.Caused
	sagas        map[string]*saga.Saga
	// fresh are events whose causes and consequences were not looked for yet.
	fresh     []*event
	truncated bool
	refusals  []refusal
	out       wire.Trace
}

// refusal is what a saga or a scheduled event was refused.
type refusal struct {
	by   string
	node wire.TraceNode
	at   time.Time
}

// full reports whether the graph has as many nodes as it may have, and notes that there would be more.
func (w *walk) full() bool {
	if len(w.events)+len(w.scheduled)+len(w.sagas) < MaxNodes {
		return false
	}
	w.truncated = true
	return true
}

// take adds an event that was read.
func (w *walk) take(ev *j17.Event) {
	if w.events[ev.StreamID] != nil || w.full() {
		return
	}
	e := &event{id: ev.StreamID, key: ev.Key, typ: ev.Type, erased: ev.Erased()}
	if json.Unmarshal(ev.Metadata, &e.metadata) != nil {
		e.metadata = metadata{} // history may have members of our names that are something else
	}
	w.events[e.id] = e
	w.fresh = append(w.fresh, e)
}

// add adds the event at a position, if there is one.
func (w *walk) add(at j17.StreamID) error {
	if at.IsZero() || w.events[at] != nil {
		return nil
	}
	for ev, err := range w.Store.ReadFeed(w.ctx, w.tenant, at.Previous(), 1) {
		if err != nil {
			return store.UserError(err)
		}
		if ev.StreamID == at {
			w.take(ev)
		}
	}
	return nil
}

// step looks for what the fresh events have to do with.
func (w *walk) step() error {
	// Those of the same correlation ids come first: they are most of a graph.
	for n := 0; n < len(w.fresh); n++ {
		id, _ := w.fresh[n].metadata.CorrelationID.(string)
		tag := j17.CorrelationTag(id)
		if tag == "" || w.fresh[n].erased || w.correlations[tag] {
			continue
		}
		w.correlations[tag] = true
		for ev, err := range w.Store.ReadTagged(
			w.ctx, w.tenant, store.Tagged{Tags: []string{tag}}, j17.StreamID{}, MaxNodes+1, nil,
		) {
			if err != nil {
				return store.UserError(err)
			}
			w.take(ev)
		}
	}
	fresh := w.fresh
	w.fresh = nil
	slices.SortFunc(fresh, func(a, b *event) int { return a.id.Compare(b.id) })

	// Schedules and sagas that their metadata name, and those that their positions lead to.
	positions := make([]j17.StreamID, len(fresh))
	for i, e := range fresh {
		positions[i] = e.id
		if e.erased {
			continue
		}
		if of := e.metadata.Scheduled; of != nil {
			if err := w.addScheduled(of.ID); err != nil {
				return err
			}
		}
		if of := e.metadata.Saga; of != nil {
			if err := w.addSaga(of.ID); err != nil {
				return err
			}
		}
	}
	if err := w.Schedule.CausedBy(w.ctx, w.tenant, positions, w.addScheduled); err != nil {
		return err
	}
	return w.Sagas.CausedBy(w.ctx, w.tenant, positions, w.addSaga)
}

// addScheduled adds a scheduled event, and the events that it has to do with.
func (w *walk) addScheduled(id string) error {
	if w.scheduled[id] != nil || w.full() {
		return nil
	}
	c, err := w.Schedule.Caused(w.ctx, w.tenant, id)
	if j17.CodeOf(err) == j17.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	w.scheduled[id] = c
	if err := w.add(c.By); err != nil {
		return err
	}
	return w.add(c.Ended)
}

// addSaga adds a saga, and the events that it has to do with.
func (w *walk) addSaga(id string) error {
	if w.sagas[id] != nil || w.full() {
		return nil
	}
	g, err := w.Sagas.Get(w.ctx, w.tenant, id)
	if j17.CodeOf(err) == j17.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	w.sagas[id] = g
	g.Causes(func(position string) {
		at, failed := j17.ParseStreamID(position)
		if failed == nil && err == nil {
			err = w.add(at)
		}
	})
	return err
}

// node adds a node.
func (w *walk) node(n wire.TraceNode, at time.Time) {
	n.At, n.AtMs = at.UTC().Format(time.RFC3339), at.UnixMilli()
	if !w.inspects {
		n.Error = ""
	}
	w.out.Nodes = append(w.out.Nodes, n)
}

func (w *walk) edge(from, to, how string) {
	w.out.Edges = append(w.out.Edges, wire.TraceEdge{From: from, To: to, How: how})
}

// refused notes what something was refused, by its number.
func (w *walk) refused(by string, n int, typ, message string, at time.Time) {
	w.refusals = append(w.refusals, refusal{
		by, wire.TraceNode{ID: fmt.Sprintf("%s/refused/%d", by, n), Kind: "refusal", Type: typ, Error: message}, at,
	})
}

// drawRefusals adds what was refused, as far as there is room.
func (w *walk) drawRefusals() {
	for _, r := range w.refusals {
		if len(w.out.Nodes) >= MaxNodes {
			w.truncated = true
			return
		}
		w.node(r.node, r.at)
		w.edge(r.by, r.node.ID, "refused")
	}
}

// draw makes nodes and edges of what was gathered.
func (w *walk) draw() {
	w.out = wire.Trace{Nodes: []wire.TraceNode{}, Edges: []wire.TraceEdge{}}
	all := w.inOrder()
	for _, e := range all {
		n := wire.TraceNode{ID: e.id.String(), Kind: "event", Key: e.key.String(), Type: e.typ}
		if e.erased {
			n.Status = "erased"
		}
		w.node(n, time.UnixMilli(e.id.Ms))
	}
	w.drawSagas()
	w.drawScheduled()
	w.drawImplied(all)
	w.drawRefusals()
}

func (w *walk) inOrder() []*event {
	all := make([]*event, 0, len(w.events))
	for _, e := range w.events {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *event) int { return a.id.Compare(b.id) })
	return all
}

// drawImplied adds how events have led to events.
func (w *walk) drawImplied(all []*event) {
	// The cause of an implied event is the latest one of its name before it.
	type name struct {
		key, typ string
		depth    int
	}
	latest := map[name]string{}
	for _, e := range all {
		id, depth := e.id.String(), 0
		m := &e.metadata
		switch {
		case m.Saga != nil && w.sagas[m.Saga.ID] != nil && m.ImpliedBy == nil:
			how := "emitted"
			if saga.Phase(m.Saga.Phase) == saga.Compensating {
				how = "compensated"
			}
			w.edge(m.Saga.ID, id, how)
		case m.Scheduled != nil && w.scheduled[m.Scheduled.ID] != nil && m.ImpliedBy != nil &&
			m.ImpliedBy.Key == w.scheduled[m.Scheduled.ID].ImpliedBy.Key &&
			m.ImpliedBy.EventType == w.scheduled[m.Scheduled.ID].ImpliedBy.EventType && w.fires(e):
			w.edge(m.Scheduled.ID, id, "emitted") // and is the first of a chain
		case m.ImpliedBy != nil:
			depth = m.ImpliedBy.Depth
			if cause, ok := latest[name{m.ImpliedBy.Key, m.ImpliedBy.EventType, depth - 1}]; ok {
				w.edge(cause, id, "implied")
			} else if cause, ok := latest[name{m.ImpliedBy.Key, m.ImpliedBy.EventType, -1}]; ok {
				w.edge(cause, id, "implied")
			}
		}
		latest[name{e.key.String(), e.typ, depth}], latest[name{e.key.String(), e.typ, -1}] = id, id
	}
}

// fires reports whether an event is the one that was scheduled, and not one that it implies.
func (w *walk) fires(e *event) bool {
	emit := &w.scheduled[e.metadata.Scheduled.ID].Emit
	return e.key == j17.Key{Type: emit.AggregateType, ID: emit.ID} && e.typ == emit.EventType
}

// drawSagas adds the sagas.
func (w *walk) drawSagas() {
	for _, id := range sortedKeys(w.sagas) {
		g := w.sagas[id]
		shape := g.Wire()
		n := wire.TraceNode{
			ID: id, Kind: "saga", Key: g.Trigger.Key, Type: g.Type, Status: string(g.Status), Steps: []wire.TraceStep{},
		}
		if shape.Error != nil {
			n.Error = shape.Error.Message
		}
		for _, step := range shape.Steps {
			n.Steps = append(n.Steps, wire.TraceStep{Name: step.Name, Status: step.Status})
		}
		trigger, _ := j17.ParseStreamID(g.Trigger.StreamID)
		w.node(n, time.UnixMilli(trigger.Ms))
		if w.events[trigger] != nil {
			w.edge(trigger.String(), id, "triggered")
		}
		for i, entry := range g.Timeline {
			switch entry.What { //nolint:exhaustive // the others are no links
			case saga.WasAnswered:
				if at, err := j17.ParseStreamID(entry.StreamID); err == nil && w.events[at] != nil {
					w.edge(entry.StreamID, id, "answered")
				}
			case saga.WasRefused, saga.CompensationWasRefused:
				w.refused(id, i, entry.Step, entry.Error, time.Unix(entry.At, 0))
			}
		}
	}
}

// drawScheduled adds the scheduled events.
func (w *walk) drawScheduled() {
	for _, id := range sortedKeys(w.scheduled) {
		c := w.scheduled[id]
		n := wire.TraceNode{
			ID: id, Kind: "scheduled", Key: c.Emit.AggregateType + ":" + c.Emit.ID, Type: c.Emit.EventType,
			Status: c.Status,
		}
		if c.LastError != nil {
			n.Error = *c.LastError
		}
		w.node(n, time.Unix(c.FireAt, 0))
		if w.events[c.By] != nil {
			w.edge(c.By.String(), id, "scheduled")
		}
		if w.events[c.Ended] != nil {
			w.edge(c.Ended.String(), id, "cancelled")
		}
		if c.Status == string(schedule.Refused) || c.Status == string(schedule.DeadLetter) {
			w.refused(id, 0, c.Emit.EventType, n.Error, time.Unix(c.FireAt, 0))
		}
	}
}

// deliveries adds those of the events, as far as there is room.
func (w *walk) deliveries() error {
	all := w.inOrder()
	positions := make([]j17.StreamID, len(all))
	for i, e := range all {
		positions[i] = e.id
	}
	return w.Listeners.OfEvents(w.ctx, w.tenant, positions, func(d listener.Delivery) bool {
		if len(w.out.Nodes) >= MaxNodes {
			w.truncated = true
			return false
		}
		w.node(wire.TraceNode{
			ID: d.ID, Kind: "delivery", Key: d.Key, Type: d.Listener, Status: string(d.Status), Error: d.LastError,
		}, d.Created)
		w.edge(d.StreamID.String(), d.ID, "delivered")
		return true
	})
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
