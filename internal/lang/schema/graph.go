package schema

import "strings"

// mark is what checkGraph knows of a node.
type mark struct {
	open bool
	// cost is the number of schemas that are checked against one value, chain the longest way among them.
	cost, chain int
}

// sameEdges returns the schemas that apply to the same value as n.
func (n *node) sameEdges() []*node {
	var out []*node
	if s := n.same; s != nil {
		out = append(out, s.allOf...)
		out = append(out, s.anyOf...)
		out = append(out, s.oneOf...)
		for _, sub := range []*node{s.ref, s.not, s.condition, s.ifTrue, s.ifFalse} {
			if sub != nil {
				out = append(out, sub)
			}
		}
	}
	if n.object != nil {
		for _, d := range n.object.dependents {
			out = append(out, d.schema)
		}
	}
	return out
}

// checkGraph refuses schemas that could not be checked in bounded time: those that lead back to themselves for the same
// value, and those that lead to too many others. It returns what is known of them, nil where there is such a schema.
func (c *compiler) checkGraph() map[*node]*mark {
	g := graph{compiler: c, marks: make(map[*node]*mark, len(c.order))}
	for _, n := range c.order {
		if g.visit(n); g.failed {
			return nil
		}
	}
	return g.marks
}

type graph struct {
	*compiler
	marks  map[*node]*mark
	path   []*node
	failed bool
}

func (g *graph) visit(n *node) *mark {
	// A schema that is met again while it is open leads to itself with one and the same value.
	if m := g.shared.marks[n]; m != nil {
		return m
	}
	if m, ok := g.marks[n]; ok {
		if m.open && !g.failed {
			g.failed = true
			g.reportLoop(n)
		}
		return m
	}

	m := &mark{open: true, cost: 1, chain: 1}
	g.marks[n] = m
	g.path = append(g.path, n)

	// What it leads to is added up, since checking goes through all of it.
	for _, sub := range n.sameEdges() {
		if g.failed {
			return m
		}
		below := g.visit(sub)
		m.cost += below.cost
		m.chain = max(m.chain, below.chain+1)
	}

	g.path = g.path[:len(g.path)-1]
	m.open = false

	switch {
	case g.failed:
	case m.cost > maxCost:
		g.failed = true
		g.errorf(n.at, "this schema leads to more than %d schemas for one and the same value", maxCost).
			Hintf("references that are used several times inside each other multiply: use fewer combinations")
	case m.chain > maxChain:
		g.failed = true
		g.errorf(n.at, "this schema leads to others through more than %d steps", maxChain).
			Hintf("refer to the last schema of a chain of references directly")
	}
	return m
}

// reportLoop reports the loop that closes at n, at the first reference on it.
func (g *graph) reportLoop(n *node) {
	start := len(g.path) - 1
	for g.path[start] != n {
		start--
	}
	loop := append(g.path[start:], n)
	for i, from := range loop[:len(loop)-1] {
		if from.same != nil && from.same.ref == loop[i+1] {
			var places []string
			for _, step := range loop {
				places = append(places, "#"+strings.TrimPrefix(string(step.at), "#"))
			}
			if len(places) > 8 {
				places = append(append(places[:4:4], "..."), places[len(places)-3:]...)
			}
			g.errorf(from.at.Key("$ref"), "this reference leads back to its own schema without going into a field or an item: %s",
				strings.Join(places, " to ")).
				Hintf(`a schema can refer to itself only from inside "properties", "items" and the like`)
			return
		}
	}
}
