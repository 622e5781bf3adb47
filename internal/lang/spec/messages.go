package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
)

const (
	// Structure.
	tooLarge diag.Message = "error: the spec has %d bytes; at most %d are accepted\n" +
		"split the application into several instances, or move large constants into events"
	longNames diag.Message = "error: names of the spec are too long for what stands below them\n" +
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
	systemEventUsed diag.Message = "error: the event type %q belongs to the platform and cannot be named here"

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
	noStateYet diag.Message = "warning: %q leads to nothing: %q is the first event of its aggregate, which has no state before it\n" +
		`look at "$.data", or do without "creates": "only"`
	neverFirst diag.Message = "warning: this is always refused: %q has to be the first event of its aggregate, and %q is written to that aggregate before it\n" +
		`emit it to another aggregate, or do without "creates": "only"`
	// sagasOutside: the only part of a spec that one looks for at its top in vain.
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

	// Compatibility.
	nowRequired diag.Message = "error: the property %s is required now and was not before; stored events may lack it\n" +
		"leave it optional, and let handlers do without it"
	nowRequiredWith diag.Message = "error: the property %s is required now beside %q and was not before; stored events may lack it\n" +
		"leave it optional, and let handlers do without it"
	typeChanged diag.Message = "error: the value of %s was %s and is %s now; stored events have the old type\n" +
		"accept the old type too, or use a property of another name"
	typeForbidden diag.Message = "error: the value of %s was %s and is not allowed now; stored events have it\n" +
		"accept the old type too, or use a property of another name"
	nowClosed diag.Message = "error: the object %s no longer accepts undeclared properties; stored events may have some\n" +
		`remove "additionalProperties": false, which has to be there from the first version on`
	projectKeyRemoved diag.Message = "error at key: project_key was %[1]q and is gone; public ids that were given out, such as %[1]s-1, would lead nowhere\n" +
		"keep it"
	projectKeyChanged diag.Message = "error at key: project_key was %[1]q; every public id would change, %[1]s-1 into %[2]s-1, and those that were given out would lead nowhere\n" +
		"keep it"
	handleRemoved diag.Message = "error at key: aggregates of the type %q had handles; those that were given out, %s_..., would lead nowhere\n" +
		`keep "handle": %[2]q`
	handleChanged diag.Message = "warning at key: handles of the type %q began with %s_; aggregates that have one keep it, only new ones get %s_...\n" +
		"keep %[2]q if anybody tells by these letters what a handle names"
	sequenceRemoved diag.Message = "error at key: aggregates of the type %q had public ids; those that were given out would lead nowhere\n" +
		`keep "sequence": true`
	singletonRemoved diag.Message = "warning at key: the singleton %q was removed; what is stored under it can no longer be reached\n" +
		"keep it if it was used"
	versionRemoved diag.Message = "warning at key: UUIDs of version %s are no longer accepted; aggregates with such ids can no longer be reached\n" +
		"keep the version if it was used"
	tooComplex diag.Message = "error: the schema combines too many alternatives to be compared with the one before\n" +
		"simplify it, or deploy with force after checking that stored events fit"
)

// messages is every sentence that this package has for users, and the findings they were put into.
type messages struct{ diag.List }

func quote(s string) string { return diag.Quote(s) }

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

// typeNames names types as schemas do.
func typeNames(k outline.Kinds) string {
	if k == outline.Any {
		return "of any type"
	}
	return list(k.Names(), "or")
}

// phrase names types as a sentence does.
func phrase(k outline.Kinds) string {
	if k == outline.Any {
		return "of any type"
	}
	return list(k.Phrases(), "or")
}

// list joins words as a sentence does.
func list(words []string, and string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + and + " " + words[last]
}

// nearest sets a hint that names what may have been meant, or the choice there is if it is small.
func nearest[V any](l *diag.List, d *diag.Diagnostic, word string, declared map[string]V) {
	const few, many = 12, 2000
	if len(declared) > many || !l.Suggests() {
		return
	}
	known := slices.Sorted(maps.Keys(declared))
	if near := l.Nearest(word, known); near != "" {
		d.Hintf("did you mean %q?", near)
	} else if len(known) > 0 && len(known) <= few {
		d.Hintf("declared are %s", strings.Join(known, ", "))
	}
}

func droppedFindings(n int) diag.Diagnostic {
	return diag.Diagnostic{Severity: diag.Warning, Message: fmt.Sprintf("%d more findings are left out", n), Hint: "repair those above first"}
}

// syntaxHint says what to do about text that is no JSON, as far as what stands at its first fault tells.
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

// notByName is the error for an object of named things that is something else.
func (m *messages) notByName(at diag.Pointer, what string, got value.Kind) {
	d := m.Errorf(at, "%s must be an object, not %s", what, aKind(got))
	if got == value.Array {
		d.Hintf(`write one member for each, with its name as the key, as in {"name": {...}, "other": {...}}`)
	}
}

func (m *messages) wrongKind(at diag.Pointer, what string, want, got value.Kind) {
	d := m.Errorf(at, "%s must be %s, not %s", what, aKind(want), aKind(got))
	switch example := exampleOf(what); {
	case example != "":
		d.Hintf("write %s", example)
	case want == value.Array && (got == value.String || got == value.Object):
		d.Hintf("write an array, for one alone too, as in [%s]", map[value.Kind]string{value.String: `"..."`, value.Object: "{...}"}[got])
	}
}

// exampleOf returns an example of what is often written in a shorter way than there is, "" for all else.
func exampleOf(what string) string {
	return map[string]string{
		"a guard":                 `{"that": {"equals": ["@.status", "open"]}, "message": "It is not open."}`,
		"a read":                  `{"aggregate_type": "account", "id": "$.data.account"}`,
		"a unique value":          `{"value": "$.data.email"}`,
		"a geo type":              `{"type": "point"}`,
		"an emit":                 `{"aggregate_type": "order", "id": "$.data.order", "event_type": "was_placed"}`,
		"a map":                   `{"in": "$.data.lines", "as": "$line", "emit": {...}}`,
		"a schedule":              `{"delay": "24h", "emit": {...}}`,
		"an element of cancel_on": `{"aggregate_type": "order", "id": "$.key", "event_type": "was_paid"}`,
		"the trigger of a saga":   `{"aggregate_type": "order", "event_type": "was_placed"}`,
		"a step of a saga":        `{"name": "charge", "emit": {...}}`,
		"an await":                `{"aggregate_type": "payment", "event_types": ["was_charged"]}`,
		"a listener":              `{"url": "https://example.com/hook", "events": ["order.was_placed"]}`,
		"select":                  `a member for each part of the result, as in {"status": "$.order.status"}`,
	}[what]
}

func (m *messages) missingKey(at diag.Pointer, what, key string) {
	d := m.Errorf(at, "%s needs the key %q", what, key).AtKey()
	switch key {
	case "handler":
		d.Hintf(`write "handler": [] for events that leave the state as it is`)
	case "schema":
		d.Hintf(`write "schema": {"type": "object"} to accept every object`)
	case "delay":
		d.Hintf(`write how long to wait, as in "delay": "24h", or when it is to come, as in "at": "$.data.due"`)
	case "agent_types":
		d.Hintf(`write who or what may cause events, as in "agent_types": ["user", "service"]`)
	case "aggregate_types":
		d.Hintf(`write "aggregate_types": {}, or start with "j17 spec new"`)
	case "as":
		d.Hintf(`name each element, as in "as": "$item"`)
	case "sources":
		d.Hintf(`write what is read, as in "for_each": "order", "sources": {"order": "$key"}`)
	case "select":
		d.Hintf(`write the result, as in "select": {"status": "$.order.status"}`)
	case "that":
		d.Hintf(`write what has to hold, as in "that": {"gte": ["$.state.balance", "$.data.amount"]}`)
	case "message":
		d.Hintf(`write what whoever is refused reads, as in "message": "The account is closed."`)
	case "value":
		d.Hintf(`write where the value stands in the event, as in "value": "$.data.email"`)
	}
}

func (m *messages) notOneOf(at diag.Pointer, what, got string, words []string) {
	const shown = 12
	var quoted []string
	for _, w := range words[:min(shown, len(words))] {
		quoted = append(quoted, quote(w))
	}
	if len(words) > shown {
		quoted = append(quoted, "another of "+strconv.Itoa(len(words)))
	}
	d := m.Errorf(at, "%s cannot be %s; it is %s", what, quote(got), list(quoted, "or"))
	if near := m.Nearest(got, words); near != "" {
		d.Hintf("did you mean %q?", near)
	}
}

func (m *messages) badName(at diag.Pointer, what, name string) {
	d := m.Errorf(at, "%s cannot be named %s", what, quote(name)).AtKey()
	switch {
	case strings.HasPrefix(name, "_"):
		d.Hintf("names that start with an underscore belong to the platform")
	case len(name) > MaxNameLength:
		d.Hintf("a name has at most %d characters", MaxNameLength)
	default:
		d.Hintf(`a name starts with a letter and goes on with letters, digits, "_" and "-"`)
	}
}

func (c *compiler) undeclaredType(at diag.Pointer, name string) {
	full := c.Full()
	d := c.Errorf(at, "there is no aggregate type %s in this spec", quote(name))
	if !full {
		nearest(&c.List, d, name, c.declared)
	}
}

func (c *compiler) undeclaredEvent(at diag.Pointer, aggregateType, name string) {
	full := c.Full()
	d := c.Errorf(at, "the aggregate type %s has no event type %s", quote(aggregateType), quote(name))
	if !full {
		nearest(&c.List, d, name, c.declared[aggregateType])
	}
}

func (m *messages) literalIDChanges(at diag.Pointer, id, canonical string, kind ident.Kind) {
	report := m.Errorf
	if m.Stored {
		report = m.Warnf
	}
	d := report(at, "the id %s is spelt in another way than it is stored: it names %s", quote(id), quote(canonical))
	if kind == ident.HumaneCode {
		d.Hintf(`write %s if that is meant; a name of your own is declared under "singletons"`, quote(canonical))
		return
	}
	d.Hintf("write %s", quote(canonical))
}

// badLiteralID reports what is no id. from says where ids can be taken from instead, by a path such as example.
func (m *messages) badLiteralID(at diag.Pointer, id string, given bool, from, example string) {
	d := m.Errorf(at, "the id %s is no identifier and no declared singleton", quote(id))
	if given {
		d.Hintf(`names that the server gives cannot stand in a spec, since each environment gives its own: take the name from %s, as in %q, or write the id`, from, example)
		return
	}
	d.Hintf(`declare it under "singletons", or start it with "$" to take the id from %s`, from)
}

func (c *compiler) undeclaredSet(at diag.Pointer, t *AggregateType, name string) {
	full := c.Full()
	d := c.Errorf(at, "no event type of %s takes a unique value %s", quote(t.Name), quote(name))
	if full {
		return
	}
	if len(t.Unique) == 0 {
		d.Hintf(`declare it where it is taken, as in "unique": {%s: {"value": "$.data.name"}}`, quote(name))
		return
	}
	nearest(&c.List, d, name, t.Unique)
}

func (m *messages) notOneKind(at diag.Pointer, what string, has, kinds []string) {
	if len(has) == 0 {
		m.Errorf(at, "%s needs one of the keys %s", what, list(kinds, "or"))
		return
	}
	m.Errorf(at, "%s cannot have %s together", what, list(has, "and")).Hintf("write one implication for each")
}

// badDelay: the same delay is meant for all events, and whoever writes a path or an operator there wants another one.
func (m *messages) badDelay(at diag.Pointer, got value.Value) {
	var d *diag.Diagnostic
	if got.Kind() == value.String {
		d = m.Errorf(at, "%s is no delay", quote(got.Str()))
	} else {
		d = m.Errorf(at, "delay must be a string, not %s", aKind(got.Kind()))
	}
	d.Hintf(`write a whole number and s, m, h or d for its unit, as in "30m", "24h" or "7d"`)
	notFromData(d, got)
}

func (m *messages) badDelayMs(at diag.Pointer, got value.Value) {
	notFromData(m.Errorf(at, "delay_ms must be a whole number of milliseconds").Hintf("300000 is five minutes"), got)
}

// notFromData adds to the hint for a delay that is to be computed.
func notFromData(d *diag.Diagnostic, got value.Value) {
	if got.Kind() == value.Object || jsonpath.IsPath(got.Str()) {
		d.Hint += "; a delay is the same for all events: a time of their data is written as \"at\""
	}
}

// shownCircle is a circle of events in words; of a long one the middle is left out.
func shownCircle(circle []eventName) string {
	const shown = 12
	names := make([]string, 0, len(circle))
	for i, n := range circle {
		if len(circle) > shown && i == shown/2 {
			names = append(names, "...")
		}
		if len(circle) <= shown || i < shown/2 || i >= len(circle)-shown/2 {
			names = append(names, n.String())
		}
	}
	return strings.Join(names, " -> ")
}

// endlessSaga reports a circle of sagas. certain tells that nothing can end it but the bound of how deep sagas trigger each other.
func (m *messages) endlessSaga(at diag.Pointer, name string, circle []eventName, certain bool) {
	report := m.Warnf
	if certain && !m.Stored {
		report = m.Errorf
	}
	report(at, "the saga %s starts itself again with nothing to end that: %s", quote(name), shownCircle(circle)).
		Hintf("write another event, give the step a condition, let a step before it await an answer, or put a schedule in between")
}

func (m *messages) typeRemoved(at diag.Pointer, name string, added []string) {
	d := m.Errorf(at, "the aggregate type %s was removed; its events could no longer be read", quote(name)).AtKey()
	m.renamed(d, name, added)
}

func (m *messages) eventRemoved(at diag.Pointer, aggregateType, name string, added []string) {
	d := m.Errorf(at, "the event type %s of %s was removed; events of it could no longer be applied", quote(name), quote(aggregateType)).AtKey()
	m.renamed(d, name, added)
}

func (m *messages) renamed(d *diag.Diagnostic, name string, added []string) {
	if near := m.Nearest(name, added); near != "" {
		d.Hintf("if it is called %q now, keep %q beside it for what is stored", near, name)
		return
	}
	d.Hintf("keep it; what is no longer written does no harm")
}

// dataPath appends a property to a path that starts with "data".
func dataPath(path, name string) string {
	if isName(name) {
		return path + "." + name
	}
	return path + "[" + quote(name) + "]"
}
