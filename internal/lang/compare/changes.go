package compare

import (
	"bytes"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/spec"
)

// ChangeKind is what happened to a part of a spec.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// Change is one difference between two specs.
type Change struct {
	Kind ChangeKind `json:"change"`
	// What is the kind of the part: "aggregate type", "event type", "projection".
	What string `json:"what"`
	// Name is the part's name, that of an event type with its aggregate type ("order.was_placed"). Parts that exist
	// once have none.
	Name string `json:"name,omitempty"`
	// Keys lists the members of a part that is Changed in which it differs.
	Keys []string `json:"keys,omitempty"`
}

// Changes lists the differences of next from old: aggregate types with their event types first, in the order of old and
// then, for new ones, in that of next, then the rest. The order of members matters inside a definition, since handlers
// keep it, and does not matter among definitions and declared names. Whether stored events survive the changes is
// reported by Compatibility.
func Changes(old, next *spec.Compiled) []Change {
	var d differ
	was, is := old.Root(), next.Root()
	d.members("aggregate type", "", was.Get("aggregate_types"), is.Get("aggregate_types"), d.aggregateType)
	for _, list := range [][2]string{
		{"agent_types", "agent type"}, {"target_types", "target type"}, {"singletons", "singleton"},
	} {
		d.names(list[1], was.Get(list[0]), is.Get(list[0]))
	}
	d.names("cached aggregate type", was.Get("modules").Get("cache"), is.Get("modules").Get("cache"))
	for _, section := range [][2]string{
		{"$defs", "shared definition"},
		{"geo_types", "geo type"},
		{"projections", "projection"},
		{"listeners", "listener"},
	} {
		d.members(section[1], "", was.Get(section[0]), is.Get(section[0]), d.definition(section[1]))
	}
	d.members("saga", "", was.Get("modules").Get("sagas"), is.Get("modules").Get("sagas"), d.definition("saga"))
	for _, key := range []string{"identity", "project_key"} {
		d.single(key, was.Get(key), is.Get(key))
	}
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(kind ChangeKind, what, name string, keys []string) {
	d.changes = append(d.changes, Change{Kind: kind, What: what, Name: name, Keys: keys})
}

// members compares two objects of definitions. both is called for members of both.
func (d *differ) members(what, prefix string, was, is value.Value, both func(name string, was, is value.Value)) {
	for _, m := range was.Members() {
		if v := is.Get(m.Key); v.IsMissing() {
			d.add(Removed, what, prefix+m.Key, nil)
		} else {
			both(prefix+m.Key, m.Value, v)
		}
	}
	for _, key := range missingIn(is, was) {
		d.add(Added, what, prefix+key, nil)
	}
}

func (d *differ) aggregateType(name string, was, is value.Value) {
	keys := slices.DeleteFunc(differing(was, is), func(key string) bool { return key == "events" })
	if len(keys) > 0 {
		d.add(Changed, "aggregate type", name, keys)
	}
	d.members("event type", name+".", was.Get("events"), is.Get("events"), d.definition("event type"))
}

// definition compares two definitions of the same thing.
func (d *differ) definition(what string) func(name string, was, is value.Value) {
	return func(name string, was, is value.Value) {
		if keys := differing(was, is); len(keys) > 0 || !same(was, is) && was.Kind() != value.Object {
			d.add(Changed, what, name, keys)
		}
	}
}

func (d *differ) single(what string, was, is value.Value) {
	switch {
	case same(was, is):
	case was.IsMissing():
		d.add(Added, what, "", nil)
	case is.IsMissing():
		d.add(Removed, what, "", nil)
	default:
		d.add(Changed, what, "", differing(was, is))
	}
}

// names compares two arrays of names as sets: a name that is in one of them twice is reported once.
func (d *differ) names(what string, was, is value.Value) {
	d.only(Removed, what, was.Elems(), is.Elems())
	d.only(Added, what, is.Elems(), was.Elems())
}

// only adds a change for each name of a list that another list does not have.
func (d *differ) only(kind ChangeKind, what string, list, other []value.Value) {
	seen := make(map[string]bool, len(list)+len(other))
	for _, n := range other {
		seen[n.Str()] = true
	}
	for _, n := range list {
		if !seen[n.Str()] {
			seen[n.Str()] = true
			d.add(kind, what, n.Str(), nil)
		}
	}
}

// differing returns the keys of two objects whose values differ, sorted.
func differing(was, is value.Value) []string {
	return slices.DeleteFunc(sortedKeys(was, is), func(key string) bool { return same(was.Get(key), is.Get(key)) })
}

// same reports whether two values are written the same, white space aside.
func same(a, b value.Value) bool { return bytes.Equal(a.AppendJSON(nil), b.AppendJSON(nil)) }
