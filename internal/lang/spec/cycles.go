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
// implication. certain tells that nothing but a refusal keeps it from being written.
type edge struct {
	to      eventName
	at      diag.Pointer
	saga    string
	certain bool
}

// cycles adds an error for each implication that closes a circle, and for each circle of sagas that nothing ends; a
// warning where it goes on only if steps fail, or before an answer comes. A guard may end a circle of sagas, but an
// implied event that it refuses takes the whole write with it.
func (c resolver) cycles() {
	c.circles(
		impliedAlways, func(at diag.Pointer, circle []eventName, _ string) { c.Report(at, cycle, shownCircle(circle)) },
	)

	// What is an error is no warning as well.
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

// unrefused returns the edges that follow from an event, but for those to events that a guard may refuse; with certain
// only those that are, to events that nothing else may refuse either.
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

// circles tells of each edge that closes a circle, with the events on it and one of the sagas that are part of it, ""
// where none is.
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
	// trail leads from where the search began to where it is.
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

// circle returns the events from the one on the trail that an edge leads back to, that one at both ends, and the saga
// of the last edge on the way that is one's.
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

// impliedAlways returns the events that an event implies. Conditions do not count, since nobody can tell what they will
// say; scheduled events do not either, since they do not happen in the same write.
func impliedAlways(e *EventType) []edge {
	return implied(nil, e.Implications, func(*Implication) bool { return true })
}

// implied appends the events that those implications bring about which count.
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

// follows returns the events that follow from an event with nothing to end that: neither a condition, nor a schedule,
// nor an answer that is awaited first. What guards of those events say does not count yet.
func follows(e *EventType) []edge {
	found := implied(nil, e.Implications, func(i *Implication) bool {
		return i.Condition == nil && (i.Map == nil || i.Map.Condition == nil) && (i.Emit == nil || !i.Emit.optional())
	})
	for _, s := range e.Sagas {
		found = s.follows(found)
	}
	return found
}

// follows appends the events that a saga writes before it awaits anything, those of which it may write none left out.
// Certain are those that it writes if no step fails and none has an answer to wait for.
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
