package typegen

import (
	"maps"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// projections declares the results of projections, an object of definitions. A source holds the state of its aggregate
// type, with its id.
func (m *model) projections(root, definitions value.Value) {
	for _, p := range definitions.Members() {
		v := views{model: m, sources: map[string]*typ{}, singletons: root.Get("singletons")}
		var t *typ
		if forEach := p.Value.Get("for_each"); forEach.IsMissing() {
			t = v.arrayForm(p.Value.Get("sources"))
		} else {
			t = v.namedForm(p.Value, forEach.Str())
		}
		m.declare(pascal(p.Key)+"Result", "the result of the projection "+p.Key, t).component = ResultComponent(p.Key)
	}
}

// views derives the result of one projection.
type views struct {
	model   *model
	sources map[string]*typ
	// singletons are those that the spec declares.
	singletons value.Value
}

func (m *model) nullable(t *typ) *typ { return m.either(t, &typ{kind: null}) }

func (v *views) namedForm(p value.Value, forEach string) *typ {
	for _, s := range p.Get("sources").Members() {
		switch of := s.Value; {
		case of.Kind() == value.String:
			v.sources[s.Key] = v.source(forEach, true)
		case !of.Get("query").IsMissing() || of.Get("mode").Str() == "array":
			v.sources[s.Key] = &typ{kind: array, elem: v.source(of.Get("type").Str(), true)}
		default:
			own := of.Get("id").Str() == "$key" && of.Get("type").Str() == forEach
			v.sources[s.Key] = v.single(of.Get("type").Str(), of.Get("id").Str(), own)
		}
	}
	for _, s := range p.Get("include").Members() {
		aggregateType, id, _ := strings.Cut(s.Value.Str(), ":")
		v.sources[s.Key] = v.single(aggregateType, id, false)
	}
	members := &typ{kind: object}
	for _, part := range []string{"sources", "include"} {
		for _, s := range p.Get(part).Members() {
			members.fields = append(members.fields, field{key: s.Key, typ: v.sources[s.Key]})
		}
	}
	s := selection{model: v.model, document: members}
	t, _ := s.of(p.Get("select"))
	return t
}

func (v *views) arrayForm(sources value.Value) *typ {
	o := &typ{kind: object}
	names := map[string]bool{}
	for _, s := range sources.Elems() {
		aggregateType, id := s.Get("aggregate").Str(), s.Get("id").Str()
		name := aggregateType
		if as := s.Get("as").Str(); as != "" {
			name = as
		}
		t := v.single(aggregateType, id, false)
		if id == "" || strings.Contains(id, "[*]") {
			t = &typ{kind: array, elem: v.source(aggregateType, true)}
		}
		if !names[name] {
			o.fields = append(o.fields, field{key: name, typ: t})
		}
		names[name] = true
	}
	return o
}

// single returns the type of a source of one aggregate, which may not exist. own reports that the result is for this
// very aggregate.
func (v *views) single(aggregateType, id string, own bool) *typ {
	id = strings.TrimPrefix(id, aggregateType+":")
	is := func(name value.Value) bool { return name.Str() == id }
	switch {
	case own:
		return v.source(aggregateType, true)
	case id == "global" || slices.ContainsFunc(v.singletons.Elems(), is):
		return v.source(aggregateType, false)
	default:
		return v.model.nullable(v.source(aggregateType, true))
	}
}

// source returns the type of the state of an aggregate with its id. A singleton exists before its first event, and then
// has nothing but the id.
func (v *views) source(aggregateType string, written bool) *typ {
	name, ok := v.model.states[aggregateType]
	if !ok {
		return &typ{}
	}
	key, suffix, about, component := aggregateType, "Source", "a source of the type "+aggregateType,
		aggregateType+"._source"
	if !written {
		key, suffix, about, component = aggregateType+":", "Singleton", "a singleton of the type "+aggregateType,
			aggregateType+"._singleton"
	}
	if declared, ok := v.model.shown[key]; ok {
		return &typ{kind: reference, name: declared}
	}
	fields, ok := v.model.members(v.model.byName[name].typ)
	if !ok {
		return &typ{}
	}
	o := &typ{kind: object, fields: []field{{key: "id", typ: &typ{kind: text}}}}
	for _, f := range fields {
		f.optional = f.optional || !written
		if f.key != "id" {
			o.fields = append(o.fields, f)
			continue
		}
		if f.typ.kind != unknown { // its own id comes first
			o.fields[0].typ = v.model.either(&typ{kind: text}, f.typ)
		} else {
			o.fields[0].typ = f.typ
		}
	}
	d := v.model.declare(strings.TrimSuffix(name, "State")+suffix, about, o)
	d.component = component
	v.model.shown[key] = d.name
	return &typ{kind: reference, name: d.name}
}

// selection derives the type of a select.
type selection struct {
	model *model
	// document is "$".
	document *typ
	// bound has the types of elements by the names of their bindings.
	bound map[string]*typ
}

// of returns the type of a value of select. optional reports that it may be left out.
func (s *selection) of(v value.Value) (t *typ, optional bool) {
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) {
			return s.path(v.Str())
		}
	case value.Array:
		var options []*typ
		for _, e := range v.Elems() {
			t, _ := s.of(e)
			options = append(options, t)
		}
		if len(options) == 0 {
			return &typ{kind: array, elem: &typ{}}, false
		}
		return &typ{kind: array, elem: s.model.either(options...)}, false
	case value.Object:
		switch {
		case !v.Get("$map").IsMissing():
			return s.mapped(v), false
		case !v.Get("$lookup").IsMissing():
			return s.found(v)
		}
		if t, optional, ok := s.computed(v); ok {
			return t, optional
		}
		o := &typ{kind: object}
		for _, m := range v.Members() {
			t, optional := s.of(m.Value)
			o.fields = append(o.fields, field{key: m.Key, typ: t, optional: optional})
		}
		return o, false
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return s.model.constant(v), false
}

// computed returns the type of an operator's result, which is null where its operands do not fit. It reports false
// where v is no operator.
func (s *selection) computed(v value.Value) (t *typ, optional, ok bool) {
	form, operand := tick.SelectionForm(v)
	switch form {
	case tick.Literal:
		return s.model.constant(operand), false, true
	case tick.Followed:
		t, optional = s.of(operand)
		return t, optional, true
	case tick.Text:
		t = s.model.nullable(&typ{kind: text})
	case tick.Numeric:
		t = s.model.nullable(&typ{kind: number})
	case tick.Whole:
		t = s.model.nullable(&typ{kind: integer})
	case tick.Scalar:
		t = s.model.nullable(s.model.either(&typ{kind: number}, &typ{kind: text}))
	case tick.Merged, tick.Computed:
		t = &typ{}
	case tick.Texts:
		t = s.model.nullable(texts(v))
	case tick.Cased:
		var options []*typ
		for _, of := range tick.Cases(v) {
			one, _ := s.of(of)
			options = append(options, one)
		}
		t = s.model.nullable(s.model.either(options...))
	case tick.Chosen:
		then, may := s.of(v.Get("then"))
		other, might := s.of(v.Get("else").OrNull())
		return s.model.nullable(s.model.either(then, other)), may || might, true
	case tick.Plain:
		return nil, false, false
	}
	return t, leftOut(v), true
}

// leftOut reports whether a value has an optional path, which may cause the whole computed value to be left out.
func leftOut(v value.Value) bool {
	if text := v.Str(); jsonpath.IsPath(text) {
		return strings.HasSuffix(text, "?")
	}
	for _, m := range v.Members() {
		if leftOut(m.Value) {
			return true
		}
	}
	return slices.ContainsFunc(v.Elems(), leftOut)
}

func (s *selection) mapped(v value.Value) *typ {
	in, _ := s.path(v.Get("$map").Str())
	inner := selection{model: s.model, document: s.document, bound: map[string]*typ{}}
	maps.Copy(inner.bound, s.bound)
	inner.bound[strings.TrimPrefix(v.Get("as").Str(), "$")] = s.elements(in)
	to, _ := inner.of(v.Get("to"))
	return &typ{kind: array, elem: to}
}

// found returns the type of a $lookup, which is null where nothing fits.
func (s *selection) found(v value.Value) (t *typ, optional bool) {
	in, _ := s.path(v.Get("$lookup").Str())
	t = s.elements(in)
	if of := v.Get("select"); !of.IsMissing() {
		inner := selection{model: s.model, document: t, bound: s.bound}
		t, optional = inner.of(of)
	}
	return s.model.nullable(t), optional
}

// elements returns the type of the elements of what may be an array.
func (s *selection) elements(t *typ) *typ {
	var options []*typ
	for _, p := range s.options(t) {
		switch p.kind {
		case unknown:
			return &typ{}
		case array:
			options = append(options, p.elem)
		case null, boolean, integer, number, text, literal, mapping, object, union, both, reference:
		}
	}
	if len(options) == 0 {
		return &typ{}
	}
	return s.model.either(options...)
}

// options returns the types that t has one of, none of which is a union or a name of one.
func (s *selection) options(t *typ) []*typ {
	resolved := s.model.resolve(t)
	if resolved.kind != union {
		return []*typ{resolved}
	}
	if !s.model.spend(len(resolved.parts)) {
		return []*typ{{}}
	}
	var all []*typ
	for _, p := range resolved.parts {
		all = append(all, s.model.resolve(p))
	}
	return all
}

// path returns the type of what a path leads to: null where it leads nowhere, or left out where it ends in "?".
func (s *selection) path(of string) (t *typ, optional bool) {
	p, err := jsonpath.ParseProjection(of)
	if err != nil {
		return &typ{}, false
	}

	// What the steps lead to, and what those behind each "[*]" do.
	t = s.document
	if p.Root == jsonpath.Binding {
		t = s.bound[p.Name]
		if t == nil {
			t = &typ{}
		}
	}
	t, missing := s.follow(t, p.Steps)
	for i, steps := range p.Each {
		// Of what is no array there are no elements.
		missing = missing || i == 0 && !s.always(t, array)
		t, _ = s.follow(s.elements(t), steps)
	}
	if p.Entries {
		t = s.entries(t)
	}
	if len(p.Each) > 0 {
		t = &typ{kind: array, elem: t}
	}

	// It may lead nowhere.
	switch {
	case missing && p.Optional:
		return t, true
	case missing:
		return s.model.nullable(t), false
	default:
		return t, false
	}
}

// entries returns the type of the entries of an object, which are an array.
func (s *selection) entries(t *typ) *typ {
	notObject, of := !s.always(t, object, mapping, both), &typ{}
	if s.always(t, mapping, null) {
		for _, option := range s.options(t) {
			if option.kind == mapping {
				of = option.elem
			}
		}
	}
	t = &typ{
		kind: array,
		elem: &typ{kind: object, fields: []field{{key: "key", typ: &typ{kind: text}}, {key: "value", typ: of}}},
	}
	if notObject {
		t = s.model.nullable(t)
	}
	return t
}

// always reports whether every option of a type is of one of the kinds.
func (s *selection) always(t *typ, kinds ...kind) bool {
	return !slices.ContainsFunc(s.options(t), func(p *typ) bool { return !slices.Contains(kinds, p.kind) })
}

// follow returns the type of what steps lead to from a value, and whether they may lead nowhere.
func (s *selection) follow(t *typ, steps []value.Step) (at *typ, missing bool) {
	for _, step := range steps {
		var options []*typ
		for _, p := range s.options(t) {
			next, maybe := s.step(p, step)
			missing = missing || maybe
			if next != nil {
				options = append(options, next)
			}
		}
		if len(options) == 0 {
			return &typ{kind: null}, true
		}
		t = s.model.either(options...)
	}
	return t, missing
}

// step returns the type of a member or an element, nil where a value of the type has none.
func (s *selection) step(t *typ, step value.Step) (next *typ, missing bool) {
	switch t.kind {
	case array:
		if step.IsIndex {
			return t.elem, true
		}
		return nil, true
	case mapping:
		if !step.IsIndex {
			return t.elem, true
		}
		return nil, true
	case object, both:
		fields, ok := s.model.members(t)
		for _, f := range fields {
			if f.key == step.Key && !step.IsIndex {
				return f.typ, f.optional
			}
		}
		if ok && step.IsIndex {
			return nil, true
		}
		return &typ{}, false // a member that is not known
	case null, boolean, integer, number, text, literal:
		return nil, true
	case unknown, union, reference:
	}
	return &typ{}, false
}
