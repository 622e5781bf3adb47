package unit

import (
	"strconv"

	"j17/internal/storage/store"
)

// Check tests the conditions of a unit and puts those that fail into r.
func (b *Batch[T]) Check(t T, u *store.Append, r *store.Result) error {
	// The lengths of streams, whether or not the unit writes to them.
	for i := range u.Pre {
		p := &u.Pre[i]
		h, err := b.Head(t, p.Key)
		if err != nil {
			return err
		}
		if h.Length != p.Length || p.Looked && h.Generation != p.Generation {
			r.Streams = append(r.Streams, store.StreamConflict{Key: p.Key, Expected: p.Length, Actual: h.Length})
		}
	}

	// Fences.
	for i := range u.Fences {
		f := &u.Fences[i]
		item, err := b.fenced(t, f.Space, f.Key)
		if err != nil {
			return err
		}
		if f.ByValue && !item.holds(f.Value, b.now) || !f.ByValue && item.present(b.now) != f.Rev {
			r.Sides = append(r.Sides, store.SideConflict{Space: f.Space, Key: f.Key, Rev: item.present(b.now)})
		}
	}

	// Conditions of side writes, and the bounds of counters.
	if err := b.checkSums(t, u, r); err != nil {
		return err
	}
	for i := range u.Side {
		w := &u.Side[i]
		if w.Cond == store.Always {
			continue
		}
		item, err := b.Item(t, w.Space, w.Key)
		if err != nil {
			return err
		}
		if !b.meets(item, w) {
			r.Sides = append(r.Sides, store.SideConflict{Space: w.Space, Key: w.Key, Rev: item.present(b.now)})
		}
	}

	if err := b.checkAssignments(t, u, r); err != nil || len(u.Unless) == 0 {
		return err
	}

	// Events that must not exist.
	var err error
	r.Matched, err = b.matches(t, u)
	return err
}

// meets reports whether an item meets the condition of a side write.
func (b *Batch[T]) meets(item *Item, w *store.Side) bool {
	switch w.Cond {
	case store.IfAbsent:
		return item.present(b.now) == 0
	case store.IfRev:
		return item.present(b.now) == w.Rev
	case store.IfValue:
		return item.holds(w.Was, b.now)
	case store.Always:
	}
	return true
}

// checkSums puts into r the items that the unit's additions would bring beyond their bounds.
func (b *Batch[T]) checkSums(t T, u *store.Append, r *store.Result) error {
	// The sum of the unit's additions to each item.
	var sums map[*Item]int64
	for i := range u.Side {
		w := &u.Side[i]
		if w.Op != store.Add {
			continue
		}
		item, err := b.Item(t, w.Space, w.Key)
		if err != nil {
			return err
		}
		if sums == nil {
			sums = map[*Item]int64{}
		}
		added, _ := strconv.ParseInt(string(w.Value), 10, 64)
		sums[item] += added
	}
	if sums == nil {
		return nil
	}

	// An item that only decreases is never too full.
	for i := range u.Side {
		w := &u.Side[i]
		if w.Op != store.Add || w.Most == 0 {
			continue
		}
		item, err := b.Item(t, w.Space, w.Key)
		if err != nil {
			return err
		}
		if sum := sums[item]; sum > 0 && item.number(b.now)+sum > w.Most {
			r.Sides = append(r.Sides, store.SideConflict{
				Space: w.Space, Key: w.Key, Rev: item.present(b.now), Full: true,
			})
			sums[item] = 0 // one conflict is enough
		}
	}
	return nil
}
