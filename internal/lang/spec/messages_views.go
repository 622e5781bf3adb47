package spec

import (
	"cmp"
	"slices"
	"strings"

	"j17/internal/lang/diag"
)

const (
	// Projections.
	badProjectionName diag.Message = "error: a projection cannot be named %[1]q\n" +
		"use at most %[2]d lower-case letters, digits and underscores, and start with a letter"
	otherName diag.Message = "error: the projection is called %q here and %q by its key\n" +
		"leave the name out, or make them the same"
	projectionTooLarge diag.Message = "error: the definition of the projection has %d bytes; at most %d are accepted\n" +
		"split it into several projections, or move large constants into a singleton that is included"
	selectTooLarge diag.Message = "error: select is made of %d values; at most %d are accepted\n" +
		"split it into several projections, or select whole objects instead of each of their members"
	boundTwice    diag.Message = "error at key: %q stands under both sources and include\nchoose another name"
	badSourceName diag.Message = "error: a source cannot be named %[1]q\n" +
		`paths start with it, as in "$.customer": use at most %[2]d letters, digits and "_", and no digit first`
	resultTwice diag.Message = "error: there is a source %[1]q already, and each is a member of the result\n" +
		`name this one with "as", as in "as": %+[2]q`
	badSource diag.Message = "error: %q is no source\n" +
		`write "$key" for the aggregate that is asked for, or {"type": ..., "id": ...}`
	sourceWithoutID diag.Message = `error: a source needs one of the keys "id" and "query"` + "\n" +
		`write "id": "$.order.user_id", or "query": "user_id = $.order.user_id"`
	singleQuery diag.Message = `error: a query finds any number of aggregates, so its mode cannot be "single"` + "\n" +
		`leave the mode out, or write "id" for a single one`
	manyInSingle diag.Message = "warning: %q leads to any number of ids, and this source takes one, so that it is always null\n" +
		`add "mode": "array"`
	manyInQuery diag.Message = "error: a query compares with one value, and %q leads to any number of them\n" +
		`name one of them, as in "[0]", or read the aggregates by "id" with "mode": "array"`
	sourceCycle diag.Message = "error: these sources form a cycle: %s\n" +
		`each needs the next one first; start one of them at another source, or at "$key"`
	notGlobal diag.Message = `error: %q cannot be included; include takes singletons such as "settings:global"` + "\n" +
		"read other aggregates through sources"
	paramOfOurs diag.Message = "error: a parameter cannot be called %[1]q, which means something in every request\n" +
		"choose another name, such as %+[2]q"
	badQuery diag.Message = "error: %q is no query\n" +
		`write one field, "=" and a value or a path, as in "user_id = $.user_id": there is one condition in a query`
	wordInQuery diag.Message = "warning: the field is compared with the text %[1]q\n" +
		"write %[2]s for the value, or the text in the double quotes of JSON"
	// nameOutsideState: what an aggregate is called stands beside its state.
	nameOutsideState diag.Message = "warning: %q leads to nothing: no handler of %q writes %q, and names of aggregates are no part of their states\n" +
		`replies have them beside the state: "metadata" of one value, and each row of a list, for the aggregate that it is about`
	wholeSource diag.Message = "warning: %[1]q is all of the source %[2]q here, which is no id and no field\n" +
		"write %+[3]q if its id is meant, and give a parameter of that name another one"
	memberOfMany diag.Message = "warning: %q leads to nothing: the source is an array, which has elements and no members\n" +
		`write "[*]" behind the source for all of them, "[0]" for the first, or find one with $lookup`
	elementOfOne diag.Message = "warning: %q leads to nothing: a source of one aggregate is no array\n" +
		`leave the brackets out, or read many aggregates with "mode": "array" or a query`
	sourceWithoutDollar diag.Message = "warning: %[1]q is a text here, not a path\nwrite %+[2]q for the path"

	// Indexes.
	indexOfArrayForm diag.Message = `error at key: only projections with "for_each" can have an index: the others have no rows to find` + "\n" +
		`remove it, or name the aggregate type that there is a row for with "for_each"`
	badIndex diag.Message = `error: an index must be a field, an array of fields or {"words": field}, not %s` + "\n" +
		`write it as in "status", ["team", "points"] or {"words": "title"}`
	indexNoArray diag.Message = "error: index must be an array, not %s\n" +
		`write one element for each index, as in ["status", ["team", "points"], {"words": "title"}]`
	wordsOfMany diag.Message = "error: an index of words has one field, not an array of them\n" +
		`write an index for each field, as in {"words": "title"}, {"words": "about"}`
	indexedTooLarge diag.Message = "error: the fields of the indexes are made of more than %d values of select\n" +
		"index single values, and not what large objects are made of"
	indexTwice diag.Message = "error: there is an index of %s already\nremove one of them"
	fieldTwice diag.Message = "error: the field %q stands in this index already\nremove one of them"
	badField   diag.Message = "error: %q is no field of the result\n" +
		`write the names of members, as in "status" or "address.city"`
	fieldOfOurs diag.Message = "error: the field %[1]q cannot be indexed: %[2]q means something in every request for a list, so that nobody could ask for the field\n" +
		"select it under another name too, such as %+[3]q"
	fieldInArray diag.Message = "error: %q leads into an array, where no single field is\n" +
		`index an array of the values themselves, such as {"skus": "$.order.lines[*].sku"}: a row is found by each of its elements`
	fieldOfAll diag.Message = "error: %q cannot be indexed: it depends on the source %q, the same one for every row (%s), so that one write would move all rows\n" +
		"index what differs from row to row, and leave this field out of the index"
	fieldOfQuery diag.Message = "error: %q cannot be indexed: it depends on the source %q, which is a query, so that a write could move rows that nothing names\n" +
		`index fields of sources with an "id", and leave this field out of the index`
	filterTwice diag.Message = "error: the field %q cannot be indexed beside %q, since a filter of that name means the other one\n" +
		"select it under another name"

	// Changes.
	placesRemoved diag.Message = "warning at key: aggregates of the type %q had places of the shape %s and have none now; requests for them will fail\n" +
		`keep "geo" in one of the event types`

	// Places.
	geoTypeNamedLikeShape diag.Message = "error at key: a geo type cannot be named %q, since that is a shape\n" +
		"choose another name"
	geoNoObject diag.Message = "error: geo must be an object, not %s\n" +
		`write it as in {"type": "point", "path": "$.data.location"}`
	geoOfType diag.Message = "error at key: an aggregate type has no geo: events say where their aggregates are\n" +
		`write it in event types, as in "geo": {"type": "point", "path": "$.data.location"}`
	badGeoPath diag.Message = "error: the path of geo must lead to one place in the event's data, which %q does not\n" +
		`write it as in "$.data.location"`
	singletonOverPlaces diag.Message = "error: there can be no singleton %+[1]q, since aggregates have places: /%[2]s/%[1]s asks for those of the type %[2]q\n" +
		"choose another name for the singleton"
)

func (m *messages) notAtSource(at diag.Pointer, path string, sources []string) {
	d := m.Errorf(at, "%s does not start at a source", quote(path))
	if len(sources) > 0 && len(sources) <= maxSources+maxIncluded {
		d.Hintf("there are $.%s", strings.Join(sources, ", $."))
		return
	}
	d.Hintf(`write a path such as "$.order.customer_id"`)
}

func (m *messages) longParam(at diag.Pointer, path, name string, earlier []string) {
	d := m.Errorf(at, "%s: %s is no source before this one, and a parameter is a text, into which no path leads", quote(path), quote(name))
	if near := m.Nearest(name, earlier); near != "" {
		d.Hintf("did you mean %q?", "$."+near)
		return
	}
	d.Hintf("write %q for the parameter, or put the source that the path starts at before this one", "$."+name)
}

func (m *messages) quotedInQuery(at diag.Pointer, text, inner string) {
	if inner == "" {
		inner = `""`
	}
	m.Warnf(at, "the field is compared with %s, and the quotes are part of that text", quote(text)).
		Hintf("write the text alone, as in field = %s, or in the double quotes of JSON", inner)
}

func (m *messages) neverWrittenBy(at diag.Pointer, text, aggregateType, name string, members []string) {
	d := m.Warnf(at, "%s leads to nothing: no handler of %s writes %s", quote(text), quote(aggregateType), quote(name))
	if near := m.Nearest(name, members); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	d.Hintf("write it in a handler, or correct the path")
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
