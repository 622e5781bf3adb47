package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

const (
	// Structure.
	tooLarge diag.Message = "error: the spec has %d bytes; at most %d are accepted\n" +
		"split the application into several instances, or move large constants into events"
	longNames diag.Message = "error: names of the spec are too long for the names below them\n" +
		"shorten the longest keys of objects that hold much"
	bothKeys    diag.Message = "error at key: %+q and %+q cannot stand side by side\nkeep one of them"
	empty       diag.Message = "error: %s must not be empty"
	tooLong     diag.Message = "error: %s is longer than %d bytes"
	tooMany     diag.Message = "error: %s may have at most %d entries and has %d"
	notInRange  diag.Message = "error: %s must be a whole number from 1 to %d"
	listedTwice diag.Message = "warning: %q stands in %s more than once\nremove it here"

	// Types.
	noAggregateTypes diag.Message = "warning at key: the spec declares no aggregate type, so that nothing can be written\n" +
		`name what events are about, as in "aggregate_types": {"order": {"events": {...}}}`
	noEvents diag.Message = "warning at key: the aggregate type %q has no event types, so that nothing can be written to it\n" +
		`name what happens to it, as in "events": {"was_placed": {"schema": {"type": "object"}, "handler": []}}`
	noAgentTypes diag.Message = "error: agent_types must not be empty, since every event has an actor\n" +
		`name who acts, as in "agent_types": ["user"]`
	systemAgentType diag.Message = `error: the agent type %[1]q is reserved: those that start with "system_" belong to the platform` + "\n" +
		"use another name, such as %[2]q"
	reservedType diag.Message = "error at key: the aggregate type %[1]q is reserved: the server answers at /%[1]s itself\n" +
		"choose another name, such as %[2]q"
	unknownSystemEvent diag.Message = "error at key: the event type %[1]q is reserved: those that start with an underscore belong to the platform\n" +
		"a spec may give %+[2]q a handler; name events of your own without the underscore"
	systemSchema diag.Message = "error at key: the event type %q must not have a schema, because the platform owns its data\n" +
		"remove the schema"
	systemGenerations diag.Message = "error at key: the event type %q must not have %+q, because markers of erased data are what they are for ever\n" +
		"remove it"
	systemEventUsed  diag.Message = "error: the event type %q belongs to the platform and cannot be named here"
	unusedDefinition diag.Message = "warning at key: no schema uses the definition %[1]q\n" +
		`refer to it with {"$ref": %[2]q}, or take it out`

	// Generations.
	badGeneration diag.Message = "error at key: a generation cannot be numbered %[1]q\n" +
		`write a whole number from 1 to %[2]d without leading zeros, as in "1": {"schema": {...}, "upcast": [...]}`
	generationGap diag.Message = "error at key: generation %[1]d is missing between %[2]d and %[3]d\n" +
		"number generations without gaps: this is generation %[1]d, or another one has been left out"
	assumedClosed diag.Message = "error: generation %d is closed, so that no write can be taken for one of it\n" +
		`assume another generation, or remove "closed" there`
	badRetired diag.Message = "error: retired cannot be %s; it is true, or an object that says what stored events are read as\n" +
		`write true, or {"as": "was_placed", "generation": 1}, or leave the key out where the type is still written`
	besideRetired diag.Message = `error at key: %+q cannot stand beside "retired" with "as": what is declared for the other type holds for the events` + "\n" +
		`remove it, or write "retired": true, which leaves stored events what they are`
	retiredCircle diag.Message = "error: %q is retired as %q, which is read as the former in the end\n" +
		"let one of them be written, or leave its stored events what they are with \"retired\": true"
	tooManyRetired diag.Message = "error: more than %[2]d names are read as %[1]q, its own included\n" +
		"retire this one as another event type"

	// Identity.
	badSingleton diag.Message = "error: %v\n" +
		"a singleton's name goes into URLs as it is: use letters, digits and underscores"
	globalDeclared diag.Message = `warning: "global" is a singleton of every aggregate type without being declared` + "\n" +
		"remove it"
	looksLike diag.Message = "warning: the singleton %q looks like %s, which logs and tools will take it for\n" +
		`choose a name that says what it stands for, as in "twilio_webhook"`
	hiddenByType diag.Message = "warning: GET /%s lists the aggregate type of that name, so it cannot answer with the singleton\n" +
		"rename one of the two, or read the singleton under each aggregate type"
	versionTwice diag.Message = "warning: version %d stands in uuid_versions more than once\nremove it here"
	noVersion4   diag.Message = "error: uuid_versions must contain 4: clients make UUIDs of version 4 by themselves, so those count in every spec\n" +
		"add 4"
	badProjectKey diag.Message = "error: project_key cannot be %q; it has 2 to 10 upper-case letters and digits and starts with a letter\n" +
		`public ids are made of it, as in "VNO" and VNO-42`
	badHandle diag.Message = "error: the handle %q is not made of 3 lower-case letters\n" +
		`abbreviate the type's name, as in "pmt" for payments`
	singletonNamed diag.Message = "error: the singleton %q is spelt like %s, so two aggregates could have that name\n" +
		"choose another name for the singleton"
	handleTaken diag.Message = "error: the handle %q is taken by the aggregate type %q\n" +
		"each type needs a handle of its own"
	handleOfOurs diag.Message = "warning: the handle %q also starts ids of the platform, which logs show beside yours\n" +
		"choose another one"
	sequenceWithoutKey diag.Message = `error: a sequence needs the top-level key "project_key", which its ids start with` + "\n" +
		`add "project_key": "VNO" to get VNO-1, VNO-2 and so on`
	literalIDChanges diag.Message = "error unless stored: the id %[1]q is spelt in another way than it is stored: it names %[2]q\n" +
		"write %[2]q"

	// What decides whether events are written.
	systemDecision diag.Message = "error at key: the event type %q must not have %+q, because erasure is not up to a spec\n" +
		"remove it"
	badCreation diag.Message = `error: creates cannot be %s; it is true, false or "only"` + "\n" +
		`"only" is for events that begin an aggregate, false for those that need one which is there already`
	badCode diag.Message = "error: the code %[1]q is not in snake case\n" +
		`write lower-case letters, digits and "_", at most %[2]d of them, as in "insufficient_funds"`
	noText diag.Message = "error: a message is a text or a template of one, not %s\n" +
		`write {"$concat": ["The balance is ", "$.state.balance"]} to put values into it`
	messageCut diag.Message = "warning: only the first %d characters of the message are shown\nshorten it"
	// sagasOutside: sagas are the only section that people expect at the top of a spec and that is not there.
	sagasOutside diag.Message = `error at key: unknown key "sagas"` + "\n" +
		`sagas stand in modules, as in "modules": {"sagas": {"name": {...}}}`
	tagOfOurs diag.Message = "error at key: a tag cannot be named %q, since every event has one of that name\n" +
		`find events by "%s:<type>:<id>" without declaring anything, or choose another name`
	tagOfObject diag.Message = "error: a tag is a text, a number, a boolean or an array of them, which %q never is\n" +
		"let the path lead to a member of the object"
	uniqueObject diag.Message = "error: a unique value is never an object\n" +
		`write its parts as an array, as in "value": ["$.data.building", "$.data.badge"]`

	// Implications.
	transformAlone diag.Message = `error: the mode "transform" prepares for later steps, but there are none outside of a pipeline` + "\n" +
		`make it a step of a "pipeline", or set the mode to "emit"`
	noSteps   diag.Message = "error: %s needs at least one step"
	badOffset diag.Message = "error: this is no time by which to come earlier or later\n" +
		`write a whole number and s, m, h or d for its unit, up to 3653 days, as in "30m", "24h" or "7d"`
	offsetAlone diag.Message = `error at key: %+q is counted from the time that "at" says, and there is none` + "\n" +
		`add "at", as in "at": "$.data.due", or keep "delay" alone`
	untilAndTimeout diag.Message = `error at key: the await has "until", so that the step cannot have "timeout_ms"` + "\n" +
		"keep one of them"
	delayOutOfRange diag.Message = "error: the delay must be between 5 minutes and 365 days\n" +
		"what happens at once is an implication without a schedule"
	cycle diag.Message = "error: these implications form a cycle: %s\n" +
		"take one of them out, or put a schedule in between"

	// Custom code.
	badBlob diag.Message = "error: %q is no name of a blob\n" +
		`write the name it is uploaded under, as in "order.wasm", or with a version, as in "order.wasm:v2"`
	badFunction diag.Message = "error: %q is no name of an exported function\n" +
		"use at most 128 printable characters without spaces"
	badImage      diag.Message = "error: the image %q has white space in its name"
	badSourceFile diag.Message = "error: the entrypoint %q is no relative path within the source code\n" +
		`write it without "..", as in "implications/order.js"`

	// Sagas.
	stepTwice diag.Message = "error: there is a step %q already\n" +
		"later steps read its result by name, so each step needs its own"
	awaitOfAnother diag.Message = "error unless stored: no %q can answer: the step awaits the answer of the %q that it writes to\n" +
		`say which %[1]s is meant by await.id, as in "id": "$.data.%[1]s_id", or await events of %[2]q`
	awaitWithoutTimeout diag.Message = `warning at key: the step awaits events without "timeout_ms", so that it waits %d milliseconds` + "\n" +
		`write how long to wait, as in "timeout_ms": %d, or until when, as "until" of the await`
	timeoutWithoutAwait diag.Message = "warning at key: the timeout has no effect, because the step awaits nothing\n" +
		`say what to wait for, as in "await": {"aggregate_type": "payment", "event_types": ["was_settled"]}, or leave it out`

	// Listeners.
	badPort diag.Message = "error: %q is no port\nwrite a number from 1 to 65535, or leave it out"
	badURL  diag.Message = "error: %q is no URL to deliver to\n" +
		`write it in full, as in "https://example.com/hooks/orders"`
	urlWithPassword diag.Message = "error: a listener's URL must not hold a user name or a password\n" +
		"check the signature of deliveries, or send a header"
	urlWithFragment diag.Message = "error: a listener's URL must not have a fragment, which is never sent\n" +
		`remove "#" and what follows`
	urlNotSecure diag.Message = "error: deliveries to %q would not be encrypted\n" +
		"use https; http is for addresses of the own machine"
	badPattern diag.Message = "error: %q is no pattern of events\n" +
		`write "order.was_placed", "order.*" or "*"`
	badHeaderName  diag.Message = "error at key: %q is no name of a header"
	reservedHeader diag.Message = "error at key: the header %q is set by the delivery itself\nremove it"
	replacedHeader diag.Message = "warning at key: the header %q has the correlation id of the event in its place, wherever the event has one\n" +
		"give the header another name, or remove it"
	badHeaderValue diag.Message = "error: a header must be printable ASCII without spaces around it"

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
	longParam diag.Message = "error: %[1]q: %[2]q is no source before this one, and a parameter is a text, into which no path leads\n" +
		"write %+[3]q for the parameter, or put the source that the path starts at before this one"

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
	// reversedField is about a field whose rows cannot be ordered.
	reversedField diag.Message = "error unless stored: the field %[1]q cannot be indexed: \"order=%[1]s\" asks for the reverse order of another field\n" +
		"select it under a name that does not begin with -, such as %+[2]q"

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

// aKind names a kind of value with its article.
func aKind(k value.Kind) string {
	switch k {
	case value.Array, value.Object:
		return "an " + k.String()
	case value.Null, value.Missing:
		return k.String()
	case value.Bool, value.Number, value.String:
		return "a " + k.String()
	default:
		return k.String()
	}
}

// nearest sets a hint that names what may have been meant, or all choices if they are few.
func nearest[V any](l *diag.List, d *diag.Diagnostic, word string, declared map[string]V) {
	const few, many = 12, 2000
	if len(declared) > many || !l.Suggests() {
		return
	}
	known := slices.Sorted(maps.Keys(declared))
	if !l.Suggest(d, word, known) && len(known) > 0 && len(known) <= few {
		d.Hintf("declared are %s", strings.Join(known, ", "))
	}
}

func droppedFindings(n int) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Message: fmt.Sprintf("%d more findings are left out", n),
		Hint: "repair those above first",
	}
}

// syntaxHint says what to do about text that is no JSON, as far as its first fault shows.
func syntaxHint(text string, at int) string {
	before, rest := strings.TrimSpace(text[:at]), strings.TrimSpace(text[at:])
	started := strings.HasPrefix(before, "{") || strings.HasPrefix(before, "[")
	switch {
	case strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") || started && strings.HasPrefix(rest, "#"):
		return `JSON has no comments: remove it, or say it in the "description" of a schema`
	case rest == "" && before == "":
		return `a spec is a JSON object; "j17 spec new" makes one to start from`
	case !started && !strings.HasPrefix(rest, "{"):
		return `specs are written in JSON, not in YAML or another language, and begin with "{"; "j17 spec new" makes one to start from`
	case strings.HasSuffix(before, ",") && (strings.HasPrefix(rest, "]") || strings.HasPrefix(rest, "}")):
		return "take the comma out: in JSON there is none behind the last one"
	case strings.HasPrefix(rest, "'"):
		return `JSON has double quotes only, as in "name"`
	default:
		return ""
	}
}
