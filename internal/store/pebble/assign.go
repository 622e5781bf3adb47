package pebble

import (
	"fmt"
	"strconv"

	"j17/internal/store"
)

// stagedAssignment is the items of an assignment. index is nil where the value comes from a counter, counter where it
// does not.
type stagedAssignment struct {
	owner   *stagedItem
	index   *stagedItem
	counter *stagedItem
}

// checkAssignments loads the items of the unit's assignments into b.assign and puts proposed values that belong to others
// into r.
func (b *batch) checkAssignments(t *tenant, u *store.Append, r *store.Result) error {
	b.assign = b.assign[:0]
	for i := range u.Assign {
		a := &u.Assign[i]
		owner, err := b.item(t, a.Space, a.Owner)
		if err != nil {
			return err
		}
		staged := stagedAssignment{owner: owner}
		if a.Counter != "" {
			if staged.counter, err = b.item(t, a.Index, a.Counter); err != nil {
				return err
			}
			if _, err := b.count(t, a, staged.counter); err != nil {
				return err
			}
		} else {
			if staged.index, err = b.item(t, a.Index, a.Value); err != nil {
				return err
			}
			if !owner.live(b.now) && staged.index.live(b.now) {
				r.Sides = append(r.Sides, store.SideConflict{Space: a.Index, Key: a.Value, Rev: staged.index.rev})
			}
		}
		b.assign = append(b.assign, staged)
	}
	return nil
}

// count returns the last number that a counter has given out.
func (b *batch) count(t *tenant, a *store.Assignment, counter *stagedItem) (uint64, error) {
	if !counter.live(b.now) {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(counter.value), 10, 63)
	if err != nil {
		return 0, corruption(fmt.Errorf("the counter: %w", err), "side item %s/%s of tenant %s", a.Index, a.Counter, t.name)
	}
	return n, nil
}

// stageAssignments stages the values of owners that have none, and tells those of all.
func (b *batch) stageAssignments(t *tenant, u *store.Append, r *store.Result) {
	for i := range u.Assign {
		a, staged := &u.Assign[i], &b.assign[i]
		if !staged.owner.live(b.now) {
			value, index := a.Value, staged.index
			if staged.counter != nil {
				last, _ := b.count(t, a, staged.counter) // checked when it was loaded
				value, index = strconv.FormatUint(last+1, 10), &stagedItem{}
				b.stageItem(t, a.Index, a.Counter, staged.counter, 0, 0, []byte(value))
			}
			b.stageItem(t, a.Space, a.Owner, staged.owner, 0, 0, []byte(value))
			b.stageItem(t, a.Index, value, index, 0, 0, []byte(a.Owner))
		}
		r.Assigned = append(r.Assigned, string(staged.owner.value))
	}
}
