package spec

import "j17/internal/spec/diag"

// eventName is a node of the graph that implications make of event types.
type eventName struct{ aggregateType, event string }

func (n eventName) String() string { return n.aggregateType + ":" + n.event }

type edge struct {
	to eventName
	at diag.Pointer
}

// cycles adds an error for each implication that closes a circle. Conditions do not count, since nobody can tell what
// they will say; scheduled events do not either, since they do not happen in the same write.
func (c *compiler) cycles() {
	g := graph{c: c, state: map[eventName]visit{}}
	for _, t := range c.root.Get("aggregate_types").Members() {
		for _, e := range t.Value.Get("events").Members() {
			g.walk(eventName{t.Key, e.Key})
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
	state map[eventName]visit
	// trail leads from where the search began to where it is.
	trail []eventName
}

// walk searches depth first. The trail is no longer than there are event types.
func (g *graph) walk(n eventName) {
	if g.state[n] != unseen {
		return
	}
	e := g.c.out.EventType(n.aggregateType, n.event)
	if e == nil {
		return
	}
	g.state[n] = onTrail
	g.trail = append(g.trail, n)
	for _, next := range edges(nil, e.Implications) {
		switch g.state[next.to] {
		case unseen:
			g.walk(next.to)
		case onTrail:
			if !g.c.Full() {
				g.c.cycle(next.at, g.circle(next.to))
			}
		case done:
		}
	}
	g.trail = g.trail[:len(g.trail)-1]
	g.state[n] = done
}

// circle returns the end of the trail that starts at n, and n again.
func (g *graph) circle(n eventName) []eventName {
	for i := range g.trail {
		if g.trail[i] == n {
			return append(append([]eventName{}, g.trail[i:]...), n)
		}
	}
	return nil
}

func edges(found []edge, implications []*Implication) []edge {
	for _, i := range implications {
		emit := i.Emit
		if i.Map != nil {
			emit = i.Map.Emit
		}
		if emit != nil {
			found = append(found, edge{to: eventName{emit.AggregateType, emit.EventType}, at: emit.Pointer})
		}
		found = edges(found, i.Pipeline)
	}
	return found
}
