package tick

import (
	"math"
	"strings"
	"unicode/utf8"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// concatNode joins its arguments to one string. Numbers, booleans and containers stand for their JSON, null for
// nothing.
type concatNode struct {
	at    diag.Pointer
	name  string
	items []node
}

// writtenPerUnit is how many values are written as JSON in the time of one unit, beside their bytes. A container is
// written whole even if it was weighed before. With this number, events that were admitted when only their bytes were
// charged stay within work.Replay.
const writtenPerUnit = 2

func (n *concatNode) eval(e *Env) (value.Value, bool) {
	var b strings.Builder
	for _, item := range n.items {
		v, ok := item.eval(e)
		if !ok {
			return value.Value{}, false
		}
		w, visited := v.Weigh()
		if e.left -= w.Bytes; e.left < 0 || !e.spend(1+max(visited, w.Values/writtenPerUnit)) ||
			!e.work.SpendBytes(w.Bytes) {
			return value.NullValue(), e.work.Err() == nil
		}
		if b.Len()+w.Bytes > MaxState {
			return e.misfits(n.at, "the text of %s would be larger than %d MiB", n.name, MaxState>>20)
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

func (c *compiler) concatForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	return &concatNode{at: at.Key(name), name: name, items: c.arguments(v.Get(name), at.Key(name), name, false)}
}

// textNode is $lower, $upper and $trim.
type textNode struct {
	at   diag.Pointer
	name string
	of   node
}

func (n *textNode) eval(e *Env) (value.Value, bool) {
	text, ok := e.text(n.of, n.at, n.name)
	if !ok {
		return value.Value{}, false
	}
	switch n.name {
	case "$lower":
		text = strings.ToLower(text)
	case "$upper":
		text = strings.ToUpper(text)
	default:
		text = strings.TrimSpace(text)
	}
	return value.StringValue(text), true
}

// text evaluates an operand that has to be a text, and pays for reading and copying it.
func (e *Env) text(of node, at diag.Pointer, name string) (string, bool) {
	v, ok := of.eval(e)
	if ok && v.Kind() != value.String {
		_, ok = e.misfits(at, "the operand of %s is %s, not a text", name, kindOf(v))
	}
	if !ok {
		return "", false
	}
	text := v.Str()
	return text, e.spend(1 + len(text)/textPerUnit)
}

// textPerUnit is how many bytes of text are changed in the time of one unit.
const textPerUnit = work.BytesPerUnit / 4

func (c *compiler) textForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name}, nil)
	at = at.Key(name)
	return &textNode{at: at, name: name, of: c.operand(v.Get(name), at, "the operand of "+name, value.String)}
}

// sliceNode is $slice: the code points of a text from a place up to another one, both from the end where they are
// negative.
type sliceNode struct {
	at diag.Pointer
	of node
	// to is nil for the end.
	from, to node
}

func (n *sliceNode) eval(e *Env) (value.Value, bool) {
	text, ok := e.text(n.of, n.at, "$slice")
	if !ok {
		return value.Value{}, false
	}
	length := utf8.RuneCountInString(text)
	from, ok := n.place(e, n.from, "from", length)
	if !ok {
		return value.Value{}, false
	}
	to := length
	if n.to != nil {
		if to, ok = n.place(e, n.to, "to", length); !ok {
			return value.Value{}, false
		}
	}
	if from >= to {
		return value.StringValue(""), true
	}
	start := offset(text, from)
	end := len(text)
	if to < length {
		end = start + offset(text[start:], to-from)
	}
	return value.StringValue(text[start:end]), true
}

// place evaluates an operand that is a place in a text of so many code points.
func (n *sliceNode) place(e *Env, of node, key string, length int) (int, bool) {
	v, ok := of.eval(e)
	if !ok {
		return 0, false
	}
	if !v.IsInteger() {
		_, ok := e.misfits(n.at, "the %q of $slice is %s; it is a whole number", key, otherNumber(v))
		return 0, ok
	}
	at, ok := v.Int64()
	switch {
	case !ok && v.Sign() < 0:
		return 0, true
	case !ok:
		return length, true
	case at < 0:
		return int(max(int64(length)+at, 0)), true
	default:
		return int(min(at, int64(length))), true
	}
}

// offset returns where a code point of a text begins, the end for one behind the last.
func offset(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

func (c *compiler) sliceForm(v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name, "from"}, []string{"to"})
	n := &sliceNode{at: at.Key(name), of: c.operand(v.Get(name), at.Key(name), "the operand of "+name, value.String)}
	if from := v.Get("from"); !from.IsMissing() {
		n.from = c.textPlace(from, at.Key("from"))
	}
	if to := v.Get("to"); !to.IsMissing() {
		n.to = c.textPlace(to, at.Key("to"))
	}
	return n
}

// textPlace compiles a place in a text.
func (c *compiler) textPlace(v value.Value, at diag.Pointer) node {
	n := c.operand(v, at, "a place in a text", value.Number)
	if lit, ok := n.(*literal); ok && lit.v.Kind() == value.Number && !lit.v.IsInteger() {
		c.errorf(at, "a place in a text is a whole number, and %s is none", shown(lit.v)).Hintf("the first code point is at 0, the last one at -1")
	}
	return n
}

// splitNode is $split: the texts between those that separate them.
type splitNode struct {
	at diag.Pointer
	of node
	by node
	// limit is how many texts there are at most, the last of which has the rest; nil for all. part is which of them is
	// wanted, nil for all.
	limit, part node
}

func (n *splitNode) eval(e *Env) (value.Value, bool) {
	// What is separated by what.
	text, ok := e.text(n.of, n.at, "$split")
	if !ok {
		return value.Value{}, false
	}
	by, ok := n.by.eval(e)
	switch {
	case !ok:
		return value.Value{}, false
	case by.Kind() != value.String:
		return e.misfits(n.at, `the "by" of $split is %s, not a text`, kindOf(by))
	case by.Str() == "":
		return e.misfits(n.at, `the "by" of $split is empty`)
	}

	// How many texts there are, and which are wanted.
	count := int64(strings.Count(text, by.Str())) + 1
	if n.limit != nil {
		limit, ok := e.integer(n.limit, n.at, "limit", "$split")
		switch {
		case !ok:
			return value.Value{}, false
		case limit < 1:
			return e.misfits(n.at, `the "limit" of $split is less than 1`)
		}
		count = min(count, limit)
	}
	if n.part != nil {
		part, ok := e.integer(n.part, n.at, "part", "$split")
		if part < 0 {
			part += count
		}
		switch {
		case !ok || !e.spend(len(text)/textPerUnit):
			return value.Value{}, false
		case part < 0 || part >= count:
			return value.NullValue(), true
		}
		return value.StringValue(partOf(text, by.Str(), part, part == count-1)), true
	}
	if count > MaxValues {
		return e.misfits(n.at, "$split would make more than %d texts", MaxValues)
	}
	if !e.spend(int(count)) {
		return value.Value{}, false
	}
	parts := make([]value.Value, count)
	for i := range parts {
		end := strings.Index(text, by.Str())
		if end < 0 || i == len(parts)-1 {
			parts[i] = value.StringValue(text)
			break
		}
		parts[i], text = value.StringValue(text[:end]), text[end+len(by.Str()):]
	}
	return value.ArrayValue(parts...), true
}

// partOf returns the text between separators of that number, which is there; the last one has the rest.
func partOf(text, by string, part int64, last bool) string {
	for range part {
		text = text[strings.Index(text, by)+len(by):]
	}
	if !last {
		text = text[:strings.Index(text, by)]
	}
	return text
}

// integer evaluates an operand that has to be a whole number. One that is far from zero is told as another one that is.
func (e *Env) integer(of node, at diag.Pointer, key, name string) (int64, bool) {
	v, ok := of.eval(e)
	switch {
	case !ok:
		return 0, false
	case !v.IsInteger():
		_, ok := e.misfits(at, "the %q of %s is %s; it is a whole number", key, name, otherNumber(v))
		return 0, ok
	}
	n, ok := v.Int64()
	switch {
	case ok:
		return max(min(n, math.MaxInt32), math.MinInt32), true
	case v.Sign() < 0:
		return math.MinInt32, true
	default:
		return math.MaxInt32, true
	}
}

// splitForm compiles $split.
func splitForm(c *compiler, v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name, "by"}, []string{"limit", "part"})
	n := &splitNode{at: at.Key(name), of: c.operand(v.Get(name), at.Key(name), "the operand of "+name, value.String)}
	n.by = separator(c, v.Get("by"), at.Key("by"))
	if lit, ok := n.by.(*literal); ok && lit.v.Kind() == value.String && lit.v.Str() == "" {
		c.errorf(at.Key("by"), "an empty text separates nothing").Hintf(`write what stands between the parts, such as " "`)
	}
	if limit := v.Get("limit"); !limit.IsMissing() {
		n.limit = wholeNumber(c, limit, at.Key("limit"), "a limit", "it is how many parts there are at most, such as 2")
		if lit, ok := n.limit.(*literal); ok && lit.v.IsInteger() && lit.v.Sign() <= 0 {
			c.errorf(at.Key("limit"), "a limit is at least 1").Hintf("it is how many parts there are at most; the last one has the rest")
		}
	}
	if part := v.Get("part"); !part.IsMissing() {
		n.part = wholeNumber(c, part, at.Key("part"), "a part", "the first part is 0, the last one -1")
	}
	return n
}

// separator compiles what stands between texts.
func separator(c *compiler, v value.Value, at diag.Pointer) node {
	if v.IsMissing() {
		return &literal{}
	}
	return c.operand(v, at, "what stands between the parts", value.String)
}

// wholeNumber compiles an operand that has to be a whole number.
func wholeNumber(c *compiler, v value.Value, at diag.Pointer, what, hint string) node {
	n := c.operand(v, at, what, value.Number)
	if lit, ok := n.(*literal); ok && lit.v.Kind() == value.Number && !lit.v.IsInteger() {
		c.errorf(at, "%s is a whole number, and %s is none", what, shown(lit.v)).Hintf("%s", hint)
	}
	return n
}

// joinNode is $join: texts, numbers and booleans, with a text between them.
type joinNode struct {
	at diag.Pointer
	// items are what is joined, or in leads to an array of it.
	items []node
	in    node
	by    node
}

func (n *joinNode) eval(e *Env) (value.Value, bool) {
	// What is joined, and what stands between.
	var few [8]value.Value
	items := few[:0]
	if n.in != nil {
		array, ok := n.in.eval(e)
		if ok && array.Kind() != value.Array {
			_, ok = e.misfits(n.at, "$join takes an array, and this is %s", kindOf(array))
		}
		if !ok {
			return value.Value{}, false
		}
		items = array.Elems()
	}
	for _, item := range n.items {
		v, ok := item.eval(e)
		if !ok {
			return value.Value{}, false
		}
		items = append(items, v)
	}
	by, ok := n.by.eval(e)
	switch {
	case !ok:
		return value.Value{}, false
	case by.Kind() != value.String:
		return e.misfits(n.at, `the "by" of $join is %s, not a text`, kindOf(by))
	}

	// One after the other.
	var buf [64]byte
	out, between := buf[:0], ""
	for i, v := range items {
		text := v.Str()
		if k := v.Kind(); k == value.Number || k == value.Bool {
			text = v.String()
		} else if k != value.String {
			return e.misfits(n.at, "element %d of $join is %s, neither a text nor a number nor a boolean", i, kindOf(v))
		}
		more := len(between) + len(text)
		if e.left -= more; e.left < 0 || !e.spend(1) || !e.work.SpendBytes(more) {
			return value.NullValue(), e.work.Err() == nil
		}
		if len(out)+more > MaxState {
			return e.misfits(n.at, "the text of $join would be larger than %d MiB", MaxState>>20)
		}
		out = append(append(out, between...), text...)
		between = by.Str()
	}
	return value.StringValue(string(out)), true
}

// joinForm compiles $join.
func joinForm(c *compiler, v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name, "by"}, nil)
	n := &joinNode{at: at.Key(name), by: separator(c, v.Get("by"), at.Key("by"))}
	operand := v.Get(name)
	switch {
	case operand.Kind() != value.Array:
		n.in = c.operandArray(operand, n.at, name)
	case operand.Len() > MaxOperands:
		c.errorf(n.at, "%s takes up to %d values, and this array has %d", name, MaxOperands, operand.Len()).
			Hintf(`write {"%s": ["$.data.a", "$.data.b"], "by": " "}, or a path to an array`, name)
	}
	for i, elem := range operand.Elems() {
		n.items = append(n.items, joined(c, elem, n.at.Index(i)))
	}
	return n
}

// joined compiles a value that is joined to others.
func joined(c *compiler, v value.Value, at diag.Pointer) node {
	n := c.value(v, at, false)
	if !can(n, value.String) && !can(n, value.Number) && !can(n, value.Bool) {
		c.errorf(at, "$join takes texts, numbers and booleans, not %s", c.yielded(v, n)).Hintf("paths into the event start with \"$.\"")
	}
	return n
}

// numberNode is $number: the number that a text spells, or a number as it is.
type numberNode struct {
	at diag.Pointer
	of node
}

func (n *numberNode) eval(e *Env) (value.Value, bool) {
	v, ok := n.of.eval(e)
	switch {
	case !ok:
		return value.Value{}, false
	case v.Kind() == value.Number:
		return v, true
	case v.Kind() != value.String:
		return e.misfits(n.at, "the operand of $number is %s, neither a number nor a text", kindOf(v))
	}

	// Nothing may stand around it, and more digits than a number may have are not read.
	text := v.Str()
	if len(text) > mostNumber || !e.spend(1+len(text)/digitsPerUnit) {
		return e.misfits(n.at, "the operand of $number is a text that is no number of at most %d digits", value.MaxDigits)
	}
	if number, ok := value.Whole(text); ok {
		return number, true
	}
	number, err := value.ParseString(strings.Clone(text))
	if err != nil || number.Kind() != value.Number || text[0] <= ' ' || text[len(text)-1] <= ' ' {
		return e.misfits(n.at, "the operand of $number is a text that is no number, as JSON writes it")
	}
	return number, true
}

// mostNumber is how many bytes the text of a number may have.
const mostNumber = value.MaxDigits + 16

// numberForm compiles $number.
func numberForm(c *compiler, v value.Value, at diag.Pointer, name string, _ bool) node {
	c.shape(v, at, name, []string{name}, nil)
	at = at.Key(name)
	return &numberNode{at: at, of: c.operand(v.Get(name), at, "the operand of "+name, value.Number, value.String)}
}
