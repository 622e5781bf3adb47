package tick

import (
	"errors"
	"slices"
	"strings"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/value"
)

// defaultBinding names the element where a spec gives it no name of its own.
const defaultBinding = "$item"

// compiler holds what is known while one handler or expression is compiled.
type compiler struct {
	l *diag.List
	// inHandler is false for expressions outside of handlers: they have no operation that could be skipped.
	inHandler bool
	// slots has a name for each slot: bindings as "$item", members of "$" as "$.id". A name has one slot, whoever binds
	// it: an inner binding hides an outer one by taking its place until it ends.
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
	// readsState, if not nil, is told of every path that reads the state.
	readsState func(at diag.Pointer, path string)
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
	case fromState, fromCurrent, fromSlot:
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

// syntax reports why a text is no path.
func (c *compiler) syntax(at diag.Pointer, err error) {
	d := c.errorf(at, "%s", err.Error())
	if s, ok := errors.AsType[*jsonpath.SyntaxError](err); ok {
		d.Hint = s.Hint
	}
}

// target compiles the place in the state that an operation changes.
func (c *compiler) target(v value.Value, at diag.Pointer, what string) place {
	if !c.required(v, at, what, "target") {
		return place{}
	}
	at = at.Key("target")
	if v.Kind() != value.String {
		c.errorf(at, "a target is a string, not %s", kindOf(v)).Hintf(`write a state path like "items", or "" for the whole state`)
		return place{}
	}
	p := c.fieldPath(v, at, "a target")
	if text := v.Str(); c.loops == 0 && (text == createdAt || text == updatedAt) {
		c.l.Warnf(at, "the engine sets %q itself after every event", text).Hintf("leave this operation out, or choose another name")
	}
	return p
}

// fieldPath compiles a state path that leads to exactly one place.
func (c *compiler) fieldPath(v value.Value, at diag.Pointer, what string) place {
	p, err := jsonpath.ParseState(v.Str())
	switch {
	case err != nil:
		c.syntax(at, err)
	case p.Optional:
		c.errorf(at, `%s cannot be optional`, what).Hintf(`remove the "?"`)
	case p.Entries:
		c.errorf(at, `%s cannot end in ".$entries"`, what).Hintf(`remove ".$entries": it makes a new list`)
	}
	return place{text: p.Text, steps: p.Steps}
}

// path compiles a path. keeps says that its value ends up in the state.
func (c *compiler) path(p jsonpath.Path, at diag.Pointer, keeps bool) *pathNode {
	n := &pathNode{steps: p.Steps, pick: -1, entries: p.Entries, optional: p.Optional}
	switch p.Root {
	case jsonpath.Current:
		n.from = fromCurrent
		n.keeps = keeps && c.inHandler
	case jsonpath.Binding:
		n.from = fromSlot
		n.slot = c.binding("$"+p.Name, at)
	case jsonpath.Document:
		c.eventPath(n, at)
	}
	if c.readsState != nil && (n.from == fromCurrent || n.from == fromState) {
		c.readsState(at, p.Text)
	}
	c.nodes = append(c.nodes, n)
	return n
}

// binding returns the slot of a name that has to be visible.
func (c *compiler) binding(name string, at diag.Pointer) int {
	if slices.Contains(c.visible, name) {
		slot := c.slot(name)
		if c.used != nil {
			c.used[slot] = true
		}
		return slot
	}
	d := c.errorf(at, "nothing is bound to %s here", strings.Trim(diag.Quote(name), `"`))
	var bindings []string
	for _, v := range c.visible {
		if !strings.HasPrefix(v, "$.") {
			bindings = append(bindings, v)
		}
	}
	switch near := c.l.Nearest(name, bindings); {
	case slices.Contains(c.documentMembers(), name[1:]):
		d.Hintf("did you mean %q?", "$."+name[1:])
	case near != "":
		d.Hintf("did you mean %q?", near)
	case len(bindings) > 0:
		d.Hintf("bound here: %s", strings.Join(bindings, ", "))
	default:
		d.Hintf(`bind it with let first; event paths start with "$.", and a text that starts with "$" is written {"$literal": "..."}`)
	}
	return 0
}

// documentMembers lists what may follow "$.".
func (c *compiler) documentMembers() []string {
	out := []string{"data", "metadata", "key", "type", "state"}
	for _, name := range c.visible {
		if member, ok := strings.CutPrefix(name, "$."); ok {
			out = append(out, member)
		}
	}
	return out
}

// eventPath says which part of the event a path that starts with "$" reads.
func (c *compiler) eventPath(n *pathNode, at diag.Pointer) {
	if len(n.steps) == 0 {
		n.from = fromEvent
		return
	}
	first := n.steps[0]
	if first.IsIndex {
		c.errorf(at, "%q stands for an event, which has no elements", "$").Hintf(`paths into the event look like "$.data.items[0]"`)
		return
	}
	n.steps = n.steps[1:]
	switch first.Key {
	case "data":
		n.from = fromData
	case "metadata":
		n.from = fromMetadata
		if len(n.steps) > 0 && !n.steps[0].IsIndex && n.steps[0].Key == "timestamp" {
			n.from = fromTimestamp
			n.steps = n.steps[1:]
		}
	case "key":
		n.from = fromKey
	case "type":
		n.from = fromType
	case "state":
		n.from = fromState
	default:
		if slices.Contains(c.visible, "$."+first.Key) {
			n.from = fromSlot
			n.slot = c.slot("$." + first.Key)
			return
		}
		d := c.errorf(at, "an event has no member %s", diag.Quote(first.Key))
		if near := c.l.Nearest(first.Key, c.documentMembers()); near != "" {
			d.Hintf("did you mean %q?", "$."+near)
			return
		}
		d.Hintf(`what the event carries is below "$.data"; the state is "@"`)
	}
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
		return &arrayNode{elems}
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

// pathText compiles the path in a string that stands for a value.
func (c *compiler) pathText(text string, at diag.Pointer, keeps bool) node {
	p, err := jsonpath.Parse(text)
	if err != nil {
		c.syntax(at, err)
		return &literal{}
	}
	return c.path(p, at, keeps)
}

func (c *compiler) objectValue(v value.Value, at diag.Pointer, keeps bool) node {
	members := v.Members()
	for i := range members {
		if strings.HasPrefix(members[i].Key, "$") {
			return c.special(v, at, members[i], keeps)
		}
	}
	n := &objectNode{keys: make([]string, len(members)), values: make([]node, len(members))}
	same := true
	for i, m := range members {
		n.keys[i] = m.Key
		n.values[i] = c.value(m.Value, at.Key(m.Key), keeps)
		same = same && isLiteral(n.values[i])
	}
	if same {
		made := make([]value.Member, len(members))
		for i, key := range n.keys {
			made[i] = value.Member{Key: key, Value: literalOf(n.values[i])}
		}
		return &literal{value.ObjectValue(made...)}
	}
	return n
}

// special compiles an object that has a key starting with "$".
func (c *compiler) special(v value.Value, at diag.Pointer, m value.Member, keeps bool) node {
	known := []string{"$", "$merge", "$literal"}
	if !slices.Contains(known, m.Key) {
		d := c.errorf(at.Key(m.Key), "unknown value form %s", diag.Quote(m.Key)).AtKey()
		if near := c.l.Nearest(m.Key, known[1:]); near != "" {
			d.Hintf("did you mean %q?", near)
		} else {
			d.Hintf(`there are {"$": path}, {"$merge": [...]} and {"$literal": value}; put an object with such a key into {"$literal": ...}`)
		}
		return &literal{}
	}
	if v.Len() > 1 {
		c.errorf(at, "%q must be the only key of its object", m.Key).Hintf(`use {"$merge": [...]} to put several objects together`)
		return &literal{}
	}
	at = at.Key(m.Key)
	switch m.Key {
	case "$literal":
		return &literal{m.Value}
	case "$merge":
		return c.merge(m.Value, at, keeps)
	default:
		if m.Value.Kind() != value.String || !jsonpath.IsPath(m.Value.Str()) {
			c.errorf(at, `"$" takes a path`).Hintf(`write {"$": "$.data.name"}`)
			return &literal{}
		}
		return c.pathText(m.Value.Str(), at, keeps)
	}
}

func (c *compiler) merge(v value.Value, at diag.Pointer, keeps bool) node {
	if v.Kind() != value.Array {
		c.errorf(at, `"$merge" takes an array of objects, not %s`, kindOf(v)).Hintf(`write {"$merge": ["$.data", {"status": "new"}]}`)
		return &literal{}
	}
	n := &mergeNode{items: make([]node, v.Len())}
	for i, elem := range v.Elems() {
		item := c.value(elem, at.Index(i), keeps)
		if lit, ok := item.(*literal); ok && lit.v.Kind() != value.Object && !lit.v.IsMissing() {
			c.errorf(at.Index(i), `"$merge" puts objects together, and this is %s`, kindOf(lit.v)).Hintf("write an object or a path that leads to one")
		}
		n.items[i] = item
	}
	return n
}

// array compiles an operand that has to be an array. A string without a prefix is a state path.
func (c *compiler) array(v value.Value, at diag.Pointer) node {
	switch v.Kind() {
	case value.String:
		p, err := jsonpath.ParseAny(v.Str())
		if err != nil {
			c.syntax(at, err)
			return &literal{}
		}
		return c.path(p, at, false)
	case value.Array, value.Object:
		n := c.value(v, at, false)
		if lit, ok := n.(*literal); !ok || lit.v.Kind() == value.Array || lit.v.IsMissing() {
			return n
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	c.errorf(at, "an array is needed here, not %s", kindOf(v)).Hintf(`write a path like "items", "@.items" or "$.data.items", or an array`)
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
	case *pathNode:
	default:
		c.errorf(at, "%s is a number or a path to one, not %s", what, kindOf(v)).Hintf(`write a number like 1, or a path like "$.data.amount"`)
	}
	return n
}

// key compiles an operand that has to be a member's key.
func (c *compiler) key(v value.Value, at diag.Pointer, what string) node {
	if !c.required(v, at, what, "key") {
		return &literal{}
	}
	at = at.Key("key")
	n := c.value(v, at, false)
	switch n := n.(type) {
	case *literal:
		if n.v.Kind() == value.String || n.v.IsMissing() {
			return n
		}
	case *pathNode:
		return n
	}
	c.errorf(at, "a key is a string or a path to one, not %s", kindOf(v)).Hintf(`write a path like "$.data.user_id"`)
	return n
}

// kept compiles a value that ends up in the state.
func (c *compiler) kept(v value.Value, at diag.Pointer) operand {
	first := len(c.nodes)
	n := c.value(v, at, true)
	deep := false
	for _, p := range c.nodes[first:] {
		deep = deep || p.from == fromCurrent || p.from == fromState || p.from == fromSlot
	}
	out := operand{node: n, deep: deep}
	if lit, ok := n.(*literal); ok {
		out.size = lit.v.Size()
	}
	return out
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
