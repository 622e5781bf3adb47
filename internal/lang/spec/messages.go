package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
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

// Structure.

func (m *messages) tooLarge(size int) {
	m.Errorf("", "the spec has %d bytes; at most %d are accepted", size, MaxSize).
		Hintf("split the application into several instances, or move large constants into events")
}

func (m *messages) longNames() {
	m.Errorf("", "names of the spec are too long for what stands below them").Hintf("shorten the longest keys of objects that hold much")
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

func (m *messages) bothKeys(at diag.Pointer, one, other string) {
	m.Errorf(at, "%q and %q cannot stand side by side", one, other).AtKey().Hintf("keep one of them")
}

func (m *messages) empty(at diag.Pointer, what string) {
	m.Errorf(at, "%s must not be empty", what)
}

func (m *messages) tooLong(at diag.Pointer, what string, most int) {
	m.Errorf(at, "%s is longer than %d bytes", what, most)
}

func (m *messages) tooMany(at diag.Pointer, what string, most, has int) {
	m.Errorf(at, "%s may have at most %d entries and has %d", what, most, has)
}

func (m *messages) notInRange(at diag.Pointer, what string, most int64) {
	m.Errorf(at, "%s must be a whole number from 1 to %d", what, most)
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

func (m *messages) listedTwice(at diag.Pointer, name, in string) {
	m.Warnf(at, "%s stands in %s more than once", quote(name), in).Hintf("remove it here")
}

// Types.

func (m *messages) noAggregateTypes(at diag.Pointer) {
	m.Warnf(at, "the spec declares no aggregate type, so that nothing can be written").AtKey().
		Hintf(`name what events are about, as in "aggregate_types": {"order": {"events": {...}}}`)
}

func (m *messages) noEvents(at diag.Pointer, name string) {
	m.Warnf(at, "the aggregate type %s has no event types, so that nothing can be written to it", quote(name)).AtKey().
		Hintf(`name what happens to it, as in "events": {"was_placed": {"schema": {"type": "object"}, "handler": []}}`)
}

func (m *messages) noAgentTypes(at diag.Pointer) {
	m.Errorf(at, "agent_types must not be empty, since every event has an actor").
		Hintf(`name who acts, as in "agent_types": ["user"]`)
}

func (m *messages) systemAgentType(at diag.Pointer, name string) {
	m.Errorf(at, "the agent type %s is reserved: those that start with \"system_\" belong to the platform", quote(name)).
		Hintf("use another name, such as %s", quote(strings.TrimPrefix(name, "system_")))
}

func (m *messages) reservedType(at diag.Pointer, name string) {
	m.Errorf(at, "the aggregate type %s is reserved: the server answers at /%s itself", quote(name), name).AtKey().
		Hintf("choose another name, such as %s", quote(name+"_record"))
}

func (m *messages) unknownSystemEvent(at diag.Pointer, name string) {
	m.Errorf(at, "the event type %s is reserved: those that start with an underscore belong to the platform", quote(name)).AtKey().
		Hintf("a spec may give %q a handler; name events of your own without the underscore", tombstoned)
}

func (m *messages) systemSchema(at diag.Pointer, name string) {
	m.Errorf(at, "the event type %s must not have a schema, because the platform owns its data", quote(name)).AtKey().Hintf("remove the schema")
}

func (m *messages) systemEventUsed(at diag.Pointer, name string) {
	m.Errorf(at, "the event type %s belongs to the platform and cannot be named here", quote(name))
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

// Identity.

func (m *messages) badSingleton(at diag.Pointer, err error) {
	m.Errorf(at, "%v", err).Hintf("a singleton's name goes into URLs as it is: use letters, digits and underscores")
}

func (m *messages) globalDeclared(at diag.Pointer) {
	m.Warnf(at, `"global" is a singleton of every aggregate type without being declared`).Hintf("remove it")
}

func (m *messages) looksLike(at diag.Pointer, name, what string) {
	m.Warnf(at, "the singleton %s looks like %s, which logs and tools will take it for", quote(name), what).
		Hintf(`choose a name that says what it stands for, as in "twilio_webhook"`)
}

func (m *messages) hiddenByType(at diag.Pointer, name string) {
	m.Warnf(at, "GET /%s lists the aggregate type of that name, so it cannot answer with the singleton", name).
		Hintf("rename one of the two, or read the singleton under each aggregate type")
}

func (m *messages) versionTwice(at diag.Pointer, n int) {
	if n != 0 {
		m.Warnf(at, "version %d stands in uuid_versions more than once", n).Hintf("remove it here")
	}
}

func (m *messages) noVersion4(at diag.Pointer) {
	m.Errorf(at, "uuid_versions must contain 4: clients make UUIDs of version 4 by themselves, so those count in every spec").Hintf("add 4")
}

func (m *messages) badProjectKey(at diag.Pointer, key string) {
	m.Errorf(at, "project_key cannot be %s; it has 2 to 10 upper-case letters and digits and starts with a letter", quote(key)).
		Hintf(`public ids are made of it, as in "VNO" and VNO-42`)
}

func (m *messages) badHandle(at diag.Pointer, handle string) {
	m.Errorf(at, "the handle %s is not made of 3 lower-case letters", quote(handle)).Hintf(`abbreviate the type's name, as in "pmt" for payments`)
}

func (m *messages) singletonNamed(at diag.Pointer, name, what string) {
	m.Errorf(at, "the singleton %s is spelt like %s, so two aggregates could have that name", quote(name), what).Hintf("choose another name for the singleton")
}

func (m *messages) handleTaken(at diag.Pointer, handle, by string) {
	m.Errorf(at, "the handle %s is taken by the aggregate type %s", quote(handle), quote(by)).Hintf("each type needs a handle of its own")
}

func (m *messages) handleOfOurs(at diag.Pointer, handle string) {
	m.Warnf(at, "the handle %s also starts ids of the platform, which logs show beside yours", quote(handle)).Hintf("choose another one")
}

func (m *messages) sequenceWithoutKey(at diag.Pointer) {
	m.Errorf(at, "a sequence needs the top-level key \"project_key\", which its ids start with").Hintf(`add "project_key": "VNO" to get VNO-1, VNO-2 and so on`)
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

// What decides whether events are written.

func (m *messages) systemDecision(at diag.Pointer, name, key string) {
	m.Errorf(at, "the event type %s must not have %q, because erasure is not up to a spec", quote(name), key).AtKey().Hintf("remove it")
}

func (m *messages) badCreation(at diag.Pointer, v value.Value) {
	m.Errorf(at, `creates cannot be %s; it is true, false or "only"`, shortened(v)).
		Hintf(`"only" is for events that begin an aggregate, false for those that need one which is there already`)
}

func (m *messages) badCode(at diag.Pointer, code string) {
	m.Errorf(at, "the code %s is not in snake case", quote(code)).
		Hintf(`write lower-case letters, digits and "_", at most %d of them, as in "insufficient_funds"`, MaxNameLength)
}

func (m *messages) noText(at diag.Pointer, got value.Kind) {
	m.Errorf(at, "a message is a text or a template of one, not %s", aKind(got)).
		Hintf(`write {"$concat": ["The balance is ", "$.state.balance"]} to put values into it`)
}

func (m *messages) messageCut(at diag.Pointer, most int) {
	m.Warnf(at, "only the first %d characters of the message are shown", most).Hintf("shorten it")
}

func (m *messages) noStateYet(at diag.Pointer, text, event string) {
	m.Warnf(at, "%s leads to nothing: %s is the first event of its aggregate, which has no state before it", quote(text), quote(event)).
		Hintf(`look at "$.data", or do without "creates": "only"`)
}

func (m *messages) neverFirst(at diag.Pointer, event, to string) {
	m.Warnf(at, "this is always refused: %s has to be the first event of its aggregate, and %s is written to that aggregate before it", quote(to), quote(event)).
		Hintf("emit it to another aggregate, or do without \"creates\": \"only\"")
}

// sagasOutside: the only part of a spec that one looks for at its top in vain.
func (m *messages) sagasOutside(at diag.Pointer) {
	m.Errorf(at, `unknown key "sagas"`).AtKey().Hintf(`sagas stand in modules, as in "modules": {"sagas": {"name": {...}}}`)
}

func (m *messages) tagOfOurs(at diag.Pointer, name string) {
	m.Errorf(at, "a tag cannot be named %s, since every event has one of that name", quote(name)).AtKey().
		Hintf("find events by \"%s:<type>:<id>\" without declaring anything, or choose another name", name)
}

func (m *messages) tagOfObject(at diag.Pointer, path string) {
	m.Errorf(at, "a tag is a text, a number, a boolean or an array of them, which %s never is", quote(path)).
		Hintf("let the path lead to a member of the object")
}

func (m *messages) uniqueObject(at diag.Pointer) {
	m.Errorf(at, "a unique value is never an object").
		Hintf(`write its parts as an array, as in "value": ["$.data.building", "$.data.badge"]`)
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

// Implications.

func (m *messages) notOneKind(at diag.Pointer, what string, has, kinds []string) {
	if len(has) == 0 {
		m.Errorf(at, "%s needs one of the keys %s", what, list(kinds, "or"))
		return
	}
	m.Errorf(at, "%s cannot have %s together", what, list(has, "and")).Hintf("write one implication for each")
}

func (m *messages) transformAlone(at diag.Pointer) {
	m.Errorf(at.Key("mode"), "the mode \"transform\" prepares for later steps, but there are none outside of a pipeline").
		Hintf(`make it a step of a "pipeline", or set the mode to "emit"`)
}

func (m *messages) noSteps(at diag.Pointer, what string) {
	m.Errorf(at, "%s needs at least one step", what)
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

func (m *messages) badOffset(at diag.Pointer) {
	m.Errorf(at, "this is no time by which to come earlier or later").Hintf(`write a whole number and s, m, h or d for its unit, up to 3653 days, as in "30m", "24h" or "7d"`)
}

func (m *messages) offsetAlone(at diag.Pointer, key string) {
	m.Errorf(at, "%q is counted from the time that \"at\" says, and there is none", key).AtKey().Hintf(`add "at", as in "at": "$.data.due", or keep "delay" alone`)
}

func (m *messages) untilAndTimeout(at diag.Pointer) {
	m.Errorf(at, "the await has \"until\", so that the step cannot have \"timeout_ms\"").AtKey().Hintf("keep one of them")
}

func (m *messages) delayOutOfRange(at diag.Pointer) {
	m.Errorf(at, "the delay must be between 5 minutes and 365 days").Hintf("what happens at once is an implication without a schedule")
}

func (m *messages) cycle(at diag.Pointer, circle []eventName) {
	m.Errorf(at, "these implications form a cycle: %s", shownCircle(circle)).Hintf("take one of them out, or put a schedule in between")
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

// Custom code.

func (m *messages) badBlob(at diag.Pointer, name string) {
	m.Errorf(at, "%s is no name of a blob", quote(name)).
		Hintf(`write the name it is uploaded under, as in "order.wasm", or with a version, as in "order.wasm:v2"`)
}

func (m *messages) badFunction(at diag.Pointer, name string) {
	m.Errorf(at, "%s is no name of an exported function", quote(name)).Hintf("use at most 128 printable characters without spaces")
}

func (m *messages) badImage(at diag.Pointer, image string) {
	m.Errorf(at, "the image %s has white space in its name", quote(image))
}

func (m *messages) badSourceFile(at diag.Pointer, file string) {
	m.Errorf(at, "the entrypoint %s is no relative path within the source code", quote(file)).Hintf(`write it without "..", as in "implications/order.js"`)
}

// Sagas.

func (m *messages) stepTwice(at diag.Pointer, name string) {
	m.Errorf(at, "there is a step %s already", quote(name)).Hintf("later steps read its result by name, so each step needs its own")
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

func (m *messages) awaitOfAnother(at diag.Pointer, awaited, emitted string) {
	report := m.Errorf
	if m.Stored {
		report = m.Warnf
	}
	report(at, "no %s can answer: the step awaits the answer of the %s that it writes to", quote(awaited), quote(emitted)).
		Hintf(`say which %s is meant by await.id, as in "id": "$.data.%s_id", or await events of %s`, awaited, awaited, quote(emitted))
}

func (m *messages) awaitWithoutTimeout(at diag.Pointer, fallback time.Duration) {
	m.Warnf(at, "the step awaits events without \"timeout_ms\", so that it waits %d milliseconds", fallback.Milliseconds()).AtKey().
		Hintf(`write how long to wait, as in "timeout_ms": %d, or until when, as "until" of the await`, fallback.Milliseconds())
}

func (m *messages) timeoutWithoutAwait(at diag.Pointer) {
	m.Warnf(at, "the timeout has no effect, because the step awaits nothing").AtKey().
		Hintf(`say what to wait for, as in "await": {"aggregate_type": "payment", "event_types": ["was_settled"]}, or leave it out`)
}

// Listeners.

func (m *messages) badPort(at diag.Pointer, port string) {
	m.Errorf(at, "%s is no port", quote(port)).Hintf("write a number from 1 to 65535, or leave it out")
}

func (m *messages) badURL(at diag.Pointer, text string) {
	m.Errorf(at, "%s is no URL to deliver to", quote(text)).Hintf(`write it in full, as in "https://example.com/hooks/orders"`)
}

func (m *messages) urlWithPassword(at diag.Pointer) {
	m.Errorf(at, "a listener's URL must not hold a user name or a password").Hintf("check the signature of deliveries, or send a header")
}

func (m *messages) urlWithFragment(at diag.Pointer) {
	m.Errorf(at, "a listener's URL must not have a fragment, which is never sent").Hintf(`remove "#" and what follows`)
}

func (m *messages) urlNotSecure(at diag.Pointer, text string) {
	m.Errorf(at, "deliveries to %s would not be encrypted", quote(text)).Hintf("use https; http is for addresses of the own machine")
}

func (m *messages) badPattern(at diag.Pointer, text string) {
	m.Errorf(at, "%s is no pattern of events", quote(text)).Hintf(`write "order.was_placed", "order.*" or "*"`)
}

func (m *messages) badHeaderName(at diag.Pointer, name string) {
	m.Errorf(at, "%s is no name of a header", quote(name)).AtKey()
}

func (m *messages) reservedHeader(at diag.Pointer, name string) {
	m.Errorf(at, "the header %s is set by the delivery itself", quote(name)).AtKey().Hintf("remove it")
}

func (m *messages) replacedHeader(at diag.Pointer, name string) {
	m.Warnf(at, "the header %s has the correlation id of the event in its place, wherever the event has one", quote(name)).AtKey().
		Hintf("give the header another name, or remove it")
}

func (m *messages) badHeaderValue(at diag.Pointer) {
	m.Errorf(at, "a header must be printable ASCII without spaces around it")
}

// Compatibility.

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

func (m *messages) nowRequired(at diag.Pointer, path, name string) {
	m.Errorf(at, "the property %s is required now and was not before; stored events may lack it", dataPath(path, name)).
		Hintf("leave it optional, and let handlers do without it")
}

func (m *messages) nowRequiredWith(at diag.Pointer, path, name, with string) {
	m.Errorf(at, "the property %s is required now beside %s and was not before; stored events may lack it", dataPath(path, name), quote(with)).
		Hintf("leave it optional, and let handlers do without it")
}

func (m *messages) typeChanged(at diag.Pointer, path string, was, is outline.Kinds) {
	d := m.Errorf(at, "the value of %s was %s and is %s now; stored events have the old type", path, typeNames(was), typeNames(is))
	if is == 0 {
		d.Message = fmt.Sprintf("the value of %s was %s and is not allowed now; stored events have it", path, typeNames(was))
	}
	d.Hintf("accept the old type too, or use a property of another name")
}

func (m *messages) nowClosed(at diag.Pointer, path string) {
	m.Errorf(at, "the object %s no longer accepts undeclared properties; stored events may have some", path).
		Hintf("remove \"additionalProperties\": false, which has to be there from the first version on")
}

func (m *messages) projectKeyChanged(at diag.Pointer, was, is string) {
	if is == "" {
		m.Errorf(at, "project_key was %s and is gone; public ids that were given out, such as %s-1, would lead nowhere", quote(was), was).AtKey().Hintf("keep it")
		return
	}
	m.Errorf(at, "project_key was %s; every public id would change, %s-1 into %s-1, and those that were given out would lead nowhere", quote(was), was, is).
		AtKey().Hintf("keep it")
}

func (m *messages) handleRemoved(at diag.Pointer, aggregateType, was string) {
	m.Errorf(at, "aggregates of the type %s had handles; those that were given out, %s_..., would lead nowhere", quote(aggregateType), was).AtKey().
		Hintf(`keep "handle": %s`, quote(was))
}

func (m *messages) handleChanged(at diag.Pointer, aggregateType, was, is string) {
	m.Warnf(at, "handles of the type %s began with %s_; aggregates that have one keep it, only new ones get %s_...", quote(aggregateType), was, is).AtKey().
		Hintf("keep %s if anybody tells by these letters what a handle names", quote(was))
}

func (m *messages) sequenceRemoved(at diag.Pointer, aggregateType string) {
	m.Errorf(at, "aggregates of the type %s had public ids; those that were given out would lead nowhere", quote(aggregateType)).AtKey().
		Hintf(`keep "sequence": true`)
}

func (m *messages) singletonRemoved(at diag.Pointer, name string) {
	m.Warnf(at, "the singleton %s was removed; what is stored under it can no longer be reached", quote(name)).AtKey().Hintf("keep it if it was used")
}

func (m *messages) versionRemoved(at diag.Pointer, version string) {
	m.Warnf(at, "UUIDs of version %s are no longer accepted; aggregates with such ids can no longer be reached", version).AtKey().
		Hintf("keep the version if it was used")
}

func (m *messages) tooComplex(at diag.Pointer) {
	m.Errorf(at, "the schema combines too many alternatives to be compared with the one before").
		Hintf("simplify it, or deploy with force after checking that stored events fit")
}

// dataPath appends a property to a path that starts with "data".
func dataPath(path, name string) string {
	if isName(name) {
		return path + "." + name
	}
	return path + "[" + quote(name) + "]"
}
