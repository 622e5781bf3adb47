package spec

import (
	"slices"
	"strings"

	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// eventName is a node of the graphs that implications and sagas make of event types.
type eventName struct{ aggregateType, event string }

func (n eventName) String() string { return n.aggregateType + ":" + n.event }

// edge leads to an event that another one brings about. saga is the name of the saga that writes it, "" for an
// implication. certain reports that only a refusal keeps it from being written.
type edge struct {
	to      eventName
	at      diag.Pointer
	saga    string
	certain bool
}

// cycles adds an error for each implication that closes a circle, and for each circle of sagas that nothing ends; a
// warning where a circle of sagas goes on only if steps fail, or before an answer comes. A guard may end a circle of
// sagas, but if it refuses an implied event the whole write fails.
func (c resolver) cycles() {
	c.circles(
		impliedAlways, func(at diag.Pointer, circle []eventName, _ string) { c.Report(at, cycle, shownCircle(circle)) },
	)

	// A circle that is an error is not reported as a warning too.
	told := map[diag.Pointer]bool{}
	for _, certain := range []bool{true, false} {
		c.circles(c.unrefused(certain), func(at diag.Pointer, circle []eventName, saga string) {
			if saga != "" && !told[at] {
				c.endlessSaga(at, saga, circle, certain)
				told[at] = true
			}
		})
	}
}

// unrefused returns the edges that follow from an event, except those to events that a guard may refuse; with certain,
// only the certain edges, to events that nothing else may refuse either.
func (c resolver) unrefused(certain bool) func(*EventType) []edge {
	return func(e *EventType) []edge {
		return slices.DeleteFunc(follows(e), func(x edge) bool {
			to := c.out.EventType(x.to.aggregateType, x.to.event)
			if to == nil || len(to.Requires) > 0 {
				return to != nil
			}
			return certain && (!x.certain || to.Creates != CreatesAny || to.Unique != nil || to.Code != nil)
		})
	}
}

// circles calls tell for each edge that closes a circle, with the events on the circle and the name of one of its
// sagas, "" where there is none.
func (c resolver) circles(edges func(*EventType) []edge, tell func(at diag.Pointer, circle []eventName, saga string)) {
	g := graph{c: c, edges: edges, tell: tell, state: map[eventName]visit{}}
	for _, t := range c.out.root.Get("aggregate_types").Members() {
		for _, e := range t.Value.Get("events").Members() {
			g.walk(edge{to: eventName{t.Key, e.Key}})
		}
	}
}

type visit uint8

const (
	unseen visit = iota
	onTrail
	done
)

type graph struct {
	c     resolver
	edges func(*EventType) []edge
	tell  func(diag.Pointer, []eventName, string)
	state map[eventName]visit
	// trail leads from the start of the search to the current event.
	trail []edge
}

// walk searches depth first. The trail is no longer than there are event types.
func (g *graph) walk(by edge) {
	n := by.to
	if g.state[n] != unseen {
		return
	}
	e := g.c.out.EventType(n.aggregateType, n.event)
	if e == nil {
		return
	}
	g.state[n] = onTrail
	g.trail = append(g.trail, by)
	for _, next := range g.edges(e) {
		switch g.state[next.to] {
		case unseen:
			g.walk(next)
		case onTrail:
			if !g.c.Full() {
				circle, saga := g.circle(next)
				g.tell(next.at, circle, saga)
			}
		case done:
		}
	}
	g.trail = g.trail[:len(g.trail)-1]
	g.state[n] = done
}

// circle returns the events on the trail from the one that an edge leads back to, with that one at both ends, and the
// saga of the last edge of the circle that has one.
func (g *graph) circle(last edge) (events []eventName, saga string) {
	for _, e := range g.trail {
		switch {
		case len(events) > 0:
			events = append(events, e.to)
			if e.saga != "" {
				saga = e.saga
			}
		case e.to == last.to:
			events = append(events, e.to)
		}
	}
	if last.saga != "" {
		saga = last.saga
	}
	return append(events, last.to), saga
}

// impliedAlways returns the events that an event always implies. Those under a condition are left out, since it is not
// known what the condition will say; scheduled events are left out, since they are not part of the same write.
func impliedAlways(e *EventType) []edge {
	return implied(nil, e.Implications, func(*Implication) bool { return true })
}

// implied appends the events of those implications that counts accepts.
func implied(found []edge, implications []*Implication, counts func(*Implication) bool) []edge {
	for _, i := range implications {
		if !counts(i) {
			continue
		}
		emit := i.Emit
		if i.Map != nil {
			emit = i.Map.Emit
		}
		if emit != nil {
			found = append(found, edge{
				to: eventName{emit.AggregateType, emit.EventType}, at: emit.Pointer, certain: true,
			})
		}
		found = implied(found, i.Pipeline, counts)
	}
	return found
}

// follows returns the events that follow from an event without anything that could end the circle: a condition, a
// schedule, or an answer that is awaited first. What guards of those events say does not count yet.
func follows(e *EventType) []edge {
	found := implied(nil, e.Implications, func(i *Implication) bool {
		return i.Condition == nil && (i.Map == nil || i.Map.Condition == nil) && (i.Emit == nil || !i.Emit.optional())
	})
	for _, s := range e.Sagas {
		found = s.follows(found)
	}
	return found
}

// follows appends the events that a saga writes before it awaits anything, except those that it may skip. The certain
// ones are those that it writes if no step fails and none has an answer to wait for.
func (s *Saga) follows(found []edge) []edge {
	add := func(e *Emit, certain bool) {
		if e != nil && !e.optional() {
			found = append(found, edge{
				to: eventName{e.AggregateType, e.EventType}, at: e.Pointer, saga: s.Name, certain: certain,
			})
		}
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		if step.Condition == nil {
			add(step.Emit, step.Await == nil)
		}
		if step.Await != nil {
			return found
		}
	}
	for i := range s.Steps {
		add(s.Steps[i].Compensate, false)
	}
	if e := s.OnComplete; e != nil && e.Condition == nil {
		add(e.Emit, true)
	}
	if e := s.OnFailed; e != nil && e.Condition == nil {
		add(e.Emit, false)
	}
	return found
}

// optional reports whether the event may be left out, because an optional path that its id or its data is leads
// nowhere.
func (e *Emit) optional() bool {
	data := e.Data.Source().Str()
	return e.ID.Path != nil && e.ID.Path.Optional() || jsonpath.IsPath(data) && strings.HasSuffix(data, "?")
}

// shownCircle is a circle of events in words; of a long one the middle is left out.
func shownCircle(circle []eventName) string {
	const shown = 12
	names := make([]string, 0, len(circle))
	for i, n := range circle {
		if len(circle) > shown && i == shown/2 {
			names = append(names, "...")
		}
		if len(circle) <= shown || i < shown/2 || i >= len(circle)-shown/2 {
			names = append(names, n.String())
		}
	}
	return strings.Join(names, " -> ")
}
