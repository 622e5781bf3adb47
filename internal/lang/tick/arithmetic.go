package tick

import (
	"errors"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// MaxOperands is how many operands an operator may have.
const MaxOperands = 100

// numbersNode is an operator on a list of operands: $add, $multiply, $min, $max, $subtract, $negate and $abs. $min and
// $max take texts as well.
type numbersNode struct {
	at    diag.Pointer
	name  string
	items []node
	// in leads to an array of the operands where they are not listed one by one.
	in node
}

func (n *numbersNode) eval(e *Env) (value.Value, bool) {
	if n.in != nil {
		return n.over(e)
	}
	out, ok := n.items[0].eval(e)
	if !ok || !n.takes(e, out, 0) {
		return value.Value{}, false
	}
	for i, item := range n.items[1:] {
		next, ok := item.eval(e)
		if !ok {
			return value.Value{}, false
		}
		if out, ok = n.combine(e, out, next, i+1); !ok {
			return value.Value{}, false
		}
	}
	return n.result(e, out)
}

// over goes through the elements of an array. An empty array has a sum and a product, but no smallest element.
func (n *numbersNode) over(e *Env) (value.Value, bool) {
	array, ok := n.in.eval(e)
	switch {
	case !ok:
		return value.Value{}, false
	case array.Kind() != value.Array:
		return e.misfits(n.at, "%s takes an array of operands, and this is %s", n.name, kindOf(array))
	case array.Len() == 0 && n.name == "$add":
		return value.Int(0), true
	case array.Len() == 0 && n.name == "$multiply":
		return value.Int(1), true
	case array.Len() == 0:
		return e.misfits(n.at, "%s has no operands, since the array is empty", n.name)
	}
	out := array.Index(0)
	if !n.takes(e, out, 0) {
		return value.Value{}, false
	}
	for i, next := range array.Elems()[1:] {
		if out, ok = n.combine(e, out, next, i+1); !ok {
			return value.Value{}, false
		}
	}
	return n.result(e, out)
}

// takes reports whether v can be an operand.
func (n *numbersNode) takes(e *Env, v value.Value, i int) bool {
	switch {
	case v.Kind() == value.Number:
		return true
	case n.orders():
		if v.Kind() != value.String {
			e.misfits(n.at, "operand %d of %s is %s, neither a number nor a text", i+1, n.name, kindOf(v))
		}
		return v.Kind() == value.String
	case len(n.items) == 1:
		e.misfits(n.at, "the operand of %s is %s, not a number", n.name, kindOf(v))
	default:
		e.misfits(n.at, "operand %d of %s is %s, not a number", i+1, n.name, kindOf(v))
	}
	return false
}

// orders reports whether the operator chooses one of its operands.
func (n *numbersNode) orders() bool { return n.name == "$min" || n.name == "$max" }

// combine makes one of two operands, the second of which is number i.
func (n *numbersNode) combine(e *Env, a, b value.Value, i int) (value.Value, bool) {
	if !n.takes(e, b, i) {
		return value.Value{}, false
	}
	var v value.Value
	var err error
	switch n.name {
	case "$multiply":
		if !e.spend(1 + value.ProductWork(a, b)) {
			return value.Value{}, false
		}
		v, err = value.Product(a, b)
	case "$min", "$max":
		return n.choose(e, a, b, i)
	default:
		if !e.spend(1 + sumWork(a, b)) {
			return value.Value{}, false
		}
		if n.name == "$subtract" {
			v, err = value.Difference(a, b)
		} else {
			v, err = value.Sum(a, b)
		}
	}
	if err != nil {
		return e.misfits(n.at, "%s cannot be computed: %v", n.name, err)
	}
	return v, true
}

func (n *numbersNode) choose(e *Env, a, b value.Value, i int) (value.Value, bool) {
	if a.Kind() != b.Kind() {
		return e.misfits(n.at, "operand %d of %s is %s, and those before it are not: it takes numbers or texts", i+1, n.name, kindOf(b))
	}
	if !e.spend(1 + value.CompareWork(a, b)) {
		return value.Value{}, false
	}
	if order, _ := value.Compare(a, b); order != 0 && order < 0 == (n.name == "$max") {
		return b, true
	}
	return a, true
}

// result makes what the operator yields of what its operands have been combined to.
func (n *numbersNode) result(e *Env, v value.Value) (value.Value, bool) {
	var err error
	switch {
	case v.Kind() != value.Number:
		return v, true
	case !e.spend(1 + sumWork(v, v)):
		return value.Value{}, false
	case n.name == "$negate":
		v, err = value.Negative(v)
	case n.name == "$abs":
		v, err = value.Absolute(v)
	case v.Sign() == 0, !n.orders():
		// Adding to 0 writes it as results are written, even where there was one operand, and never as minus zero.
		v, err = value.Sum(value.Int(0), v)
	}
	if err != nil {
		return e.misfits(n.at, "%s cannot be computed: %v", n.name, err)
	}
	return e.number(n.at, n.name, v)
}

// number returns the result of an operator if it is within the bounds of arithmetic.
func (e *Env) number(at diag.Pointer, name string, v value.Value) (value.Value, bool) {
	if err := value.Bounded(v); err != nil {
		return e.misfits(at, "%s cannot be computed: %v", name, err)
	}
	return v, true
}

// quotientNode is $divide, or $round, which has no divisor.
type quotientNode struct {
	at   diag.Pointer
	name string
	of   node
	// by is the divisor, nil for $round; scale is the number of digits after the point, nil where it is not given.
	by, scale node
	rounding  value.Rounding
}

func (n *quotientNode) eval(e *Env) (value.Value, bool) {
	// What is divided, and by what.
	a, ok := n.of.eval(e)
	if !ok {
		return a, false
	}
	b := value.Int(1)
	if n.by != nil {
		if b, ok = n.by.eval(e); !ok {
			return b, false
		}
	}
	switch {
	case a.Kind() != value.Number && n.by == nil:
		return e.misfits(n.at, "the operand of %s is %s, not a number", n.name, kindOf(a))
	case a.Kind() != value.Number:
		return e.misfits(n.at, "the dividend of %s is %s, not a number", n.name, kindOf(a))
	case b.Kind() != value.Number:
		return e.misfits(n.at, "the divisor of %s is %s, not a number", n.name, kindOf(b))
	case b.Sign() == 0:
		return e.misfits(n.at, "the divisor of %s is zero", n.name)
	}

	// As many digits as it needs, or as it is to have.
	if n.scale == nil {
		if !e.spend(2 + value.QuotientWork(a, b)) {
			return a, false
		}
		v, err := value.Quotient(a, b)
		if err != nil {
			return e.misfits(n.at, "%s cannot be computed: %v", n.name, err)
		}
		return e.number(n.at, n.name, v)
	}
	scale, ok := n.scale.eval(e)
	if !ok {
		return scale, false
	}
	digits, ok := scaleOf(scale)
	if !ok {
		return e.misfits(n.at, "the scale of %s is %s; it is a whole number from 0 to %d", n.name, otherNumber(scale), value.MaxScale)
	}
	if !e.spend(2 + digits/4 + value.QuotientWork(a, b)) {
		return a, false
	}
	v, err := value.QuotientTo(a, b, digits, n.rounding)
	if err != nil {
		return e.misfits(n.at, "%s cannot be computed: %v", n.name, err)
	}
	return e.number(n.at, n.name, v)
}

// scaleOf returns a number of digits after the point.
func scaleOf(v value.Value) (int, bool) {
	n, ok := v.Int64()
	return int(n), ok && n >= 0 && n <= value.MaxScale
}

// otherNumber names a value by its kind, where a number of another sort was needed.
func otherNumber(v value.Value) string {
	if v.Kind() == value.Number {
		return "another number"
	}
	return kindOf(v)
}

// shown is a value of a spec in a message: a number as it is, any other by its kind.
func shown(v value.Value) string {
	if text := v.Num(); text != "" && len(text) <= 40 {
		return text
	}
	return kindOf(v)
}

// foldNode is $sum and $count, which go through the elements of an array.
type foldNode struct {
	at   diag.Pointer
	name string
	in   node
	slot int
	// of is what is added for an element, nil for the element itself.
	of node
	// where says which elements are counted, nil for all.
	where predicate
}

func (n *foldNode) eval(e *Env) (value.Value, bool) {
	array, ok := n.in.eval(e)
	switch {
	case !ok:
		return array, false
	case array.Kind() != value.Array:
		return e.misfits(n.at, "%s goes through %s, not an array", n.name, kindOf(array))
	case n.name == "$count" && n.where == nil:
		return value.Int(int64(array.Len())), true
	case n.name == "$sum" && n.of == nil:
		return n.sum(e, array.Elems())
	}
	outer := e.slots[n.slot]
	defer func() { e.slots[n.slot] = outer }()
	if n.name == "$count" {
		return n.count(e, array.Elems())
	}
	return n.sum(e, array.Elems())
}

func (n *foldNode) count(e *Env, elems []value.Value) (value.Value, bool) {
	count := int64(0)
	for _, elem := range elems {
		if !e.spend(1) {
			return value.Value{}, false
		}
		e.slots[n.slot] = elem
		switch n.where.test(e) {
		case yes:
			count++
		case skip:
			return value.Value{}, false
		case no:
		}
	}
	return value.Int(count), true
}

func (n *foldNode) sum(e *Env, elems []value.Value) (value.Value, bool) {
	total := value.Int(0)
	for i, elem := range elems {
		if n.of != nil {
			e.slots[n.slot] = elem
			var ok bool
			if elem, ok = n.of.eval(e); !ok {
				return value.Value{}, false
			}
		}
		if !e.spend(1 + sumWork(total, elem)) {
			return value.Value{}, false
		}
		sum, err := value.Sum(total, elem)
		switch {
		case errors.Is(err, value.ErrNoNumber):
			return e.misfits(n.at, "what %s adds for element %d is %s, not a number", n.name, i, kindOf(elem))
		case err != nil:
			return e.misfits(n.at, "%s cannot be computed: %v", n.name, err)
		}
		total = sum
	}
	return e.number(n.at, n.name, total)
}

// numbersForm compiles the operators of numbersNode.
func (c *compiler) numbersForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name}, nil)
	n := &numbersNode{at: at.Key(name), name: name}
	operand := v.Get(name)
	switch name {
	case "$negate", "$abs":
		n.items = []node{c.operand(operand, n.at, "the operand of "+name, value.Number)}
		return n
	case "$subtract":
		n.items = c.pair(operand, n.at, name, value.Number)
		return n
	}

	// All operands are numbers, except for $min and $max, which also order texts.
	if operand.Kind() != value.Array {
		n.in = c.operandArray(operand, n.at, name)
		return n
	}
	if operand.Len() == 0 || operand.Len() > MaxOperands {
		c.errorf(n.at, "%s takes from 1 to %d operands, and this array has %d", name, MaxOperands, operand.Len()).
			Hintf(`write {"%s": ["$.data.a", "$.data.b"]}, or a path to an array`, name)
		return &literal{}
	}
	kinds := []value.Kind{value.Number}
	if n.orders() {
		kinds = append(kinds, value.String)
	}
	like := value.Missing // the kind of the first operand that is known
	for i, elem := range operand.Elems() {
		item := c.operand(elem, n.at.Index(i), "an operand of "+name, kinds...)
		n.items = append(n.items, item)
		if like != value.Missing && !can(item, like) &&
			slices.ContainsFunc(kinds, func(k value.Kind) bool { return can(item, k) }) {
			c.errorf(n.at.Index(i), "%s compares numbers with numbers and texts with texts: this is %s, and a %s stands before it", name, c.yielded(elem, item), kindText(like)).
				Hintf("let all operands be numbers, or all texts")
		}
		if lit, ok := item.(*literal); ok && like == value.Missing && slices.Contains(kinds, lit.v.Kind()) {
			like = lit.v.Kind()
		}
	}
	return n
}

// operandArray compiles an operand that is a path to an array, or computes one.
func (c *compiler) operandArray(v value.Value, at diag.Pointer, name string) node {
	n := c.value(v, at, false)
	if can(n, value.Array) {
		return n
	}
	c.errorf(at, "%s takes an array of operands or a path to one, not %s", name, c.yielded(v, n)).
		Hintf(`write {"%s": ["$.data.a", "$.data.b"]}, or a path like "$.data.amounts"`, name)
	return &literal{}
}

// pair compiles two operands.
func (c *compiler) pair(v value.Value, at diag.Pointer, name string, kinds ...value.Kind) []node {
	if v.Kind() != value.Array || v.Len() != 2 {
		d := c.errorf(at, "%s takes an array of two operands, not %s", name, kindOf(v))
		if v.Kind() == value.Array {
			d.Message = name + " takes two operands, and this array has " + shown(value.Int(int64(v.Len())))
		}
		d.Hintf(`write {"%s": ["$.data.a", "$.data.b"]}`, name)
		return []node{&literal{}, &literal{}}
	}
	out := make([]node, 2)
	for i, elem := range v.Elems() {
		out[i] = c.operand(elem, at.Index(i), "an operand of "+name, kinds...)
	}
	return out
}

// operand compiles an operand that has to be of one of the kinds.
func (c *compiler) operand(v value.Value, at diag.Pointer, what string, kinds ...value.Kind) node {
	n := c.value(v, at, false)
	if slices.ContainsFunc(kinds, func(k value.Kind) bool { return can(n, k) }) {
		return n
	}
	names := "a " + kindText(kinds[0])
	if len(kinds) == 2 {
		names = "a number or a text"
	}
	d := c.errorf(at, "%s is %s, a path to one, or another operator, not %s", what, names, c.yielded(v, n))
	got := v
	if lit, ok := n.(*literal); ok {
		got = lit.v
	}
	if number, err := value.ParseString(got.Str()); err == nil && number.Kind() == value.Number &&
		kinds[0] == value.Number {
		d.Hintf("write the number without quotes: %s", shown(number))
	} else {
		d.Hintf(`paths into the event start with "$.", as in "$.data.amount"`)
	}
	return n
}

// yielded names the kind of an operand v, which is compiled to n.
func (c *compiler) yielded(v value.Value, n node) string {
	if lit, ok := n.(*literal); ok {
		v = lit.v
	}
	if o, _, ok := operatorOf(v, c.language); ok {
		return "what " + o.name + " yields"
	}
	return kindOf(v)
}

func kindText(k value.Kind) string {
	if k == value.String {
		return "text"
	}
	return k.String()
}

// quotientForm compiles $divide and $round.
func (c *compiler) quotientForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	n := &quotientNode{at: at.Key(name), name: name}
	if name == "$divide" {
		c.shape(v, at, name, []string{name}, []string{"scale", "rounding"})
		operands := c.pair(v.Get(name), n.at, name, value.Number)
		n.of, n.by = operands[0], operands[1]
		if lit, ok := n.by.(*literal); ok && lit.v.Kind() == value.Number && lit.v.Sign() == 0 && !isLiteral(n.of) {
			c.l.Warnf(n.at.Index(1), "division by zero has no result, so that this never has a value").Hintf("write another divisor")
		}
	} else {
		c.shape(v, at, name, []string{name, "scale"}, []string{"rounding"})
		n.of = c.operand(v.Get(name), n.at, "the operand of "+name, value.Number)
	}
	if scale := v.Get("scale"); !scale.IsMissing() {
		n.scale = c.scale(scale, at.Key("scale"))
	}

	// Without a scale nothing is rounded.
	rounding := v.Get("rounding")
	at = at.Key("rounding")
	n.rounding = value.Rounding(max(slices.Index(value.Roundings(), rounding.Str()), 0))
	switch {
	case rounding.IsMissing():
	case !slices.Contains(value.Roundings(), rounding.Str()):
		d := c.errorf(at, "a rounding is one of %s", wordList(value.Roundings()))
		if near := c.l.Nearest(rounding.Str(), value.Roundings()); near != "" {
			d.Hintf("did you mean %q?", near)
		} else {
			d.Hintf(`"half_even" is what there is without one, "half_up" what is taught at school`)
		}
	case name == "$divide" && n.scale == nil:
		c.errorf(at, "a quotient is rounded where it has a scale, and this one has none").AtKey().
			Hintf(`add "scale", the number of digits after the point, or leave "rounding" out`)
	}
	return n
}

// scale compiles how many digits there are after the point.
func (c *compiler) scale(v value.Value, at diag.Pointer) node {
	n := c.value(v, at, false)
	switch n := n.(type) {
	case *pathNode:
		return n
	case *literal:
		if _, ok := scaleOf(n.v); ok || n.v.IsMissing() {
			return n
		}
	}
	c.errorf(at, "a scale is a whole number from 0 to %d, or a path to one, not %s", value.MaxScale, shown(v)).
		Hintf(`it is the number of digits after the point, such as 2`)
	return n
}

// foldForm compiles $sum and $count.
func (c *compiler) foldForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	inner := "of"
	if name == "$count" {
		inner = "where"
	}
	c.shape(v, at, name, []string{name}, []string{inner, "as"})
	n := &foldNode{at: at.Key(name), name: name, in: c.array(v.Get(name), at.Key(name))}
	binding := c.bindingName(v.Get("as"), at.Key("as"))
	of, at := v.Get(inner), at.Key(inner)
	if of.IsMissing() {
		if !v.Get("as").IsMissing() {
			c.l.Warnf(n.at, `"as" names the elements for %q, and there is none`, inner).Hintf(`leave "as" out, or add %q`, inner)
		}
		return n
	}
	n.slot, _ = c.bound(binding, func() {
		if name == "$count" {
			n.where = predicateCompiler{c}.condition(of, at)
		} else {
			n.of = c.operand(of, at, "what $sum adds", value.Number)
		}
	})
	return n
}
