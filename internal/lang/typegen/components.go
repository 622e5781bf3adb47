package typegen

import (
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
)

// Component is a schema among the components of an OpenAPI document, as JSON.
type Component struct {
	Name   string
	Schema []byte
}

// componentsAt is what references to components start with.
const componentsAt = "#/components/schemas/"

// DataComponent names the schema of the data of an event type.
func DataComponent(aggregateType, event string) string { return aggregateType + "." + event }

// StateComponent names the schema of the states of an aggregate type, and ResultComponent that of what a projection
// yields. No event type has a name that starts with "_".
func StateComponent(aggregateType string) string { return aggregateType + stateSuffix }

// ResultComponent names the schema of what a projection yields.
func ResultComponent(projection string) string { return projection + resultSuffix }

const (
	stateSuffix  = "._state"
	resultSuffix = "._result"
)

// Components returns the schemas of the data of all event types of a spec, in its order, of the states of its aggregate
// types, and of what projections yield, of which an object has the definitions. What references lead to in a schema
// becomes a component of its own, named after the schema and the last step of its place: many tools follow references
// to whole components only. A component has neither $defs nor $id, and no schema in it is true or false but
// additionalProperties. A definition that the schemas of the spec share is one component for all of them. What is
// derived together is not much larger than the spec: what would be is anything.
func Components(root, projections value.Value) []Component {
	l := &lifting{
		taken: map[string]int{}, definitions: root.Get("$defs"), shared: map[diag.Pointer]string{},
		names: map[string]map[diag.Pointer]string{},
	}
	eachData(root, func(name string, _ value.Value) { l.taken[name]++ })
	eachData(root, l.lift)
	l.derive(root, projections)
	return l.components
}

// eachData calls f with the name and the schema of the data of each event type that somebody may write.
func eachData(root value.Value, f func(name string, schema value.Value)) {
	for _, t := range root.Get("aggregate_types").Members() {
		for _, e := range t.Value.Get("events").Members() {
			if s := e.Value.Get("schema"); !s.IsMissing() && !e.Value.Get("retired").Truth() {
				f(DataComponent(t.Key, e.Key), s)
			}
		}
	}
}

// lifting gathers components.
type lifting struct {
	components []Component
	// definitions are those that all schemas share; shared has the names of their components.
	definitions value.Value
	shared      map[diag.Pointer]string
	// names has the names of the components of each schema's parts.
	names map[string]map[diag.Pointer]string
	// taken has the names of parts, each with the last number that was appended to it.
	taken map[string]int
	// short counts the components with short names.
	short int
}

// maxGrowth is by how many times its own size a schema may grow because references to components are longer. The parts
// of a schema that would grow more get short names.
const maxGrowth = 3

// lift adds the components of a schema: itself, and what references lead to.
func (l *lifting) lift(name string, schema value.Value) {
	// Find where references lead, including those in the schemas found.
	root := outline.Of(schema, l.definitions)
	w := &lifter{
		root: root, names: map[diag.Pointer]string{}, times: map[diag.Pointer]int{}, seen: map[diag.Pointer]bool{},
	}
	w.find(root)
	for i := 0; i < len(w.targets); i++ {
		if l.shared[w.targets[i].At] == "" {
			w.find(w.targets[i])
		}
	}

	// Name the places; the whole schema has its own name. Shared definitions may have theirs already.
	growth := 0
	var written, own []outline.Schema
	for _, to := range w.targets {
		switch named := l.shared[to.At]; {
		case named != "":
			w.names[to.At] = named
			continue
		case outline.Definition(to.At) != "":
			w.names[to.At] = l.free(sharedPrefix, to.At)
			l.shared[to.At] = w.names[to.At]
			written = append(written, to)
			continue
		case to.At == root.At:
			w.names[to.At] = name
		default:
			w.names[to.At] = l.free(name, to.At)
		}
		own = append(own, to)
		growth += w.times[to.At] * (len(componentsAt) + len(w.names[to.At]))
	}
	if growth > maxGrowth*len(schema.AppendJSON(nil)) {
		for _, to := range own {
			l.short++
			w.names[to.At] = shortPrefix + strconv.Itoa(l.short)
			l.taken[w.names[to.At]]++
		}
	}

	// Write them, the whole schema first.
	l.names[name] = w.names
	if alias := w.names[root.At]; alias == "" || alias == name {
		l.add(name, w.write(nil, root, true))
	} else {
		l.add(name, appendReference(nil, alias))
	}
	for _, to := range append(own, written...) {
		if alias := w.names[to.At]; alias != name {
			l.add(alias, w.write(nil, to, true))
		}
	}
}

// sharedPrefix starts the names of shared definitions.
const sharedPrefix = "shared"

func (l *lifting) add(name string, schema []byte) {
	l.components = append(l.components, Component{name, schema})
}

// shortPrefix starts short names. No event type has a name that is a number.
const shortPrefix = "def."

// free returns a name that is not taken yet for a place in a schema.
func (l *lifting) free(schema string, at diag.Pointer) string {
	steps := at.Steps()
	last := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, steps[len(steps)-1]), "_")
	alike := schema + "." + last
	name := alike
	for last == "" && name == alike || l.taken[name] > 0 {
		l.taken[alike]++
		name = alike + strconv.Itoa(l.taken[alike])
	}
	l.taken[name]++
	return name
}

// lifter writes the components of one schema.
type lifter struct {
	root outline.Schema
	// targets are what references lead to, in the order in which they were met; names has the names of their
	// components, and times how many references lead to each.
	targets []outline.Schema
	names   map[diag.Pointer]string
	times   map[diag.Pointer]int
	seen    map[diag.Pointer]bool
}

// isDefinitions reports whether a keyword holds schemas that take part only where they are referred to.
func isDefinitions(keyword string) bool { return keyword == "$defs" || keyword == "definitions" }

// find notes where the references in a schema lead.
func (w *lifter) find(s outline.Schema) {
	if w.seen[s.At] {
		return
	}
	w.seen[s.At] = true
	if to, ok := s.Ref(); ok {
		if w.times[to.At]++; w.times[to.At] == 1 {
			w.targets = append(w.targets, to)
		}
	}
	for _, m := range s.Members() {
		if isDefinitions(m.Key) {
			continue
		}
		held := s.Member(m.Key)
		switch outline.HeldBy(m.Key) {
		case outline.One:
			w.find(held)
		case outline.List:
			for _, sub := range held.Elements() {
				w.find(sub)
			}
		case outline.Map:
			for _, sub := range held.Members() {
				w.find(held.Member(sub.Key))
			}
		case outline.None:
		}
	}
}

// write appends a schema. A part that is a component of its own is written as a reference, unless whole is set.
func (w *lifter) write(b []byte, s outline.Schema, whole bool) []byte {
	if name := w.names[s.At]; name != "" && !whole {
		return appendReference(b, name)
	}
	switch s.Kind() {
	case value.Bool:
		if s.Truth() {
			return append(b, "{}"...)
		}
		return append(b, `{"not":{}}`...)
	case value.Object:
	case value.Missing, value.Null, value.Number, value.String, value.Array:
		return s.AppendJSON(b) // no schema, such as a list of names in dependencies
	}

	b = append(b, '{')
	for _, m := range s.Members() {
		if m.Key == "$id" || m.Key == "$schema" || isDefinitions(m.Key) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(value.AppendString(b, m.Key), ':')
		b = w.member(b, s, m.Key)
	}
	if isNumber(s.Get("type")) && s.Get("format").IsMissing() {
		b = append(b, doubleFormat...)
	}
	return append(b, '}')
}

// doubleFormat is added to numbers, which some generators otherwise take for four-byte ones.
const doubleFormat = `,"format":"double"`

// isNumber reports whether a "type" allows numbers.
func isNumber(t value.Value) bool {
	return t.Str() == "number" ||
		slices.ContainsFunc(t.Elems(), func(one value.Value) bool { return one.Str() == "number" })
}

// member appends the value of a keyword.
func (w *lifter) member(b []byte, s outline.Schema, key string) []byte {
	held := s.Member(key)
	if to, ok := s.Ref(); ok && key == "$ref" {
		return value.AppendString(b, componentsAt+w.names[to.At])
	}
	switch outline.HeldBy(key) {
	case outline.One:
		if key == "additionalProperties" && held.Kind() == value.Bool {
			return held.AppendJSON(b) // every tool knows these
		}
		return w.write(b, held, false)
	case outline.List:
		b = append(b, '[')
		for i, sub := range held.Elements() {
			if i > 0 {
				b = append(b, ',')
			}
			b = w.write(b, sub, false)
		}
		return append(b, ']')
	case outline.Map:
		b = append(b, '{')
		for i, sub := range held.Members() {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(value.AppendString(b, sub.Key), ':')
			b = w.write(b, held.Member(sub.Key), false)
		}
		return append(b, '}')
	case outline.None:
	}
	return held.AppendJSON(b)
}

func appendReference(b []byte, component string) []byte {
	return append(value.AppendString(append(b, `{"$ref":`...), componentsAt+component), '}')
}
