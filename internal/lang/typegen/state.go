package typegen

import (
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// slot gathers what handlers write to one place of a state.
type slot struct {
	// types are those of the values that are put there as a whole.
	types []*typ
	// keys are the members that are written one by one, in the order in which they were met.
	keys    []string
	members map[string]*slot
	// elems stands for all elements of an array, values for all members of an object whose keys come from data.
	elems, values *slot
}

func (s *slot) add(t *typ) { s.types = append(s.types, t) }

func (s *slot) member(key string) *slot {
	if s.members == nil {
		s.members = map[string]*slot{}
	}
	if s.members[key] == nil {
		s.keys = append(s.keys, key)
		s.members[key] = &slot{}
	}
	return s.members[key]
}

func (s *slot) elem() *slot {
	if s.elems == nil {
		s.elems = &slot{}
	}
	return s.elems
}

func (s *slot) value() *slot {
	if s.values == nil {
		s.values = &slot{}
	}
	return s.values
}

// handlers derives the state of one aggregate type.
type handlers struct {
	model *model
	data  *typ
	// moves are those of all handlers.
	moves *[]move
}

// move is what a member that moves does: all that is written to one place comes to the other one too.
type move struct{ from, to *slot }

// state returns the type of an aggregate's state. data are the types of its events.
func (m *model) state(events value.Value, data map[string]*typ) *typ {
	var root slot
	var moves []move
	for _, e := range events.Members() {
		h := handlers{model: m, data: data[e.Key], moves: &moves}
		if h.data == nil {
			h.data = &typ{}
		}
		handler := e.Value.Get("handler")
		if !handler.Get("wasm").IsMissing() {
			root.add(&typ{})
			continue
		}
		h.operations(&root, handler)
	}
	// What is put as a whole has to be split into its members first, some of which move.
	if len(moves) > 0 {
		m.render(&root)
	}
	for _, moved := range moves {
		moved.to.add(m.render(moved.from))
	}
	// The engine adds these to every state that is an object.
	stamps := []string{"created_at", "updated_at"}
	for _, key := range stamps {
		root.member(key)
		root.members[key] = &slot{types: []*typ{{kind: integer}}}
	}
	t := *m.render(&root)
	t.fields, t.same = slices.Clone(t.fields), ""
	for i := range t.fields {
		if slices.Contains(stamps, t.fields[i].key) {
			t.fields[i].optional = false
		}
	}
	return &t
}

func (h *handlers) operations(at *slot, ops value.Value) {
	for op := range tick.Operations(ops, "") {
		target := follow(at, op.Target.Steps)
		switch op.Effect {
		case tick.Puts, tick.Fills:
			target.add(h.of(op.Written))
		case tick.Moves:
			*h.moves = append(*h.moves, move{follow(at, op.From.Steps), target})
		case tick.Merges:
			h.merge(target, h.of(op.Written))
		case tick.Counts:
			target.add(&typ{kind: number})
		case tick.PutsElement:
			target.elem().add(h.of(op.Written))
		case tick.MergesElements:
			h.merge(target.elem(), h.of(op.Written))
		case tick.ChangesElements:
			h.operations(target.elem(), op.Written)
		case tick.ChangesValues:
			h.operations(target.value(), op.Written)
		case tick.PutsMember:
			target.value().add(h.of(op.Written))
		case tick.MergesMember:
			h.merge(target.value(), h.of(op.Written))
		case tick.CountsMember:
			target.value().add(&typ{kind: number})
		case tick.Nothing, tick.Drops:
		}
	}
}

// merge writes the members of an object one by one.
func (h *handlers) merge(at *slot, t *typ) {
	fields, ok := h.model.members(t)
	if !ok {
		at.add(&typ{})
		return
	}
	for _, f := range fields {
		at.member(f.key).add(f.typ)
	}
}

// follow returns the place that the steps of a target lead to.
func follow(at *slot, steps []value.Step) *slot {
	for _, step := range steps {
		if step.IsIndex {
			at = at.elem()
		} else {
			at = at.member(step.Key)
		}
	}
	return at
}

// of returns the type of a value of the handler language.
func (h *handlers) of(v value.Value) *typ {
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) {
			return h.path(v.Str())
		}
		return h.model.constant(v)
	case value.Array:
		return &typ{kind: array, elem: h.elements(v)}
	case value.Object:
		return h.object(v)
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return h.model.constant(v)
}

func (h *handlers) elements(v value.Value) *typ {
	var options []*typ
	for _, e := range v.Elems() {
		options = append(options, h.of(e))
	}
	if len(options) == 0 {
		return &typ{}
	}
	return h.model.either(options...)
}

func (h *handlers) object(v value.Value) *typ {
	o := &typ{kind: object}
	switch form, operand := tick.HandlerForm(v); form {
	case tick.Followed:
		return h.of(operand)
	case tick.Literal:
		return h.model.constant(operand)
	case tick.Text:
		return &typ{kind: text}
	case tick.Numeric:
		return &typ{kind: number}
	case tick.Whole:
		return &typ{kind: integer}
	case tick.Scalar:
		return h.model.either(&typ{kind: number}, &typ{kind: text})
	case tick.Computed:
		return &typ{}
	case tick.Chosen:
		return h.model.either(h.of(v.Get("then")), h.of(v.Get("else").OrNull()))
	case tick.Cased:
		var options []*typ
		for _, of := range tick.Cases(v) {
			options = append(options, h.of(of))
		}
		return h.model.either(options...)
	case tick.Texts:
		if t := texts(v); t.kind == array {
			return t
		}
		return h.model.nullable(texts(v))
	case tick.Merged:
		for _, item := range operand.Elems() {
			fields, ok := h.model.members(h.of(item))
			if !ok {
				return &typ{}
			}
			for _, f := range fields {
				o.fields = h.model.override(o.fields, f)
			}
		}
	case tick.Plain:
		for _, m := range v.Members() {
			o.fields = append(o.fields, field{key: m.Key, typ: h.of(m.Value)})
		}
	}
	return o
}

// texts returns the type of a $split: a text where it is one part, which may be null, and an array of texts otherwise.
func texts(v value.Value) *typ {
	if v.Get("part").IsMissing() {
		return &typ{kind: array, elem: &typ{kind: text}}
	}
	return &typ{kind: text}
}

// override adds a field that takes the place of the one of the same key, always or, if it is optional, sometimes.
func (m *model) override(fields []field, f field) []field {
	if !m.spend(1 + len(fields)) {
		return fields
	}
	for i, was := range fields {
		if was.key != f.key {
			continue
		}
		if f.optional {
			f = field{key: f.key, typ: m.either(was.typ, f.typ), optional: was.optional, about: was.about}
		}
		fields[i] = f
		return fields
	}
	return append(fields, f)
}

// constant returns the type of a value that stands in the spec. Numbers do not become literals, since most of them are
// changed by counting.
func (m *model) constant(v value.Value) *typ {
	switch v.Kind() {
	case value.String:
		return &typ{kind: literal, values: []value.Value{v}}
	case value.Bool:
		return &typ{kind: boolean}
	case value.Number:
		return &typ{kind: number}
	case value.Array:
		var options []*typ
		for _, e := range v.Elems() {
			options = append(options, m.constant(e))
		}
		if len(options) == 0 {
			return &typ{kind: array, elem: &typ{}}
		}
		return &typ{kind: array, elem: m.either(options...)}
	case value.Object:
		o := &typ{kind: object}
		for _, of := range v.Members() {
			o.fields = append(o.fields, field{key: of.Key, typ: m.constant(of.Value)})
		}
		return o
	case value.Missing, value.Null:
	}
	return &typ{kind: null}
}

// path returns the type of what a path leads to.
func (h *handlers) path(path string) *typ {
	p, err := jsonpath.Parse(path)
	if err != nil || p.Root != jsonpath.Document || p.Entries || len(p.Steps) == 0 {
		return &typ{}
	}
	agent := &typ{kind: reference, name: storedAgentName}
	event := &typ{kind: object, fields: []field{
		{key: "key", typ: &typ{kind: text}},
		{key: "type", typ: &typ{kind: text}},
		{key: "data", typ: h.data},
		{key: "metadata", typ: &typ{kind: object, fields: []field{
			{key: "timestamp", typ: &typ{kind: integer}},
			{key: "actor", typ: agent},
			{key: "target", typ: agent, optional: true},
		}}},
	}}
	t, optional := event, false
	for _, step := range p.Steps {
		next, maybe := h.step(t, step)
		if next == nil {
			return &typ{}
		}
		t, optional = next, optional || maybe
	}
	if optional && !p.Optional {
		return h.model.either(t, &typ{kind: null})
	}
	return t
}

func (h *handlers) step(t *typ, step value.Step) (next *typ, optional bool) {
	t = h.model.resolve(t)
	if t.kind == array && step.IsIndex {
		return t.elem, true
	}
	if t.kind == mapping && !step.IsIndex {
		return t.elem, true
	}
	fields, ok := h.model.members(t)
	if !ok || step.IsIndex {
		return nil, false
	}
	for _, f := range fields {
		if f.key == step.Key {
			return f.typ, f.optional
		}
	}
	return nil, false
}

// render returns the type of what can be at a place.
func (m *model) render(s *slot) *typ {
	if !m.spend(1 + len(s.types) + len(s.keys)) {
		return &typ{}
	}
	apart := len(s.members) > 0 || s.elems != nil || s.values != nil
	var options []*typ
	for _, t := range s.types {
		if t.kind == unknown {
			return &typ{}
		}
		if !apart || !m.spread(s, t) {
			options = append(options, t)
		}
	}
	if len(s.keys) > 0 {
		o := &typ{kind: object}
		for _, key := range s.keys {
			o.fields = append(o.fields, field{key: key, typ: m.render(s.members[key]), optional: true})
		}
		if s.values != nil {
			return &typ{} // an object with known and with unknown keys
		}
		options = append(options, o)
	} else if s.values != nil {
		options = append(options, &typ{kind: mapping, elem: m.render(s.values)})
	}
	if s.elems != nil {
		options = append(options, &typ{kind: array, elem: m.render(s.elems)})
	}
	if len(options) == 0 {
		return &typ{}
	}
	return m.either(m.distinct(options)...)
}

// spread splits a value that handlers change in parts, and reports whether that was possible.
func (m *model) spread(s *slot, t *typ) bool {
	t = m.resolve(t)
	if fields, ok := m.members(t); ok && (len(s.members) > 0 || s.values == nil && s.elems == nil) {
		for _, f := range fields {
			s.member(f.key).add(f.typ)
		}
		return true
	}
	switch {
	case t.kind == array && s.elems != nil:
		s.elems.add(t.elem)
		return true
	case t.kind == mapping && s.values != nil:
		s.values.add(t.elem)
		return true
	case t.kind == object && len(t.fields) == 0:
		return true // {} to begin with
	default:
		return false
	}
}
