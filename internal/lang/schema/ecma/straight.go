package ecma

// straight is a pattern that has at most one way to match, as most patterns of identifiers and codes do: it starts
// where the text does, and is a row of repeated sets of which each ends where the next begins, since the two have no
// character in common. One look at each character is enough.
type straight struct {
	runs []straightRun
	// toEnd says that the match has to end where the text does.
	toEnd bool
}

// straightRun is min to max characters of a set.
type straightRun struct {
	set      *set
	min, max int
}

// straightened returns the straight form of a pattern, nil for one that has none.
func straightened(tree *node) *straight {
	// A pattern that begins at the start of the text.
	parts := []*node{tree}
	if tree.op == opCat {
		parts = tree.subs
	}
	if len(parts) == 0 || parts[0].op != opBegin || parts[0].multiline {
		return nil
	}

	// A row of sets, each repeated, and perhaps the end.
	out := &straight{}
	for _, n := range parts[1:] {
		if out.toEnd {
			return nil
		}
		if n = n.inner(); n.op == opEnd && !n.multiline {
			out.toEnd = true
			continue
		}
		run := straightRun{min: 1, max: 1}
		if n.op == opRepeat {
			run.min, run.max = n.min, n.max
			n = n.subs[0].inner()
		}
		if n.op != opSet {
			return nil
		}
		run.set = n.set
		out.runs = append(out.runs, run)
	}

	// Where a run ends must not depend on what follows.
	for i := range out.runs {
		if !out.ends(i) {
			return nil
		}
	}
	return out
}

// inner returns what is in the brackets of a group, or n where it is none.
func (n *node) inner() *node {
	for n.op == opCapture {
		n = n.subs[0]
	}
	return n
}

// ends reports whether it is certain where run i ends: because of its length, or because what can follow it is none of
// it.
func (p *straight) ends(i int) bool {
	r := &p.runs[i]
	if r.min == r.max {
		return true
	}
	for _, next := range p.runs[i+1:] {
		if r.set.meets(next.set) {
			return false
		}
		if next.min > 0 {
			break
		}
	}
	return true
}

// meets reports whether two sets have a character in common.
func (s *set) meets(other *set) bool {
	i, j := 0, 0
	for i < len(s.spans) && j < len(other.spans) {
		a, b := s.spans[i], other.spans[j]
		switch {
		case a.hi < b.lo:
			i++
		case b.hi < a.lo:
			j++
		default:
			return true
		}
	}
	return false
}

// match reports whether the text matches, which it looks through once.
func (p *straight) match(s string) bool {
	pos := 0
	for i := range p.runs {
		r := &p.runs[i]
		count := 0
		for (count < r.max || r.max == unbounded) && pos < len(s) {
			c, n := runeAt(s, pos)
			if !r.set.contains(c) {
				break
			}
			pos += n
			count++
		}
		if count < r.min {
			return false
		}
	}
	return !p.toEnd || pos == len(s)
}
