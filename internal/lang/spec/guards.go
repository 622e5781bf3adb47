package spec

import (
	"slices"
	"strings"
	"unicode/utf8"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/tick"
)

// Limits of what decides whether an event is written.
const (
	maxGuards = 20 // of one event type
	maxReads  = 10 // of one event type; a read is a bit of tick's ReadsOf
	// MaxMessage is how many characters of a guard's message are shown.
	MaxMessage = 500
)

// Guard is one of the requirements of an event type: an event of which it does not hold is refused.
type Guard struct {
	Pointer diag.Pointer
	That    *tick.Predicate
	Message *tick.Template
	// Fixed reports that Message is the same for all events and contains nothing of them.
	Fixed bool
	// Code distinguishes this refusal from others, "" where the spec gives it no name.
	Code string
}

// Read names the state of another aggregate for guards, conditions and emits: "$.reads" and its name.
type Read struct {
	Name          string
	Pointer       diag.Pointer
	AggregateType string
	ID            Ref
}

// Creation says whether an event can be the first of its aggregate.
type Creation uint8

// The choices of "creates".
const (
	// CreatesAny is an event that may be the first or a later one.
	CreatesAny Creation = iota
	// CreatesOnly is an event that has to be the first.
	CreatesOnly
	// CreatesNever is an event that cannot be the first.
	CreatesNever
)

// DecisionKeys are the members of an event type that decide whether an event is written. States do not depend on them.
func DecisionKeys() []string {
	return []string{"requires", "reads", "creates", "tags", "unique", "releases"}
}

// decisionCompiler reads what decides whether events of a type are written, and what they are found by.
type decisionCompiler struct {
	resolver
	// schema is that of the data of the event.
	schema outline.Schema
}

// decisions reads what decides whether an event of a type is written.
func (c decisionCompiler) decisions(e *EventType, v value.Value, at diag.Pointer) {
	e.Creates = c.creation(v.Get("creates"), at.Key("creates"))
	c.members(v.Get("reads"), at.Key("reads"), "reads", maxReads, func(name string, v value.Value, at diag.Pointer) {
		e.Reads = append(e.Reads, c.declaredRead(name, v, at))
	})

	// Guards read what conditions of implications read.
	s := eventScope(v)
	s.Current = true
	c.elems(v.Get("requires"), at.Key("requires"), "requires", maxGuards, func(_ int, v value.Value, at diag.Pointer) {
		e.Requires = append(e.Requires, c.guard(v, at, s))
	})
	c.tags(e, v, at.Key("tags"))
	c.uniqueValues(e, v, at)
}

func (c decisionCompiler) creation(v value.Value, at diag.Pointer) Creation {
	switch {
	case v.IsMissing(), v.Kind() == value.Bool && v.Truth():
		return CreatesAny
	case v.Kind() == value.Bool:
		return CreatesNever
	case v.Kind() == value.String && v.Str() == "only":
		return CreatesOnly
	}
	c.Report(at, badCreation, diag.QuoteValue(v))
	return CreatesAny
}

// declaredRead reads a member of reads. Its id is taken from the event and the state before it.
func (c decisionCompiler) declaredRead(name string, v value.Value, at diag.Pointer) *Read {
	c.name(name, at, "a read")
	r := &Read{Name: name, Pointer: at}
	if !c.object(v, at, shape{what: "a read", required: []string{"aggregate_type", "id"}}) {
		return r
	}
	r.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate_type"), at.Key("aggregate_type"))
	r.ID = c.id(v.Get("id"), at.Key("id"), r.AggregateType, tick.Scope{Members: eventMembers()})
	return r
}

func (c decisionCompiler) guard(v value.Value, at diag.Pointer, s tick.Scope) *Guard {
	g := &Guard{Pointer: at}
	if !c.object(v, at, shape{what: "a guard", required: []string{"that", "message"}, optional: []string{"code"}}) {
		return g
	}
	if that := v.Get("that"); !that.IsMissing() {
		g.That = tick.CompilePredicate(that, at.Key("that"), s, c.List)
	}
	if message := v.Get("message"); !message.IsMissing() {
		g.Message, g.Fixed = c.message(message, at.Key("message"), s)
	}
	if code, ok := c.text(v.Get("code"), at.Key("code"), "a code"); ok {
		if !isSnakeCase(code) {
			c.Report(at.Key("code"), badCode, code, MaxNameLength)
		}
		g.Code = code
	}
	return g
}

// message reads what a refusal says: a text, which is fixed, or a template of one.
func (c decisionCompiler) message(v value.Value, at diag.Pointer, s tick.Scope) (t *tick.Template, fixed bool) {
	text, ok := c.messageText(v, at, s)
	if !ok {
		return nil, false
	}
	return tick.CompileTemplate(v, at, s, c.List), !text.IsMissing()
}

// messageText checks what a message says and returns it where it is one text. It reports false, and why, where it is
// none.
func (c decisionCompiler) messageText(v value.Value, at diag.Pointer, s tick.Scope) (text value.Value, ok bool) {
	kind := value.String
	switch form, operand := tick.TemplateForm(v); form {
	case tick.Literal:
		kind, text = operand.Kind(), operand
	case tick.Plain:
		if kind = v.Kind(); !jsonpath.IsPath(v.Str()) {
			text = v
		}
	case tick.Merged:
		kind = value.Object
	case tick.Numeric, tick.Whole:
		kind = value.Number
	case tick.Texts:
		if v.Get("part").IsMissing() {
			kind = value.Array
		}
	case tick.Chosen:
		_, then := c.messageText(v.Get("then").OrNull(), at.Key("then"), s)
		_, other := c.messageText(v.Get("else").OrNull(), at.Key("else"), s)
		return value.Value{}, then && other
	case tick.Followed, tick.Text, tick.Scalar, tick.Computed, tick.Cased:
	}
	switch {
	case kind == value.Object && c.misspelt(v, at, s):
		return text, false
	case kind != value.String:
		c.Report(at, noText, aKind(kind))
		return text, false
	case !text.IsMissing() && text.Str() == "":
		c.Report(at, empty, "a message")
		return text, false
	case utf8.RuneCountInString(text.Str()) > MaxMessage:
		c.Report(at, messageCut, MaxMessage)
	}
	return text, true
}

// misspelt reports an object that is meant as a text but uses no known operator, where a name in it resembles that of
// an operator.
func (c decisionCompiler) misspelt(v value.Value, at diag.Pointer, s tick.Scope) bool {
	named := func(m value.Member) bool { return strings.HasPrefix(m.Key, "$") }
	if form, _ := tick.TemplateForm(v); form != tick.Plain || !slices.ContainsFunc(v.Members(), named) {
		return false
	}
	errors := c.Errors()
	tick.CompileTemplate(v, at, s, c.List)
	return c.Errors() > errors
}

// isSnakeCase reports whether a text is made of lower-case words with "_" between them.
func isSnakeCase(s string) bool {
	return s[0] >= 'a' && s[0] <= 'z' && len(s) <= MaxNameLength &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// statePart returns the definition of an aggregate type without what states do not depend on.
func statePart(v value.Value) value.Value {
	events := v.Get("events").Members()
	kept := make([]value.Member, len(events))
	found := false
	for i, e := range events {
		kept[i] = e
		if part, changed := stateMembers(e.Value); changed {
			found, kept[i].Value = true, part
		}
	}
	if !found {
		return v
	}
	members := make([]value.Member, 0, v.Len())
	for _, m := range v.Members() {
		if m.Key == "events" {
			m.Value = value.ObjectValue(kept...)
		}
		members = append(members, m)
	}
	return value.ObjectValue(members...)
}
