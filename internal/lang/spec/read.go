package spec

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// decoder reads the JSON of a spec: objects by their shapes, arrays, texts, numbers, names. It adds what is wrong to
// the list.
type decoder struct {
	*diag.List
	// ended reports whether the caller no longer waits for the findings; nil where it always does.
	ended func() bool
}

// over reports whether to stop, since nobody waits for the findings. It is called for each named thing, and so before
// each event type.
func (c decoder) over() bool { return c.ended != nil && c.ended() }

// shape says which keys an object of a spec may have. what names the object with its article.
type shape struct {
	what     string
	required []string
	optional []string
	// refused are keys that have an error of their own.
	refused []string
}

// object reports whether v is an object. It adds errors for keys that are unknown or missing.
func (c decoder) object(v value.Value, at diag.Pointer, s shape) bool {
	if v.Kind() != value.Object {
		c.wrongKind(at, s.what, value.Object, v.Kind())
		return false
	}
	known := slices.Concat(s.required, s.optional)
	var misspelt []string
	for _, m := range v.Members() {
		if slices.Contains(known, m.Key) || slices.Contains(s.refused, m.Key) {
			continue
		}
		if near := c.Nearest(m.Key, known); near != "" {
			misspelt = append(misspelt, near)
		}
		c.UnknownKey(at, m.Key, known)
	}
	for _, key := range s.required {
		// A misspelt key is not reported as missing too.
		if v.Get(key).IsMissing() && !slices.Contains(misspelt, key) {
			c.missingKey(at, s.what, key)
		}
	}
	return true
}

// members calls f for each member of the object v, up to a limit. A missing v has none.
func (c decoder) members(
	v value.Value, at diag.Pointer, what string, limit int, f func(key string, v value.Value, at diag.Pointer),
) {
	if v.IsMissing() {
		return
	}
	if v.Kind() != value.Object {
		c.notByName(at, what, v.Kind())
		return
	}
	if v.Len() > limit {
		c.Report(at, tooMany, what, limit, v.Len())
		return
	}
	for _, m := range v.Members() {
		if c.over() {
			return
		}
		f(m.Key, m.Value, at.Key(m.Key))
	}
}

// elems calls f for each element of the array v, up to a limit. A missing v has none.
func (c decoder) elems(
	v value.Value, at diag.Pointer, what string, limit int, f func(i int, v value.Value, at diag.Pointer),
) {
	if v.IsMissing() {
		return
	}
	if v.Kind() != value.Array {
		c.wrongKind(at, what, value.Array, v.Kind())
		return
	}
	if v.Len() > limit {
		c.Report(at, tooMany, what, limit, v.Len())
		return
	}
	for i, e := range v.Elems() {
		f(i, e, at.Index(i))
	}
}

// text returns a string that is not empty.
func (c decoder) text(v value.Value, at diag.Pointer, what string) (string, bool) {
	switch {
	case v.IsMissing():
		return "", false
	case v.Kind() != value.String:
		c.wrongKind(at, what, value.String, v.Kind())
		return "", false
	case v.Str() == "":
		c.Report(at, empty, what)
		return "", false
	case len(v.Str()) > maxText:
		c.Report(at, tooLong, what, maxText)
		return "", false
	default:
		return v.Str(), true
	}
}

// flag returns a boolean, false where v is missing.
func (c decoder) flag(v value.Value, at diag.Pointer, what string) bool {
	if !v.IsMissing() && v.Kind() != value.Bool {
		c.wrongKind(at, what, value.Bool, v.Kind())
	}
	return v.Truth()
}

// integer returns a whole number from 1 to most, or fallback where v is missing or wrong.
func (c decoder) integer(v value.Value, at diag.Pointer, what string, most, fallback int64) int64 {
	if v.IsMissing() {
		return fallback
	}
	n, ok := v.Int64()
	if v.Kind() != value.Number || !ok || n < 1 || n > most {
		c.Report(at, notInRange, what, most)
		return fallback
	}
	return n
}

// choice returns one of the given words, the first where v is missing or wrong.
func (c decoder) choice(v value.Value, at diag.Pointer, what string, words ...string) string {
	s, ok := c.text(v, at, what)
	if !ok {
		return words[0]
	}
	if !slices.Contains(words, s) {
		c.notOneOf(at, what, s, words)
		return words[0]
	}
	return s
}

// name reports whether s can be declared as a name: it can stand in a URL and in JSON as it is.
func (c decoder) name(s string, at diag.Pointer, what string) bool {
	if isName(s) {
		return true
	}
	c.badName(at, what, s)
	return false
}

func isName(s string) bool {
	for i := range len(s) {
		b := s[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789_-", rune(b))) {
			return false
		}
	}
	return s != "" && len(s) <= MaxNameLength
}

// isPath reports whether a name is that of a path of every server, at which an aggregate type of that name could not be
// reached.
func isPath(name string) bool { return name == "internal" || name == "livez" || name == "readyz" }

// names reads an array of distinct names.
func (c decoder) names(
	v value.Value, at diag.Pointer, what, each string, accept func(name string, at diag.Pointer) bool,
) NameSet {
	found := NameSet{}
	c.elems(v, at, what, maxNames, func(_ int, v value.Value, at diag.Pointer) {
		s, ok := c.text(v, at, each)
		if !ok || !accept(s, at) {
			return
		}
		if found.Has(s) {
			c.Report(at, listedTwice, s, what)
		}
		found[s] = struct{}{}
	})
	return found
}

// condition reads an optional predicate, which is called condition or when.
func (c decoder) condition(v value.Value, at diag.Pointer, s tick.Scope) *tick.Predicate {
	key := "condition"
	if !v.Get("when").IsMissing() {
		if !v.Get(key).IsMissing() {
			c.Report(at.Key("when"), bothKeys, key, "when")
		}
		key = "when"
	}
	if p := v.Get(key); !p.IsMissing() {
		return tick.CompilePredicate(p, at.Key(key), s, c.List)
	}
	return nil
}

// notByName is the error for an object of named things that is something else.
func (c decoder) notByName(at diag.Pointer, what string, got value.Kind) {
	d := c.Errorf(at, "%s must be an object, not %s", what, aKind(got))
	if got == value.Array {
		d.Hintf(`write one member for each, with its name as the key, as in {"name": {...}, "other": {...}}`)
	}
}

func (c decoder) wrongKind(at diag.Pointer, what string, want, got value.Kind) {
	d := c.Errorf(at, "%s must be %s, not %s", what, aKind(want), aKind(got))
	switch example := exampleOf(what); {
	case example != "":
		d.Hintf("write %s", example)
	case want == value.Array && (got == value.String || got == value.Object):
		d.Hintf("write an array, for one alone too, as in [%s]", map[value.Kind]string{value.String: `"..."`, value.Object: "{...}"}[got])
	}
}

// exampleOf returns an example for things that are often written in too short a form, "" for all others.
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
		"a generation":            `{"schema": {...}, "upcast": [{"move": {"from": "mail", "to": "email"}}]}`,
		"a listener":              `{"url": "https://example.com/hook", "events": ["order.was_placed"]}`,
		"select":                  `a member for each part of the result, as in {"status": "$.order.status"}`,
	}[what]
}

func (c decoder) missingKey(at diag.Pointer, what, key string) {
	hints := map[string]string{
		"as of retired":   `name the event type that stored events are read as, as in "as": "was_placed", or write "retired": true`,
		"handler":         `write "handler": [] for events that leave the state as it is`,
		"upcast":          `write "upcast": [] where the data fit the next generation as they are`,
		"generation":      `write the number of the generation that the events have there, as in "generation": 1`,
		"schema":          `write "schema": {"type": "object"} to accept every object`,
		"delay":           `write how long to wait, as in "delay": "24h", or when it is to come, as in "at": "$.data.due"`,
		"agent_types":     `write who or what may cause events, as in "agent_types": ["user", "service"]`,
		"aggregate_types": `write "aggregate_types": {}, or start with "j17 spec new"`,
		"as":              `name each element, as in "as": "$item"`,
		"sources":         `write what is read, as in "for_each": "order", "sources": {"order": "$key"}`,
		"select":          `write the result, as in "select": {"status": "$.order.status"}`,
		"that":            `write what has to hold, as in "that": {"gte": ["$.state.balance", "$.data.amount"]}`,
		"message":         `write the message of the refusal, as in "message": "The account is closed."`,
		"value":           `write where the value stands in the event, as in "value": "$.data.email"`,
	}
	c.Errorf(at, "%s needs the key %q", what, key).AtKey().Hint = cmp.Or(hints[key+" of "+what], hints[key])
}

func (c decoder) notOneOf(at diag.Pointer, what, got string, words []string) {
	const shown = 12
	var quoted []string
	for _, w := range words[:min(shown, len(words))] {
		quoted = append(quoted, diag.Quote(w))
	}
	if len(words) > shown {
		quoted = append(quoted, "another of "+strconv.Itoa(len(words)))
	}
	d := c.Errorf(at, "%s cannot be %s; it is %s", what, diag.Quote(got), diag.Join(quoted, "or"))
	c.Suggest(d, got, words)
}

func (c decoder) badName(at diag.Pointer, what, name string) {
	d := c.Errorf(at, "%s cannot be named %s", what, diag.Quote(name)).AtKey()
	switch {
	case strings.HasPrefix(name, "_"):
		d.Hintf("names that start with an underscore belong to the platform")
	case len(name) > MaxNameLength:
		d.Hintf("a name has at most %d characters", MaxNameLength)
	default:
		d.Hintf(`a name starts with a letter and goes on with letters, digits, "_" and "-"`)
	}
}

func (c decoder) badPath(at diag.Pointer, err error) {
	d := c.Errorf(at, "%v", err)
	if syntax, ok := errors.AsType[*jsonpath.SyntaxError](err); ok {
		d.Hint = syntax.Hint
	}
}
