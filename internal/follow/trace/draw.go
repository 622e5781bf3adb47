package trace

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
)

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

// draw creates the nodes and edges of what was collected.
func (w *walk) draw() {
	w.out = wire.Trace{Nodes: []wire.TraceNode{}, Edges: []wire.TraceEdge{}}
	for _, e := range inOrder(w.events) {
		n := wire.TraceNode{ID: e.id.String(), Kind: "event", Key: e.key.String(), Type: e.typ}
		if e.erased {
			n.Status = "erased"
		}
		w.node(n, time.UnixMilli(e.id.Ms))
	}
	w.drawSagas()
	w.drawScheduled()
	w.drawImplied()
	for _, id := range sortedKeys(w.leaves) {
		l := w.leaves[id]
		w.node(l.node, l.at)
		w.edge(l.by, id, l.how)
	}
}

func inOrder(of map[j17.StreamID]*event) []*event {
	all := slices.Collect(maps.Values(of))
	slices.SortFunc(all, func(a, b *event) int { return a.id.Compare(b.id) })
	return all
}

// drawImplied adds the edges from events to the events that they led to. Nearby events count too: a cause for which
// there is no room must not be replaced by another one.
func (w *walk) drawImplied() {
	all := maps.Clone(w.near)
	maps.Copy(all, w.events)
	began := func(e *event) bool {
		m := &e.metadata
		if m.Scheduled == nil || m.ImpliedBy == nil || w.scheduled[m.Scheduled.ID] == nil {
			return false
		}
		by := &w.scheduled[m.Scheduled.ID].ImpliedBy
		return m.ImpliedBy.Key == by.Key && m.ImpliedBy.EventType == by.EventType && w.fires(e)
	}
	ordered := inOrder(all)
	causes := causesOf(ordered, began)
	for _, e := range ordered {
		id, m := e.id.String(), &e.metadata
		if w.events[e.id] == nil {
			continue
		}
		switch cause := causes[e]; {
		case m.Saga != nil && w.sagas[m.Saga.ID] != nil && m.ImpliedBy == nil:
			how := "emitted"
			if saga.Phase(m.Saga.Phase) == saga.Compensating {
				how = "compensated"
			}
			w.edge(m.Saga.ID, id, how)
		case began(e):
			w.edge(m.Scheduled.ID, id, "emitted") // and is the first of a chain
		case cause != nil && w.events[cause.id] != nil:
			w.edge(cause.id.String(), id, "implied")
		}
	}
}

// fires reports whether an event is the scheduled one itself, and not one that it implies.
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
		for _, entry := range g.Timeline {
			if at, err := j17.ParseStreamID(entry.StreamID); entry.What == saga.WasAnswered && err == nil &&
				w.events[at] != nil {
				w.edge(entry.StreamID, id, "answered")
			}
		}
	}
}

// refusedBy returns the leaf for refusal number n of something.
func refusedBy(by string, n int, typ, message string, at time.Time) leaf {
	return leaf{
		by, "refused",
		wire.TraceNode{ID: fmt.Sprintf("%s/refused/%d", by, n), Kind: "refusal", Type: typ, Error: message},
		at,
	}
}

// refusalsOfSaga returns the refusals in a saga's timeline. A timeline has times in seconds, and the positions of
// events: a refusal is no earlier than the event before it that the saga wrote or was answered by.
func refusalsOfSaga(id string, g *saga.Saga) (all []leaf) {
	var before time.Time
	for i, entry := range g.Timeline {
		if at, err := j17.ParseStreamID(entry.StreamID); err == nil {
			before = time.UnixMilli(at.Ms)
		}
		if entry.What == saga.WasRefused || entry.What == saga.CompensationWasRefused {
			at := time.Unix(entry.At, 0)
			if at.Before(before) {
				at = before
			}
			all = append(all, refusedBy(id, i, entry.Step, entry.Error, at))
		}
	}
	return all
}

// refusalsOfScheduled returns the refusal of a scheduled event.
func refusalsOfScheduled(id string, c *schedule.Caused) []leaf {
	if c.Status != string(schedule.Refused) && c.Status != string(schedule.DeadLetter) {
		return nil
	}
	return []leaf{refusedBy(id, 0, c.Emit.EventType, lastError(c), time.Unix(c.FireAt, 0))}
}

// lastError describes the failure of the last try of a scheduled event, "" for none.
func lastError(c *schedule.Caused) string {
	if c.LastError == nil {
		return ""
	}
	return *c.LastError
}

// drawScheduled adds the scheduled events.
func (w *walk) drawScheduled() {
	for _, id := range sortedKeys(w.scheduled) {
		c := w.scheduled[id]
		n := wire.TraceNode{
			ID: id, Kind: "scheduled", Key: c.Emit.AggregateType + ":" + c.Emit.ID, Type: c.Emit.EventType,
			Status: c.Status, Error: lastError(c),
		}
		w.node(n, time.Unix(c.FireAt, 0))
		if w.events[c.By] != nil {
			w.edge(c.By.String(), id, "scheduled")
		}
		if w.events[c.Ended] != nil {
			w.edge(c.Ended.String(), id, "cancelled")
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
