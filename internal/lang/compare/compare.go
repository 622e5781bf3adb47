// Package compare compares two compiled specs: how the later one differs, and which differences would break events that
// were stored under the earlier one.
package compare

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema/ecma"
	"j17/internal/lang/spec"
)

// Compatibility finds out what of next would break events that were stored under old. Findings that are errors block a
// deploy unless it is forced; warnings do not. Pointers and places are in next; for something removed, they are those
// of what is left around it. Where both are the same, there are no findings.
func Compatibility(old, next *spec.Compiled) []diag.Diagnostic {
	c := &comparer{left: maxAllComparisons, patterns: ecma.NewLibrary()}
	if old.Hash == next.Hash {
		return nil
	}
	was, is := old.Root().Get("aggregate_types"), next.Root().Get("aggregate_types")
	at := diag.Pointer("/aggregate_types")
	added := missingIn(is, was)
	for _, t := range was.Members() {
		if v := is.Get(t.Key); v.IsMissing() {
			c.renamed(c.Report(at, typeRemoved, t.Key), t.Key, added, "for what is stored")
		} else {
			c.events(t.Key, old, next, at.Key(t.Key).Key("events"))
			c.publicIdentity(old.Types[t.Key], next.Types[t.Key], at.Key(t.Key).Key("identity"))
		}
	}
	c.names(old, next)
	c.tagsKept(old, next)
	c.views(old, next)
	return next.Placed(c.All())
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
	diag.List
	// left is how much work comparing schemas may still take.
	left int64
}

func (c *comparer) events(aggregateType string, old, next *spec.Compiled, at diag.Pointer) {
	eventsOf := func(s *spec.Compiled) value.Value {
		return s.Root().Get("aggregate_types").Get(aggregateType).Get("events")
	}
	was, is := eventsOf(old), eventsOf(next)
	added := missingIn(is, was)
	for _, e := range was.Members() {
		before, now := old.EventType(aggregateType, e.Key), next.EventType(aggregateType, e.Key)
		switch {
		case ident.IsReservedEventType(e.Key):
			// The platform knows its own events without a spec.
		case now == nil && before.Retired:
			// Whether some are stored is for a deploy to find out.
		case now == nil:
			d := c.Report(at, eventRemoved, e.Key, aggregateType)
			if near := c.Nearest(e.Key, added); near != "" {
				d.Hintf(
					`if it is called %[1]q now, keep %[2]q with "retired": {"as": %[1]q, "generation": %[3]d}`, near, e.Key,
					next.EventType(aggregateType, near).Generation,
				)
			}
		default:
			c.generations(old, next, before, now)
		}
	}
}

// generations compares the schemas of an event type number by number: those of stored events.
func (c *comparer) generations(old, next *spec.Compiled, was, is *spec.EventType) {
	// Events of the newest generation are read as they are stored, unless something is done to them: then each of them
	// is compared with the whole schema before a deploy.
	before, _ := was.Reading(was.Generation)
	now, _ := is.Reading(is.Generation)
	if was.Generation == is.Generation && before == now && !is.Retired &&
		!sameSchema(old, next, was, is, is.Generation) {
		c.schemas(
			old.Schema(was.AggregateType, was.Name), next.Schema(is.AggregateType, is.Name), is.Pointer.Key("schema"),
		)
	}

	// What the older ones are said to be is for readers of the spec, and for those who still write them.
	for _, g := range is.Older {
		if was.Knows(g.Number) && !sameSchema(old, next, was, is, g.Number) {
			c.Report(g.Pointer.Key("schema"), otherGeneration, g.Number, is.Name)
		}
	}
}

// sameSchema reports whether data of a generation may be what they could be before.
func sameSchema(old, next *spec.Compiled, was, is *spec.EventType, generation int) bool {
	return value.Equal(standsAlone(old, was, generation), standsAlone(next, is, generation))
}

// standsAlone returns the schema of a generation with the shared definitions that it reaches.
func standsAlone(c *spec.Compiled, e *spec.EventType, generation int) value.Value {
	v, compiled := c.SchemaOf(e.AggregateType, e.Name, generation).Value, e.Schema
	if g := e.Of(generation); g != nil {
		compiled = g.Schema
	}
	reached := compiled.Definitions()
	if len(reached) == 0 {
		return v
	}
	definitions := slices.Clone(v.Get("$defs").Members())
	for _, name := range reached {
		definitions = append(definitions, value.Member{Key: name, Value: c.Root().Get("$defs").Get(name)})
	}
	return put(v, []string{"$defs"}, value.ObjectValue(definitions...))
}

func (c *comparer) schemas(was, is outline.Schema, at diag.Pointer) {
	breaks, compared := c.breaks(was, is, "data")
	if !compared {
		c.Report(at, tooComplex)
		return
	}
	said := map[diag.Pointer]bool{}
	for _, b := range breaks {
		if !said[b.at] {
			said[b.at] = true
			b.say(outline.InSpec(at, b.at))
		}
	}
}

// breaks returns what of a schema keeps data from fitting that could be stored before. path is where the data are, in
// messages. It reports false where that takes too much work.
func (c *comparer) breaks(was, is outline.Schema, path string) ([]breaking, bool) {
	b := work.Counted(min(maxComparisons, c.left))
	p := pair{c: c, budget: b, seen: map[string]verdict{}, patterns: c.patterns}
	v := p.cover([]outline.Schema{was}, []outline.Schema{is}, path)
	c.left -= b.Spent()
	return v.breaks, b.Err() == nil && !p.refused
}

// publicIdentity compares the public names of the aggregates of a type.
func (c *comparer) publicIdentity(was, is *spec.AggregateType, at diag.Pointer) {
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

// views compares projections and the like: requests for removed ones fail, although stored data are not affected.
func (c *comparer) views(old, next *spec.Compiled) {
	added := missingIn(next.Root().Get("projections"), old.Root().Get("projections"))
	for _, m := range old.Root().Get("projections").Members() {
		was, is := old.Projections[m.Key], next.Projections[m.Key]
		switch {
		case was == nil:
		case is == nil:
			c.renamed(
				c.Report("/projections", projectionRemoved, m.Key), m.Key, added, "while anybody still asks for it",
			)
		default:
			c.params(was, is, diag.Pointer("/projections").Key(m.Key))
		}
	}
	for _, m := range old.Root().Get("aggregate_types").Members() {
		was, is := old.Types[m.Key], next.Types[m.Key]
		if is == nil {
			continue
		}
		for _, shape := range []string{spec.Point, spec.Polygon} {
			if was.HasPlaces(shape) && !is.HasPlaces(shape) {
				c.Report(diag.Pointer("/aggregate_types").Key(m.Key), placesRemoved, m.Key, shape)
			}
		}
	}
}

// params compares the parameters of a projection.
func (c *comparer) params(was, is *spec.Projection, at diag.Pointer) {
	asked := func(p *spec.Projection) []string {
		var names []string
		if p.Keyed() {
			names = append(names, "an id")
		}
		for _, param := range p.Params {
			names = append(names, diag.Quote(param.Name))
		}
		return names
	}
	if before, now := asked(was), asked(is); !slices.Equal(before, now) {
		c.Report(
			at, askedOtherwise, was.Name, cmp.Or(diag.Join(now, "and"), "nothing"),
			cmp.Or(diag.Join(before, "and"), "nothing"),
		)
	}
}

// names compares what identifiers are made of.
func (c *comparer) names(old, next *spec.Compiled) {
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

// tagsKept compares the tags by which events are found.
func (c *comparer) tagsKept(old, next *spec.Compiled) {
	var added []string
	for name := range next.TagNames {
		if old.TagNames[name] == nil {
			added = append(added, name)
		}
	}
	slices.Sort(added)
	for _, name := range slices.Sorted(maps.Keys(old.TagNames)) {
		if next.TagNames[name] == nil {
			c.renamed(c.Report("/aggregate_types", tagRemoved, name), name, added, "while anybody still names it")
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
