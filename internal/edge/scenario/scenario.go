// Package scenario runs examples of what an application does: given some events, when one is written, then there is a
// state, a refusal, or an event that follows from it. Scenarios are written in JSON and run against an environment of a
// server.
package scenario

import (
	"errors"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Scenario is one example.
type Scenario struct {
	// Name says what it shows.
	Name string
	// File is the name of the file that it stands in, Line the line where it starts.
	File string
	Line int

	source string
	// at is its place in the file.
	at    diag.Pointer
	given []write
	when  *write
	then  expectation
}

// write is a write of a scenario, with placeholders: to one aggregate, or a list of writes to several.
type write struct {
	at            diag.Pointer
	key, as       string
	events        []event
	several       []write
	actor, target string
	previous      *uint64
	skipOCC       bool
	// conditions are an array, missing where there are none.
	conditions value.Value
}

type event struct {
	name string
	data value.Value
	// generation is that of the data, 0 where it is not said.
	generation int
}

// expectation is what has to hold in the end. Missing parts are not checked.
type expectation struct {
	// states are an object by keys of aggregates.
	states value.Value
	// projections are an object by what follows /_projections/ in a request: name/id, or name?parameter=value.
	projections value.Value
	// failure is the refusal of the write, missing where the write has to succeed. refused names it in short: by the
	// code of the guard, or by that of the error where the guard has none; "" where failure describes it, or there is
	// no refusal.
	failure value.Value
	refused string
	implied []impliedEvent
	// hasImplied distinguishes an empty list from none.
	hasImplied bool
	exact      bool
}

type impliedEvent struct {
	at        diag.Pointer
	key, name string
	data      value.Value
}

// Parse reads the scenarios of a file: one object, or an array of them. Findings are all faults with their places; if
// there are any, no scenarios are returned.
func Parse(file, src string) ([]*Scenario, []diag.Diagnostic) {
	root, err := value.ParseString(src)
	if err != nil {
		d := diag.Diagnostic{Line: 1, Column: 1, Message: "this is no JSON: " + err.Error()}
		if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
			d.Line, d.Column, d.Message = syntax.Line, syntax.Column, "this is no JSON: "+syntax.Message
		}
		return nil, []diag.Diagnostic{d}
	}

	// One scenario, or an array of them.
	var r reader
	var all []*Scenario
	add := func(p diag.Pointer, v value.Value) {
		s := &Scenario{File: file, source: src, at: p}
		s.Line = s.line(p)
		r.scenario(s, v)
		all = append(all, s)
	}
	for i, v := range root.Elems() {
		add(diag.Pointer("").Index(i), v)
	}
	if root.Kind() != value.Array {
		add("", root)
	}

	// Findings get their places in the text.
	found := r.list.All()
	if len(found) == 0 {
		return all, nil
	}
	for i := range found {
		place, _ := value.Locate(src, string(found[i].Pointer))
		at := place.Start
		if found[i].OnKey {
			at = place.Key
		}
		found[i].Line, found[i].Column = value.Position(src, at)
	}
	return nil, found
}

// line is the line of the file where a part of the scenario stands.
func (s *Scenario) line(p diag.Pointer) int {
	place, _ := value.Locate(s.source, string(p))
	line, _ := value.Position(s.source, place.Key)
	return line
}

// reader parses scenarios and gathers what is wrong with them.
type reader struct{ list diag.List }

// members checks that a value is an object with none but known members.
func (r *reader) members(p diag.Pointer, v value.Value, known ...string) bool {
	if v.Kind() != value.Object {
		r.list.Errorf(p, "this must be an object with some of %s", strings.Join(known, ", "))
		return false
	}
	for _, m := range v.Members() {
		if !slices.Contains(known, m.Key) {
			r.list.UnknownKey(p, m.Key, known)
		}
	}
	return true
}

// text reads a member that must be a string.
func (r *reader) text(p diag.Pointer, v value.Value, name string, required bool) string {
	m := v.Get(name)
	switch {
	case m.IsMissing() && required:
		r.list.Errorf(p, "%q is missing", name)
	case m.IsMissing():
	case m.Kind() != value.String || m.Str() == "":
		r.list.Errorf(p.Key(name), "%q must be a text", name)
	default:
		return m.Str()
	}
	return ""
}

func (r *reader) scenario(s *Scenario, v value.Value) {
	if !r.members(s.at, v, "name", "actor", "given", "when", "then") {
		return
	}
	s.Name = r.text(s.at, v, "name", true)
	actor := r.agent(s.at, v, "actor")
	if given := v.Get("given"); given.Kind() == value.Array {
		for i, w := range given.Elems() {
			s.given = append(s.given, r.write(s.at.Key("given").Index(i), w, actor))
		}
	} else if !given.IsMissing() {
		r.list.Errorf(s.at.Key("given"), "\"given\" must be an array of writes")
	}
	if when := v.Get("when"); !when.IsMissing() {
		w := r.write(s.at.Key("when"), when, actor)
		s.when = &w
	}
	then := v.Get("then")
	if then.IsMissing() {
		r.list.Errorf(s.at, "\"then\" is missing: it says what to expect, as in \"then\": {\"state\": {\"order:{{order}}\": {\"status\": \"open\"}}}")
		return
	}
	r.then(s, s.at.Key("then"), then)
}

// write reads {"key", "type", "data", ...}, {"key", "events": [{"type", "data"}], ...} or {"writes": [...], ...} of
// several aggregates.
func (r *reader) write(p diag.Pointer, v value.Value, actor string) write {
	w := write{at: p}
	if list := v.Get("writes"); !list.IsMissing() {
		if !r.members(p, v, "writes", "actor", "target", "conditions") {
			return w
		}
		if list.Kind() != value.Array || list.Len() == 0 {
			r.list.Errorf(p.Key("writes"), "\"writes\" must be an array of writes, each with a \"key\" and \"events\"")
		}
		for i, part := range list.Elems() {
			at := p.Key("writes").Index(i)
			if !r.members(at, part, "key", "as", "type", "data", "generation", "events", "previous_length") {
				continue
			}
			one := write{at: at, as: r.text(at, part, "as", false), previous: r.length(at, part)}
			r.to(&one, part)
			w.several = append(w.several, one)
		}
	} else {
		if !r.members(
			p, v, "key", "type", "data", "generation", "events", "actor", "target", "previous_length", "skip_occ",
			"conditions",
		) {
			return w
		}
		r.to(&w, v)
	}

	// Who does it.
	if w.actor = r.agent(p, v, "actor"); w.actor == "" {
		w.actor = actor
	}
	if w.actor == "" {
		r.list.Errorf(p, "there is no \"actor\": say who does this, here or for the whole scenario, as in \"actor\": \"user:global\"")
	}
	w.target = r.agent(p, v, "target")

	// What has to hold.
	w.previous, w.skipOCC = r.length(p, v), r.flag(p, v, "skip_occ")
	if w.conditions = v.Get("conditions"); !w.conditions.IsMissing() && w.conditions.Kind() != value.Array {
		r.list.Errorf(p.Key("conditions"), "\"conditions\" must be an array, such as [{\"fail_if_events_match\": {\"tags\": [\"course:{{course}}\"]}}]")
	}
	return w
}

// to reads the aggregate of a write, and its events: one, or several.
func (r *reader) to(w *write, v value.Value) {
	p := w.at
	w.key = r.key(p, v)
	batch := v.Get("events")
	switch {
	case batch.IsMissing():
		w.events = []event{{r.text(p, v, "type", true), data(v), r.generation(p, v)}}
	case !v.Get("type").IsMissing() || !v.Get("data").IsMissing() || !v.Get("generation").IsMissing():
		r.list.Errorf(p, "\"events\" stands in the place of \"type\", \"data\" and \"generation\"")
	case batch.Kind() != value.Array || batch.Len() == 0:
		r.list.Errorf(p.Key("events"), "\"events\" must be an array of events")
	default:
		for i, ev := range batch.Elems() {
			at := p.Key("events").Index(i)
			if r.members(at, ev, "type", "data", "generation") {
				w.events = append(w.events, event{r.text(at, ev, "type", true), data(ev), r.generation(at, ev)})
			}
		}
	}
}

// length reads the number of events that an aggregate has to have, nil for any.
func (r *reader) length(p diag.Pointer, v value.Value) *uint64 {
	m := v.Get("previous_length")
	if m.IsMissing() {
		return nil
	}
	n, ok := m.Int64()
	if !ok || n < 0 {
		r.list.Errorf(p.Key("previous_length"), "\"previous_length\" must be a whole number of 0 or more")
	}
	length := uint64(max(n, 0))
	return &length
}

// generation reads the number of the generation that the data of an event are in, 0 where it is not said.
func (r *reader) generation(p diag.Pointer, v value.Value) int {
	m := v.Get("generation")
	if m.IsMissing() {
		return 0
	}
	n, ok := m.Int64()
	if !ok || n < 1 || n > math.MaxInt32 {
		r.list.Errorf(p.Key("generation"), "\"generation\" must be the number of a generation, a whole number from 1 on")
		return 0
	}
	return int(n)
}

func (r *reader) flag(p diag.Pointer, v value.Value, name string) bool {
	m := v.Get(name)
	if !m.IsMissing() && m.Kind() != value.Bool {
		r.list.Errorf(p.Key(name), "%q must be true or false", name)
	}
	return m.Truth()
}

func data(v value.Value) value.Value {
	if d := v.Get("data"); !d.IsMissing() {
		return d
	}
	return value.ObjectValue()
}

// view is a value of a projection.
type view struct {
	name, id string
	params   map[string]string
}

// parseView reads what follows /_projections/ in a request.
func parseView(text string) (view, bool) {
	path, query, asked := strings.Cut(text, "?")
	name, id, of := strings.Cut(path, "/")
	v := view{name: name, id: id, params: map[string]string{}}
	params, err := url.ParseQuery(query)
	for param, values := range params {
		if len(values) != 1 || param == "" {
			return v, false
		}
		v.params[param] = values[0]
	}
	return v, err == nil && name != "" && (id != "") == of && !strings.Contains(id, "/") && asked == (len(params) > 0)
}

// key reads the key of an aggregate. Its id is known only once placeholders are filled in.
func (r *reader) key(p diag.Pointer, v value.Value) string {
	key := r.text(p, v, "key", true)
	if _, ok := j17.ParseKey(key); !ok && key != "" {
		r.list.Errorf(p.Key("key"), "%s is no aggregate: it has the form type:id, such as order:{{order}}", diag.Quote(key))
	}
	return key
}

func (r *reader) agent(p diag.Pointer, v value.Value, name string) string {
	agent := r.text(p, v, name, false)
	if _, ok := j17.ParseKey(agent); !ok && agent != "" {
		r.list.Errorf(p.Key(name), "%s does not have the form type:id, such as user:global", diag.Quote(agent))
	}
	return agent
}

func (r *reader) then(s *Scenario, p diag.Pointer, v value.Value) {
	if !r.members(p, v, "state", "projection", "error", "refused", "implied", "exact") {
		return
	}
	t := &s.then
	t.exact = r.flag(p, v, "exact")
	t.states, t.projections, t.failure = v.Get("state"), v.Get("projection"), v.Get("error")

	// The states of aggregates.
	if !t.states.IsMissing() && t.states.Kind() != value.Object {
		r.list.Errorf(p.Key("state"), "\"state\" must be an object with aggregates and their states, such as {\"order:{{order}}\": {\"status\": \"open\"}}")
	}
	for _, m := range t.states.Members() {
		if _, ok := j17.ParseKey(m.Key); !ok {
			r.list.Errorf(p.Key("state").Key(m.Key), "%s is no aggregate: it has the form type:id, such as order:{{order}}", diag.Quote(m.Key)).AtKey()
		}
	}

	// What projections yield.
	if !t.projections.IsMissing() && t.projections.Kind() != value.Object {
		r.list.Errorf(p.Key("projection"), "\"projection\" must be an object with projections and what they yield, such as {\"receipt/{{order}}\": {\"total\": 5}}")
	}
	for _, m := range t.projections.Members() {
		if _, ok := parseView(m.Key); !ok {
			r.list.Errorf(p.Key("projection").Key(m.Key), "%s is no projection: it has the form name/id or name?parameter=value, such as receipt/{{order}}", diag.Quote(m.Key)).AtKey()
		}
	}

	// The error, by its code or by more, or by what the guard calls it.
	if t.failure.Kind() == value.String {
		t.failure = value.ObjectValue(value.Member{Key: "code", Value: t.failure})
	} else if !t.failure.IsMissing() {
		r.members(p.Key("error"), t.failure, "code", "status", "message", "path", "errors", "details")
	}
	if !t.failure.IsMissing() && s.when == nil {
		r.list.Errorf(p.Key("error"), "an error can only be that of \"when\", which is missing")
	}
	if t.refused = r.text(p, v, "refused", false); !v.Get("refused").IsMissing() {
		switch {
		case !t.failure.IsMissing():
			r.list.Errorf(p.Key("refused"), "\"refused\" and \"error\" exclude each other: leave one out. \"error\" says more, such as {\"code\": \"requirement_failed\", \"details\": {\"requirement\": \"insufficient_funds\"}}")
		case s.when == nil:
			r.list.Errorf(p.Key("refused"), "only \"when\" can be refused, which is missing")
		}
	}

	// The events that the write brings about.
	implied := v.Get("implied")
	if implied.IsMissing() {
		return
	}
	t.hasImplied = true
	if implied.Kind() != value.Array {
		r.list.Errorf(p.Key("implied"), "\"implied\" must be an array of events")
	}
	if s.when == nil {
		r.list.Errorf(p.Key("implied"), "events can only be implied by \"when\", which is missing")
	}
	for i, ev := range implied.Elems() {
		at := p.Key("implied").Index(i)
		if r.members(at, ev, "key", "type", "data") {
			t.implied = append(t.implied, impliedEvent{at, r.key(at, ev), r.text(at, ev, "type", true), data(ev)})
		}
	}
}

// placeholders matches {{order}} and the like.
func placeholders() *regexp.Regexp { return regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}`) }
