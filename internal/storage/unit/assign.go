package unit

import (
	"fmt"
	"strconv"

	"j17/internal/storage/store"
)

// assignment has the items of an assignment, and the value that the owner gets, "" if it has one already. index is the
// item under the value, counter is nil if the value was proposed.
type assignment struct {
	owner   *Item
	index   *Item
	counter *Item
	value   string
}

// checkAssignments loads the items of the unit's assignments into b.assign and puts proposed values that belong to
// others into r.
func (b *Batch[T]) checkAssignments(t T, u *store.Append, r *store.Result) error {
	b.assign = b.assign[:0]
	if len(u.Assign) == 0 {
		return nil
	}
	p := pendingAssignments{
		owners: map[*Item]bool{}, values: map[*Item]bool{}, counts: map[*Item]uint64{}, sides: sidesOf(u),
	}
	for i := range u.Assign {
		if a := &u.Assign[i]; a.Counter == "" {
			index, err := b.Item(t, a.Index, a.Value)
			if err != nil {
				return err
			}
			p.values[index] = true
		}
	}
	for i := range u.Assign {
		staged, err := b.checkAssignment(t, &u.Assign[i], &p, r)
		if err != nil {
			return err
		}
		b.assign = append(b.assign, staged)
	}
	return nil
}

// pendingAssignments are the changes of earlier assignments of a unit that are not written yet: the owners that get a
// value, the items under proposed values, and the numbers that counters have reached.
type pendingAssignments struct {
	owners map[*Item]bool
	values map[*Item]bool
	counts map[*Item]uint64
	// sides are the side writes of the unit in the spaces of its assignments.
	sides []*store.Side
}

// sidesOf returns, in order, the side writes of a unit that can change the result of its assignments.
func sidesOf(u *store.Append) (sides []*store.Side) {
	spaces := map[store.Space]bool{}
	for i := range u.Assign {
		spaces[u.Assign[i].Space], spaces[u.Assign[i].Index] = true, true
	}
	for i := range u.Side {
		if w := &u.Side[i]; spaces[w.Space] {
			sides = append(sides, w)
		}
	}
	return sides
}

// checkAssignment loads the items of one assignment and chooses the value.
func (b *Batch[T]) checkAssignment(
	t T, a *store.Assignment, p *pendingAssignments, r *store.Result,
) (staged assignment, err error) {
	if staged.owner, err = b.Item(t, a.Space, a.Owner); err != nil {
		return staged, err
	}

	// An owner that has a value, stored or from earlier in the unit, keeps it.
	has := b.liveAfter(p.sides, a.Space, a.Owner, staged.owner) || p.owners[staged.owner]

	// A proposed value must be free.
	if a.Counter == "" {
		if staged.index, err = b.Item(t, a.Index, a.Value); err != nil || has {
			return staged, err
		}
		if staged.index.Live(b.now) {
			r.Sides = append(r.Sides, store.SideConflict{Space: a.Index, Key: a.Value, Rev: staged.index.Rev})
		}
		staged.value = a.Value
	} else {
		// A counter continues from the number in the unit or the store.
		if staged.counter, err = b.Item(t, a.Index, a.Counter); err != nil {
			return staged, err
		}
		last, known := p.counts[staged.counter]
		if !known {
			if last, err = b.count(t, p.sides, a, staged.counter); err != nil {
				return staged, err
			}
		}
		if has {
			return staged, nil
		}
		// Skip numbers that other owners have as proposed values.
		for taken := true; taken; {
			last++
			staged.value = strconv.FormatUint(last, 10)
			if staged.index, err = b.Item(t, a.Index, staged.value); err != nil {
				return staged, err
			}
			taken = staged.index.Live(b.now) || p.values[staged.index]
		}
		p.counts[staged.counter] = last
	}

	p.owners[staged.owner] = true
	return staged, nil
}

// liveAfter reports whether an item is live after the side writes of the unit.
func (b *Batch[T]) liveAfter(sides []*store.Side, space store.Space, key string, item *Item) bool {
	live := item.Live(b.now)
	for _, w := range sides {
		if w.Space == space && w.Key == key {
			live = w.Op != store.Delete
		}
	}
	return live
}

// count returns the last number given out by a counter, after the side writes of the unit.
func (b *Batch[T]) count(t T, sides []*store.Side, a *store.Assignment, counter *Item) (n uint64, err error) {
	if counter.Live(b.now) {
		if n, err = strconv.ParseUint(string(counter.Value), 10, 63); err != nil {
			return 0, &store.CorruptionError{
				Where: fmt.Sprintf("side item %s/%s of tenant %s", a.Index, a.Counter, t.Now().Name),
				Err:   fmt.Errorf("the counter: %w", err),
			}
		}
	}
	for _, w := range sides {
		if w.Space != a.Index || w.Key != a.Counter {
			continue
		}
		// A value that is not a number counts as 0.
		written, _ := strconv.ParseUint(string(w.Value), 10, 63)
		switch w.Op {
		case store.Raise:
			n = max(n, written)
		case store.Put:
			n = written
		case store.Delete:
			n = 0
		case store.Add:
			added, _ := strconv.ParseInt(string(w.Value), 10, 64)
			n = uint64(max(int64(n)+added, 0))
		}
	}
	return n, nil
}

// writeAssignments writes the values of owners that have none, and puts the values of all owners into r.
func (b *Batch[T]) writeAssignments(t T, u *store.Append, r *store.Result) {
	for i := range u.Assign {
		a, staged := &u.Assign[i], &b.assign[i]
		if staged.value != "" {
			if staged.counter != nil {
				b.Put(t, a.Index, a.Counter, staged.counter, Times{}, []byte(staged.value))
			}
			b.Put(t, a.Space, a.Owner, staged.owner, Times{}, []byte(staged.value))
			b.Put(t, a.Index, staged.value, staged.index, Times{}, []byte(a.Owner))
		}
		r.Assigned = append(r.Assigned, string(staged.owner.Value))
	}
}
