// Package lint warns of things that compile but are hardly intended: paths that lead nowhere, comparisons that never
// hold, events that never fit their schemas, names that nothing uses.
package lint

import (
	"context"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Compile is spec.Compile with warnings of things that compile but are hardly intended.
func Compile(src []byte) (*spec.Compiled, []diag.Diagnostic) {
	return spec.CompileWith(src, func(s *spec.Compiled, found *diag.List) { newLinter(s, found).look() })
}

// CompileFor is Compile for the content of an envelope, and for a caller that may leave: once the context has ended,
// compilation stops, and neither a spec nor all findings are returned.
func CompileFor(ctx context.Context, e *spec.Envelope) (*spec.Compiled, []diag.Diagnostic) {
	ended := func() bool { return ctx.Err() != nil }
	return spec.CompileFor(e, ended, func(s *spec.Compiled, found *diag.List) {
		l := newLinter(s, found)
		l.ended = ended
		l.look()
	})
}

// CheckProjection is spec.CompileProjection for a definition that was just written: it also warns of paths that lead
// nowhere, for which it reads the handlers of all types that the projection reads, and refuses what an earlier version
// of the program accepted.
func CheckProjection(src []byte, in *spec.Compiled) (*spec.Projection, []diag.Diagnostic) {
	return spec.CompileProjectionWith(
		src, in, func(p *spec.Projection, found *diag.List) { newLinter(in, found).projection(p, "") },
	)
}

// maxLooks bounds the cost of looking for mistakes: visits of values, of members of schemas and of what handlers write;
// the cost of paths into schemas is counted separately. Once it is used up, the search ends. A spec of an ordinary
// application takes a few thousand.
const maxLooks = 3_000_000

// linter adds warnings about a spec to a list.
type linter struct {
	*diag.List
	spec *spec.Compiled
	root value.Value
	// left is how much of maxLooks is left, pathLooks how much may still be spent on paths into schemas.
	left      int
	pathLooks *work.Budget
	// schemas are those of the data of event types, by the places of these, so that what is found out about a schema is
	// found out once.
	schemas map[diag.Pointer]outline.Schema
	// states is what handlers of aggregate types write, as far as it was needed: see stateOf.
	states map[string]*written
	// ended reports whether the caller no longer waits for the warnings; nil where it always does.
	ended func() bool
}

// over reports whether to stop, since nobody waits for the warnings. It is called before each named thing.
func (l *linter) over() bool { return l.ended != nil && l.ended() }

func newLinter(s *spec.Compiled, found *diag.List) *linter {
	return &linter{
		List: found, spec: s, root: s.Root(), left: maxLooks, pathLooks: work.Counted(maxLooks),
		states: map[string]*written{}, schemas: map[diag.Pointer]outline.Schema{},
	}
}

// spend reports whether enough was left, and there is room for a warning.
func (l *linter) spend(n int) bool {
	if l.FullOfWarnings() {
		l.left = 0
	}
	l.left -= n
	return l.left > 0
}

// dataSchema returns the schema of the data of an event type's definition.
func (l *linter) dataSchema(event value.Value) outline.Schema {
	return outline.Of(event.Get("schema"), l.root.Get("$defs"))
}

// schemaOfEvent is dataSchema for the definition that stands at a place.
func (l *linter) schemaOfEvent(at diag.Pointer, event value.Value) outline.Schema {
	s, ok := l.schemas[at]
	if !ok {
		s = l.dataSchema(event)
		l.schemas[at] = s
	}
	return s
}

// look warns of mistakes that are no errors. Where there are errors, it checks only paths into the data of events,
// since the other checks rely on a valid spec.
func (l *linter) look() {
	s := l.spec
	types := l.root.Get("aggregate_types").Members()
	for _, t := range types {
		for _, e := range t.Value.Get("events").Members() {
			if l.over() {
				return
			}
			if of := s.EventType(t.Key, e.Key); of != nil && !of.System && e.Value.Kind() == value.Object {
				l.eventPaths(of, e.Value, of.Pointer)
			}
		}
	}
	if l.Errors() > 0 {
		return
	}

	// What events do.
	for _, t := range types {
		at := diag.Pointer("/aggregate_types").Key(t.Key).Key("events")
		for _, e := range t.Value.Get("events").Members() {
			if l.over() {
				return
			}
			at := at.Key(e.Key)
			r := reader{linter: l, schema: l.schemaOfEvent(at, e.Value), state: l.stateOf(t.Key)}
			if handler := e.Value.Get("handler"); handler.Get("wasm").IsMissing() {
				r.operations(handler, at.Key("handler"))
			}
			if of := s.EventType(t.Key, e.Key); of != nil {
				l.upcasts(of, e.Value, at)
			}
			r.reads, r.of = l.reading(e.Value), s.EventType(t.Key, e.Key)
			r.implications(e.Value.Get("implications"), at.Key("implications"))
			r.decisions(e.Value, at)
		}
	}

	// What reads and follows them.
	for _, m := range l.root.Get("projections").Members() {
		if l.over() {
			return
		}
		l.projection(s.Projections[m.Key], diag.Pointer("/projections").Key(m.Key))
	}
	for _, m := range l.root.Get("modules").Get("sagas").Members() {
		if l.over() {
			return
		}
		l.saga(m.Value, diag.Pointer("/modules/sagas").Key(m.Key))
	}
	for _, m := range l.root.Get("listeners").Members() {
		if l.over() {
			return
		}
		l.listener(m.Value, s.Listeners[m.Key], diag.Pointer("/listeners").Key(m.Key))
	}
}

// eventPaths warns of paths of an event type that lead to where its schema allows nothing.
func (l *linter) eventPaths(of *spec.EventType, v value.Value, at diag.Pointer) {
	schema := l.schemaOfEvent(at, v)
	for _, key := range append([]string{"handler", "implications"}, spec.DecisionKeys()...) {
		if of := v.Get(key); !l.pathsLead(of, schema) {
			l.dataPaths(of, schema, at.Key(key))
		}
	}
	l.placePath(of.Geo, v.Get("geo").Get("path"), schema, at.Key("geo").Key("path"))
}

// reader checks the handler and the implications of one event type.
type reader struct {
	*linter
	// schema is that of the event's data, missing where it is not known.
	schema outline.Schema
	// state is what handlers write, nil where there is no state or a different one is meant.
	state *written
	// reads is what "$.reads" leads to.
	reads map[string]held
	// of is the event type whose guards and implications are checked, nil for handlers and sagas.
	of *spec.EventType
	// bound is what names stand for: elements of arrays, and in sagas the events that finished steps.
	bound map[string]bound
	// element reports that "@" is the element of an array.
	element bool
}

// bound is what is known of what a name stands for: what a schema says, or what handlers write there.
type bound struct {
	schema outline.Schema
	held   held
	// nothing reports that the name stands for nothing there.
	nothing bool
}

func (r reader) operations(v value.Value, at diag.Pointer) {
	for op := range tick.Operations(v, at) {
		if !r.spend(1) {
			return
		}
		r.target(op)
		parts := op.Parts()
		if op.Over == "" {
			r.parts(parts)
			continue
		}
		inner := r.named(op.As, bound{}) // any value of an object
		if op.Effect != tick.ChangesValues {
			inner = r.binding(op.Over, op.As)
		}
		elements := inner.bound[elementName(op.As)].held.state
		for _, part := range parts {
			switch {
			case part.Bound:
				inner.parts([]tick.Part{part})
			case part.Field != "" && r.unmatched(elements, op.Over, part):
			default:
				r.parts([]tick.Part{part})
			}
		}
	}
}

// unmatched warns of a field of a match that no handler writes to the elements of an array, and reports whether it is
// one.
func (r reader) unmatched(elements *written, array string, part tick.Part) bool {
	p, err := jsonpath.ParseState(part.Field)
	if err != nil {
		return false
	}
	name, members := r.lacks(elements, p.Steps)
	if name == "" {
		return false
	}
	r.Suggest(r.Report(part.At, neverMatched, name, array), name, members)
	return true
}

// target checks the target of an operation: some handler has to write to it, and a value of the right kind.
func (r reader) target(op *tick.Operation) {
	if !r.element && op.Effect == tick.Moves {
		r.neverWritten(r.state, op.FromAt, op.From.Text, op.From.Steps)
	}
	if !r.element && op.Effect == tick.Drops {
		r.neverWritten(r.state, op.TargetAt, op.Target.Text, op.Target.Steps)
	}
	if r.element || r.state == nil || op.On == value.Missing {
		return
	}
	on := kindsOf(op.On)
	place, _, _ := r.state.at(op.Target.Steps)
	switch {
	case place == nil && !op.Makes:
		r.neverWritten(r.state, op.TargetAt, op.Target.Text, op.Target.Steps)
	case place != nil && len(op.Target.Steps) > 0 && place.put != 0 && place.put&(on|outline.Null) == 0 && r.left > 0:
		message := neverOfKind
		if r.state.data {
			message = neverOfKindInData
		}
		r.Report(op.TargetAt, message, op.Name, op.Target.Text, place.put.Phrase(), on.Phrase())
	}
}

// kindsOf returns the kinds of schemas for one of values.
func kindsOf(k value.Kind) outline.Kinds {
	switch k {
	case value.Array:
		return outline.Array
	case value.Object:
		return outline.Object
	case value.Number:
		return outline.Number
	case value.Missing, value.Null, value.Bool, value.String:
	}
	return outline.Any
}

// parts looks at what operations and predicates are made of.
func (r reader) parts(parts []tick.Part) {
	for _, part := range parts {
		if !r.spend(1) {
			return
		}
		switch part.Reading {
		case tick.AsPredicate:
			r.predicate(part.Value, part.At)
		case tick.AsOperations:
			inner := r
			inner.element = true
			inner.operations(part.Value, part.At)
		case tick.AsValue, tick.AsNumber, tick.AsText, tick.AsObject, tick.AsTime, tick.AsArray, tick.AsPath:
			r.value(part.Value, part.At, part.Reading)
		}
	}
}

// predicate looks at a predicate and what it is made of.
func (r reader) predicate(v value.Value, at diag.Pointer) {
	if r.comparison(v, at) {
		return
	}
	if p, err := jsonpath.Parse(v.Get("exists").Str()); err == nil && r.reads != nil && len(p.Steps) == 2 &&
		p.Steps[0].Key == "reads" {
		r.Report(at.Key("exists"), readExists, p.Text)
	}
	parts := tick.PredicateParts(v, at)
	for _, name := range []string{"every", "some"} {
		if of := v.Get(name); !of.IsMissing() {
			r.each(parts, of.Get("in"), of.Get("as"))
			return
		}
	}
	r.parts(parts)
}

// value looks at the texts in a value of the handler language.
func (r reader) value(v value.Value, at diag.Pointer, as tick.Reading) {
	if !r.spend(1) {
		return
	}
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) || as == tick.AsArray || as == tick.AsPath {
			r.path(v.Str(), at, as)
		} else {
			r.text(v.Str(), at)
		}
	case value.Array:
		for i, e := range v.Elems() {
			r.value(e, at.Index(i), tick.AsValue)
		}
	case value.Object:
		switch form, operand := tick.HandlerForm(v); form {
		case tick.Followed:
			r.value(operand, at.Key("$"), as)
			return
		case tick.Chosen:
			r.choice(v, at, as)
			return
		case tick.Plain, tick.Literal, tick.Merged, tick.Text, tick.Numeric, tick.Whole, tick.Scalar, tick.Computed,
			tick.Cased, tick.Texts:
		}
		if k, want := r.kindsOf(v), wanted(as); k&want == 0 && r.left > 0 {
			r.Report(at, operandOfKind, want.Phrase(), known(k))
		}
		if parts, ok := tick.OperatorParts(v, at); ok {
			r.operator(v, at, parts)
			return
		}
		if !r.dataLikePredicate(v, at) {
			r.members(v, at)
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
}

// kindsOf is kinds for a value of any language: an object that is an operator by an old name in templates may be of any
// kind.
func (r reader) kindsOf(v value.Value) outline.Kinds {
	old, _ := tick.TemplateForm(v)
	if form, _ := tick.HandlerForm(v); form == tick.Plain && old != tick.Plain {
		return outline.Any
	}
	return r.kinds(v, tick.HandlerForm)
}

// choice looks at an $if. Each of its values is read as the whole is.
func (r reader) choice(v value.Value, at diag.Pointer, as tick.Reading) {
	r.predicate(v.Get("$if"), at.Key("$if"))
	for _, name := range []string{"then", "else"} {
		of, at := v.Get(name), at.Key(name)
		if k, want := r.kindsOf(of),
			wanted(as); !of.IsMissing() && !jsonpath.IsPath(of.Str()) && k&want == 0 && r.left > 0 {
			r.Report(at, operandOfKind, want.Phrase(), known(k))
			continue
		}
		r.value(of, at, as)
	}
	if want := wanted(as); v.Get("else").IsMissing() && want&outline.Null == 0 && r.left > 0 {
		r.Report(at, choiceOfNothing, want.Phrase())
	}
}

// members looks at the values of an object.
func (r reader) members(v value.Value, at diag.Pointer) {
	for _, m := range v.Members() {
		r.value(m.Value, at.Key(m.Key), tick.AsValue)
	}
}

// dataLikePredicate warns of a value that looks like a predicate, or like a choice by one, and has a path in it: values
// are data, whatever the names of their members. It reports whether its members need no check for that reason.
func (l *linter) dataLikePredicate(v value.Value, at diag.Pointer) bool {
	if tick.IsPredicate(v) && l.hasPath(v) {
		l.Report(at, predicateAsData, v.Members()[0].Key)
		return false
	}
	if v.Get("then").IsMissing() || !tick.IsPredicate(v.Get("if")) || !l.hasPath(v) {
		return false
	}
	l.Report(at, choiceAsData)
	return true
}

// hasPath reports whether a path stands somewhere in a value.
func (l *linter) hasPath(v value.Value) bool {
	if !l.spend(1) {
		return false
	}
	switch v.Kind() {
	case value.String:
		return jsonpath.IsPath(v.Str())
	case value.Array:
		return slices.ContainsFunc(v.Elems(), l.hasPath)
	case value.Object:
		return v.Get("$literal").IsMissing() &&
			slices.ContainsFunc(v.Members(), func(m value.Member) bool { return l.hasPath(m.Value) })
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return false
}

// path checks whether a path leads to something, and to something of the right kind.
func (r reader) path(text string, at diag.Pointer, as tick.Reading) {
	p, err := jsonpath.ParseAny(text)
	if err != nil {
		return
	}
	if is, ok := r.calculated(text); ok && !r.declares(p) {
		instead(is, r.Report(at, calculationInPath, text, is.Operator))
		return
	}
	if r.leadsNowhere(p, at) {
		return
	}
	if k, want := r.kindsAt(p), wanted(as); k&want == 0 && r.left > 0 {
		r.Report(at, pathOfKind, text, want.Phrase(), known(k))
	}
}

// leadsNowhere warns of a path into a state to which nothing is ever written, or to a member that an element cannot
// have, and reports whether it is one.
func (r reader) leadsNowhere(p jsonpath.Path, at diag.Pointer) bool {
	if of, steps := r.read(p); of.state != nil {
		return r.neverWrittenBy(of, p.Text, steps, at)
	}
	if inState, steps := stateSteps(p); inState {
		own := p.Root == jsonpath.Document || !r.element
		return own && (r.beforeTheFirst(p, steps, at) || r.neverWritten(r.state, at, p.Text, steps))
	}
	b := r.bound[p.Name]
	switch {
	case p.Root != jsonpath.Binding:
	case b.nothing:
		r.Report(at, prevOfTheFirst, p.Text)
		return true
	case b.held.aggregateType != "":
		return r.neverWrittenBy(b.held, p.Text, p.Steps, at)
	case b.held.state != nil:
		return r.neverWritten(b.held.state, at, p.Text, p.Steps)
	case !b.schema.IsMissing():
		if parent, name, declared := r.closedAt(b.schema, p.Steps); name != "" {
			r.nothingThere(at, p.Text, "$"+p.Name+parent, name, declared)
			return true
		}
	}
	return false
}

// stateSteps returns the steps of a path that lead through the state.
func stateSteps(p jsonpath.Path) (inState bool, steps []value.Step) {
	switch {
	case p.Root == jsonpath.Current:
		return true, p.Steps
	case p.Root == jsonpath.Document && len(p.Steps) > 0 && p.Steps[0].Key == "state":
		return true, p.Steps[1:]
	default:
		return false, nil
	}
}

// declares reports whether the spec itself has a member of the name that a path ends in: in a schema, or by writing it.
func (r reader) declares(p jsonpath.Path) bool {
	if inState, steps := stateSteps(p); inState && r.state != nil {
		place, _, _ := r.state.at(steps)
		return place != nil
	}
	return p.Root == jsonpath.Document && len(p.Steps) > 1 && p.Steps[0].Key == "data" &&
		!r.schemaAt(r.schema, p.Steps[1:]).IsMissing()
}

// calculated is jsonpath.Calculate, as long as the budget lasts.
func (l *linter) calculated(text string) (jsonpath.Calculation, bool) {
	if !l.spend(len(text) / bytesPerLook) {
		return jsonpath.Calculation{}, false
	}
	return jsonpath.Calculate(text)
}

// bytesPerLook is how much of a text is read in the time of one look.
const bytesPerLook = 8

// text checks a text that is no path but is spelt like one, or that calculates.
func (r reader) text(text string, at diag.Pointer) {
	if meant := r.pathMeant(text); meant != "" {
		r.Report(at, pathWithoutDollar, text, meant)
	} else if is, ok := r.calculated(text); ok {
		instead(is, r.Report(at, calculationInText, text))
	} else if part, path := r.placeholder(text); part != "" {
		r.pathInText(at, text, part, path)
	} else if path := pathInside(text); path != "" {
		r.pathInText(at, text, path, path)
	}
}

// pathInText reports a path within a text, which part of it stands for.
func (r reader) pathInText(at diag.Pointer, text, part, path string) {
	before, after, _ := strings.Cut(text, part)
	var parts []value.Value
	for _, s := range []string{before, path, after} {
		if s != "" {
			parts = append(parts, value.StringValue(s))
		}
	}
	const most = 120
	made := value.ArrayValue(parts...).String()
	if len(made) > most {
		made = `["The balance is ", "$.state.balance"]`
	}
	r.Report(at, pathInText, text, part, made)
}

// placeholder returns a part of a text that stands for a path where other languages compose texts, such as {@.status}
// or ${data.name}, and the path; "" where there is none. Double braces are left for other programs to fill in.
func (r reader) placeholder(text string) (part, path string) {
	for start := 0; start < len(text); start++ {
		if text[start] != '{' {
			continue
		}
		end := strings.IndexByte(text[start:], '}')
		if end < 0 || !r.spend(1+end/bytesPerLook) {
			return "", ""
		}
		path = strings.TrimSpace(text[start+1 : start+end])
		if _, err := jsonpath.Parse(path); !jsonpath.IsPath(path) || err != nil {
			path = r.pathMeant(path)
		}
		if path == "" || path[0] == '{' || start > 0 && text[start-1] == '{' {
			continue
		}
		if end++; start > 0 && text[start-1] == '$' {
			start, end = start-1, end+1
		}
		return text[start : start+end], path
	}
	return "", ""
}

// pathInside returns a path into the event or the state among other words of a text, "" where there is none. Paths that
// start with "@" are not recognised: addresses and names are spelt like them.
func pathInside(text string) string {
	for _, root := range []string{"$.data.", "$.state.", "$.metadata.", "$.reads."} {
		start := strings.Index(text, root)
		if start <= 0 || !strings.ContainsRune(" \t\n([{'\"#:=/", rune(text[start-1])) {
			continue
		}
		path := text[start:]
		if end := strings.IndexFunc(path, func(c rune) bool { return !strings.ContainsRune(pathLetters, c) }); end > 0 {
			path = path[:end]
		}
		if path = strings.TrimRight(path, ".?!-"); len(path) > len(root) {
			return path
		}
	}
	return ""
}

// pathMeant returns the path that a text becomes with a "$." in front, "" where it is not spelt like one.
func (r reader) pathMeant(text string) string {
	end := strings.IndexAny(text, ".[")
	if end < 0 || !isPathTail(text[end:]) {
		return ""
	}
	root := text[:end]
	known := root == "data" || root == "metadata" || root == "state" && r.state != nil ||
		root == "reads" && r.reads != nil
	meant := "$." + text
	if _, bound := r.bound[root]; bound {
		meant, known = "$"+text, true
	}
	if !known {
		return ""
	}
	p, err := jsonpath.Parse(meant)
	if err != nil || isFileName(text) && !r.declares(p) {
		return ""
	}
	return meant
}

// isFileName reports whether a text ends like the name of a common kind of file: data.csv is no member called csv.
func isFileName(text string) bool {
	endings := []string{
		"csv", "json", "jsonl", "ndjson", "xml", "yaml", "yml", "txt", "md", "pdf", "html", "zip", "gz", "sql", "xlsx",
		"png", "jpg", "svg",
	}
	return strings.Count(text, ".") == 1 && slices.Contains(endings, text[strings.IndexByte(text, '.')+1:])
}

// pathLetters is what nearly all paths are spelt with.
const pathLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]-?$"

// isPathTail reports whether a whole text could be the steps of a path, as nearly all paths are spelt.
func isPathTail(text string) bool {
	last := text[len(text)-1]
	return last != '.' && strings.Trim(text, pathLetters) == ""
}
