package place

import "j17/internal/base/geo"

// step is something to look at: a cell, with the keys of its entries where they are known, or a group of points at one
// place, from its next id on.
type step struct {
	near float64
	slot *slot
	cell geo.Cell
	keys []string
	*group
}

// group is the aggregates that are at one point, in the order of their ids.
type group struct {
	point geo.Point
	// prefix is what their keys begin with. ids are the next ones; more reports that there are others behind them.
	prefix string
	ids    []string
	more   bool
}

// steps is a heap: what is nearest first, cells before points, points by id. (Package container/heap would take memory
// for each step that comes and goes.)
type steps []step

// mark is that of the next aggregate of a group; a cell has one that is before those of all that can be in it.
func (s *step) mark() Mark {
	if s.group == nil {
		return Mark{Distance: s.near}
	}
	return Mark{Distance: s.near, ID: s.ids[0], Slot: s.slot.ID}
}

// before reports whether a step comes before another one, both by their places in the heap.
func (s steps) before(i, j int) bool { return s[i].mark().compare(s[j].mark()) < 0 }

// push adds a step.
func (s *steps) push(x step) {
	*s = append(*s, x)
	all := *s
	for i := len(all) - 1; i > 0; {
		parent := (i - 1) / 2 //nolint:mnd // each has two below it
		if !all.before(i, parent) {
			return
		}
		all[i], all[parent] = all[parent], all[i]
		i = parent
	}
}

// pop removes the first step.
func (s *steps) pop() step {
	all := *s
	first, last := all[0], len(all)-1
	all[0], all[last] = all[last], step{}
	all = all[:last]
	*s = all
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if all.before(child, least) {
				least = child
			}
		}
		if least == i {
			return first
		}
		all[i], all[least] = all[least], all[i]
		i = least
	}
}
