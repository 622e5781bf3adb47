package place

import "j17/internal/base/geo"

// step is a step of a search: a cell, with the keys of its entries if they are known, or a group of points at one
// place, from its next ID on.
type step struct {
	near float64
	slot *slot
	cell geo.Cell
	keys []string
	*group
}

// group is the aggregates at one point, in the order of their IDs.
type group struct {
	point geo.Point
	// prefix is the prefix of their keys. ids are the next IDs; more reports that others follow.
	prefix string
	ids    []string
	more   bool
}

// steps is a heap: the nearest first, cells before points, points by ID. (Package container/heap would allocate memory
// for each step.)
type steps []step

// mark returns the mark of the next aggregate of a group; that of a cell sorts before all aggregates that can be in it.
func (s *step) mark() Mark {
	if s.group == nil {
		return Mark{Distance: s.near}
	}
	return Mark{Distance: s.near, ID: s.ids[0], Slot: s.slot.ID}
}

// before compares the steps at two indexes of the heap.
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
