package tick

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// Scope says what the paths of an expression outside of handlers can start with.
type Scope struct {
	// Bindings are the names that may follow "$". Env.Bind knows them by their places in this list.
	Bindings []string
	// Members are the members that "$" has; nil where they are not all known, since custom code adds some.
	Members []string
	// Plain reports that "$" is no event but what Env.SetDocument was given.
	Plain bool
	// Wildcards allows "[*]".
	Wildcards bool
	// Current reports that "@" is the state in templates too, as it is in conditions.
	Current bool
	// Reads are the names that may follow "$.reads", nil where nothing can be read. Env.SetReads knows them by their
	// places in this list, of which there are at most 16.
	Reads []string
}

// Has reports whether a name is bound.
func (s Scope) Has(binding string) bool { return slices.Contains(s.Bindings, binding) }

// With returns the scope in which one more name is bound.
func (s Scope) With(binding string) Scope {
	s.Bindings = append(slices.Clone(s.Bindings), binding)
	return s
}

// allows reports whether "$" may have a member.
func (s Scope) allows(member string) bool {
	return s.Members == nil || slices.Contains(s.Members, member)
}

// reading reports whether "$.reads" leads to other aggregates' states. It does not where custom code may add a member
// of that name and the spec declares nothing to read.
func (s Scope) reading() bool {
	return !s.Plain && s.Reads != nil && (len(s.Reads) > 0 || s.Members != nil)
}

// expression is what compiled expressions have in common.
type expression struct {
	slots      int
	readsState bool
	// bindings are the slots that paths start at, a bit for each of the first 64.
	bindings uint64
	// lookedAt are the reads that paths lead into, a bit for each place in the scope's list.
	lookedAt uint16
	// members are those of a plain "$" that paths start at, nil where one of them is "$" itself and whole is set.
	members []string
	whole   bool
}

func (e *expression) reads(slot int) bool { return e.bindings&(1<<slot) != 0 }

// Members returns the members of "$" that paths start at, sorted. all reports that a path leads to "$" itself. It is
// for scopes that are plain and have Members.
func (e *expression) Members() (names []string, all bool) { return e.members, e.whole }

// Predicate is a compiled condition. It may be used by many goroutines at the same time.
type Predicate struct {
	expression
	root predicate
}

// ReadsState reports whether the predicate may read the state. A nil Predicate reads nothing.
func (p *Predicate) ReadsState() bool { return p != nil && p.readsState }

// Reads reports whether the predicate reads the binding at a place of the scope's list. A nil Predicate reads nothing.
func (p *Predicate) Reads(slot int) bool { return p != nil && p.reads(slot) }

// ReadsOf returns a bit for each place in the scope's Reads that the predicate looks at. A nil Predicate looks at
// nothing.
func (p *Predicate) ReadsOf() uint16 {
	if p == nil {
		return 0
	}
	return p.lookedAt
}

// Test reports whether the predicate holds. ok is false when a path that ends in "?" leads nowhere: what the predicate
// guards is then to be left out. The error is that of the budget of e, which has ended.
func (p *Predicate) Test(e *Env) (holds, ok bool, err error) {
	e.begin(p.slots)
	e.left, e.misfit = MaxText, nil
	v := p.root.test(e)
	e.misfit = nil
	if err := e.work.Err(); err != nil {
		return false, false, err
	}
	return v == yes, v != skip, nil
}

// Path is a compiled path that stands by itself, such as where an id is taken from. It is immutable.
type Path struct {
	expression
	text string
	node *pathNode
}

// Text is the path as it was written.
func (p *Path) Text() string { return p.text }

// ReadsState reports whether the path may lead into the state. A nil Path reads nothing.
func (p *Path) ReadsState() bool { return p != nil && p.readsState }

// Reads reports whether the path starts at the binding at a place of the scope's list. A nil Path reads nothing.
func (p *Path) Reads(slot int) bool { return p != nil && p.reads(slot) }

// ReadsOf returns a bit for each place in the scope's Reads that the path leads into. A nil Path looks at nothing.
func (p *Path) ReadsOf() uint16 {
	if p == nil {
		return 0
	}
	return p.lookedAt
}

// Optional reports whether the path ends in "?": where it leads nowhere, what it is part of is left out.
func (p *Path) Optional() bool { return p.node.optional }

// In follows the path. The result is missing where it leads nowhere. The error is that of the budget of e, which has
// ended.
func (p *Path) In(e *Env) (value.Value, error) {
	e.begin(p.slots)
	v := p.node.find(e)
	return v, e.work.Err()
}

// Template is a compiled value in which paths and operators stand for what they yield. It is immutable.
type Template struct {
	expression
	source value.Value
	root   node
	// lenient reports that what cannot be computed is null.
	lenient bool
}

// Source is what the template was compiled from, missing for a nil Template.
func (t *Template) Source() value.Value {
	if t == nil {
		return value.Value{}
	}
	return t.source
}

// ReadsState reports whether the template may read the state. A nil Template reads nothing.
func (t *Template) ReadsState() bool { return t != nil && t.readsState }

// Reads reports whether the template reads the binding at a place of the scope's list. A nil Template reads nothing.
func (t *Template) Reads(slot int) bool { return t != nil && t.reads(slot) }

// ReadsOf returns a bit for each place in the scope's Reads that the template looks at. A nil Template looks at
// nothing.
func (t *Template) ReadsOf() uint16 {
	if t == nil {
		return 0
	}
	return t.lookedAt
}

// ErrTooLarge is what Template.Eval returns for a value that would be larger than allowed, or nested too deep.
var ErrTooLarge = errors.New("tick: the value is too large")

// Eval computes the template's value, which has at most about limit bytes as JSON; paths that lead nowhere yield null.
// A nil Template is an empty object. ok is false when a path that ends in "?" leads nowhere. Errors are ErrTooLarge,
// *OperandError where an operator has no value, which is null in a selection, and that of the budget of e, which has
// ended.
func (t *Template) Eval(e *Env, limit int) (v value.Value, ok bool, err error) {
	if t == nil {
		return value.ObjectValue(), true, nil
	}
	e.begin(t.slots)
	e.left, e.misfit = limit, nil
	v, ok = t.root.eval(e)
	misfit := e.misfit
	switch err := e.work.Err(); {
	case err != nil:
		return value.Value{}, false, err
	case misfit != nil && t.lenient:
		return value.NullValue(), true, nil
	case misfit != nil:
		return value.Value{}, false, misfit
	case !ok:
		return value.Value{}, false, nil
	case e.left < 0:
		return value.Value{}, false, ErrTooLarge
	}
	return v, true, e.bounded(v, limit)
}

// OperandError says that an operator has no value because its operands do not fit, and why.
type OperandError struct {
	// Pointer leads to the operator in the spec.
	Pointer diag.Pointer
	// Message is a sentence that begins in lower case and has no full stop. It repeats nothing of events and states.
	Message string
}

func (e *OperandError) Error() string { return e.Message }

// MaxText bounds the bytes of all texts that one evaluation of a predicate puts together.
const MaxText = 64 << 20

// bounded returns an error unless a value has at most limit bytes as JSON and is not nested too deep. Its size is
// checked first: a value that is small enough is quickly walked through.
func (e *Env) bounded(v value.Value, limit int) error {
	w, n := v.Weigh()
	if !e.spend(n) {
		return e.work.Err()
	}
	if w.Bytes > limit {
		return ErrTooLarge
	}
	flat, n := v.Nested(value.MaxDepth - 1)
	if !e.spend(n) {
		return e.work.Err()
	}
	if !flat {
		return ErrTooLarge
	}
	return nil
}

// CompilePredicate compiles a condition. It adds everything that is wrong to l and returns nil if that includes an
// error.
func CompilePredicate(v value.Value, at diag.Pointer, s Scope, l *diag.List) *Predicate {
	c := newCompiler(conditions, s, l)
	before := l.Errors()
	root := predicateCompiler{c}.condition(v, at)
	if l.Errors() > before {
		return nil
	}
	return &Predicate{expression: c.done(), root: root}
}

// CompilePath compiles a path that starts with "$". what names it in messages. It adds what is wrong with it to l and
// returns nil if that includes an error, and for a missing v.
func CompilePath(v value.Value, at diag.Pointer, what string, s Scope, l *diag.List) *Path {
	c := newCompiler(templates, s, l)
	before := l.Errors()
	n, ok := c.outerPath(v, at, what).(*pathNode)
	if !ok || l.Errors() > before {
		return nil
	}
	return &Path{expression: c.done(), text: v.Str(), node: n}
}

// outerPath compiles a path that no other value can replace.
func (c *compiler) outerPath(v value.Value, at diag.Pointer, what string) node {
	text, ok := textOf(v, at, what, c.l)
	switch {
	case !ok:
		return &literal{}
	case text[0] != '$' && (c.scope.Current || !jsonpath.IsPath(text)):
		c.errorf(at, "%s must be a path, which %s is not", what, diag.Quote(text)).Hintf(`paths start with "$", as in "$.data.items"`)
		return &literal{}
	}
	return c.pathText(text, at, false)
}

// maxName is how long the name of a binding may be.
const maxName = 64

// NewBinding reads the name that each element gets, "$" included. It adds what is wrong with it to l and returns ""
// then.
func NewBinding(v value.Value, at diag.Pointer, s Scope, l *diag.List) string {
	text, ok := textOf(v, at, "as", l)
	if !ok {
		return ""
	}
	name, dollar := strings.CutPrefix(text, "$")
	switch {
	case !dollar || !jsonpath.IsName(name) || len(name) > maxName:
		l.Errorf(at, "%s cannot name an element; names look like \"$item\"", diag.Quote(text)).Hintf(`use "$", a letter, and letters, digits and "_"`)
		return ""
	case s.Has(name):
		l.Errorf(at, "%s is bound already", diag.Quote(text)).Hintf("choose another name")
		return ""
	default:
		return text
	}
}

// textOf returns a text that is not empty. A missing one has been reported already.
func textOf(v value.Value, at diag.Pointer, what string, l *diag.List) (string, bool) {
	switch {
	case v.IsMissing():
	case v.Kind() != value.String:
		l.Errorf(at, "%s must be a string, not %s", what, kindOf(v))
	case v.Str() == "":
		l.Errorf(at, "%s must not be empty", what)
	default:
		return v.Str(), true
	}
	return "", false
}

// CompileTemplate compiles the data of an event that is brought about: strings that are paths stand for what they lead
// to, and objects whose only key is one of the operators for what that yields. It adds everything that is wrong to l
// and returns nil if that includes an error, and for a missing v.
func CompileTemplate(v value.Value, at diag.Pointer, s Scope, l *diag.List) *Template {
	return compileTemplate(templates, v, at, s, l)
}

// CompileSelection compiles the shape of what a projection puts together: a template with the operators $map and
// $lookup, in which a member or an element that is an optional path which leads nowhere is left out.
func CompileSelection(v value.Value, at diag.Pointer, s Scope, l *diag.List) *Template {
	return compileTemplate(selections, v, at, s, l)
}

func compileTemplate(in language, v value.Value, at diag.Pointer, s Scope, l *diag.List) *Template {
	if v.IsMissing() {
		return nil
	}
	c := newCompiler(in, s, l)
	before := l.Errors()
	root := c.value(v, at, false)
	if l.Errors() > before {
		return nil
	}
	return &Template{expression: c.done(), source: v, root: root, lenient: in == selections}
}

func newCompiler(in language, s Scope, l *diag.List) *compiler {
	c := &compiler{l: l, language: in, scope: s}
	for _, name := range s.Bindings {
		c.slots = append(c.slots, "$"+name)
	}
	c.visible = slices.Clone(c.slots)
	return c
}

// done returns what is known of an expression that has been compiled.
func (c *compiler) done() expression {
	x := expression{slots: len(c.slots), readsState: c.readsState}
	for _, n := range c.nodes {
		if n.from == fromSlot {
			x.bindings |= 1 << n.slot
		}
		if n.from == fromRead {
			x.lookedAt |= 1 << n.slot
		}
	}
	x.whole = c.whole
	if !x.whole {
		x.members = slices.Sorted(maps.Keys(c.roots))
	}
	return x
}
