package trial

import (
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/lang/compare"
)

// Limits of a dry run on stored data and of its report.
const (
	// MaxAggregates is the most aggregates that a dry run replays.
	MaxAggregates = 1000
	// MaxDiffering is how many aggregates with another state a report shows, maxChanges how many changes of each.
	MaxDiffering = 100
	maxChanges   = 20
	// maxShown bounds the bytes of a text or of JSON in a report.
	maxShown = 512
)

// Compare adds to a report the places in which two values of an aggregate differ, as many as can be shown.
func Compare(r *wire.Replay, d wire.StateDifference, was, is value.Value) {
	if d.Changes, d.More = differences(was, is, maxChanges); len(d.Changes) == 0 {
		return
	}
	r.Changed++
	show(r, d)
}

// Fail adds to a report why an aggregate no longer has a value.
func Fail(r *wire.Replay, d wire.StateDifference, why string) {
	r.Failed++
	d.Error = why
	show(r, d)
}

func show(r *wire.Replay, d wire.StateDifference) {
	if len(r.Differences) < MaxDiffering {
		r.Differences = append(r.Differences, d)
	}
}

// Differences lists the places in which two states differ, without the times that the server keeps in them, and how
// many more than most there are. Work is charged to b, if not nil, whose error it returns when the budget is used up.
func Differences(was, is value.Value, most int, b *work.Budget) (changes []wire.ValueChange, more int, err error) {
	err = Differing(was, is, b, func(at []byte, was, is value.Value) error {
		switch {
		case string(at) == "/created_at", string(at) == "/updated_at":
		case len(changes) == most:
			more++
		default:
			if b != nil && !b.SpendBytes(was.Size()+is.Size()) {
				return b.Err()
			}
			changes = append(changes, changed(at, was, is))
		}
		return nil
	})
	return changes, more, err
}

// Differing calls each with the pointers of the deepest places in which two values differ, members by key and elements
// by index, and with both values there. The bytes of a pointer are valid until each returns; an error of each ends
// Differing. Work is charged to b, if not nil, whose error it returns when the budget is used up.
func Differing(was, is value.Value, b *work.Budget, each func(at []byte, was, is value.Value) error) error {
	c := comparison{budget: b, each: each}
	return c.values(was, is)
}

// differences lists up to most of the places in which two values differ, and how many more there are.
func differences(was, is value.Value, most int) (changes []wire.ValueChange, more int) {
	_ = Differing(was, is, nil, func(at []byte, was, is value.Value) error { // it has no errors of its own
		if len(changes) == most {
			more++
		} else {
			changes = append(changes, changed(at, was, is))
		}
		return nil
	})
	return changes, more
}

// changed describes the change of the value at a place.
func changed(at []byte, was, is value.Value) wire.ValueChange {
	change := wire.ValueChange{
		Pointer: string(at), Change: string(compare.Changed), Before: shown(was), After: shown(is),
	}
	switch {
	case was.IsMissing():
		change.Change = string(compare.Added)
	case is.IsMissing():
		change.Change = string(compare.Removed)
	}
	return change
}

// comparison compares two values and keeps the present place in them.
type comparison struct {
	at     []byte
	budget *work.Budget
	each   func(at []byte, was, is value.Value) error
}

// equal reports whether two values are equal, or returns the error of the budget.
func (c *comparison) equal(was, is value.Value) (bool, error) {
	units := 1
	equal := value.EqualCounted(was, is, &units)
	if c.budget != nil && !c.budget.Spend(units) {
		return false, c.budget.Err()
	}
	return equal, nil
}

func (c *comparison) values(was, is value.Value) error {
	equal, err := c.equal(was, is)
	if equal || err != nil {
		return err
	}
	switch {
	case was.Kind() == value.Object && is.Kind() == value.Object:
		// Members by key: first those of the old value, then the new ones.
		for _, m := range was.Members() {
			if err := c.member(m.Key, m.Value, is.Get(m.Key)); err != nil {
				return err
			}
		}
		for _, m := range is.Members() {
			if !was.Get(m.Key).IsMissing() {
				continue
			}
			if err := c.member(m.Key, value.Value{}, m.Value); err != nil {
				return err
			}
		}
		return nil
	case was.Kind() == value.Array && is.Kind() == value.Array:
		// Elements by index.
		for i := range max(was.Len(), is.Len()) {
			a, b := value.Value{}, value.Value{}
			if i < was.Len() {
				a = was.Index(i)
			}
			if i < is.Len() {
				b = is.Index(i)
			}
			if err := c.below(strconv.Itoa(i), a, b); err != nil {
				return err
			}
		}
		return nil
	default:
		// Anything else is one change.
		return c.each(c.at, was, is)
	}
}

func (c *comparison) member(key string, was, is value.Value) error {
	return c.below(escape(key), was, is)
}

// below compares the values one level below the present place, at a part of the pointer.
func (c *comparison) below(part string, was, is value.Value) error {
	before := len(c.at)
	c.at = append(append(c.at, '/'), part...)
	err := c.values(was, is)
	c.at = c.at[:before]
	return err
}

func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// shown returns the beginning of a value's JSON text.
func shown(v value.Value) string {
	if v.IsMissing() {
		return ""
	}
	return Beginning(string(v.AppendJSON(nil)))
}

// Beginning returns the beginning of a text.
func Beginning(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}
