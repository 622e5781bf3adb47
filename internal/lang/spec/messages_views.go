package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Projections.

func (m *messages) badProjectionName(at diag.Pointer, name string) *diag.Diagnostic {
	return m.Errorf(at, "a projection cannot be named %s", quote(name)).
		Hintf("use at most %d lower-case letters, digits and underscores, and start with a letter", MaxNameLength)
}

func (m *messages) otherName(at diag.Pointer, name, key string) {
	m.Errorf(at, "the projection is called %s here and %s by its key", quote(name), quote(key)).Hintf("leave the name out, or make them the same")
}

func (m *messages) projectionTooLarge(at diag.Pointer, size, most int) {
	m.Errorf(at, "the definition of the projection has %d bytes; at most %d are accepted", size, most).
		Hintf("split it into several projections, or move large constants into a singleton that is included")
}

func (m *messages) selectTooLarge(at diag.Pointer, values, most int) {
	m.Errorf(at, "select is made of %d values; at most %d are accepted", values, most).
		Hintf("split it into several projections, or select whole objects instead of each of their members")
}

func (m *messages) boundTwice(at diag.Pointer, name string) {
	m.Errorf(at, "%s stands under both sources and include", quote(name)).AtKey().Hintf("choose another name")
}

func (m *messages) badSourceName(at diag.Pointer, name string) *diag.Diagnostic {
	return m.Errorf(at, "a source cannot be named %s", quote(name)).
		Hintf(`paths start with it, as in "$.customer": use at most %d letters, digits and "_", and no digit first`, MaxNameLength)
}

func (m *messages) resultTwice(at diag.Pointer, name string) {
	m.Errorf(at, "there is a source %s already, and each is a member of the result", quote(name)).
		Hintf(`name this one with "as", as in "as": %q`, "other_"+name)
}

func (m *messages) badSource(at diag.Pointer, text string) {
	m.Errorf(at, "%s is no source", quote(text)).Hintf(`write "$key" for the aggregate that is asked for, or {"type": ..., "id": ...}`)
}

func (m *messages) sourceWithoutID(at diag.Pointer) {
	m.Errorf(at, "a source needs one of the keys \"id\" and \"query\"").Hintf(`write "id": "$.order.user_id", or "query": "user_id = $.order.user_id"`)
}

func (m *messages) singleQuery(at diag.Pointer) {
	m.Errorf(at, "a query finds any number of aggregates, so its mode cannot be \"single\"").Hintf("leave the mode out, or write \"id\" for a single one")
}

func (m *messages) manyInSingle(at diag.Pointer, path string) {
	m.Warnf(at, "%s leads to any number of ids, and this source takes one, so that it is always null", quote(path)).
		Hintf(`add "mode": "array"`)
}

func (m *messages) manyInQuery(at diag.Pointer, path string) {
	m.Errorf(at, "a query compares with one value, and %s leads to any number of them", quote(path)).
		Hintf(`name one of them, as in "[0]", or read the aggregates by "id" with "mode": "array"`)
}

func (m *messages) notAtSource(at diag.Pointer, path string, sources []string) {
	d := m.Errorf(at, "%s does not start at a source", quote(path))
	if len(sources) > 0 && len(sources) <= maxSources+maxIncluded {
		d.Hintf("there are $.%s", strings.Join(sources, ", $."))
		return
	}
	d.Hintf(`write a path such as "$.order.customer_id"`)
}

func (m *messages) sourceCycle(at diag.Pointer, names []string) {
	m.Errorf(at, "these sources form a cycle: %s", strings.Join(names, " -> ")).
		Hintf(`each needs the next one first; start one of them at another source, or at "$key"`)
}

func (m *messages) notGlobal(at diag.Pointer, text string) {
	m.Errorf(at, "%s cannot be included; include takes singletons such as \"settings:global\"", quote(text)).
		Hintf("read other aggregates through sources")
}

func (m *messages) longParam(at diag.Pointer, path, name string, earlier []string) {
	d := m.Errorf(at, "%s: %s is no source before this one, and a parameter is a text, into which no path leads", quote(path), quote(name))
	if near := m.Nearest(name, earlier); near != "" {
		d.Hintf("did you mean %q?", "$."+near)
		return
	}
	d.Hintf("write %q for the parameter, or put the source that the path starts at before this one", "$."+name)
}

func (m *messages) paramOfOurs(at diag.Pointer, name string) {
	m.Errorf(at, "a parameter cannot be called %s, which means something in every request", quote(name)).
		Hintf("choose another name, such as %q", "$.of_"+name)
}

func (m *messages) badQuery(at diag.Pointer, text string) {
	m.Errorf(at, "%s is no query", quote(text)).Hintf(`write one field, "=" and a value or a path, as in "user_id = $.user_id": there is one condition in a query`)
}

func (m *messages) quotedInQuery(at diag.Pointer, text, inner string) {
	if inner == "" {
		inner = `""`
	}
	m.Warnf(at, "the field is compared with %s, and the quotes are part of that text", quote(text)).
		Hintf("write the text alone, as in field = %s, or in the double quotes of JSON", inner)
}

func (m *messages) wordInQuery(at diag.Pointer, text, word string) {
	m.Warnf(at, "the field is compared with the text %s", quote(text)).Hintf(`write %s for the value, or the text in the double quotes of JSON`, word)
}

func (m *messages) neverWrittenBy(at diag.Pointer, text, aggregateType, name string, members []string) {
	d := m.Warnf(at, "%s leads to nothing: no handler of %s writes %s", quote(text), quote(aggregateType), quote(name))
	if near := m.Nearest(name, members); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	d.Hintf("write it in a handler, or correct the path")
}

// nameOutsideState: what an aggregate is called stands beside its state.
func (m *messages) nameOutsideState(at diag.Pointer, text, aggregateType, name string) {
	m.Warnf(at, "%s leads to nothing: no handler of %s writes %s, and names of aggregates are no part of their states", quote(text), quote(aggregateType), quote(name)).
		Hintf(`replies have them beside the state: "metadata" of one value, and each row of a list, for the aggregate that it is about`)
}

func (m *messages) wholeSource(at diag.Pointer, text, source string) {
	m.Warnf(at, "%s is all of the source %s here, which is no id and no field", quote(text), quote(source)).
		Hintf("write %q if its id is meant, and give a parameter of that name another one", text+".id")
}

func (m *messages) memberOfMany(at diag.Pointer, text string) {
	m.Warnf(at, "%s leads to nothing: the source is an array, which has elements and no members", quote(text)).
		Hintf(`write "[*]" behind the source for all of them, "[0]" for the first, or find one with $lookup`)
}

func (m *messages) elementOfOne(at diag.Pointer, text string) {
	m.Warnf(at, "%s leads to nothing: a source of one aggregate is no array", quote(text)).
		Hintf(`leave the brackets out, or read many aggregates with "mode": "array" or a query`)
}

func (m *messages) sourceWithoutDollar(at diag.Pointer, text string) {
	m.Warnf(at, "%s is a text here, not a path", quote(text)).Hintf("write %q for the path", "$."+text)
}

// Indexes.

func (m *messages) indexOfArrayForm(at diag.Pointer) {
	m.Errorf(at, "only projections with \"for_each\" can have an index: the others have no rows to find").AtKey().
		Hintf(`remove it, or name the aggregate type that there is a row for with "for_each"`)
}

func (m *messages) badIndex(at diag.Pointer, got string) {
	m.Errorf(at, "an index must be a field, an array of fields or {\"words\": field}, not %s", got).
		Hintf(`write it as in "status", ["team", "points"] or {"words": "title"}`)
}

func (m *messages) indexNoArray(at diag.Pointer, got value.Kind) {
	m.Errorf(at, "index must be an array, not %s", aKind(got)).
		Hintf(`write one element for each index, as in ["status", ["team", "points"], {"words": "title"}]`)
}

func (m *messages) wordsOfMany(at diag.Pointer) {
	m.Errorf(at, "an index of words has one field, not an array of them").
		Hintf(`write an index for each field, as in {"words": "title"}, {"words": "about"}`)
}

func (m *messages) indexedTooLarge(at diag.Pointer, most int) {
	m.Errorf(at, "the fields of the indexes are made of more than %d values of select", most).
		Hintf("index single values, and not what large objects are made of")
}

func (m *messages) indexTwice(at diag.Pointer, of string) {
	m.Errorf(at, "there is an index of %s already", of).Hintf("remove one of them")
}

func (m *messages) fieldTwice(at diag.Pointer, name string) {
	m.Errorf(at, "the field %s stands in this index already", quote(name)).Hintf("remove one of them")
}

func (m *messages) badField(at diag.Pointer, text string) {
	m.Errorf(at, "%s is no field of the result", quote(text)).Hintf(`write the names of members, as in "status" or "address.city"`)
}

func (m *messages) fieldOfOurs(at diag.Pointer, text, name string) {
	m.Errorf(at, "the field %s cannot be indexed: %s means something in every request for a list, so that nobody could ask for the field", quote(text), quote(name)).
		Hintf("select it under another name too, such as %q", "the_"+name)
}

// reversedField tells of a field that nobody can order by. What was deployed before stays: it reports true then.
func (m *messages) reversedField(at diag.Pointer, text string) bool {
	report := m.Errorf
	if m.Stored {
		report = m.Warnf
	}
	report(at, "the field %s cannot be indexed: \"order=%s\" asks for the reverse order of another field", quote(text), text).
		Hintf("select it under a name that does not begin with -, such as %q", cmp.Or(strings.TrimLeft(text, "-"), "reversed"))
	return m.Stored
}

func (m *messages) fieldInArray(at diag.Pointer, text string) {
	m.Errorf(at, "%s leads into an array, where no single field is", quote(text)).
		Hintf(`index an array of the values themselves, such as {"skus": "$.order.lines[*].sku"}: a row is found by each of its elements`)
}

func (m *messages) noField(at diag.Pointer, text string, known []string) {
	d := m.Errorf(at, "there is no field %s in select", quote(text))
	if slices.Contains(known, text) {
		d.Hintf("a member with a dot in its name cannot be indexed, since what follows a dot is a member of what stands before it: select it under a name without one")
		return
	}
	if field, reverse := strings.CutPrefix(text, "-"); reverse && slices.Contains(known, field) {
		d.Hintf("an index serves both orders: write %q", field)
		return
	}
	if near := m.Nearest(text, known); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	const few = 12
	if len(known) > 0 && len(known) <= few {
		d.Hintf("there are %s", strings.Join(known, ", "))
	}
}

func (m *messages) fieldOfAll(at diag.Pointer, text, source, why string) {
	m.Errorf(at, "%s cannot be indexed: it depends on the source %s, the same one for every row (%s), so that one write would move all rows",
		quote(text), quote(source), why).
		Hintf("index what differs from row to row, and leave this field out of the index")
}

func (m *messages) fieldOfQuery(at diag.Pointer, text, source string) {
	m.Errorf(at, "%s cannot be indexed: it depends on the source %s, which is a query, so that a write could move rows that nothing names",
		quote(text), quote(source)).
		Hintf(`index fields of sources with an "id", and leave this field out of the index`)
}

func (m *messages) filterTwice(at diag.Pointer, name, field string) {
	m.Errorf(at, "the field %s cannot be indexed beside %s, since a filter of that name means the other one", quote(name), quote(field)).
		Hintf("select it under another name")
}

// Changes.

func (m *messages) projectionRemoved(at diag.Pointer, name string, added []string) {
	d := m.Warnf(at, "the projection %s was removed; requests for it will fail", quote(name)).AtKey()
	if near := m.Nearest(name, added); near != "" {
		d.Hintf("if it is called %q now, keep %q beside it until nobody asks for it any more", near, name)
		return
	}
	d.Hintf("keep it until nobody asks for it any more")
}

func (m *messages) tagRemoved(at diag.Pointer, name string, added []string) {
	d := m.Warnf(at, "no event type has the tag %s any more; conditions and filters that name it will be refused", quote(name)).AtKey()
	if near := m.Nearest(name, added); near != "" {
		d.Hintf("if it is called %q now, keep %q beside it until nobody names it any more", near, name)
		return
	}
	d.Hintf("keep it until nobody names it any more")
}

func (m *messages) askedOtherwise(at diag.Pointer, name string, was, is []string) {
	asked := func(names []string) string {
		if len(names) == 0 {
			return "nothing"
		}
		return list(names, "and")
	}
	m.Warnf(at, "the projection %s is asked for with %s now and was with %s; requests of the old form will fail", quote(name), asked(is), asked(was)).AtKey().
		Hintf("declare it under another name, and keep the old one until nobody asks for it any more")
}

func (m *messages) placesRemoved(at diag.Pointer, aggregateType, shape string) {
	m.Warnf(at, "aggregates of the type %s had places of the shape %s and have none now; requests for them will fail", quote(aggregateType), shape).AtKey().
		Hintf(`keep "geo" in one of the event types`)
}

// Places.

func (m *messages) geoTypeNamedLikeShape(at diag.Pointer, name string) {
	m.Errorf(at, "a geo type cannot be named %s, since that is a shape", quote(name)).AtKey().Hintf("choose another name")
}

func (m *messages) geoNoObject(at diag.Pointer, got value.Kind) {
	m.Errorf(at, "geo must be an object, not %s", aKind(got)).Hintf(`write it as in {"type": "point", "path": "$.data.location"}`)
}

func (m *messages) geoOfType(at diag.Pointer) {
	m.Errorf(at, "an aggregate type has no geo: events say where their aggregates are").AtKey().
		Hintf(`write it in event types, as in "geo": {"type": "point", "path": "$.data.location"}`)
}

func (m *messages) badGeoPath(at diag.Pointer, path string) {
	m.Errorf(at, "the path of geo must lead to one place in the event's data, which %s does not", quote(path)).
		Hintf(`write it as in "$.data.location"`)
}

func (m *messages) singletonOverPlaces(at diag.Pointer, name, aggregateType string) {
	m.Errorf(at, "there can be no singleton %s, since aggregates have places: /%s/%s asks for those of the type %s", strconv.Quote(name), aggregateType, name, quote(aggregateType)).
		Hintf("choose another name for the singleton")
}
