package tick

import (
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
