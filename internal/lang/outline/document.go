package outline

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Limits of a document.
const (
	// MaxSchemas bounds the schemas in one document, itself included.
	MaxSchemas = 10_000
	// MaxID bounds the length in bytes of a $id, which every reference below it is resolved against.
	MaxID = 2048
)

// Holds says how a keyword holds schemas.
type Holds uint8

// The ways in which keywords hold schemas.
const (
	None Holds = iota
	One
	List
	Map
)

// HeldBy returns how a keyword holds schemas.
func HeldBy(keyword string) Holds {
	switch keyword {
	case "items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else":
		return One
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return List
	case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies":
		return Map
	default:
		return None
	}
}

// scope is what a reference in a schema starts from.
type scope struct {
	base url.URL
	// root is the schema that base stands for: the nearest one around with $id, or the document.
	root diag.Pointer
}

// Shared is the place of the definitions that all schemas of a spec share, its top-level "$defs", as a document has it:
// its own places begin with "/".
const Shared diag.Pointer = "#/$defs"

// Definition returns the name of the shared definition that a place is in, "" where it is a place in the document
// itself.
func Definition(at diag.Pointer) string {
	within, ok := strings.CutPrefix(string(at), string(Shared)+"/")
	if !ok {
		return ""
	}
	return diag.Pointer("/" + within).Steps()[0]
}

// InSpec returns the place in the spec of a place in a document, which stands at of in the spec.
func InSpec(of, at diag.Pointer) diag.Pointer {
	if Definition(at) != "" {
		return at[len("#"):]
	}
	return of + at
}

// Document is a whole schema, with the schemas in it and the URIs that they go by.
type Document struct {
	root value.Value
	// shared are the definitions of the spec, missing where there are none. References in them cannot lead into the
	// document.
	shared value.Value
	// scopes has the base URI of every schema in the document, resources the root of what each URI stands for. They are
	// filled when something first asks for them.
	scopes    map[diag.Pointer]scope
	resources map[string]diag.Pointer
	taken     []Taken
	schemas   int
}

// Taken is a schema with a $id that another one has already.
type Taken struct{ At, By diag.Pointer }

// Read returns the document whose root is v, in a spec with shared definitions.
func Read(v, shared value.Value) *Document { return &Document{root: v, shared: shared} }

// Root returns the whole schema.
func (d *Document) Root() Schema { return Schema{Value: d.root, doc: d} }

// Index finds all schemas, and those with a $id that is taken. It reports false when there are more than MaxSchemas.
func (d *Document) Index() ([]Taken, bool) {
	if d.scopes == nil {
		d.scopes, d.resources = map[diag.Pointer]scope{}, map[string]diag.Pointer{}
		d.index(d.root, "", scope{}, true)
	}
	return d.taken, d.schemas <= MaxSchemas
}

// index records the scope of the schema v at the place at, and of all schemas inside it. Where register is set, it
// also records what URIs the schemas go by. It reports false when there are too many schemas.
func (d *Document) index(v value.Value, at diag.Pointer, s scope, register bool) bool {
	if d.schemas++; d.schemas > MaxSchemas {
		return false
	}

	// An $id begins a scope of its own, in which references are read.
	if id := v.Get("$id"); id.Kind() == value.String && len(id.Str()) <= MaxID {
		if u, err := s.base.Parse(id.Str()); err == nil && u.Fragment == "" {
			s = scope{base: *u, root: at}
		}
	}
	if register && s.root == at {
		d.register(v, at, s)
	}
	d.scopes[at] = s

	// All schemas inside.
	for _, m := range v.Members() {
		held := HeldBy(m.Key)
		if held == None {
			continue
		}
		p := at.Key(m.Key)
		switch held {
		case One:
			if !d.index(m.Value, p, s, register) {
				return false
			}
		case List:
			for i, e := range m.Value.Elems() {
				if !d.index(e, p.Index(i), s, register) {
					return false
				}
			}
		case Map:
			for _, e := range m.Value.Members() {
				if !d.index(e.Value, p.Key(e.Key), s, register) {
					return false
				}
			}
		case None:
		}
	}
	return true
}

func (d *Document) register(v value.Value, at diag.Pointer, s scope) {
	uri := withoutFragment(s.base)
	if other, taken := d.resources[uri]; taken {
		if v.Get("$id").Kind() == value.String {
			d.taken = append(d.taken, Taken{At: at, By: other})
		}
		return
	}
	d.resources[uri] = at
}

func withoutFragment(u url.URL) string {
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// Why says why a reference leads to no schema.
type Why uint8

// The reasons.
const (
	Found Why = iota
	NoURI
	OtherDocument
	Anchor
	// Nowhere: Token is the step that leads nowhere, In the value that it is looked for in.
	Nowhere
	// NoSchema: In is what stands there.
	NoSchema
	TooMany
	// NoDefinition: what stands in a shared definition refers to something else than such definitions.
	NoDefinition
)

// Fault is the reason with what there is to say about it.
type Fault struct {
	Why   Why
	Token string
	In    value.Value
}

// Find follows a reference that stands in the schema at the place from. It may be used after Index reported true.
func (d *Document) Find(ref string, from diag.Pointer) (Schema, Fault) {
	if Definition(from) != "" {
		return d.findShared(ref)
	}
	d.Index()
	s := d.scopeOf(from)
	u, err := s.base.Parse(ref)
	if err != nil {
		return Schema{}, Fault{Why: NoURI}
	}
	root, ok := d.resources[withoutFragment(*u)]
	if strings.HasPrefix(ref, "#") {
		root, ok = s.root, true
	}
	switch {
	case !ok:
		return Schema{}, Fault{Why: OtherDocument}
	case u.Fragment != "" && u.Fragment[0] != '/':
		return Schema{}, Fault{Why: Anchor}
	}
	to, fault := d.follow(d.at(root), u.Fragment)
	if name := definitionNamed(u.Fragment); fault.Why == Nowhere && name != "" && d.shared.Len() > 0 &&
		strings.HasPrefix(ref, "#") {
		// Definitions that a schema does not have itself may be in the spec.
		if own := d.at(root).Get("$defs"); own.Get(name).IsMissing() {
			return d.definition(u.Fragment, name, own)
		}
	}
	if fault.Why != Found {
		return Schema{}, fault
	}
	if to.Kind() != value.Object && to.Kind() != value.Bool {
		return Schema{}, Fault{Why: NoSchema, In: to.Value}
	}
	if _, known := d.scopes[to.At]; !known {
		// A place that no keyword makes a schema, such as the value of an unknown keyword, becomes one by being
		// referred to.
		if !d.index(to.Value, to.At, d.scopeOf(to.At), false) {
			return Schema{}, Fault{Why: TooMany}
		}
	}
	return to, Fault{}
}

// findShared is Find for a reference in a shared definition, which leads to shared definitions alone.
func (d *Document) findShared(ref string) (Schema, Fault) {
	u, err := url.Parse(ref)
	switch {
	case err != nil:
		return Schema{}, Fault{Why: NoURI}
	case !strings.HasPrefix(ref, "#"):
		return Schema{}, Fault{Why: OtherDocument}
	case u.Fragment != "" && u.Fragment[0] != '/':
		return Schema{}, Fault{Why: Anchor}
	}
	name := definitionNamed(u.Fragment)
	if name == "" {
		return Schema{}, Fault{Why: NoDefinition}
	}
	return d.definition(u.Fragment, name, value.Value{})
}

// definitionNamed returns the name that a JSON pointer gives to a definition that it leads to or into, "" where it
// leads elsewhere.
func definitionNamed(pointer string) string {
	if steps := diag.Pointer(pointer).Steps(); len(steps) > 1 && steps[0] == "$defs" {
		return steps[1]
	}
	return ""
}

// definition follows a JSON pointer into the shared definition of a name. own are other definitions that it might have
// meant.
func (d *Document) definition(pointer, name string, own value.Value) (Schema, Fault) {
	if d.shared.Get(name).IsMissing() {
		return Schema{},
			Fault{Why: Nowhere, Token: name, In: value.ObjectValue(slices.Concat(own.Members(), d.shared.Members())...)}
	}
	root := Schema{Value: value.ObjectValue(value.Member{Key: "$defs", Value: d.shared}), At: "#", doc: d}
	to, fault := d.follow(root, pointer)
	switch {
	case fault.Why != Found:
		return Schema{}, fault
	case to.Kind() != value.Object && to.Kind() != value.Bool:
		return Schema{}, Fault{Why: NoSchema, In: to.Value}
	}
	return to, Fault{}
}

// at returns the schema at a place of the document itself.
func (d *Document) at(place diag.Pointer) Schema {
	s := d.Root()
	for _, token := range place.Steps() {
		s = s.step(token)
	}
	return s
}

// follow goes from a schema along a JSON pointer.
func (d *Document) follow(s Schema, pointer string) (Schema, Fault) {
	for _, token := range diag.Pointer(pointer).Steps() {
		next := s.step(token)
		if next.IsMissing() {
			return Schema{}, Fault{Why: Nowhere, Token: token, In: s.Value}
		}
		s = next
	}
	return s, Fault{}
}

// step goes to a member, or to the element of an array.
func (s Schema) step(token string) Schema {
	if s.Kind() != value.Array {
		return s.Member(token)
	}
	if i, err := strconv.ParseUint(token, 10, 31); err == nil && strconv.FormatUint(i, 10) == token {
		return s.Element(int(i))
	}
	return Schema{}
}

// scopeOf returns the scope of the nearest schema at or around a place.
func (d *Document) scopeOf(at diag.Pointer) scope {
	for {
		if s, ok := d.scopes[at]; ok {
			return s
		}
		if at == "" {
			return scope{}
		}
		at = at[:max(strings.LastIndexByte(string(at), '/'), 0)]
	}
}
