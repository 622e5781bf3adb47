package tick

import (
	"slices"
	"strings"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/value"
)

// language is a part of specs in which values are written. All have the same paths, and each some of the operators.
type language uint8

const (
	handlers language = 1 << iota
	conditions
	templates
	selections
)

// Form says what an object stands for in a value.
type Form uint8

// The forms. What the operator takes goes with them.
const (
	// Plain: the members are values themselves.
	Plain Form = iota
	// Literal: the operand as it is, in which nothing is a path.
	Literal
	// Followed: what the operand, which is a path, leads to.
	Followed
	// Merged: one object of the members of those in the operand, an array.
	Merged
	// Text: some text.
	Text
	// Computed: a value of which nothing is known before.
	Computed
)

// operator is a form of objects that stand for a value which has to be computed.
type operator struct {
	// name is the key that an object is known by.
	name string
	// in has the languages that have the operator.
	in language
	// form is what it stands for.
	form Form
	// compile compiles the object v, which stands at the place at.
	compile func(c *compiler, v value.Value, at diag.Pointer, keeps bool) node
}

// operators is the one table of them. What is no operator of a language is data there, or an error where its name begins with
// "$": see objectValue.
func operators() []operator {
	return []operator{
		{"$", handlers | conditions, Followed, (*compiler).pathForm},
		{"$merge", handlers | conditions, Merged, (*compiler).mergeForm},
		{"$literal", handlers | conditions | templates, Literal, (*compiler).literalForm},
		{"concat", templates, Text, (*compiler).concatForm},
		{"coalesce", templates, Computed, (*compiler).coalesceForm},
		{"merge", templates, Merged, (*compiler).mergeForm},
		{"$map", selections, Computed, (*compiler).mapForm},
		{"$lookup", selections, Computed, (*compiler).lookupForm},
	}
}

// operatorNamed returns the operator of a name.
func operatorNamed(name string) (operator, bool) {
	for _, o := range operators() {
		if o.name == name {
			return o, true
		}
	}
	return operator{}, false
}

// HandlerForm says what an object stands for in a value of a handler that compiles, and returns what its operator takes. What is
// no object is plain.
func HandlerForm(v value.Value) (Form, value.Value) { return formOf(v, handlers) }

// TemplateForm is HandlerForm for templates of events.
func TemplateForm(v value.Value) (Form, value.Value) { return formOf(v, templates) }

func formOf(v value.Value, in language) (Form, value.Value) {
	if v.Kind() != value.Object || v.Len() != 1 {
		return Plain, value.Value{}
	}
	m := v.Members()[0]
	if o, ok := operatorNamed(m.Key); ok && o.in&in != 0 {
		return o.form, m.Value
	}
	return Plain, value.Value{}
}

// objectValue compiles an object: an operator, or one whose members are values themselves.
func (c *compiler) objectValue(v value.Value, at diag.Pointer, keeps bool) node {
	members := v.Members()
	for i := range members {
		if n, ok := c.form(v, at, members[i].Key, keeps); ok {
			return n
		}
	}
	n := &objectNode{keys: make([]string, len(members)), values: make([]node, len(members)), lenient: c.language == selections}
	same := true
	for i, m := range members {
		n.keys[i] = m.Key
		n.values[i] = &literal{}
		if !c.misplaced(at, m.Key) {
			n.values[i] = c.value(m.Value, at.Key(m.Key), keeps)
		}
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

// form compiles the object v if its member called key makes it an operator, or faulty.
func (c *compiler) form(v value.Value, at diag.Pointer, key string, keeps bool) (node, bool) {
	dollar := strings.HasPrefix(key, "$")
	switch {
	case c.language == templates && v.Len() > 1:
		return nil, false // data, whatever its keys are
	case c.language != templates && !dollar:
		return nil, false
	}
	o, ok := operatorNamed(key)
	ok = ok && o.in&c.language != 0
	switch {
	case !ok && c.language&(handlers|conditions) != 0:
		c.unknownForm(at, key)
		return &literal{}, true
	case !ok:
		return nil, false
	case v.Len() > 1 && c.language != selections:
		c.errorf(at, "%q must be the only key of its object", key).Hintf(`use {"$merge": [...]} to put several objects together`)
		return &literal{}, true
	}
	return o.compile(c, v, at, keeps), true
}

// misplaced reports a key that is an operator's in other languages than this one, or that none has.
func (c *compiler) misplaced(at diag.Pointer, key string) bool {
	switch {
	case c.language == templates && (key == "$" || key == "$merge"):
		c.handlerForm(at.Key(key), key)
	case c.language == selections && strings.HasPrefix(key, "$"):
		c.l.UnknownKey(at, key, []string{"$map", "$lookup"})
	default:
		return false
	}
	return true
}

// unknownForm reports a key that starts with "$" and is no operator.
func (c *compiler) unknownForm(at diag.Pointer, key string) {
	d := c.errorf(at.Key(key), "unknown value form %s", diag.Quote(key)).AtKey()
	if near := c.l.Nearest(key, []string{"$merge", "$literal"}); near != "" {
		d.Hintf("did you mean %q?", near)
		return
	}
	d.Hintf(`there are {"$": path}, {"$merge": [...]} and {"$literal": value}; put an object with such a key into {"$literal": ...}`)
}

// handlerForm reports an object of the values of handlers in a template.
func (c *compiler) handlerForm(at diag.Pointer, key string) {
	d := c.errorf(at, "%s is for the values of handlers, not for the data of an emit", diag.Quote(key)).AtKey()
	if key == "$" {
		d.Hintf(`write the path alone, as in "$.data.name", or {"$literal": ...} for data with such a key`)
		return
	}
	d.Hintf(`write {"merge": [...]}, or {"$literal": ...} for data with such a key`)
}

func (c *compiler) pathForm(v value.Value, at diag.Pointer, keeps bool) node {
	path, at := v.Get("$"), at.Key("$")
	if path.Kind() != value.String || !jsonpath.IsPath(path.Str()) {
		c.errorf(at, `"$" takes a path`).Hintf(`write {"$": "$.data.name"}`)
		return &literal{}
	}
	return c.pathText(path.Str(), at, keeps)
}

func (c *compiler) literalForm(v value.Value, _ diag.Pointer, _ bool) node {
	return &literal{v.Members()[0].Value}
}

// mergeForm compiles "$merge" and "merge". What can be no object is an error in handlers only.
func (c *compiler) mergeForm(v value.Value, at diag.Pointer, keeps bool) node {
	m := v.Members()[0]
	at = at.Key(m.Key)
	if c.language == templates {
		return &mergeNode{items: c.arguments(m.Value, at, m.Key)}
	}
	if m.Value.Kind() != value.Array {
		c.errorf(at, `"$merge" takes an array of objects, not %s`, kindOf(m.Value)).Hintf(`write {"$merge": ["$.data", {"status": "new"}]}`)
		return &literal{}
	}
	n := &mergeNode{items: make([]node, m.Value.Len())}
	for i, elem := range m.Value.Elems() {
		item := c.value(elem, at.Index(i), keeps)
		if lit, ok := item.(*literal); ok && lit.v.Kind() != value.Object && !lit.v.IsMissing() {
			c.errorf(at.Index(i), `"$merge" puts objects together, and this is %s`, kindOf(lit.v)).Hintf("write an object or a path that leads to one")
		}
		n.items[i] = item
	}
	return n
}

func (c *compiler) concatForm(v value.Value, at diag.Pointer, _ bool) node {
	return &concatNode{c.arguments(v.Get("concat"), at.Key("concat"), "concat")}
}

func (c *compiler) coalesceForm(v value.Value, at diag.Pointer, _ bool) node {
	return &coalesceNode{c.arguments(v.Get("coalesce"), at.Key("coalesce"), "coalesce")}
}

// arguments compiles what an operator of templates takes.
func (c *compiler) arguments(v value.Value, at diag.Pointer, operator string) []node {
	if v.Kind() != value.Array {
		c.errorf(at, "%s takes an array", operator).
			Hintf(`an object whose only key is concat, coalesce or merge is an operator; write {"$literal": ...} for data that looks like one`)
		return nil
	}
	nodes := make([]node, v.Len())
	for i, elem := range v.Elems() {
		nodes[i] = c.value(elem, at.Index(i), false)
	}
	return nodes
}

// concatNode joins its arguments to one string. Numbers, booleans and containers stand for their JSON, null for nothing.
type concatNode struct{ items []node }

func (n *concatNode) eval(e *Env) (value.Value, bool) {
	var b strings.Builder
	for _, item := range n.items {
		v, ok := item.eval(e)
		if !ok {
			return value.Value{}, false
		}
		w, visited := v.Weigh()
		if e.left -= w.Bytes; e.left < 0 || !e.spend(1+visited) || !e.work.SpendBytes(w.Bytes) {
			return value.NullValue(), e.work.Err() == nil
		}
		switch v.Kind() {
		case value.String:
			b.WriteString(v.Str())
		case value.Bool, value.Number, value.Array, value.Object:
			b.WriteString(v.String())
		case value.Missing, value.Null:
		}
	}
	return value.StringValue(b.String()), true
}

// coalesceNode is the first of its arguments that is not null. One with an optional path that leads nowhere is passed over.
type coalesceNode struct{ items []node }

func (n *coalesceNode) eval(e *Env) (value.Value, bool) {
	for _, item := range n.items {
		if v, ok := item.eval(e); ok && v.Kind() != value.Null {
			return v, true
		}
	}
	return value.NullValue(), e.work.Err() == nil
}

// MaxForms is how many $map and $lookup may stand inside of each other.
const MaxForms = 8

// tooDeep counts a $map or a $lookup until leave is called. It reports the one that stands inside of too many others.
func (c *compiler) tooDeep(at diag.Pointer) (leave func(), deep bool) {
	c.forms++
	if c.forms == MaxForms+1 {
		c.errorf(at, "more than %d $map and $lookup stand inside of each other here", MaxForms).
			Hintf("each of them multiplies the work of those inside of it; write what is needed flatter, or as several projections")
	}
	return func() { c.forms-- }, c.forms > MaxForms
}

// mapForm compiles {"$map": path, "as": "$item", "to": value}.
func (c *compiler) mapForm(v value.Value, at diag.Pointer, _ bool) node {
	leave, deep := c.tooDeep(at)
	defer leave()
	if deep {
		return &literal{}
	}
	c.shape(v, at, "a $map", []string{"$map", "as", "to"}, nil)
	n := &mapNode{in: c.outerPath(v.Get("$map"), at.Key("$map"), "$map")}
	outer := c.scope
	name := NewBinding(v.Get("as"), at.Key("as"), c.scope, c.l)
	if name != "" {
		c.scope = c.scope.With(name[1:])
	}
	n.slot, _ = c.bound(name, func() { n.to = c.value(v.Get("to"), at.Key("to"), false) })
	c.scope = outer
	return n
}

// maxWanted is how many fields of an element $lookup may ask for.
const maxWanted = 10

// lookupForm compiles {"$lookup": path, "where": {field: value}, "select": value}.
func (c *compiler) lookupForm(v value.Value, at diag.Pointer, _ bool) node {
	leave, deep := c.tooDeep(at)
	defer leave()
	if deep {
		return &literal{}
	}
	c.shape(v, at, "a $lookup", []string{"$lookup", "where"}, []string{"select"})
	n := &lookupNode{in: c.outerPath(v.Get("$lookup"), at.Key("$lookup"), "$lookup")}
	where, within := v.Get("where"), at.Key("where")
	switch {
	case where.IsMissing():
	case where.Kind() != value.Object:
		d := c.errorf(within, "where must be an object, not %s", kindOf(where))
		if where.Kind() == value.Array {
			d.Hintf(`write one member for each field, as in {"id": "$item.id"}`)
		}
	case where.Len() == 0:
		c.errorf(within, "where must not be empty")
	case where.Len() > maxWanted:
		c.errorf(within, "where may have at most %d entries and has %d", maxWanted, where.Len())
	default:
		for _, m := range where.Members() {
			n.keys = append(n.keys, m.Key)
			n.wants = append(n.wants, c.value(m.Value, within.Key(m.Key), false))
		}
		n.first = []value.Step{{Key: n.keys[0]}}
	}
	if of := v.Get("select"); !of.IsMissing() {
		// Here "$" is the element that was found.
		outer := c.scope
		c.scope.Members, c.scope.Plain = nil, true
		n.of = c.value(of, at.Key("select"), false)
		c.scope = outer
	}
	return n
}

// shape reports keys of a form that are missing or mean nothing.
func (c *compiler) shape(v value.Value, at diag.Pointer, what string, required, optional []string) {
	known := slices.Concat(required, optional)
	var misspelt []string
	for _, m := range v.Members() {
		if !slices.Contains(known, m.Key) {
			misspelt = append(misspelt, c.l.Nearest(m.Key, known))
			c.l.UnknownKey(at, m.Key, known)
		}
	}
	for _, key := range required {
		// Who misspells a key does not need to hear that it is missing.
		if !v.Get(key).IsMissing() || slices.Contains(misspelt, key) {
			continue
		}
		d := c.errorf(at, "%s needs the key %q", what, key).AtKey()
		if key == "as" {
			d.Hintf(`name each element, as in "as": "$item"`)
		}
	}
}

// mapNode makes an array of what "to" yields for each element of another one.
type mapNode struct {
	in   node
	slot int
	to   node
}

func (n *mapNode) eval(e *Env) (value.Value, bool) {
	array, ok := n.in.eval(e)
	if !ok {
		return value.Value{}, false
	}
	outer := e.slots[n.slot]
	defer func() { e.slots[n.slot] = outer }()
	elems := make([]value.Value, 0, array.Len())
	for _, elem := range array.Elems() {
		e.slots[n.slot] = elem
		v, ok := n.to.eval(e)
		if !e.spend(1) {
			return value.Value{}, false
		}
		if ok {
			elems = append(elems, v)
		}
	}
	return value.ArrayValue(elems...), true
}

// lookupNode finds the first element of an array that has all fields, and yields it or what "select" makes of it.
type lookupNode struct {
	in    node
	keys  []string
	wants []node
	// first leads to the first of the fields, by which elements are looked up.
	first []value.Step
	of    node
}

func (n *lookupNode) eval(e *Env) (value.Value, bool) {
	array, ok := n.in.eval(e)
	if !ok {
		return value.Value{}, false
	}
	wants := make([]value.Value, len(n.wants))
	for i, want := range n.wants {
		if wants[i], ok = want.eval(e); !ok {
			return value.Value{}, false
		}
	}
	// An array that is searched for every element of another one is known after a while. No path is called like the field here.
	var buf [8]int
	hits, looked := e.lookups().Find(array, "\x00"+n.keys[0], n.first, wants[0], len(n.keys) == 1, buf[:0])
	if !e.spend(1 + looked) {
		return value.Value{}, false
	}
	at := slices.IndexFunc(hits, func(i int) bool { return n.fits(e, array.Index(i), wants) })
	switch {
	case e.work.Err() != nil:
		return value.Value{}, false
	case at < 0:
		return value.NullValue(), true
	}
	i := hits[at]
	if n.of == nil {
		return array.Index(i), true
	}
	outer := e.members
	defer func() { e.members = outer }()
	e.members = array.Index(i)
	return n.of.eval(e)
}

// fits reports whether an element that has the first field has all others. When the budget has ended it reports true, so that nobody looks further.
func (n *lookupNode) fits(e *Env, elem value.Value, wants []value.Value) bool {
	for i := 1; i < len(n.keys); i++ {
		var compared int
		equal := value.EqualCounted(elem.Get(n.keys[i]), wants[i], &compared)
		if !e.spend(1 + compared) {
			return true
		}
		if !equal {
			return false
		}
	}
	return true
}
