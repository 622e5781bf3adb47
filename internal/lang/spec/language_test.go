//go:build !race

package spec_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/lang/lint"
)

// The editor of the dashboard completes and explains specs from dashboard/src/spec/language.json. It is written by
//
//	go test ./internal/.../spec -run LanguageOfTheDashboard -update
//
// from what the compiler itself says about keys that mean nothing, and from the tables of docs/reference.

// languageKind is a kind of object in a spec.
type languageKind struct {
	name string
	// at is a spec in which an object with the key "~" stands where an object of the kind does.
	at string
	// docs are the parts of the documentation, page and heading, with tables of the kind's keys.
	docs []string
	// is says what values of keys are, where that differs from what keys of the name are elsewhere: see valuesOf.
	is map[string]string
}

// Specs around what a kind stands in.
func inSpec(members string) string {
	return `{"agent_types": ["u"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": []}}}}, ` + members + `}`
}

func inEvent(members string) string {
	return `{"agent_types": ["u"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": [], ` + members + `}}}}}`
}

func inHandler(operation string) string {
	return `{"agent_types": ["u"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": [` + operation + `]}}}}}`
}

func inImplication(members string) string { return inEvent(`"implications": [{` + members + `}]`) }

func inStep(members string) string {
	return inSpec(`"modules": {"sagas": {"s": {"trigger": {"aggregate_type": "a", "event_type": "e"}, "steps": [{"name": "n", ` + members + `}]}}}`)
}

func languageKinds() []languageKind {
	const reference, implications, handlers = "spec.md#", "implications.md#", "handlers.md#"
	return []languageKind{
		{
			name: "spec", at: `{"~": 0}`, docs: []string{reference + "Top level"},
			is: map[string]string{"identity": "identity"},
		},
		{name: "aggregate type", at: `{"agent_types": ["u"], "aggregate_types": {"a": {"~": 0, "events": {}}}}`, docs: []string{reference + "Aggregate types"}, is: map[string]string{"identity": "aggregate identity"}},
		{name: "event type", at: inEvent(`"~": 0`), docs: []string{reference + "Event types"}},
		{name: "generation", at: inEvent(`"generations": {"1": {"~": 0}}`), docs: []string{reference + "Generations"}},
		{
			name: "retired", at: inEvent(`"retired": {"~": 0}`), docs: []string{reference + "Retired types"},
			is: map[string]string{"as": "event", "generation": "number"},
		},
		{name: "identity", at: inSpec(`"identity": {"~": 0}`)},
		{name: "aggregate identity", at: `{"agent_types": ["u"], "aggregate_types": {"a": {"events": {}, "identity": {"~": 0}}}}`},
		{name: "onTombstone", at: `{"agent_types": ["u"], "aggregate_types": {"a": {"events": {}, "onTombstone": {"~": 0}}}}`, is: map[string]string{"actor": "cascade|preserve", "target": "cascade|preserve"}},
		{name: "modules", at: inSpec(`"modules": {"~": 0}`)},
		{name: "geo type", at: inSpec(`"geo_types": {"g": {"~": 0}}`), is: map[string]string{"type": "point|polygon"}},
		{name: "geo", at: inEvent(`"geo": {"~": 0}`), is: map[string]string{"type": "geo type name", "path": "path"}},
		{name: "guard", at: inEvent(`"requires": [{"~": 0}]`), docs: []string{reference + "Guards"}},
		{name: "read", at: inEvent(`"reads": {"r": {"~": 0}}`)},
		{
			name: "unique value", at: inEvent(`"unique": {"x": {"~": 0}}`), docs: []string{reference + "Unique values"},
			is: map[string]string{"scope": "value"},
		},

		// Implications.
		{
			name: "implication", at: inImplication(`"~": 0`), docs: []string{reference + "Implications"},
			is: map[string]string{"wasm": "wasm implication"},
		},
		{name: "emit", at: inImplication(`"emit": {"~": 0}`), docs: []string{implications + "emit"}},
		{name: "map implication", at: inImplication(`"map": {"~": 0}`), docs: []string{implications + "map"}},
		{name: "schedule", at: inImplication(`"schedule": {"~": 0}`), docs: []string{implications + "schedule"}},
		{name: "cancel", at: inImplication(`"schedule": {"delay": "24h", "emit": {"aggregate_type": "a", "id": "$.key", "event_type": "e"}, "cancel_on": [{"~": 0}]}`)},
		{
			name: "wasm implication", at: inImplication(`"wasm": {"~": 0}`),
			is: map[string]string{"mode": "emit|transform"},
		},
		{
			name: "binary container", at: inImplication(`"binary_container": {"~": 0}`),
			is: map[string]string{"mode": "emit|transform"},
		},
		{
			name: "runtime container", at: inImplication(`"runtime_container": {"~": 0}`),
			is: map[string]string{"mode": "emit|transform", "runtime": "node|elixir|ruby|python"},
		},
		{name: "wasm handler", at: `{"agent_types": ["u"], "aggregate_types": {"a": {"events": {"e": {"schema": {}, "handler": {"wasm": {"~": 0}}}}}}}`},

		// Sagas.
		{name: "saga", at: inSpec(`"modules": {"sagas": {"s": {"~": 0}}}`)},
		{name: "trigger", at: inSpec(`"modules": {"sagas": {"s": {"trigger": {"~": 0}}}}`)},
		{name: "step", at: inStep(`"~": 0`), docs: []string{reference + "Sagas"}},
		{name: "await", at: inStep(`"await": {"~": 0}`)},
		{name: "ending", at: inSpec(`"modules": {"sagas": {"s": {"steps": [], "on_complete": {"~": 0}}}}`), docs: []string{implications + "emit"}},

		// Projections and listeners.
		{name: "projection", at: inSpec(`"projections": {"p": {"for_each": "a", "~": 0}}`), docs: []string{reference + "Projections"}, is: map[string]string{"sources": "sources"}},
		{name: "source", at: inSpec(`"projections": {"p": {"for_each": "a", "sources": {"x": {"~": 0}}, "select": {}}}`), docs: []string{reference + "Projections"}, is: map[string]string{"type": "aggregate", "mode": "single|array"}},
		{name: "array source", at: inSpec(`"projections": {"p": {"sources": [{"~": 0}]}}`), docs: []string{reference + "Projections"}, is: map[string]string{"as": "name"}},
		{name: "words", at: inSpec(`"projections": {"p": {"for_each": "a", "sources": {"a": "$key"}, "select": {"x": "$.a.x"}, "index": [{"words": "x", "~": 0}]}}`)},
		{
			name: "listener", at: inSpec(`"listeners": {"l": {"~": 0}}`), docs: []string{reference + "Listeners"},
			is: map[string]string{"format": "j17|cloudevents", "events": "[event pattern]"},
		},
		{name: "url", at: inSpec(`"listeners": {"l": {"events": ["*"], "url": {"~": 0}}}`)},

		// The language of handlers. What an operation, a predicate or an operator has beside its name is a kind called
		// like it.
		{name: "operation", at: inHandler(`{"~": {}}`)},
		{name: "operation if", at: inHandler(`{"if": {}, "~": 0}`)},
		{name: "operation find", at: inHandler(`{"let": {"name": "$x", "find": {"~": 0}}}`)},
		{
			name: "predicate", at: inHandler(`{"if": {"~": 0}, "then": []}`), docs: []string{handlers + "Predicates"},
			is: map[string]string{"in": "[value]"},
		},
		{name: "value", at: inHandler(`{"set": {"target": "x", "value": {"$~": 0}}}`)},
		{name: "selected", at: inSpec(`"projections": {"p": {"for_each": "a", "sources": {"a": "$key"}, "select": {"x": {"$~": 0}}}}`)},
	}
}

// valuesOf says what values of a key are: the name of a kind; [kind] for a list of such, {kind} for an object of them
// by name; words with | between them; or one of aggregate, event, event pattern, agent, singleton, path, target, array,
// value, predicate, match, text, number, flag, name, binding, id, key, schema, handler.
func valuesOf() map[string]string {
	return map[string]string{
		"$defs": "{schema}", "agent_types": "[name]", "aggregate_types": "{aggregate type}", "target_types": "[name]",
		"modules": "modules", "geo_types": "{geo type}",
		"projections": "{projection}", "singletons": "[name]", "listeners": "{listener}", "project_key": "text",
		"events": "{event type}", "onTombstone": "onTombstone", "handle": "text", "sequence": "flag",
		"uuid_versions": "[number]",
		"schema":        "schema", "handler": "handler", "implications": "[implication]", "allow_skip_occ": "flag",
		"creates": "true|false|\"only\"", "geo": "geo", "reads": "{read}",
		"releases": "[unique set]", "requires": "[guard]", "tags": "{path}", "unique": "{unique value}",
		"generations": "{generation}", "assume_generation": "number", "retired": "retired", "upcast": "handler",
		"closed": "flag",
		"cache":  "[aggregate]", "sagas": "{saga}", "properties": "[name]",
		"that": "predicate", "message": "value", "code": "text", "aggregate_type": "aggregate", "id": "id",
		"event_type": "event", "event_types": "[event]", "data": "value",
		"condition": "predicate", "when": "predicate", "emit": "emit", "map": "map implication", "schedule": "schedule",
		"pipeline": "[implication]", "wasm": "wasm handler",
		"binary_container": "binary container", "runtime_container": "runtime container", "in": "array",
		"as": "binding", "at": "value", "before": "text", "after": "text",
		"delay": "text", "delay_ms": "number", "cancel_on": "[cancel]", "blob_name": "text", "entrypoint": "text",
		"timeout_ms": "number", "image": "text",
		"trigger": "trigger", "steps": "[step]", "on_complete": "ending", "on_failed": "ending",
		"max_compensation_attempts": "number", "name": "name", "await": "await",
		"compensate": "emit", "until": "value", "for_each": "aggregate", "include": "{text}", "select": "selected",
		"index": "[index]", "query": "text", "aggregate": "aggregate",
		"words": "text", "url": "url", "headers": "{text}", "prod": "text", "staging": "text", "test": "text",
		"target": "target", "value": "value", "by": "value", "key": "value", "keep": "predicate", "match": "match",
		"where": "match", "merge": "value", "apply": "handler",
		"uniqueField": "text", "then": "handler", "else": "handler", "if": "predicate", "find": "operation find",
		"find_target": "array", "find_field": "text", "find_value": "value",
		"min": "value", "max": "value", "timestamp": "value", "maxAgeSeconds": "value", "now": "value",
		"array": "array", "items": "array",
		"rounding": "half_even|half_up|half_down|up|down|ceiling|floor", "scale": "value", "from": "value", "to": "value", "of": "value", "$if": "predicate", "$lookup": "path", "$map": "path",
		"$literal": "anything", "$now": "seconds|date|datetime", "not": "predicate", "and": "[predicate]",
		"or": "[predicate]", "exists": "path",
	}
}

// languageAbouts explains keys that no table of the documentation has in a cell of their own.
func languageAbouts() map[string]string {
	return map[string]string{
		"identity.uuid_versions":         "The UUID versions that count as identifiers, `[4, 5]` if left out. The list must contain 4.",
		"aggregate identity.handle":      "3 lower-case letters that no other type has; aggregates get handles such as `pmt_4k7vx9tz2nqr8w3`.",
		"aggregate identity.sequence":    "`true` gives public ids that count up, such as `SUP-42`. It needs `project_key`.",
		"onTombstone.actor":              "What happens when the actor of an event is erased: `cascade` erases the aggregate too, `preserve` keeps it.",
		"onTombstone.target":             "What happens when the target of an event is erased: `cascade` erases the aggregate too, `preserve` keeps it.",
		"modules.cache":                  "Aggregate types whose states are kept warm. It changes how fast a read is, never what it answers.",
		"modules.sagas":                  "Sagas by name: steps over several aggregates that undo themselves.",
		"geo type.type":                  "`point` or `polygon`.",
		"geo type.properties":            "Fields that go along with the shape: members of the place itself, or else of the event's data.",
		"geo.type":                       "A shape, `point` or `polygon`, or the name of a geo type.",
		"geo.path":                       "Where in the event's data the place is: a path that starts with `$.data`.",
		"read.aggregate_type":            "The type of the aggregate that is looked at.",
		"read.id":                        "The aggregate: a literal, or a path to an id, a key or a name of it.",
		"implication.condition":          "A predicate: where it does not hold nothing happens.",
		"implication.when":               "The same as `condition`.",
		"map implication.when":           "The same as `condition`.",
		"cancel.aggregate_type":          "The type of the aggregate whose event cancels.",
		"cancel.id":                      "The aggregate whose event cancels.",
		"cancel.event_type":              "The event that cancels what is scheduled.",
		"wasm implication.blob_name":     "The name of a blob; `order.wasm:v2` pins a version.",
		"wasm implication.entrypoint":    "The exported function, `compute_implications` if left out.",
		"wasm implication.mode":          "`emit`, the default, or `transform` within a pipeline.",
		"binary container.image":         "The image to run.",
		"binary container.mode":          "`emit`, the default, or `transform` within a pipeline.",
		"runtime container.runtime":      "What the source code runs in.",
		"runtime container.entrypoint":   "A path within the source code.",
		"runtime container.mode":         "`emit`, the default, or `transform` within a pipeline.",
		"wasm handler.blob_name":         "The name of a blob; `order.wasm:v2` pins a version.",
		"wasm handler.entrypoint":        "The exported function, `apply_handler` if left out.",
		"wasm handler.timeout_ms":        "How long it may take, 100 if left out, at most 10000.",
		"saga.trigger":                   "The event that starts the saga.",
		"saga.steps":                     "The steps, in their order.",
		"saga.on_complete":               "The event that is written when all steps are done.",
		"saga.on_failed":                 "The event that is written when a step has failed.",
		"saga.max_compensation_attempts": "How often one compensation is tried, 1 to 3.",
		"trigger.aggregate_type":         "The type of the aggregate whose event starts the saga.",
		"trigger.event_type":             "The event that starts the saga.",
		"step.when":                      "The same as `condition`.",
		"await.aggregate_type":           "The type of the aggregate that answers.",
		"await.event_types":              "The events that finish the step.",
		"await.id":                       "The aggregate that answers, where it is not the one that the step emitted to.",
		"await.until":                    "How long to wait: a path or an operator whose value is a time.",
		"ending.condition":               "A predicate: where it does not hold the saga ends without the event.",
		"ending.when":                    "The same as `condition`.",
		"words.words":                    "A field: rows are found by all words that are asked for.",
		"listener.when":                  "The same as `condition`.",
		"url.prod":                       "Where events of production are delivered to.",
		"url.staging":                    "Where events of staging are delivered to.",
		"url.test":                       "Where events of the test environment are delivered to.",
		"operation.if":                   "Runs the operations of `then` if the predicate holds, those of `else` if not.",
		"operation if.if":                "A predicate.",
		"operation if.then":              "The operations that run where it holds.",
		"operation if.else":              "The operations that run where it does not; it may be left out.",
		"operation find.in":              "The array that is searched.",
		"operation find.where":           "Which element: fields and their values, or a predicate.",
		"operation find.as":              "What the element is called in the predicate, `$item` if left out.",
		"value.$":                        "What the path leads to, the same as the path alone.",
		"selected.$map":                  "Shapes each element of an array: `{\"$map\": path, \"as\": \"$item\", \"to\": value}`.",
		"selected.$lookup":               "Finds the first element whose fields have these values: `{\"$lookup\": path, \"where\": {field: value}, \"select\": value}`.",
		"operation move.from":            "The member that moves: a state path such as `mail`.",
		"operation move.to":              "Where it comes to, and where nothing may be: a state path such as `contact.email`.",
		"operation drop.target":          "The member that goes: a state path such as `legacy`.",
		"operation map_values.apply":     "Operations on each value, which `@` and targets stand for there.",
		"operation map_values.as":        "What a value is called, `$item` if left out.",
		"operator $split.by":             "What stands between the parts: a text that is not empty.",
		"operator $split.limit":          "How many parts there are at most; the last one has the rest.",
		"operator $split.part":           "Which part it is, counted from 0; from the end if it is negative. All of them if left out.",
		"operator $join.by":              "What stands between the parts: a text.",
		"operator $case.of":              "Pairs: what the operand may equal, and the value for it.",
		"operator $case.else":            "The value where nothing is equal. Without it there then is none.",
		"*.target":                       "Where in the state it writes: a state path such as `address.city`, `\"\"` for the whole state.",
		"*.value":                        "The value: a literal, a path, or an object with an operator.",
		"*.by":                           "The amount: a number, a path to one, or a computed value.",
		"*.key":                          "The key: a value that has to be a text.",
		"*.match":                        "Which elements: fields and their values, or a predicate about `$item`.",
		"*.where":                        "Which elements: fields and their values, or a predicate about `$item`.",
		"*.as":                           "What an element is called, `$item` if left out.",
		"*.keep":                         "A predicate: which elements stay.",
		"*.apply":                        "Operations on each element, which `@` and targets stand for there.",
		"*.merge":                        "An object whose members the elements get.",
		"*.uniqueField":                  "The field in which elements must differ.",
		"*.name":                         "The name that is bound, with its `$`.",
		"*.find":                         "What is searched: `{\"in\": array, \"where\": {field: value}}`.",
		"*.find_target":                  "The array that is searched.",
		"*.find_field":                   "The field that is compared.",
		"*.find_value":                   "The value that the field has.",
		"*.array":                        "The array: a path, or a state path.",
		"*.items":                        "The array whose elements are looked for.",
		"*.in":                           "The array: a path, or a state path.",
		"*.min":                          "How many elements there are at least.",
		"*.max":                          "How many elements there are at most.",
		"*.timestamp":                    "The time, in Unix seconds.",
		"*.maxAgeSeconds":                "How many seconds old it may be.",
		"*.now":                          "The time that it is compared with, the event's own if left out.",
		"*.scale":                        "How many digits behind the point, 0 to 100.",
		"*.rounding":                     "How the last digit comes about, `half_even` if left out.",
		"*.of":                           "What is added up for each element.",
		"*.from":                         "The first character, counted from 0; from the end if it is negative.",
		"*.then":                         "The value where it holds.",
		"*.else":                         "The value where it does not, `null` if left out.",
		"*.select":                       "What is made of the element, which `$` is there.",
		"*.to":                           "Up to, and without, what.",
		"operator $map.to":               "What each element becomes.",
		"operator $date_trunc.to":        "The unit whose beginning it is: `second`, `minute`, `hour`, `day`, `week`, `month` or `year`.",
		"operator $count.where":          "A predicate: which elements are counted.",
		"operator $lookup.where":         "Which element: fields and their values.",
	}
}

// A key in the table, and a kind.
type (
	languageKey struct {
		Is    string `json:"is"`
		About string `json:"about"`
		// Form is the kind of the object once it has the key, "" where it stays what it is.
		Form string `json:"form,omitempty"`
	}
	language struct {
		Kinds   map[string]map[string]languageKey `json:"kinds"`
		Paths   map[string]string                 `json:"paths"`
		Types   []string                          `json:"types"`
		Formats []string                          `json:"formats"`
	}
)

func TestLanguageOfTheDashboard(t *testing.T) {
	root := repository(t)
	docs := languageDocs{t: t, root: root}
	got := language{Kinds: map[string]map[string]languageKey{}, Paths: map[string]string{}}
	kinds := languageKinds()

	// What operations, predicates and operators have beside their names.
	for _, name := range languageKeys(t, inHandler(`{"~": {}}`)) {
		if name != "if" {
			kinds = append(kinds, languageKind{
				name: "operation " + name, at: inHandler(`{"` + name + `": {"~": 0}}`),
				is: map[string]string{"from": "target", "to": "target"},
			})
		}
	}
	for _, name := range languageKeys(t, inHandler(`{"if": {"~": 0}, "then": []}`)) {
		if at := inHandler(
			`{"if": {"` + name + `": {"~": 0}}, "then": []}`,
		); len(languageKeys(t, at)) > 0 && name != "not" && name != "exists" {
			kinds = append(kinds, languageKind{
				name: "predicate " + name, at: at, is: map[string]string{"match": "predicate"},
			})
		}
	}
	selects := `"projections": {"p": {"for_each": "a", "sources": {"a": "$key"}, "select": {"x": {%, "~": 0}}}}`
	for _, name := range languageKeys(t, inSpec(strings.Replace(selects, `%, "~"`, `"$~"`, 1))) {
		at := inHandler(`{"set": {"target": "x", "value": {"` + name + `": [1, 2], "~": 0}}}`)
		if name == "$map" || name == "$lookup" {
			at = inSpec(strings.Replace(selects, "%", `"`+name+`": "$.a.x"`, 1))
		}
		if len(languageKeys(t, at)) > 1 {
			kinds = append(kinds, languageKind{name: "operator " + name, at: at, is: map[string]string{
				"then": "value", "else": "value",
				"where": map[bool]string{true: "{value}", false: "predicate"}[name == "$lookup"],
				"to":    map[bool]string{true: "selected", false: map[bool]string{true: "second|minute|hour|day|week|month|year", false: "value"}[name == "$date_trunc"]}[name == "$map"],
			}})
		}
	}

	// The keys that the compiler names, with what the documentation says about them.
	named := map[string]bool{}
	for _, k := range kinds {
		named[k.name] = true
	}
	values, abouts := valuesOf(), languageAbouts()
	for _, k := range kinds {
		keys := languageKeys(t, k.at)
		if len(keys) == 0 {
			t.Errorf("the compiler names no keys of %s", k.name)
		}
		tables := map[string]string{}
		for _, at := range k.docs {
			maps.Copy(tables, docs.table(at))
		}
		got.Kinds[k.name] = map[string]languageKey{}
		for _, key := range keys {
			about := abouts[k.name+"."+key]
			switch {
			case about != "":
			case k.name == "operation":
				about = docs.paragraph("handlers.md", key)
			case k.name == "value" || k.name == "selected":
				about = docs.operators()[key]
			case tables[key] != "":
				about = tables[key]
			case strings.HasPrefix(k.name, "operator ") && k.name == "operator "+key:
				about = docs.operators()[key]
			}
			if about == "" {
				about = abouts["*."+key]
			}
			if about == "" && strings.HasPrefix(k.name, "operator $") {
				about = abouts["selected."+key]
			}
			is := k.is[key]
			if is == "" {
				is = values[key]
			}
			entry := languageKey{Is: is, About: about}
			switch group, _, _ := strings.Cut(k.name, " "); {
			case k.name == "operation" && key == "if":
				entry.Form = "operation if"
			case k.name == "operation":
				entry.Is = "operation " + key
			case k.name == "predicate":
				if named["predicate "+key] {
					entry.Is = "predicate " + key
				} else if entry.Is == "" {
					entry.Is = "[value]"
				}
			case k.name == "value" || k.name == "selected":
				if entry.Is == "" {
					entry.Is = "value"
				}
				if named["operator "+key] {
					entry.Form = "operator " + key
				}
			case group == "operator" && entry.Is == "":
				entry.Is = "value"
			}
			if entry.Is == "" || entry.About == "" {
				t.Errorf("%s.%s: what it is, or what it says, is not known: add it to the documentation or to the tables here (%+v)", k.name, key, entry)
			}
			got.Kinds[k.name][key] = entry
		}
	}

	// Schemas, whose keywords the compiler has no list of: all that are documented are known to it.
	got.Kinds["schema"] = docs.keywords()
	for keyword := range got.Kinds["schema"] {
		_, found := lint.Compile([]byte(`{"agent_types": ["u"], "aggregate_types": {"a": {"events": {"e": {"handler": [], "schema": {"` + keyword + `": null}}}}}}`))
		for _, d := range found {
			if strings.Contains(d.Message, "unknown keyword") || strings.Contains(d.Message, "none of its members") {
				t.Errorf("the schema's keyword %s: %s", keyword, d.Message)
			}
		}
	}
	got.Types = []string{"string", "number", "integer", "boolean", "array", "object", "null"}
	for names := range docs.table("json-schema.md#Formats") {
		got.Formats = append(got.Formats, names)
	}
	slices.Sort(got.Formats)
	for path, about := range docs.table("paths.md#Paths") {
		if regexp.MustCompile(`^(\$|@|\$\.[a-z]+(\.name)?)(\.x)?$`).MatchString(path) {
			got.Paths[strings.TrimSuffix(path, ".x")] = about
		}
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "dashboard", "src", "spec", "language.json")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("the dashboard's table of the language is not what the compiler and the documentation say: run this test with -update, and build the dashboard (-want +got):\n%s", diff)
	}
}

// languageKeys returns the keys that the compiler says are known where "~" stands.
func languageKeys(t *testing.T, src string) []string {
	t.Helper()
	_, found := lint.Compile([]byte(src))
	for _, d := range found {
		if !regexp.MustCompile(`^unknown (key|operation|predicate|operator) "\$?~"$`).MatchString(d.Message) {
			continue
		}
		list := regexp.MustCompile(`^(?:known keys here|the \w+) are ([^;]*)`).FindStringSubmatch(d.Hint)
		if list == nil {
			t.Fatalf("%s has a hint without keys: %s", d.Message, d.Hint)
		}
		keys := strings.Split(strings.ReplaceAll(list[1], " and ", ", "), ", ")
		slices.Sort(keys)
		return keys
	}
	return nil
}

// languageDocs reads the tables of docs/reference.
type languageDocs struct {
	t    *testing.T
	root string
}

// section returns the lines of a page below a heading, down to the next one of the same level or above.
func (d languageDocs) section(page, heading string) []string {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.root, "docs", "reference", page))
	if err != nil {
		d.t.Fatal(err)
	}
	var lines []string
	level := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		switch {
		case level == 0 && marks > 0 && strings.TrimSpace(line[marks:]) == heading:
			level = marks
		case level > 0 && marks > 0 && marks <= level:
			return lines
		case level > 0:
			lines = append(lines, line)
		}
	}
	if level == 0 {
		d.t.Fatalf("%s has no heading %q", page, heading)
	}
	return lines
}

// table returns the first and the last cells of the tables in a part of a page, by each name that the first cell has in
// code.
func (d languageDocs) table(at string) map[string]string {
	d.t.Helper()
	page, heading, _ := strings.Cut(at, "#")
	out := map[string]string{}
	for _, line := range d.section(page, heading) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) < 4 || strings.HasPrefix(strings.TrimSpace(cells[1]), "-") {
			continue
		}
		about := plainText(cells[len(cells)-2])
		if page == "paths.md" {
			about = plainText(cells[2])
		}
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cells[1], -1) {
			key := name[1]
			if m := regexp.MustCompile(`^\{"([^"]*)":`).FindStringSubmatch(key); m != nil {
				out[m[1]] = "`" + key + "`: " + about
				continue
			}
			if _, ok := out[key]; !ok {
				out[key] = about
			}
		}
	}
	return out
}

// operators returns what is said about the operators of values.
func (d languageDocs) operators() map[string]string {
	d.t.Helper()
	out := d.table("handlers.md#Values")
	for _, heading := range []string{
		"Numbers", "Texts", "Times", "One of two values", "A value for a value",
		"Everything else",
	} {
		maps.Copy(out, d.table("computed-values.md#"+heading))
	}
	return out
}

// paragraph returns the first paragraph about an operation.
func (d languageDocs) paragraph(page, name string) string {
	d.t.Helper()
	heading := name
	switch name {
	case "increment", "decrement":
		heading = "increment and decrement"
	case "increment_at", "decrement_at":
		heading = "increment_at and decrement_at"
	}
	var lines []string
	for _, line := range d.section(page, heading) {
		if line == "" && len(lines) > 0 {
			break
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	return plainText(strings.Join(lines, " "))
}

// keywords returns the keywords of JSON Schema.
func (d languageDocs) keywords() map[string]languageKey {
	d.t.Helper()
	out := map[string]languageKey{}
	for _, line := range d.section("json-schema.md", "Keywords") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		about := "For " + strings.TrimSpace(cells[1]) + ". " + plainText(cells[3])
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cells[2], -1) {
			is := map[string]string{
				"type": "schema type", "format": "schema format", "required": "[name]", "items": "schema",
				"additionalProperties": "schema", "propertyNames": "schema", "contains": "schema",
				"not": "schema", "if": "schema", "then": "schema", "else": "schema", "prefixItems": "[schema]",
				"allOf": "[schema]", "anyOf": "[schema]", "oneOf": "[schema]",
				"properties": "{schema}", "patternProperties": "{schema}", "dependentSchemas": "{schema}",
				"$defs": "{schema}", "$ref": "schema reference",
				"uniqueItems": "flag", "deprecated": "flag", "readOnly": "flag", "writeOnly": "flag",
			}[name[1]]
			if is == "" {
				is = "anything"
			}
			out[name[1]] = languageKey{Is: is, About: strings.TrimSpace(about)}
		}
	}
	return out
}

// plainText takes links and bold marks out of a text of the documentation.
func plainText(s string) string {
	s = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.ReplaceAll(s, "\x00", "|"), "$1")
	return strings.TrimSpace(strings.ReplaceAll(s, "**", ""))
}
