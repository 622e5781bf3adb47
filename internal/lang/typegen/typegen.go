// Package typegen writes the types of a spec's events, states and results of projections in other languages.
//
// The types of events come from their schemas. Those of states are derived from what handlers write, without running
// them: every member of a state is optional, since it depends on the events that happened, and what cannot be derived
// has the type that any value has. Results of projections are derived from the states that they are made of.
// docs/reference/cli.md says what is derived from what.
//
// Life of a type: schema.go, state.go and projection.go turn a spec into a model, which knows no language;
// typescript.go and golang.go print it.
package typegen

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
)

type kind uint8

const (
	unknown kind = iota
	null
	boolean
	integer
	number
	text
	literal
	array
	mapping
	object
	union
	both
	reference
)

// typ is a type in no particular language.
type typ struct {
	kind kind
	// elem is the type of the elements of an array, or of the members of a mapping.
	elem *typ
	// fields are those of an object.
	fields []field
	// parts are the options of a union, or the types that hold together.
	parts []*typ
	// values are the values of a literal.
	values []value.Value
	// name is that of a declaration.
	name string
	// same is equal for types that are written alike, "" before it is first asked for. A type is not changed
	// afterwards.
	same string
}

type field struct {
	key      string
	typ      *typ
	optional bool
	about    string
}

// declaration is a type with a name.
type declaration struct {
	name, about string
	typ         *typ
	// component is its name among the components of an OpenAPI document.
	component string
	// constants are the values of a choice that languages with constants give names to.
	constants []namedText
}

// namedText is a text with a name.
type namedText struct{ name, value string }

// aggregate is what a language needs of one aggregate type.
type aggregate struct {
	name, typeName string
	events         []event
}

type event struct{ name, data string }

// model is a spec as types. Declarations are in the order of the spec.
type model struct {
	declarations []*declaration
	byName       map[string]*declaration
	aggregates   []aggregate
	// states has the names of the states of aggregate types, and shown those of what sources of projections hold of
	// them.
	states, shown map[string]string
	// shared has the names of the declarations of shared definitions, by their places.
	shared map[diag.Pointer]string
	// left is how many fields, options and values may still be visited, counted on each visit. Types beyond that are
	// unknown.
	left int
}

// maxLooks bounds what deriving the types of one spec costs: a fraction of a second.
const maxLooks = 10_000_000

// spend reports whether n more things may be looked at.
func (m *model) spend(n int) bool {
	m.left -= n
	return m.left >= 0
}

// Names of declarations that every spec has.
const (
	agentName       = "Agent"
	targetName      = "Target"
	storedAgentName = "StoredAgent"
)

// newModel reads a spec that is known to be valid, with the types of its states but not yet those of its projections'
// results. called names components; it is nil where names are not needed.
func newModel(root value.Value, called func(data string, at diag.Pointer) string) *model {
	m := &model{
		byName: map[string]*declaration{}, states: map[string]string{}, shown: map[string]string{},
		shared: map[diag.Pointer]string{}, left: maxLooks,
	}
	m.agents(root)
	taken := map[string]bool{}
	declared := eventsOf(root)
	for _, t := range root.Get("aggregate_types").Members() {
		// "type" and "Type" are two types.
		name := pascal(t.Key)
		for i := 2; taken[name]; i++ {
			name = pascal(t.Key) + strconv.Itoa(i)
		}
		taken[name] = true
		a := aggregate{name: t.Key, typeName: name}
		data := map[string]*typ{}
		for _, e := range t.Value.Get("events").Members() {
			s := e.Value.Get("schema")
			if s.IsMissing() {
				continue // an event of the platform
			}
			c := &schemas{
				model: m, prefix: a.typeName + pascal(e.Key), data: DataComponent(t.Key, e.Key), component: called,
				refs: map[diag.Pointer]string{},
			}
			d := m.declare(c.prefix+"Data", "the data of "+t.Key+"."+e.Key, &typ{})
			d.component = c.data
			c.refs[""] = d.name
			d.typ = c.of(outline.Of(s, root.Get("$defs")))
			data[e.Key] = d.typ
			if e.Value.Get("retired").Kind() != value.Object { // others are never shown under their name
				a.events = append(a.events, event{e.Key, d.name})
			}
			if called == nil { // what is refused is no schema, and no component is of an older generation
				m.generations(c.prefix, t.Key+"."+e.Key, e.Value.Get("generations"), root.Get("$defs"))
				m.refusals(c.prefix, eventName{t.Key, e.Key}, declared)
			}
		}
		state := m.declare(
			a.typeName+"State", "the state of "+t.Key+", as far as its handlers tell",
			m.state(t.Value.Get("events"), data),
		)
		m.states[t.Key] = state.name
		m.aggregates = append(m.aggregates, a)
	}
	return m
}

// generations declares the data of the older generations of an event type.
func (m *model) generations(prefix, name string, older, shared value.Value) {
	for _, g := range older.Members() {
		c := &schemas{model: m, prefix: prefix + "Generation" + g.Key, refs: map[diag.Pointer]string{}}
		d := m.declare(
			prefix+"DataGeneration"+g.Key, "the data of "+name+" in its generation "+g.Key+", an older one", &typ{},
		)
		c.refs[""] = d.name
		d.typ = c.of(outline.Of(g.Value.Get("schema"), shared))
	}
}

// agents declares who may cause events and whom they may concern. Stored events may have been caused by the platform
// too.
func (m *model) agents(root value.Value) {
	agent := func(types value.Value) *typ {
		of := &typ{kind: text}
		if types.Len() > 0 {
			of = &typ{kind: literal, values: types.Elems()}
		}
		return &typ{kind: object, fields: []field{{key: "type", typ: of}, {key: "id", typ: &typ{kind: text}}}}
	}
	m.declare(agentName, "who causes an event", agent(root.Get("agent_types")))
	if targets := root.Get("target_types"); targets.Len() > 0 {
		m.declare(targetName, "whom an event is about", agent(targets))
	}
	m.declare(storedAgentName, "who caused an event, or whom it is about, as it is stored", agent(value.Value{})).component = storedAgentName
}

// declare adds a declaration, under a name that is not taken yet.
func (m *model) declare(name, about string, t *typ) *declaration {
	d := &declaration{about: about, typ: t}
	d.name = m.take(name, d)
	m.declarations = append(m.declarations, d)
	return d
}

// take returns the name, or one like it that is not taken yet, for a declaration or a part of it.
func (m *model) take(name string, by *declaration) string {
	unique := name
	for i := 2; m.byName[unique] != nil; i++ {
		unique = name + strconv.Itoa(i)
	}
	m.byName[unique] = by
	return unique
}

// resolve returns the type that t names, t itself where it names none.
func (m *model) resolve(t *typ) *typ {
	for range maxHops {
		if t.kind != reference {
			return t
		}
		t = m.byName[t.name].typ
	}
	return &typ{}
}

// maxHops bounds chains of names.
const maxHops = 100

// members returns the fields of a type that is an object, or several objects that hold together.
func (m *model) members(t *typ) ([]field, bool) {
	t = m.resolve(t)
	if !m.spend(1 + len(t.fields) + len(t.parts)) {
		return nil, false
	}
	if t.kind == object {
		return t.fields, true
	}
	if t.kind != both {
		return nil, false
	}
	var all []field
	places := map[string]int{}
	for _, p := range t.parts {
		fields, ok := m.members(p)
		if !ok {
			return nil, false
		}
		for _, f := range fields {
			all = put(all, places, f)
		}
	}
	return all, true
}

// put adds a field that holds together with the one of the same key, whose place is known.
func put(fields []field, places map[string]int, f field) []field {
	if i, ok := places[f.key]; ok {
		was := fields[i]
		fields[i] = field{
			key: f.key, typ: together(was.typ, f.typ), optional: was.optional && f.optional, about: was.about + f.about,
		}
		return fields
	}
	places[f.key] = len(fields)
	return append(fields, f)
}

// together is the type of what has all the given types.
func together(types ...*typ) *typ {
	var parts []*typ
	for _, t := range types {
		if t.kind != unknown {
			parts = append(parts, t)
		}
	}
	switch len(parts) {
	case 0:
		return &typ{}
	case 1:
		return parts[0]
	default:
		return &typ{kind: both, parts: parts}
	}
}

// either is the type of what has one of the given types.
func (m *model) either(types ...*typ) *typ {
	u := &typ{kind: union}
	seen := map[string]bool{}
	var values []value.Value
	for _, t := range types {
		parts := []*typ{t}
		if t.kind == union {
			parts = t.parts
		}
		for _, p := range parts {
			if p.kind == unknown || !m.spend(1+len(p.values)) {
				return &typ{}
			}
			if p.kind == literal {
				values = append(values, p.values...)
				continue
			}
			if id := p.id(); !seen[id] {
				seen[id] = true
				u.parts = append(u.parts, p)
			}
		}
	}
	if l := literalOf(values, seen); l != nil {
		u.parts = append(u.parts, l)
	}
	if len(u.parts) == 1 {
		return u.parts[0]
	}
	return u
}

// id is equal for types that are written alike. Integers are numbers.
func (t *typ) id() string {
	if t.same != "" {
		return t.same
	}
	switch t.kind {
	case null, boolean, text, unknown:
		t.same = [...]string{null: "null", boolean: "boolean", text: "string", unknown: "unknown"}[t.kind]
		return t.same
	case integer, number:
		t.same = "number"
		return t.same
	case reference:
		t.same = "@" + t.name
		return t.same
	case literal, array, mapping, object, union, both:
	}
	h := sha256.New()
	part := func(texts ...string) {
		for _, s := range texts {
			_, _ = h.Write([]byte(strconv.Itoa(len(s)) + ":" + s)) // a hash takes everything
		}
	}
	part(strconv.Itoa(int(t.kind)))
	for _, v := range t.values {
		part(v.String())
	}
	if t.elem != nil {
		part(t.elem.id())
	}
	for _, p := range t.parts {
		part(p.id())
	}
	for _, f := range t.fields {
		part(f.key, strconv.FormatBool(f.optional), f.about, f.typ.id())
	}
	t.same = string(h.Sum(nil))
	return t.same
}

// literalOf is the type of the values that the types seen do not include already.
func literalOf(values []value.Value, seen map[string]bool) *typ {
	l := &typ{kind: literal}
	texts := map[string]bool{}
	for _, v := range values {
		wide := map[value.Kind]string{
			value.String: "string", value.Number: "number", value.Bool: "boolean", value.Null: "null",
		}[v.Kind()]
		if text := v.String(); !texts[text] && !seen[wide] {
			texts[text] = true
			l.values = append(l.values, v)
		}
	}
	if len(l.values) == 0 {
		return nil
	}
	return l
}

// distinct leaves out types that are written as another one that has a name.
func (m *model) distinct(options []*typ) []*typ {
	named := map[string]bool{}
	for _, t := range options {
		if t.kind == reference {
			named[m.resolve(t).id()] = true
		}
	}
	return slices.DeleteFunc(options, func(t *typ) bool { return t.kind != reference && named[t.id()] })
}

// pascal turns a name of a spec into one of a type: "was_placed" into "WasPlaced", "order_id" into "OrderID".
func pascal(name string) string {
	var b strings.Builder
	words := strings.FieldsFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for _, w := range words {
		if strings.EqualFold(w, "id") {
			b.WriteString("ID")
		} else {
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		}
	}
	s := b.String()
	if s == "" || unicode.IsDigit(rune(s[0])) {
		return "X" + s
	}
	return s
}

// remark is a text from a spec, fit for one line of a comment.
func remark(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "*/", "* /")
}
