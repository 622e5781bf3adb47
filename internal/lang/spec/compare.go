package spec

import (
	"maps"
	"slices"
	"strconv"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema/ecma"
)

// Compare finds out what of next would break events that were stored under old. Findings that are errors block a deploy
// unless it is forced; those that are warnings do not. Pointers and places are those of next, of what is left there of
// something removed. Nothing is found where both are the same.
func Compare(old, next *Compiled) []diag.Diagnostic {
	c := &comparer{left: maxAllComparisons, patterns: ecma.NewLibrary()}
	if old.Hash == next.Hash {
		return nil
	}
	was, is := old.root.Get("aggregate_types"), next.root.Get("aggregate_types")
	at := diag.Pointer("/aggregate_types")
	added := missingIn(is, was)
	for _, t := range was.Members() {
		if v := is.Get(t.Key); v.IsMissing() {
			c.typeRemoved(at, t.Key, added)
		} else {
			c.events(t.Key, old, next, at.Key(t.Key).Key("events"))
			c.publicIdentity(old.Types[t.Key], next.Types[t.Key], at.Key(t.Key).Key("identity"))
		}
	}
	c.names(old, next)
	c.tagsKept(old, next)
	c.views(old, next)
	return place(next.text, c.All())
}

// missingIn returns the keys of v that are not in other.
func missingIn(v, other value.Value) []string {
	var keys []string
	for _, m := range v.Members() {
		if other.Get(m.Key).IsMissing() {
			keys = append(keys, m.Key)
		}
	}
	return keys
}

type comparer struct {
	// patterns are those of both specs.
	patterns *ecma.Library
	messages
	// left is what comparing schemas may still cost.
	left int64
}

func (c *comparer) events(aggregateType string, old, next *Compiled, at diag.Pointer) {
	eventsOf := func(s *Compiled) value.Value { return s.root.Get("aggregate_types").Get(aggregateType).Get("events") }
	was, is := eventsOf(old), eventsOf(next)
	added := missingIn(is, was)
	for _, e := range was.Members() {
		switch v := is.Get(e.Key); {
		case ident.IsReservedEventType(e.Key):
			// The platform knows its own events without a spec.
		case v.IsMissing():
			c.eventRemoved(at, aggregateType, e.Key, added)
		default:
			before, now := old.schemaOf(aggregateType, e.Key), next.schemaOf(aggregateType, e.Key)
			if !value.Equal(before.Value, now.Value) || definesAnew(old, next, next.EventType(aggregateType, e.Key)) {
				c.schemas(before, now, at.Key(e.Key).Key("schema"))
			}
		}
	}
}

// schemaOf returns the schema of the data of an event type.
func (c *Compiled) schemaOf(aggregateType, event string) outline.Schema {
	return outline.Of(c.root.Get("aggregate_types").Get(aggregateType).Get("events").Get(event).Get("schema"), c.root.Get("$defs"))
}

// definesAnew reports whether a shared definition that an event's schema reaches is another one than it was.
func definesAnew(old, next *Compiled, e *EventType) bool {
	return e != nil && slices.ContainsFunc(e.Schema.Definitions(), func(name string) bool {
		return !value.Equal(old.root.Get("$defs").Get(name), next.root.Get("$defs").Get(name))
	})
}

func (c *comparer) schemas(was, is outline.Schema, at diag.Pointer) {
	b := work.Counted(min(maxComparisons, c.left))
	p := pair{c: c, budget: b, seen: map[string]verdict{}, patterns: c.patterns}
	v := p.cover([]outline.Schema{was}, []outline.Schema{is}, "data")
	c.left -= b.Spent()
	if b.Err() != nil || p.refused {
		c.Report(at, tooComplex)
		return
	}
	said := map[diag.Pointer]bool{}
	for _, b := range v.breaks {
		if !said[b.at] {
			said[b.at] = true
			b.say(outline.InSpec(at, b.at))
		}
	}
}

// publicIdentity compares what the aggregates of a type are called outside.
func (c *comparer) publicIdentity(was, is *AggregateType, at diag.Pointer) {
	switch {
	case was.Handle == is.Handle || was.Handle == "":
	case is.Handle == "":
		c.Report(at.Key("handle"), handleRemoved, was.Name, string(was.Handle))
	default:
		c.Report(at.Key("handle"), handleChanged, was.Name, string(was.Handle), string(is.Handle))
	}
	if was.Sequence && !is.Sequence {
		c.Report(at.Key("sequence"), sequenceRemoved, was.Name)
	}
}

// views compares what is read: requests for what is gone fail, although nothing that is stored does.
func (c *comparer) views(old, next *Compiled) {
	added := missingIn(next.root.Get("projections"), old.root.Get("projections"))
	for _, m := range old.root.Get("projections").Members() {
		was, is := old.Projections[m.Key], next.Projections[m.Key]
		switch {
		case was == nil:
		case is == nil:
			c.projectionRemoved("/projections", m.Key, added)
		default:
			c.params(was, is, diag.Pointer("/projections").Key(m.Key))
		}
	}
	for _, m := range old.root.Get("aggregate_types").Members() {
		was, is := old.Types[m.Key], next.Types[m.Key]
		if is == nil {
			continue
		}
		for _, shape := range geoShapes() {
			if was.HasPlaces(shape) && !is.HasPlaces(shape) {
				c.Report(diag.Pointer("/aggregate_types").Key(m.Key), placesRemoved, m.Key, shape)
			}
		}
	}
}

// params compares what a projection is asked with.
func (c *comparer) params(was, is *Projection, at diag.Pointer) {
	asked := func(p *Projection) []string {
		var names []string
		if p.Keyed() {
			names = append(names, "an id")
		}
		for _, param := range p.Params {
			names = append(names, quote(param.Name))
		}
		return names
	}
	if before, now := asked(was), asked(is); !slices.Equal(before, now) {
		c.askedOtherwise(at, was.Name, before, now)
	}
}

// names compares what identifiers are made of.
func (c *comparer) names(old, next *Compiled) {
	sequenced := false
	for _, t := range old.Types {
		sequenced = sequenced || t.Sequence
	}
	switch {
	case !sequenced || old.ProjectKey == next.ProjectKey:
	case next.ProjectKey == "":
		c.Report("/project_key", projectKeyRemoved, old.ProjectKey)
	default:
		c.Report("/project_key", projectKeyChanged, old.ProjectKey, next.ProjectKey)
	}
	for _, name := range old.Singletons.Sorted() {
		if !next.Singletons.Has(name) {
			c.Report("/singletons", singletonRemoved, name)
		}
	}
	for v := 1; v <= 8; v++ {
		// An id of that version and of no other meaning.
		n := strconv.Itoa(v)
		id := "00000000-0000-" + n + "000-8000-000000000000"
		if _, _, err := old.IDs.Check(id); err != nil {
			continue
		}
		if _, _, err := next.IDs.Check(id); err != nil {
			c.Report("/identity/uuid_versions", versionRemoved, n)
		}
	}
}

// tagsKept compares what events are found by.
func (c *comparer) tagsKept(old, next *Compiled) {
	var added []string
	for name := range next.TagNames {
		if old.TagNames[name] == nil {
			added = append(added, name)
		}
	}
	slices.Sort(added)
	for _, name := range slices.Sorted(maps.Keys(old.TagNames)) {
		if next.TagNames[name] == nil {
			c.tagRemoved("/aggregate_types", name, added)
		}
	}
}

// sortedKeys returns the keys of several objects, each once, in order.
func sortedKeys(objects ...value.Value) []string {
	keys := map[string]bool{}
	for _, o := range objects {
		for _, m := range o.Members() {
			keys[m.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}
