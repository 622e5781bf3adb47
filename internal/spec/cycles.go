package spec

import (
	"slices"

	"j17/internal/spec/diag"
)

// eventName is a node of the graphs that implications and sagas make of event types.
type eventName struct{ aggregateType, event string }

func (n eventName) String() string { return n.aggregateType + ":" + n.event }

// edge leads to an event that another one brings about. saga is the name of the saga that writes it, "" for an implication.
type edge struct {
	to   eventName
	at   diag.Pointer
	saga string
}

// cycles adds an error for each implication that closes a circle, and a warning for each circle of sagas that nothing ends: a guard
// may end one, but an implied event that it refuses takes the whole write with it.
func (c *compiler) cycles() {
	c.circles(impliedAlways, func(at diag.Pointer, circle []eventName, _ string) { c.cycle(at, circle) })
	unguarded := func(e *EventType) []edge {
		return slices.DeleteFunc(follows(e), func(x edge) bool {
			to := c.out.EventType(x.to.aggregateType, x.to.event)
			return to != nil && len(to.Requires) > 0
		})
	}
	c.circles(unguarded, func(at diag.Pointer, circle []eventName, saga string) {
		if saga != "" {
			c.endlessSaga(at, saga, circle)
		}
	})
}

// circles tells of each edge that closes a circle, with the events on it and one of the sagas that are part of it, "" where none is.
func (c *compiler) circles(edges func(*EventType) []edge, tell func(at diag.Pointer, circle []eventName, saga string)) {
	g := graph{c: c, edges: edges, tell: tell, state: map[eventName]visit{}}
	for _, t := range c.root.Get("aggregate_types").Members() {
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
	c     *compiler
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

// circle returns the events from the one on the trail that an edge leads back to, that one at both ends, and the saga of the last edge
// on the way that is one's.
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

// impliedAlways returns the events that an event implies. Conditions do not count, since nobody can tell what they will say;
// scheduled events do not either, since they do not happen in the same write.
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
			found = append(found, edge{to: eventName{emit.AggregateType, emit.EventType}, at: emit.Pointer})
		}
		found = implied(found, i.Pipeline, counts)
	}
	return found
}

// follows returns the events that follow from an event with nothing to end that: neither a condition, nor a schedule, nor an answer that
// is awaited first. What guards of those events say does not count yet.
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
func (s *Saga) follows(found []edge) []edge {
	add := func(e *Emit) {
		if e != nil && !e.optional() {
			found = append(found, edge{to: eventName{e.AggregateType, e.EventType}, at: e.Pointer, saga: s.Name})
		}
	}
	for i := range s.Steps {
		if s.Steps[i].Condition == nil {
			add(s.Steps[i].Emit)
		}
		if s.Steps[i].Await != nil {
			return found
		}
	}
	for i := range s.Steps {
		add(s.Steps[i].Compensate)
	}
	add(s.OnComplete)
	add(s.OnFailed)
	return found
}

// optional reports whether the event may be left out, because nothing says which aggregate it is for.
func (e *Emit) optional() bool { return e.ID.Path != nil && e.ID.Path.Optional() }
