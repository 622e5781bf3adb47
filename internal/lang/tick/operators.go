package tick

import (
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// language is a part of specs in which values are written. All languages have the same paths, and each has some of the
// operators.
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
	// Numeric: some number.
	Numeric
	// Whole: some integer.
	Whole
	// Scalar: some number or text.
	Scalar
	// Computed: a value of which nothing is known in advance.
	Computed
	// Chosen: the members "then" and "else" of the object, one of which is the value. Without the latter it may be
	// null.
	Chosen
	// Cased: the second of each pair in the member "of" of the object, and its member "else", one of which is the
	// value.
	Cased
	// Texts: some array of texts; where the object has the member "part", one of them or null.
	Texts
)

// operator is a form of object that stands for a computed value: a row of the one table of operators.
type operator struct {
	// name is the key that makes an object this operator.
	name string
	// in has the languages that have the operator.
	in language
	// form is what it stands for.
	form Form
	// alone reports that the object may have no other members.
	alone bool
	// operands are the members that hold values.
	operands []operandForm
	// compile compiles the object v, which stands at the place at.
	compile func(c *compiler, v value.Value, at diag.Pointer, name string, keeps bool) node
}

// everywhere is where ordinary operators may stand.
const everywhere = handlers | conditions | templates | selections

// operatorNames lists the operators by their names.
func operatorNames() []string {
	return []string{
		"$", "$literal", "$merge", "merge", "$coalesce", "coalesce", "$if", "$add", "$subtract", "$multiply", "$divide",
		"$round", "$negate", "$abs",
		"$min", "$max", "$sum", "$count", "$concat", "concat", "$lower", "$upper", "$trim", "$slice", "$now",
		"$add_duration", "$date_trunc", "$split", "$join", "$number", "$case", "$map", "$lookup",
	}
}

// operatorNamed returns the row of an operator in the one table of operators. It reports false for other names. A name
// that begins with "$" and is no operator of a language is an error; every other name is data, except for the three old
// names that templates have, where they are the only key: see form. Only the row that is asked for is built, since most
// values are plain data.
func operatorNamed(name string) (operator, bool) {
	row := func(
		form Form, alone bool, compile func(c *compiler, v value.Value, at diag.Pointer, name string, keeps bool) node,
		operands ...operandForm,
	) (operator, bool) {
		in := everywhere
		if name[0] != '$' {
			in = templates
		}
		return operator{name: name, in: in, form: form, alone: alone, operands: operands, compile: compile}, true
	}
	own := func(as Reading) operandForm { return operandForm{key: name, reading: as} }
	switch name {
	case "$":
		return row(Followed, true, (*compiler).pathForm, own(AsValue))
	case "$literal":
		return row(Literal, true, (*compiler).literalForm)
	case "$merge", "merge":
		return row(Merged, true, (*compiler).mergeForm, own(asObjects))
	case "$coalesce", "coalesce":
		return row(Computed, true, (*compiler).coalesceForm, own(AsValue))
	case "$if":
		return row(
			Chosen, false, (*compiler).choiceForm, own(AsPredicate), operandForm{key: "then"}, operandForm{key: "else"},
		)
	// Numbers.
	case "$add", "$subtract", "$multiply":
		return row(Numeric, false, (*compiler).numbersForm, own(asNumbers))
	case "$divide":
		return row(Numeric, false, (*compiler).quotientForm, own(asNumbers), operandForm{
			key: "scale", reading: AsNumber,
		})
	case "$round":
		return row(Numeric, false, (*compiler).quotientForm, own(AsNumber), operandForm{
			key: "scale", reading: AsNumber,
		})
	case "$negate", "$abs":
		return row(Numeric, false, (*compiler).numbersForm, own(AsNumber))
	case "$min", "$max":
		return row(Scalar, false, (*compiler).numbersForm, own(asValues))
	case "$sum":
		return row(Numeric, false, (*compiler).foldForm, own(AsArray), operandForm{key: "of", reading: AsNumber})
	case "$count":
		return row(Whole, false, (*compiler).foldForm, own(AsArray), operandForm{key: "where", reading: AsPredicate})
	// Texts.
	case "$concat", "concat":
		return row(Text, true, (*compiler).concatForm, own(AsValue))
	case "$lower", "$upper", "$trim":
		return row(Text, false, (*compiler).textForm, own(AsText))
	case "$slice":
		return row(
			Text, false, (*compiler).sliceForm, own(AsText), operandForm{key: "from", reading: AsNumber},
			operandForm{key: "to", reading: AsNumber},
		)
	case "$split":
		return row(
			Texts, false, splitForm, own(AsText), operandForm{key: "by", reading: AsText},
			operandForm{key: "limit", reading: AsNumber}, operandForm{key: "part", reading: AsNumber},
		)
	case "$join":
		return row(Text, false, joinForm, own(asValues), operandForm{key: "by", reading: AsText})
	case "$number":
		return row(Numeric, false, numberForm, own(AsTime))
	// Values for values.
	case "$case":
		return row(
			Cased, false, caseForm, own(AsValue), operandForm{key: "of", reading: asPairs},
			operandForm{key: "else"},
		)
	// Times.
	case "$now":
		return row(Scalar, false, (*compiler).nowForm)
	case "$add_duration":
		return row(
			Scalar, false, (*compiler).durationForm, operandForm{within: name, place: 0, reading: AsTime},
			operandForm{within: name, place: 1, reading: AsText},
		)
	case "$date_trunc":
		return row(Scalar, false, (*compiler).truncateForm, own(AsTime))
	// Arrays, where projections put something together.
	case "$map", "$lookup":
		o := operator{name: name, in: selections, form: Computed, compile: (*compiler).mapForm}
		if name == "$lookup" {
			o.compile = (*compiler).lookupForm
		}
		return o, true
	}
	return operator{}, false
}

// named reports whether a key of an object with so many members can be the name of an operator.
func (l language) named(key string, members int) bool {
	return strings.HasPrefix(key, "$") || l == templates && members == 1
}

// HandlerForm returns what an object stands for in a value of a handler that compiles, and what its operator takes.
// Values other than objects are plain.
func HandlerForm(v value.Value) (Form, value.Value) { return formOf(v, handlers) }

// TemplateForm is HandlerForm for templates of events.
func TemplateForm(v value.Value) (Form, value.Value) { return formOf(v, templates) }

// SelectionForm is HandlerForm for the select of a projection.
func SelectionForm(v value.Value) (Form, value.Value) { return formOf(v, selections) }

func formOf(v value.Value, in language) (Form, value.Value) {
	o, operand, ok := operatorOf(v, in)
	if !ok {
		return Plain, value.Value{}
	}
	return o.form, operand
}

// operatorOf returns the operator that an object is, and its operands.
func operatorOf(v value.Value, in language) (operator, value.Value, bool) {
	if v.Kind() != value.Object {
		return operator{}, value.Value{}, false
	}
	for _, m := range v.Members() {
		if !in.named(m.Key, v.Len()) {
			continue
		}
		if o, ok := operatorNamed(m.Key); ok && o.in&in != 0 {
			return o, m.Value, true
		}
	}
	return operator{}, value.Value{}, false
}

// OperatorParts returns the parts of an operator in a value that compiles. It reports false where v is no operator: its
// members, if it has any, are then values themselves.
func OperatorParts(v value.Value, at diag.Pointer) ([]Part, bool) {
	o, _, ok := operatorOf(v, everywhere&^selections)
	if !ok {
		o, _, ok = operatorOf(v, templates)
	}
	var out []Part
	for _, operand := range o.operands {
		out = operand.parts(v, at, out)
	}
	return out, ok
}

// objectValue compiles an object: an operator, or one whose members are values themselves.
func (c *compiler) objectValue(v value.Value, at diag.Pointer, keeps bool) node {
	members := v.Members()
	for i := range members {
		if n, ok := c.form(v, at, members[i].Key, keeps); ok {
			return n
		}
	}
	n := &objectNode{
		keys: make([]string, len(members)), values: make([]node, len(members)), lenient: c.language == selections,
	}
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

// form compiles the object v if its member called key makes it an operator, or faulty.
func (c *compiler) form(v value.Value, at diag.Pointer, key string, keeps bool) (node, bool) {
	if !c.language.named(key, v.Len()) {
		return nil, false
	}
	o, ok := operatorNamed(key)
	switch ok = ok && o.in&c.language != 0; {
	case !ok && !strings.HasPrefix(key, "$"):
		return nil, false
	case (!ok || v.Len() > 1 && o.alone) && c.language == templates && c.l.Stored:
		c.l.Warnf(at.Key(key), "%s is data here, as long as this spec is not deployed again: keys with \"$\" name operators", diag.Quote(key)).AtKey().
			Hintf(`put it into {"$literal": ...}`)
		return nil, false
	case !ok:
		c.unknownForm(at, key)
		return &literal{}, true
	case v.Len() > 1 && o.alone:
		d := c.errorf(at, "%q must be the only key of its object", key)
		if o.form == Text || o.form == Computed {
			d.Hintf(`remove the other members; where an object is meant, the value needs a name, as in {"name": {%q: [...]}}`, key)
		} else {
			d.Hintf(`use {"$merge": [...]} to put several objects together`)
		}
		return &literal{}, true
	}
	return c.computed(&o, v, at, keeps), true
}

// Limits of an expression: all that a predicate, a template or the values of an operation are made of.
const (
	// MaxOperators is how many operators an expression may have.
	MaxOperators = 200
	// MaxOperatorDepth is how many of them may stand inside of each other.
	MaxOperatorDepth = 16
)

// computed compiles an operator. One whose operands are all known is computed at once.
func (c *compiler) computed(o *operator, v value.Value, at diag.Pointer, keeps bool) node {
	// Paths and literals compute nothing; operators under old names and those with a limit of their own are not
	// counted.
	counted := o.in == everywhere && o.name != "$" && o.name != "$literal"
	if !counted {
		return o.compile(c, v, at, o.name, keeps)
	}
	place := at.Key(o.name)
	c.operators++
	c.within++
	defer func() { c.within-- }()
	switch {
	case c.operators == MaxOperators+1:
		c.errorf(place, "more than %d operators are in one expression", MaxOperators).AtKey().
			Hintf("go over arrays with $sum and $count, or keep what is computed in the state")
	case c.within == MaxOperatorDepth+1:
		c.errorf(place, "more than %d operators stand inside of each other here", MaxOperatorDepth).AtKey().
			Hintf("an operator takes up to %d operands: write what is needed flatter, or keep a part of it in the state", MaxOperands)
	}
	if c.operators > MaxOperators || c.within > MaxOperatorDepth {
		return &literal{}
	}

	paths, errors := len(c.nodes), c.l.Errors()
	n := o.compile(c, v, at, o.name, keeps)
	switch {
	case c.l.Errors() > errors:
		return n
	case len(c.nodes) > paths:
		c.computes++
		return n
	default:
		return c.fold(n, place)
	}
}

// fold computes an operator that reads nothing. What has no value is an error.
func (c *compiler) fold(n node, at diag.Pointer) node {
	e := NewEnv(work.Counted(maxFold))
	e.begin(len(c.slots))
	e.left = MaxState
	v, ok := n.eval(e)
	switch {
	case ok:
		return &literal{v}
	case e.misfit == nil:
		c.errorf(at, "it takes too much to compute this").AtKey().Hintf("write the value itself")
	default:
		d := c.errorf(at, "%s", e.misfit.Message).AtKey()
		if q, ok := n.(*quotientNode); ok && q.scale == nil && literalOf(q.by).Sign() != 0 {
			d.Hintf(`add "scale", the number of digits after the point, as in {"$divide": [1, 3], "scale": 2}`)
		} else {
			d.Hintf("all of its operands stand here, so that it never has a value")
		}
	}
	return &literal{}
}

// maxFold is what it may take to compute an operator whose operands are all known, in units of work.
const maxFold = 1 << 17

// operatorsHere lists the operators of the language, without the plain "$" and the old names.
func (c *compiler) operatorsHere() []string {
	var names []string
	for _, name := range operatorNames() {
		if o, _ := operatorNamed(name); o.in&c.language != 0 && len(name) > 1 && name[0] == '$' {
			names = append(names, name)
		}
	}
	return names
}

// operatorMeant returns the operator that an unknown name stands for.
func operatorMeant(l *diag.List, name string, known []string) string {
	switch strings.ToLower(strings.ReplaceAll(name[1:], "_", "")) {
	case "plus", "addition":
		return "$add"
	case "minus", "sub":
		return "$subtract"
	case "times", "mul", "product":
		return "$multiply"
	case "div", "quotient":
		return "$divide"
	case "ceil", "ceiling", "floor", "truncate":
		return "$round"
	case "neg":
		return "$negate"
	case "length", "size", "len":
		return "$count"
	case "total", "reduce":
		return "$sum"
	case "substring", "substr":
		return "$slice"
	case "explode", "tokens":
		return "$split"
	case "implode":
		return "$join"
	case "tonumber", "parsenumber", "parse", "float", "int", "integer":
		return "$number"
	case "tolower", "lowercase":
		return "$lower"
	case "toupper", "uppercase":
		return "$upper"
	case "ifnull", "default":
		return "$coalesce"
	case "cond", "condition", "when", "choose", "ternary", "iif", "then":
		return "$if"
	case "switch", "translate", "mapping", "lookuptable":
		return "$case"
	case "dateadd", "addtime":
		return "$add_duration"
	case "datetrunc", "startof":
		return "$date_trunc"
	default:
		return l.Nearest(name, known)
	}
}

// unknownForm reports a key that starts with "$" and is no operator.
func (c *compiler) unknownForm(at diag.Pointer, key string) {
	known := c.operatorsHere()
	_, exists := operatorNamed(key)
	d := c.errorf(at.Key(key), "unknown operator %s", diag.Quote(key)).AtKey()
	near := operatorMeant(c.l, key, known)
	switch {
	case exists:
		d.Hintf("%s is for the select of projections", key)
	case near != "":
		d.Hintf("did you mean %q?", near)
	default:
		d.Hintf(`the operators are %s; put an object with such a key into {"$literal": ...}`, wordList(known))
	}
}

func (c *compiler) pathForm(v value.Value, at diag.Pointer, name string, keeps bool) node {
	path, at := v.Get(name), at.Key(name)
	if path.Kind() != value.String || !jsonpath.IsPath(path.Str()) {
		c.errorf(at, `"$" takes a path`).Hintf(`write {"$": "$.data.name"}`)
		return &literal{}
	}
	return c.pathText(path.Str(), at, keeps)
}

func (c *compiler) literalForm(v value.Value, _ diag.Pointer, name string, _ bool) node {
	return &literal{v.Get(name)}
}

// mergeForm compiles "$merge" and "merge". An operand that cannot be an object is an error only under the name with
// "$".
func (c *compiler) mergeForm(v value.Value, at diag.Pointer, name string, keeps bool) node {
	v, at = v.Get(name), at.Key(name)
	if name != "$merge" {
		return &mergeNode{items: c.arguments(v, at, name, keeps)}
	}
	if v.Kind() != value.Array {
		c.errorf(at, `"$merge" takes an array of objects, not %s`, kindOf(v)).Hintf(`write {"$merge": ["$.data", {"status": "new"}]}`)
		return &literal{}
	}
	n := &mergeNode{items: make([]node, v.Len())}
	for i, elem := range v.Elems() {
		item := c.value(elem, at.Index(i), keeps)
		if !can(item, value.Object) {
			c.errorf(at.Index(i), `"$merge" puts objects together, and this is %s`, c.yielded(elem, item)).Hintf("write an object or a path that leads to one")
		}
		n.items[i] = item
	}
	return n
}

// can reports whether a node may have a value of a kind. A faulty literal may be anything.
func can(n node, k value.Kind) bool {
	switch n := n.(type) {
	case *literal:
		return n.v.Kind() == k || n.v.IsMissing()
	case *objectNode, *mergeNode:
		return k == value.Object
	case *arrayNode:
		return k == value.Array
	case *numbersNode:
		return k == value.Number || k == value.String && n.orders()
	case *numberNode:
		return k == value.Number
	case *joinNode:
		return k == value.String
	case *splitNode:
		return k == value.Array && n.part == nil || k == value.String && n.part != nil
	case *caseNode:
		return n.can(k)
	case *quotientNode, *foldNode:
		return k == value.Number
	case *concatNode, *textNode, *sliceNode:
		return k == value.String
	case *choiceNode:
		return can(n.then, k) || can(n.other, k)
	case *nowNode, *durationNode, *truncateNode:
		return k == value.Number || k == value.String
	default:
		return true
	}
}

func (c *compiler) coalesceForm(v value.Value, at diag.Pointer, name string, keeps bool) node {
	return &coalesceNode{c.arguments(v.Get(name), at.Key(name), name, keeps)}
}

// arguments compiles the operands of an operator that takes any number of them.
func (c *compiler) arguments(v value.Value, at diag.Pointer, name string, keeps bool) []node {
	if v.Kind() != value.Array {
		d := c.errorf(at, "%s takes an array", name)
		if strings.HasPrefix(name, "$") {
			d.Hintf(`write {"%s": ["$.data.a", "$.data.b"]}`, name)
		} else {
			d.Hintf(`an object whose only key is concat, coalesce or merge is an operator; write {"$literal": ...} for data that looks like one`)
		}
		return nil
	}
	nodes := make([]node, v.Len())
	for i, elem := range v.Elems() {
		nodes[i] = c.value(elem, at.Index(i), keeps)
	}
	return nodes
}

// coalesceNode is the first of its arguments that is not null. An argument with an optional path that leads nowhere is
// skipped, one with operands that do not fit is not.
type coalesceNode struct{ items []node }

func (n *coalesceNode) eval(e *Env) (value.Value, bool) {
	for _, item := range n.items {
		v, ok := item.eval(e)
		switch {
		case ok && v.Kind() != value.Null:
			return v, true
		case !ok && e.misfit != nil:
			return v, false
		}
	}
	return value.NullValue(), e.work.Err() == nil
}

// MaxForms is how many $map and $lookup may be nested. Each multiplies the work of those inside; no use of more than
// five is known.
const MaxForms = 8

// tooDeep counts a $map or a $lookup until leave is called. It reports one that is nested in too many others.
func (c *compiler) tooDeep(at diag.Pointer) (leave func(), deep bool) {
	c.forms++
	if c.forms == MaxForms+1 {
		c.errorf(at, "more than %d $map and $lookup stand inside of each other here", MaxForms).
			Hintf("each of them multiplies the work of those inside of it; write what is needed flatter, or as several projections")
	}
	return func() { c.forms-- }, c.forms > MaxForms
}

// mapForm compiles {"$map": path, "as": "$item", "to": value}.
func (c *compiler) mapForm(v value.Value, at diag.Pointer, _ string, _ bool) node {
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
func (c *compiler) lookupForm(v value.Value, at diag.Pointer, _ string, _ bool) node {
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
		// A misspelt key is not reported as missing too.
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
		switch {
		case ok:
			elems = append(elems, v)
		case e.forgiven():
			elems = append(elems, value.NullValue())
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
	// An array that is searched for every element of another one gets an index after a while. The name of its field is
	// one that no path can have.
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

// fits reports whether an element that has the first field has all others. It also reports true when the budget has
// ended, to stop the search.
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
