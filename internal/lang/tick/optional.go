package tick

// A predicate with an optional path that leads nowhere skips what it guards, whatever its other operands are and in
// whatever order: all optional paths are followed before anything is decided. Those within an element are followed for
// every element.

// guarded is the root of a predicate that has optional paths.
type guarded struct{ predicate }

func (g guarded) test(e *Env) verdict {
	if lacks(e, g.predicate) {
		return skip
	}
	return g.predicate.test(e)
}

// root returns the predicate in the form in which its owner has to evaluate it. first is the number of paths before it
// was compiled.
func (c *compiler) root(p predicate, first int) predicate {
	for _, n := range c.nodes[first:] {
		if n.optional {
			return guarded{p}
		}
	}
	return p
}

// lacks reports whether an optional path of the predicate leads nowhere. It reports true when the budget has ended.
func lacks(e *Env, p predicate) bool {
	if !e.spend(1) {
		return true
	}
	switch p := p.(type) {
	case *equalNode:
		return absentIn(e, p.left) || absentIn(e, p.right)
	case *orderNode:
		return absentIn(e, p.left) || absentIn(e, p.right)
	case *memberNode:
		return absentIn(e, p.value) || absentIn(e, p.array)
	case *countNode:
		return absentIn(e, p.array) || absentIn(e, p.limit)
	case *expiredNode:
		return absentIn(e, p.timestamp) || absentIn(e, p.age) || absentIn(e, p.now)
	case *subsetNode:
		return absentIn(e, p.items) || absentIn(e, p.array)
	case *elementsNode:
		return p.lacks(e)
	case *notNode:
		return lacks(e, p.of)
	case *listNode:
		for _, of := range p.of {
			if lacks(e, of) {
				return true
			}
		}
	}
	return false
}

func (n *elementsNode) lacks(e *Env) bool {
	array, ok := n.in.eval(e)
	if !ok {
		return true
	}
	if !n.optional {
		return false
	}
	outer := e.slots[n.slot]
	defer func() { e.slots[n.slot] = outer }()
	for _, elem := range array.Elems() {
		e.slots[n.slot] = elem
		if lacks(e, n.match) {
			return true
		}
	}
	return false
}

// absentIn reports whether an optional path of a value leads nowhere, so that there is no value.
func absentIn(e *Env, n node) bool {
	switch n := n.(type) {
	case *pathNode:
		return n.optional && n.find(e).IsMissing()
	case *objectNode:
		for _, v := range n.values {
			if absentIn(e, v) {
				return true
			}
		}
	case *arrayNode:
		for _, v := range n.elems {
			if absentIn(e, v) {
				return true
			}
		}
	}
	return false
}
