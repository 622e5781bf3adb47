package lint

import (
	"cmp"
	"maps"
	"strings"
	"unicode/utf8"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// held is what a name of a projection stands for: states of aggregates of one type.
type held struct {
	aggregateType string
	// state is what handlers of the type write.
	state *written
	// many reports that it is an array of them.
	many bool
}

// viewer looks at the paths of one projection.
type viewer struct {
	*linter
	sources map[string]held
	// bound has what elements stand for by the names of their bindings, where that is known.
	bound map[string]held
	// element is what "$" stands for below a $lookup; inside reports that it is an element, known or not.
	element held
	inside  bool
}

// projection looks for paths that lead nowhere.
func (l *linter) projection(p *spec.Projection, at diag.Pointer) {
	v := viewer{linter: l, sources: map[string]held{}}
	for i := range p.Sources {
		s := &p.Sources[i]
		v.sources[s.Name] = held{s.AggregateType, l.stateOf(s.AggregateType), s.Many}
	}
	for i := range p.Sources {
		v.source(&p.Sources[i], v.place(p, i, at))
	}
	if of := p.Definition.Get("select"); tick.IsPredicate(of) {
		// it is always data: a member of the result may be called as a predicate is
		v.members(of, at.Key("select"))
	} else {
		v.value(of, at.Key("select"))
	}
}

// place returns where a source stands.
func (v *viewer) place(p *spec.Projection, i int, at diag.Pointer) diag.Pointer {
	switch {
	case !p.IsNamed():
		return at.Key("sources").Index(i)
	case p.Sources[i].Included:
		return at.Key("include").Key(p.Sources[i].Name)
	default:
		return at.Key("sources").Key(p.Sources[i].Name)
	}
}

func (v *viewer) source(s *spec.Source, at diag.Pointer) {
	switch {
	case s.ID != nil && s.ID.Path != nil:
		v.taken(s.ID.Path.Text(), at.Key("id"))
	case s.Query != nil:
		at = at.Key("query")
		v.member(v.sources[s.Name], s.Query.Field.Text, s.Query.Field.Steps, at)
		if s.Query.Value.Path != nil {
			v.taken(s.Query.Value.Path.Text(), at)
		}
		v.wanted(s.Query.Value.Literal.Str(), at)
	}
}

// wanted checks a text that a query compares a field with: whether it is written as in another language.
func (v *viewer) wanted(text string, at diag.Pointer) {
	for _, quotes := range []string{"''", "``", "\u2018\u2019", "\u201c\u201d", "\u201e\u201c", "\u00ab\u00bb"} {
		first, size := utf8.DecodeRuneInString(quotes)
		inner, opened := strings.CutPrefix(text, string(first))
		if inner, closed := strings.CutSuffix(inner, quotes[size:]); opened && closed {
			v.Report(at, quotedInQuery, text, cmp.Or(inner, `""`))
			return
		}
	}
	for _, word := range []string{"true", "false", "null"} {
		if strings.EqualFold(text, word) || word == "null" && (text == "None" || text == "nil") {
			v.Report(at, wordInQuery, text, word)
			return
		}
	}
	v.text(text, at)
}

// taken checks a path that an id or the value of a query is taken from, which cannot be a whole source.
func (v *viewer) taken(text string, at diag.Pointer) {
	if p, err := jsonpath.ParseProjection(text); err == nil && len(p.Steps) == 1 && len(p.Each) == 0 && v.spend(1) {
		v.Report(at, wholeSource, text, p.Steps[0].Key, text+".id")
		return
	}
	v.path(text, at)
}

// value looks at a value of select.
func (v *viewer) value(of value.Value, at diag.Pointer) {
	if !v.spend(1) {
		return
	}
	switch of.Kind() {
	case value.String:
		if jsonpath.IsPath(of.Str()) {
			v.path(of.Str(), at)
		} else {
			v.text(of.Str(), at)
		}
	case value.Array:
		for i, e := range of.Elems() {
			v.value(e, at.Index(i))
		}
	case value.Object:
		switch {
		case !of.Get("$literal").IsMissing():
		case !of.Get("$map").IsMissing():
			v.mapped(of, at)
		case !of.Get("$lookup").IsMissing():
			v.found(of, at)
		default:
			if !v.dataLikePredicate(of, at) {
				v.members(of, at)
			}
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
}

// members looks at an operator, or at the members of an object.
func (v *viewer) members(of value.Value, at diag.Pointer) {
	parts, ok := tick.OperatorParts(of, at)
	if !ok {
		for _, m := range of.Members() {
			v.value(m.Value, at.Key(m.Key))
		}
		return
	}
	for _, name := range []string{"$sum", "$count"} {
		if in := of.Get(name); jsonpath.IsPath(in.Str()) {
			inner := v.binding(in.Str(), at.Key(name), of.Get("as").Str())
			v, parts = &inner, parts[1:] // the first is the array
		}
	}
	v.parts(parts)
}

// parts checks the operands of an operator, and the parts of predicates among them.
func (v *viewer) parts(parts []tick.Part) {
	for _, part := range parts {
		if part.Reading == tick.AsPredicate {
			v.parts(tick.PredicateParts(part.Value, part.At))
			continue
		}
		v.value(part.Value, part.At)
		text := part.Value.Str()
		if k, want := v.kindsAt(text), wanted(part.Reading); k&want == 0 && v.left > 0 {
			v.Report(part.At, pathOfKind, text, want.Phrase(), known(k))
		}
	}
}

// kindsAt returns the kinds of what a path leads to, as far as handlers show.
func (v *viewer) kindsAt(text string) outline.Kinds {
	p, err := jsonpath.ParseProjection(text)
	if err != nil || !jsonpath.IsPath(text) || !v.spend(1+len(p.Steps)) {
		return outline.Any
	}
	h, steps := v.start(p)
	switch {
	case len(p.Each) > 0 || p.Entries:
		return outline.Array | outline.Null
	case h.many && len(steps) > 0 && steps[0].IsIndex:
		steps = steps[1:]
	case h.many:
		return outline.Any
	}
	if len(steps) > 0 && steps[0].Key == "id" {
		return outline.Any
	}
	return h.state.kindsAt(steps)
}

func (v *viewer) mapped(of value.Value, at diag.Pointer) {
	inner := v.binding(of.Get("$map").Str(), at.Key("$map"), of.Get("as").Str())
	inner.value(of.Get("to"), at.Key("to"))
}

// binding returns the viewer of what is done with each element of the array that a path leads to.
func (v *viewer) binding(text string, at diag.Pointer, as string) viewer {
	inner := *v
	if inner.bound = maps.Clone(v.bound); inner.bound == nil {
		inner.bound = map[string]held{}
	}
	inner.bound[strings.TrimPrefix(cmp.Or(as, "$item"), "$")] = v.elements(text, at)
	return inner
}

func (v *viewer) found(of value.Value, at diag.Pointer) {
	element := v.elements(of.Get("$lookup").Str(), at.Key("$lookup"))
	for _, m := range of.Get("where").Members() {
		v.member(element, m.Key, []value.Step{{Key: m.Key}}, at.Key("where").Key(m.Key))
		v.value(m.Value, at.Key("where").Key(m.Key))
	}
	inner := *v
	inner.element, inner.inside = element, true
	inner.value(of.Get("select"), at.Key("select"))
}

// elements looks at the path to an array and returns what its elements stand for, which is known of sources that are
// arrays.
func (v *viewer) elements(text string, at diag.Pointer) held {
	v.path(text, at)
	p, err := jsonpath.ParseProjection(text)
	if err != nil || v.inside || p.Root != jsonpath.Document || len(p.Steps) != 1 || len(p.Each) > 0 || p.Entries {
		return held{}
	}
	h := v.sources[p.Steps[0].Key]
	if !h.many {
		return held{}
	}
	h.many = false
	return h
}

// path looks at a path: whether it leads to something.
func (v *viewer) path(text string, at diag.Pointer) {
	p, err := jsonpath.ParseProjection(text)
	if err != nil || !v.spend(1+len(p.Steps)) {
		return
	}
	if is, ok := v.calculated(text); ok {
		instead(is, v.Report(at, calculationInPath, text, is.Operator))
		return
	}
	h, steps := v.start(p)
	if h.state == nil {
		return
	}

	// An array has elements and no members, and an aggregate the other way round.
	switch {
	case h.many && len(steps) > 0 && !steps[0].IsIndex:
		v.Report(at, memberOfMany, text)
		return
	case h.many && len(steps) > 0:
		steps = steps[1:]
	case h.many && len(p.Each) > 0:
		steps = p.Each[0]
	case h.many:
		return
	case len(steps) > 0 && steps[0].IsIndex, len(steps) == 0 && len(p.Each) > 0:
		v.Report(at, elementOfOne, text)
		return
	}
	h.many = false
	v.member(h, text, steps, at)
}

// start returns what a path starts at, which may be a source, a bound element, or the element that was found, and the
// steps from there.
func (v *viewer) start(p jsonpath.Path) (held, []value.Step) {
	switch {
	case p.Root == jsonpath.Binding:
		return v.bound[p.Name], p.Steps
	case !v.inside && len(p.Steps) > 0:
		return v.sources[p.Steps[0].Key], p.Steps[1:]
	default:
		return v.element, p.Steps
	}
}

// member warns of a member of a state to which nothing is ever written. Every source has an id.
func (v *viewer) member(h held, text string, steps []value.Step, at diag.Pointer) {
	if len(steps) > 0 && steps[0].Key != "id" {
		v.neverWrittenBy(h, text, steps, at)
	}
}

// text checks a text that is spelt like a path to a source without its "$".
func (v *viewer) text(text string, at diag.Pointer) {
	if is, ok := v.calculated(text); ok {
		instead(is, v.Report(at, calculationInText, text))
		return
	}
	end := strings.IndexAny(text, ".[")
	if end < 1 || v.inside || !isPathTail(text[end:]) {
		return
	}
	if _, ok := v.sources[text[:end]]; !ok {
		return
	}
	if _, err := jsonpath.ParseProjection("$." + text); err == nil {
		v.Report(at, sourceWithoutDollar, text, "$."+text)
	}
}
