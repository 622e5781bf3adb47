package trial

import (
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/lang/compare"
)

// Limits of a dry run on stored data and of its report.
const (
	// MaxAggregates is the number of aggregates that a dry run replays at most.
	MaxAggregates = 1000
	// MaxDiffering is how many aggregates with another state a report shows, maxChanges how many changes of each.
	MaxDiffering = 100
	maxChanges   = 20
	// maxShown is how many bytes of a text or of JSON a report shows.
	maxShown = 512
)

// Compare adds to a report in which places two values of an aggregate differ, as many as can be shown.
func Compare(r *wire.Replay, d wire.StateDifference, was, is value.Value) {
	changes := differences(was, is)
	if len(changes) == 0 {
		return
	}
	r.Changed++
	if len(changes) > maxChanges {
		d.More = len(changes) - maxChanges
		changes = changes[:maxChanges]
	}
	d.Changes = changes
	show(r, d)
}

// Fail adds to a report why an aggregate has no value any more.
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
// many more than most there are.
func Differences(was, is value.Value, most int) (changes []wire.ValueChange, more int) {
	for _, c := range differences(was, is) {
		switch {
		case c.Pointer == "/created_at", c.Pointer == "/updated_at":
		case len(changes) == most:
			more++
		default:
			changes = append(changes, c)
		}
	}
	return changes, more
}

// differences lists the places in which two values differ, as deep as they can be told apart: members by key, elements
// by index.
func differences(was, is value.Value) []wire.ValueChange {
	var c comparison
	c.values("", was, is)
	return c
}

type comparison []wire.ValueChange

func (c *comparison) values(at string, was, is value.Value) {
	switch {
	case value.Equal(was, is):
	case was.Kind() == value.Object && is.Kind() == value.Object:
		// By name: what both have or one has lost, then what is new.
		for _, m := range was.Members() {
			c.values(at+"/"+escape(m.Key), m.Value, is.Get(m.Key))
		}
		for _, m := range is.Members() {
			if was.Get(m.Key).IsMissing() {
				c.values(at+"/"+escape(m.Key), value.Value{}, m.Value)
			}
		}
	case was.Kind() == value.Array && is.Kind() == value.Array:
		// By place.
		for i := range max(was.Len(), is.Len()) {
			a, b := value.Value{}, value.Value{}
			if i < was.Len() {
				a = was.Index(i)
			}
			if i < is.Len() {
				b = is.Index(i)
			}
			c.values(at+"/"+strconv.Itoa(i), a, b)
		}
	default:
		// Anything else is one change.
		change := wire.ValueChange{Pointer: at, Change: string(compare.Changed), Before: shown(was), After: shown(is)}
		switch {
		case was.IsMissing():
			change.Change = string(compare.Added)
		case is.IsMissing():
			change.Change = string(compare.Removed)
		}
		*c = append(*c, change)
	}
}

func escape(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// shown is the start of a value's JSON text.
func shown(v value.Value) string {
	if v.IsMissing() {
		return ""
	}
	return Beginning(string(v.AppendJSON(nil)))
}

// Beginning is the start of a text.
func Beginning(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}
