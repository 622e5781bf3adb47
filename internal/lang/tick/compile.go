package tick

import (
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// defaultBinding names the element where a spec gives it no name of its own.
const defaultBinding = "$item"

// compiler holds what is known while one handler or expression is compiled.
type compiler struct {
	l *diag.List
	// language is what is being compiled, scope what its paths can start with.
	language language
	scope    Scope
	// slots has a name for each slot, such as "$item". A name has one slot, whatever binds it: an inner binding hides
	// an outer one by taking its slot until it ends.
	slots []string
	// visible are the names that paths may use at this point.
	visible []string
	// used says which slots have been read since it was last cleared.
	used map[int]bool
	// lets are the slots bound by let, in the order of their operations.
	lets []int
	// nodes are all paths.
	nodes []*pathNode
	// count is the number of operations so far, depth that of lists of them around this point.
	count, depth int
	// loops is how many maps are around this point.
	loops int
	// upcast reports that the operations are those of an upcast: they are at work on an event's data, and see no state.
	upcast bool
	// readsState reports that some path reads the state.
	readsState bool
	// roots are the members of a plain "$" that paths start at; whole reports that one is "$" itself.
	roots map[string]struct{}
	whole bool
	// forms is how many $map and $lookup are around this point.
	forms int
	// operators is how many operators there have been in this expression, within how many of them are around this
	// point.
	operators, within int
	// computes is how many operators have been compiled that may have no value.
	computes int
}

func (c *compiler) errorf(at diag.Pointer, format string, args ...any) *diag.Diagnostic {
	return c.l.Errorf(at, format, args...)
}

// reading returns the paths from one source.
func (c *compiler) reading(from source) []*pathNode {
	var out []*pathNode
	for _, n := range c.nodes {
		if n.from == from {
			out = append(out, n)
		}
	}
	return out
}

// reads returns the event paths that are read, sorted.
func (c *compiler) reads() []string {
	var out []string
	for _, n := range c.nodes {
		if root := n.from.path(); root != "" {
			out = append(out, root+jsonpath.StepsText(n.steps))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// path returns the event path of a source; "" for the others.
func (s source) path() string {
	switch s {
	case fromEvent:
		return "$"
	case fromKey:
		return "$.key"
	case fromType:
		return "$.type"
	case fromTimestamp:
		return "$.metadata.timestamp"
	case fromData:
		return "$.data"
	case fromMetadata:
		return "$.metadata"
	case fromState, fromCurrent, fromSlot, fromID, fromMembers, fromWhole, fromRead, fromView:
	}
	return ""
}

// slot returns the slot of a name.
func (c *compiler) slot(name string) int {
	if i := slices.Index(c.slots, name); i >= 0 {
		return i
	}
	c.slots = append(c.slots, name)
	return len(c.slots) - 1
}

// bound compiles f with name visible and reports whether f read it.
func (c *compiler) bound(name string, f func()) (slot int, read bool) {
	slot = c.slot(name)
	visible := len(c.visible)
	before := c.used
	c.used = map[int]bool{}
	if name != "" {
		c.visible = append(c.visible, name)
	}
	f()
	c.visible = c.visible[:visible]
	read = c.used[slot]
	delete(c.used, slot)
	for i := range before {
		c.used[i] = true
	}
	return slot, read
}

// members returns the member values of an object for a list of known keys, the zero Value for those that are not
// there. It reports unknown keys, and says what v should have been if it is no object.
func (c *compiler) members(v value.Value, at diag.Pointer, what string, known ...string) ([]value.Value, bool) {
	out := make([]value.Value, len(known))
	if v.Kind() != value.Object {
		c.errorf(at, "%s takes an object, not %s", what, kindOf(v)).Hintf("write %s", example(what))
		return out, false
	}
	for _, m := range v.Members() {
		i := slices.Index(known, m.Key)
		if i < 0 {
			c.l.UnknownKey(at, m.Key, known)
			continue
		}
		out[i] = m.Value
	}
	return out, true
}

// required reports a key that is missing.
func (c *compiler) required(v value.Value, at diag.Pointer, what, key string) bool {
	if v.IsMissing() {
		c.errorf(at, "%s needs %q", what, key).Hintf("write %s", example(what))
		return false
	}
	return true
}

// value compiles a value. keeps says that it ends up in the state.
func (c *compiler) value(v value.Value, at diag.Pointer, keeps bool) node {
	switch v.Kind() {
	case value.String:
		if !jsonpath.IsPath(v.Str()) {
			return &literal{v}
		}
		return c.pathText(v.Str(), at, keeps)
	case value.Array:
		elems, same := make([]node, v.Len()), true
		for i, elem := range v.Elems() {
			elems[i] = c.value(elem, at.Index(i), keeps)
			same = same && isLiteral(elems[i])
		}
		if same {
			return literalArray(v, elems)
		}
		return &arrayNode{elems: elems, lenient: c.language == selections}
	case value.Object:
		return c.objectValue(v, at, keeps)
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return &literal{v.OrNull()}
}

func isLiteral(n node) bool {
	_, ok := n.(*literal)
	return ok
}

// literalOf returns the value of a literal.
func literalOf(n node) value.Value {
	lit, ok := n.(*literal)
	if !ok {
		return value.Value{}
	}
	return lit.v
}

// literalArray returns the array of literals, which differ from v's elements only where {"$literal": ...} stands.
func literalArray(v value.Value, elems []node) node {
	values := make([]value.Value, len(elems))
	for i, elem := range elems {
		values[i] = literalOf(elem)
	}
	lit := value.ArrayValue(values...)
	if value.Equal(lit, v) {
		lit = v
	}
	return &literal{lit}
}

// array compiles an operand that has to be an array. A string without a prefix is a state path.
func (c *compiler) array(v value.Value, at diag.Pointer) node {
	got := kindOf(v)
	switch v.Kind() {
	case value.String:
		switch {
		case c.inTemplate() && !jsonpath.IsPath(v.Str()):
			c.errorf(at, "%s is no path, since paths start with %q here", diag.Quote(v.Str()), "$").Hintf(`write a path like "$.data.items"`)
			return &literal{}
		case c.scope.Wildcards:
			return c.pathText(v.Str(), at, false)
		}
		p, err := jsonpath.ParseAny(v.Str())
		if err != nil {
			c.syntax(at, err)
			return &literal{}
		}
		return c.path(p, at, false)
	case value.Array, value.Object:
		n := c.value(v, at, false)
		if can(n, value.Array) {
			return n
		}
		got = c.yielded(v, n)
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	c.errorf(at, "an array is needed here, not %s", got).Hintf(`write a path like "items", "@.items" or "$.data.items", or an array`)
	return &literal{}
}

// number compiles an operand that has to be a number.
func (c *compiler) number(v value.Value, at diag.Pointer, what string) node {
	n := c.value(v, at, false)
	switch n := n.(type) {
	case *literal:
		if n.v.Kind() == value.Number || n.v.IsMissing() {
			return n
		}
		d := c.errorf(at, "%s is a number or a path to one, not %s", what, kindOf(n.v))
		if text := n.v.Str(); jsonpath.IsName(text) {
			d.Hintf("did you mean %q or %q?", "$.data."+text, "@."+text)
		} else {
			d.Hintf(`write a number like 1, or a path like "$.data.amount"`)
		}
	default:
		if !can(n, value.Number) {
			c.errorf(at, "%s is a number or a path to one, not %s", what, c.yielded(v, n)).Hintf(`write a number like 1, or a path like "$.data.amount"`)
		}
	}
	return n
}

// bindingName reads the name that a binding gets; missing ones are the default, wrong ones "".
func (c *compiler) bindingName(v value.Value, at diag.Pointer) string {
	if v.IsMissing() {
		return defaultBinding
	}
	name := v.Str()
	if !strings.HasPrefix(name, "$") || !jsonpath.IsName(name[1:]) {
		d := c.errorf(at, `a binding's name is "$" and then letters, digits and "_"`)
		if jsonpath.IsName(name) {
			d.Hintf("write %q", "$"+name)
		} else {
			d.Hintf(`write a name like "$line"`)
		}
		return ""
	}
	return name
}
