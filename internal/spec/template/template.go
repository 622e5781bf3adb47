// Package template computes the data and the ids of events that other events bring about. Templates are JSON in which
// strings that start with "$" or "@" are paths and objects whose only key is concat, coalesce or merge are operators.
// They are compiled once, when a spec is deployed. docs/reference/implications.md is the language's manual.
package template

import (
	"errors"
	"slices"
	"strings"

	"j17/internal/spec/jsonpath"
	"j17/internal/value"
	"j17/internal/work"
)

// Context is what paths in templates lead into. Missing members are missing in templates.
type Context struct {
	// Key and Type are those of the event, ID is the second half of its key.
	Key, ID, Type  string
	Data, Metadata value.Value
	// State is the state of the event's aggregate before the write that the event belongs to. It need only be set for
	// templates that read it.
	State value.Value
	// More has further members of "$", which steps of a pipeline have added. They hide none of those above. All of them
	// together are "$.enriched", unless one of them is called so.
	More []value.Member
	// Binding is the value of the binding called Name, which has no "$".
	Name    string
	Binding value.Value
	// Work is what evaluating is charged to.
	Work *work.Budget
}

// member returns a member of "$".
func (c *Context) member(name string) value.Value {
	switch name {
	case "key":
		return value.StringValue(c.Key)
	case "id":
		return value.StringValue(c.ID)
	case "type":
		return value.StringValue(c.Type)
	case "data":
		return c.Data
	case "metadata":
		return c.Metadata
	case "state":
		return c.State
	default:
		return value.ObjectValue(c.Added()...).Get(name)
	}
}

// enriched is the member that has all that steps of a pipeline have added.
const enriched = "enriched"

// Added returns the members of "$" that steps of a pipeline have added, and the one that has them all.
func (c *Context) Added() []value.Member {
	if c.More == nil {
		return nil
	}
	added := c.shown()
	if all := value.ObjectValue(c.More...); all.Get(enriched).IsMissing() {
		added = append(added, value.Member{Key: enriched, Value: all})
	}
	return added
}

// shown returns what steps of a pipeline have added but what the event's own members hide.
func (c *Context) shown() []value.Member {
	var members []value.Member
	for _, m := range c.More {
		if !slices.Contains(own(), m.Key) {
			members = append(members, m)
		}
	}
	return members
}

// own are the members of "$" that every event has.
func own() []string { return []string{"key", "id", "type", "data", "metadata", "state"} }

// document is "$" itself.
func (c *Context) document() value.Value {
	var members []value.Member
	for _, name := range own() {
		if v := c.member(name); !v.IsMissing() {
			members = append(members, value.Member{Key: name, Value: v})
		}
	}
	return value.ObjectValue(append(members, c.shown()...)...)
}

// Path is a compiled path.
type Path struct {
	path jsonpath.Path
	// first is the member of "$" that the path goes through; "" where it does not start with "$." or stops there.
	first string
	rest  jsonpath.Path
}

// NewPath compiles a path.
func NewPath(p jsonpath.Path) *Path {
	c := &Path{path: p}
	if p.Root == jsonpath.Document && len(p.Steps) > 0 && !p.Steps[0].IsIndex {
		c.first, c.rest = p.Steps[0].Key, p
		c.rest.Steps = p.Steps[1:]
	}
	return c
}

// Text is the path as it was written.
func (p *Path) Text() string { return p.path.Text }

// ReadsState reports whether the path may lead into the state.
func (p *Path) ReadsState() bool {
	switch p.path.Root {
	case jsonpath.Current:
		return true
	case jsonpath.Document:
		return p.first == "" || p.first == "state"
	case jsonpath.Binding:
		return false
	default:
		return true
	}
}

// Optional reports whether the path ends in "?": where it leads nowhere, what it stands in is left out.
func (p *Path) Optional() bool { return p.path.Optional }

// In follows the path. The result is missing where it leads nowhere. The error is that of the context's budget, which has
// ended.
func (p *Path) In(c *Context) (value.Value, error) {
	v := p.in(c)
	return v, c.Work.Err()
}

func (p *Path) in(c *Context) value.Value {
	if !c.Work.Spend(1 + len(p.path.Steps)) {
		return value.Value{}
	}
	switch {
	case p.first != "":
		return follow(&p.rest, c.member(p.first), c)
	case p.path.Root == jsonpath.Current:
		return follow(&p.path, c.State, c)
	case p.path.Root == jsonpath.Document:
		return follow(&p.path, c.document(), c)
	case p.path.Name == c.Name:
		return follow(&p.path, c.Binding, c)
	default:
		return value.Value{}
	}
}

// follow is the path's In, and charges the entries that it makes.
func follow(p *jsonpath.Path, root value.Value, c *Context) value.Value {
	if p.Entries && !c.Work.Spend(memberWork*root.At(p.Steps).Len()) {
		return value.Value{}
	}
	return p.In(root)
}

// Template is a compiled template. It is immutable.
type Template struct {
	source     value.Value
	node       node
	readsState bool
}

// Source is what the template was compiled from, missing for a nil Template.
func (t *Template) Source() value.Value {
	if t == nil {
		return value.Value{}
	}
	return t.source
}

// ReadsState reports whether the template may read the state.
func (t *Template) ReadsState() bool { return t != nil && t.readsState }

// Errors of Eval.
var (
	// ErrAbsent: an optional path, one with "?", leads nowhere.
	ErrAbsent = errors.New("template: an optional path leads nowhere")
	// ErrTooLarge: the value would be larger than allowed, or nested too deep.
	ErrTooLarge = errors.New("template: the value is too large")
)

// Eval computes the template's value, which has at most about limit bytes as JSON; paths that lead nowhere yield null. A
// nil Template is an empty object. Errors are those above and that of the context's budget, which has ended.
func (t *Template) Eval(c *Context, limit int) (value.Value, error) {
	if t == nil {
		return value.ObjectValue(), nil
	}
	e := evaluation{Context: c, left: limit}
	v := t.node.eval(&e)
	if err := c.Work.Err(); err != nil {
		return value.Value{}, err
	}
	switch {
	case e.absent:
		return value.Value{}, ErrAbsent
	case e.left < 0:
		return value.Value{}, ErrTooLarge
	}
	return v, e.bounded(v, limit)
}

// bounded tells whether a value has at most limit bytes as JSON and is not nested too deep. Its size comes first: what is
// small enough is quickly looked through.
func (e *evaluation) bounded(v value.Value, limit int) error {
	size, n := v.Weigh()
	if !e.Work.Spend(n) {
		return e.Work.Err()
	}
	if size > limit {
		return ErrTooLarge
	}
	flat, n := v.Nested(value.MaxDepth - 1)
	if !e.Work.Spend(n) {
		return e.Work.Err()
	}
	if !flat {
		return ErrTooLarge
	}
	return nil
}

type evaluation struct {
	*Context
	// absent tells that an optional path led nowhere.
	absent bool
	// left is how many bytes strings that are put together may still have; below 0 there were too many.
	left int
}

type node interface{ eval(*evaluation) value.Value }

// Compile compiles a template whose paths and operators have been checked: a text that is no path stands for itself, and an
// operator without an array has no arguments. A missing v yields nil.
func Compile(v value.Value) *Template {
	if v.IsMissing() {
		return nil
	}
	t := &Template{source: v}
	t.node = t.compile(v)
	return t
}

func (t *Template) compile(v value.Value) node {
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) {
			if p, err := jsonpath.Parse(v.Str()); err == nil {
				path := NewPath(p)
				t.readsState = t.readsState || path.ReadsState()
				return pathNode{path}
			}
		}
	case value.Array:
		return t.array(v)
	case value.Object:
		return t.object(v)
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return literal{v}
}

func (t *Template) list(v value.Value) []node {
	var elems []node
	for _, e := range v.Elems() {
		elems = append(elems, t.compile(e))
	}
	return elems
}

func (t *Template) array(v value.Value) node {
	elems := t.list(v)
	if allLiteral(elems) {
		return literal{v}
	}
	return arrayNode(elems)
}

func allLiteral(nodes []node) bool {
	for _, n := range nodes {
		if _, ok := n.(literal); !ok {
			return false
		}
	}
	return true
}

func (t *Template) object(v value.Value) node {
	members := v.Members()
	if len(members) == 1 {
		switch arg := members[0].Value; members[0].Key {
		case "concat":
			return concat(t.list(arg))
		case "coalesce":
			return coalesce(t.list(arg))
		case "merge":
			return merge(t.list(arg))
		case "$literal":
			return literal{arg}
		}
	}
	o := objectNode{keys: make([]string, len(members)), values: make([]node, len(members))}
	for i, m := range members {
		o.keys[i], o.values[i] = m.Key, t.compile(m.Value)
	}
	if allLiteral(o.values) {
		return literal{v}
	}
	return o
}

type literal struct{ v value.Value }

func (n literal) eval(*evaluation) value.Value { return n.v }

type pathNode struct{ *Path }

func (n pathNode) eval(e *evaluation) value.Value {
	v := n.in(e.Context)
	if v.IsMissing() && n.Optional() {
		e.absent = true
	}
	return v.OrNull()
}

type arrayNode []node

func (n arrayNode) eval(e *evaluation) value.Value {
	if !e.Work.Spend(1 + len(n)) {
		return value.NullValue()
	}
	elems := make([]value.Value, len(n))
	for i := range n {
		elems[i] = n[i].eval(e)
	}
	return value.ArrayValue(elems...)
}

type objectNode struct {
	keys   []string
	values []node
}

func (n objectNode) eval(e *evaluation) value.Value {
	if !e.Work.Spend(1 + 2*len(n.keys)) {
		return value.NullValue()
	}
	members := make([]value.Member, len(n.keys))
	for i := range n.keys {
		members[i] = value.Member{Key: n.keys[i], Value: n.values[i].eval(e)}
	}
	return value.ObjectValue(members...)
}

// concat joins its arguments to one string. Numbers, booleans and containers stand for their JSON, null for nothing.
type concat []node

func (n concat) eval(e *evaluation) value.Value {
	var b strings.Builder
	for i := range n {
		v := n[i].eval(e)
		size, visited := v.Weigh()
		if e.left -= size; e.left < 0 || !e.Work.Spend(1+visited) || !e.Work.SpendBytes(size) {
			return value.NullValue()
		}
		switch v.Kind() {
		case value.String:
			b.WriteString(v.Str())
		case value.Bool, value.Number, value.Array, value.Object:
			b.WriteString(v.String())
		case value.Missing, value.Null:
		}
	}
	return value.StringValue(b.String())
}

// item evaluates an argument that is passed over, and not all it stands in, where an optional path in it leads nowhere: it
// then reports false.
func (e *evaluation) item(n node) (value.Value, bool) {
	inner := evaluation{Context: e.Context, left: e.left}
	v := n.eval(&inner)
	e.left = inner.left
	return v, !inner.absent
}

// coalesce is the first of its arguments that is not null.
type coalesce []node

func (n coalesce) eval(e *evaluation) value.Value {
	for i := range n {
		if v, ok := e.item(n[i]); ok && v.Kind() != value.Null {
			return v
		}
	}
	return value.NullValue()
}

// memberWork is what it takes to put a member into an object, or to make an entry of it.
const memberWork = 4

// merge joins the members of its arguments, later ones over earlier ones. What is no object is left out, and so is an argument
// with an optional path that leads nowhere.
type merge []node

func (n merge) eval(e *evaluation) value.Value {
	ed := value.NewEditor()
	out := value.ObjectValue()
	for i := range n {
		v, ok := e.item(n[i])
		if !e.Work.Spend(1 + memberWork*v.Len()) {
			break
		}
		if ok && v.Kind() == value.Object {
			out = ed.Merge(out, v)
		}
	}
	return out
}
