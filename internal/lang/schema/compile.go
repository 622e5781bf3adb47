package schema

import (
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema/ecma"
)

// compiler turns one document into nodes. Pointers of type diag.Pointer inside it lead from the document's root;
// only findings are placed in the whole spec.
type compiler struct {
	*Group
	doc *outline.Document
	at  diag.Pointer
	// nodes has every schema that has been compiled, or is being compiled, and order the same in that order.
	nodes    map[diag.Pointer]*node
	order    []*node
	compiled map[string]*ecma.Regexp
	// refersTo has the shared definitions that references lead to.
	refersTo map[string]bool
}

func newCompiler(doc value.Value, at diag.Pointer, g *Group) *compiler {
	return &compiler{
		doc: outline.Read(doc, g.shared.source), at: at, Group: g,
		nodes: map[diag.Pointer]*node{}, compiled: map[string]*ecma.Regexp{}, refersTo: map[string]bool{},
	}
}

func (c *compiler) errorf(at diag.Pointer, format string, args ...any) *diag.Diagnostic {
	return c.list.Errorf(outline.InSpec(c.at, at), format, args...)
}

func (c *compiler) warnf(at diag.Pointer, format string, args ...any) *diag.Diagnostic {
	return c.list.Warnf(outline.InSpec(c.at, at), format, args...)
}

func (c *compiler) compile() *node {
	before := c.list.Errors()
	taken, fits := c.doc.Index()
	for _, t := range taken {
		c.errorf(t.At.Key("$id"), "the schema at %s already has this $id", diag.Quote(string(c.at+t.By))).
			Hintf("give each schema a $id of its own, or none")
	}
	if !fits {
		c.errorf("", "the schema holds more than %d schemas", outline.MaxSchemas).
			Hintf(`say what repeats once, under "$defs", and refer to it with "$ref"`)
		return nil
	}
	root := c.node(c.doc.Root().Value, "")
	if c.list.Errors() == before && c.checkGraph() != nil {
		c.contradictions()
	}
	return root
}

// forgetPlaces is called when no more findings are made: of a deep schema, the places are much longer than all else.
func (c *compiler) forgetPlaces() {
	for _, n := range c.order {
		n.at = ""
	}
}

// node compiles the schema v, which stands at the place at of the document. It returns a node even where v is faulty.
func (c *compiler) node(v value.Value, at diag.Pointer) *node {
	if n, ok := c.nodes[at]; ok {
		return n
	}
	n := &node{at: at}
	c.nodes[at] = n
	c.order = append(c.order, n)
	switch v.Kind() {
	case value.Bool:
		n.never = !v.Truth()
	case value.Object:
		c.keywords(n, v, at)
	case value.Missing, value.Null, value.Number, value.String, value.Array:
		c.noSchema(v, at)
	}
	return n
}

func (c *compiler) noSchema(v value.Value, at diag.Pointer) {
	d := c.errorf(at, "a schema must be an object, true or false, but this is %s", kindPhrase(v))
	switch {
	case v.Kind() == value.Array:
		d.Hintf(`for alternatives write {"anyOf": [...]}, for a list with given positions {"prefixItems": [...]}`)
	case v.Kind() == value.String && c.typeNamed(v.Str()) != "":
		d.Hintf(`write {"type": %q}`, c.typeNamed(v.Str()))
	}
}

// keywords compiles the members of a schema that is an object.
func (c *compiler) keywords(n *node, v value.Value, at diag.Pointer) {
	if c.saysNothing(v, at) {
		return
	}
	for _, m := range v.Members() {
		p := at.Key(m.Key)
		switch shapeOf(m.Key) {
		case unknown:
			c.unknownKeyword(m.Key, p)
		case unsupported:
			c.unsupportedKeyword(m.Key, p)
		case annotation:
			c.annotation(m.Key, m.Value, p)
		case core:
			c.core(n, m.Key, m.Value, p)
		case assertion:
			c.assertion(n, m.Key, m.Value, p)
		case oneSchema:
			c.oneSchema(n, m.Key, m.Value, p)
		case schemaList:
			c.schemaList(n, m.Key, m.Value, p)
		case schemaMap:
			c.schemaMap(n, m.Key, m.Value, p)
		}
	}
	if names := v.Get("required").Elems(); len(names) > 0 {
		c.required[n] = names
	}
	c.lonelyKeywords(v, at)
	c.futileKeywords(n, v, at)
}

// lonelyKeywords warns of keywords that do nothing without another one.
func (c *compiler) lonelyKeywords(v value.Value, at diag.Pointer) {
	for _, pair := range [][2]string{
		{"then", "if"}, {"else", "if"}, {"minContains", "contains"}, {"maxContains", "contains"},
	} {
		if has(v, pair[0]) && !has(v, pair[1]) {
			c.warnf(at.Key(pair[0]), "%q has no effect without %q", pair[0], pair[1]).AtKey().Hintf(
				"add %q, or leave it out", pair[1],
			)
		}
	}
	if has(v, "if") && !has(v, "then") && !has(v, "else") {
		c.warnf(at.Key("if"), `"if" has no effect without "then" or "else"`).AtKey().Hintf(`add "then" or "else", or leave it out`)
	}
}

func has(object value.Value, name string) bool { return !object.Get(name).IsMissing() }

func (n *node) textRule() *textRule {
	if n.text == nil {
		n.text = &textRule{maxLength: unlimited}
	}
	return n.text
}

func (n *node) numberRule() *numberRule {
	if n.number == nil {
		n.number = &numberRule{}
	}
	return n.number
}

func (n *node) arrayRule() *arrayRule {
	if n.array == nil {
		n.array = &arrayRule{maxItems: unlimited, minContains: 1, maxContains: unlimited}
	}
	return n.array
}

func (n *node) objectRule() *objectRule {
	if n.object == nil {
		n.object = &objectRule{maxFields: unlimited}
	}
	return n.object
}

func (n *node) sameRule() *sameRule {
	if n.same == nil {
		n.same = &sameRule{}
	}
	return n.same
}

// field returns the field of the name, which it adds if it is new.
func (o *objectRule) field(name string) *field {
	i := o.find(name, 0)
	if i < 0 {
		i = len(o.fields)
		o.fields = append(o.fields, field{name: name})
		switch {
		case o.byName != nil:
			o.byName[name] = i
		case len(o.fields) >= fieldMapFrom:
			o.byName = make(map[string]int, 2*fieldMapFrom)
			for j := range o.fields {
				o.byName[o.fields[j].name] = j
			}
		}
	}
	return &o.fields[i]
}
