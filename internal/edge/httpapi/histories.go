package httpapi

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/trial"
	"j17/internal/plane/control"
)

// historyHandlers say how the states of aggregates came to be.
type historyHandlers struct {
	engine *engine.Engine
}

const (
	// maxVersions is how many versions a page of changes has, maxVersionChanges how many changes of one it shows.
	maxVersions       = 100
	maxVersionChanges = 200
	// maxBlamed is how many leaves of a state are shown with what set them.
	maxBlamed = 5000
	// blamePages is by which factor each page of versions that is read for a blame is larger than the one before. Most
	// leaves were set lately, and the state before a page has to be computed for each.
	blamePages = 4
)

// routes are reads of operators.
func (h *historyHandlers) routes() []route {
	look := need{control.RightRead, instance}
	return []route{
		{0, get, "aggregates/{type}/{id}/changes", operator, look, "", h.changes, operation{
			id: "listAggregateChanges", about: "List what each version of an aggregate changed in its state", query: versions(), gives: wire.AggregateChanges{},
		}},
		{0, get, "aggregates/{type}/{id}/blame", operator, look, "", h.blame, operation{
			id: "blameAggregate", about: "Find which version and event set each leaf of a state last", query: []parameter{moments()[1]}, gives: wire.Blame{},
		}},
	}
}

func versions() []parameter {
	return []parameter{
		{name: "from", kind: whole, least: 1, about: "The first version, counted from 1; 1 without it."},
		{name: "count", kind: whole, least: 1, most: maxVersions, about: "How many versions; 100 without it."},
	}
}

// changes is GET aggregates/{type}/{id}/changes.
func (h *historyHandlers) changes(c *call, w http.ResponseWriter) error {
	r := c.request
	from, count := uint64(c.query.number("from", 1)), c.query.number("count", maxVersions)
	answer := wire.AggregateChanges{Changes: []wire.VersionChanges{}}
	b := work.New(r.Context(), work.Command)
	length, err := h.engine.History(r.Context(), c.tenant, r.PathValue("type"), r.PathValue("id"), from, count, b,
		func(m engine.Made) error {
			found, more, err := trial.Differences(m.Before, m.After, maxVersionChanges, b)
			if err != nil {
				return err
			}
			of := wire.VersionChanges{
				Length: m.Event.Version, Event: slices.Clone(m.Event.Raw),
				Changes: make([]wire.VersionChange, len(found)), More: more,
			}
			for i, change := range found {
				operation, err := madeBy(&m, change.Pointer, b)
				if err != nil {
					return err
				}
				of.Changes[i] = wire.VersionChange{ValueChange: change, Operation: operation}
			}
			answer.Changes = append(answer.Changes, of)
			return nil
		})
	if err != nil {
		return err
	}
	answer.Length = length
	if n := len(answer.Changes); n > 0 && answer.Changes[n-1].Length < length {
		next := answer.Changes[n-1].Length + 1
		answer.Next = &next
	}
	return c.answer(w, http.StatusOK, answer)
}

// madeBy returns the place of the operation that set what is at a pointer last.
func madeBy(m *engine.Made, pointer string, b *work.Budget) (string, error) {
	for i, step := range slices.Backward(m.Steps) {
		before := m.Before
		if i > 0 {
			before = m.Steps[i-1].State
		}
		units := 1 + len(pointer)/work.BytesPerUnit
		equal := value.EqualCounted(valueAt(before, pointer), valueAt(step.State, pointer), &units)
		switch {
		case !b.Spend(units):
			return "", b.Err()
		case !equal:
			return string(step.At), nil
		}
	}
	return "", nil
}

// valueAt returns what a JSON Pointer leads to, the missing value where there is nothing.
func valueAt(v value.Value, pointer string) value.Value {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			return v
		}
		switch v.Kind() {
		case value.Object:
			v = v.Get(strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~"))
		case value.Array:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= v.Len() {
				return value.Value{}
			}
			v = v.Index(i)
		case value.Missing, value.Null, value.Bool, value.Number, value.String:
			return value.Value{}
		}
	}
	return v
}

// blame is GET aggregates/{type}/{id}/blame: it goes back from the requested version until each leaf has been accounted
// for.
func (h *historyHandlers) blame(c *call, w http.ResponseWriter) error {
	r := c.request
	o := engine.LoadOptions{}
	if _, ok := c.query["length"]; ok {
		o.Length = new(uint64(c.query.number("length", 0)))
	}
	typ, id := r.PathValue("type"), r.PathValue("id")
	s, err := h.engine.Load(r.Context(), c.tenant, typ, id, o)
	if err != nil {
		return err
	}
	data, err := value.ParseStored(string(s.JSON))
	if err != nil {
		return err
	}
	answer := wire.Blame{Length: s.Length, Blame: []wire.Blamed{}}
	empty := map[string]bool{} // the leaves that are objects or lists without anything in them
	leaves("", data, func(pointer string, leaf value.Value) bool {
		if pointer == "/created_at" || pointer == "/updated_at" {
			return true
		}
		if len(answer.Blame) == maxBlamed {
			answer.Truncated = true
			return false
		}
		if leaf.Kind() == value.Object || leaf.Kind() == value.Array {
			empty[pointer] = true
		}
		answer.Blame = append(answer.Blame, wire.Blamed{Pointer: pointer})
		return true
	})

	// From the newest version back, in pages.
	b := work.New(r.Context(), work.Command)
	last := s.Length
	for open, size := len(answer.Blame), uint64(maxVersions); last > 0 && open > 0; size *= blamePages {
		from := last - min(last, size) + 1
		set := blamePage(answer.Blame)
		_, err := h.engine.History(r.Context(), c.tenant, typ, id, from, int(last-from+1), b,
			func(m engine.Made) error {
				return trial.Differing(m.Before, m.After, b, func(at []byte, _, _ value.Value) error {
					by := setBy{m.Event.Version, m.Event.StreamID}
					if of, ok := set[string(at)]; ok {
						*of = by
					}
					// A leaf that is empty now became so when something was removed from it.
					for up := at; len(empty) > 0 && len(up) > 0; {
						if up = up[:bytes.LastIndexByte(up, '/')]; empty[string(up)] && set[string(up)] != nil {
							*set[string(up)] = by
						}
						if !b.SpendBytes(len(up)) {
							return b.Err()
						}
					}
					if !b.SpendBytes(len(at)) {
						return b.Err()
					}
					return nil
				})
			})
		if err != nil {
			return err
		}
		for i := range answer.Blame {
			if leaf := &answer.Blame[i]; leaf.Length == 0 && set.account(leaf) {
				open--
			}
		}
		last = from - 1
	}
	return c.answer(w, http.StatusOK, answer)
}

// setBy is the version that has changed something, and its event.
type setBy struct {
	length uint64
	id     j17.StreamID
}

// blamed has, by pointer, the version of a page that made the last change there: for leaves, and for everything that
// contains them. Where something changes as a whole, so do its leaves.
type blamed map[string]*setBy

// blamePage returns the pointers of the leaves that were not accounted for yet, for a page.
func blamePage(all []wire.Blamed) blamed {
	set := blamed{"": {}}
	for i := range all {
		for at := all[i].Pointer; all[i].Length == 0 && set[at] == nil; at = at[:strings.LastIndexByte(at, '/')] {
			set[at] = &setBy{}
		}
	}
	return set
}

// account notes which version has set a leaf last, if one of the page has.
func (set blamed) account(leaf *wire.Blamed) bool {
	last := *set[""]
	for at := leaf.Pointer; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		if by := set[at]; by.length > last.length {
			last = *by
		}
	}
	if last.length == 0 {
		return false
	}
	leaf.Length, leaf.StreamID = last.length, last.id.String()
	return true
}

// leaves calls each with the pointers of the leaves of a value in its order, until each returns false. An empty object
// or list is a leaf.
func leaves(at string, v value.Value, each func(pointer string, leaf value.Value) bool) bool {
	switch {
	case v.Kind() == value.Object && v.Len() > 0:
		for _, m := range v.Members() {
			if !leaves(at+"/"+strings.ReplaceAll(strings.ReplaceAll(m.Key, "~", "~0"), "/", "~1"), m.Value, each) {
				return false
			}
		}
		return true
	case v.Kind() == value.Array && v.Len() > 0:
		for i := range v.Len() {
			if !leaves(at+"/"+strconv.Itoa(i), v.Index(i), each) {
				return false
			}
		}
		return true
	default:
		return each(at, v)
	}
}
