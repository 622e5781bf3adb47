package tick

import (
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// choiceNode is $if: one of two values, of which the other is not computed.
type choiceNode struct {
	at          diag.Pointer
	when        predicate
	then, other node
}

func (n *choiceNode) eval(e *Env) (value.Value, bool) {
	if !e.spend(1) {
		return value.Value{}, false
	}
	switch n.when.test(e) {
	case yes:
		return n.then.eval(e)
	case no:
		return n.other.eval(e)
	case skip:
	}
	if e.misfit != nil || e.work.Err() != nil {
		return value.Value{}, false
	}
	return e.misfits(n.at, "the condition of $if cannot be decided: an optional path in it leads nowhere")
}

// choiceForm compiles $if. Without an "else" the value is null where the predicate does not hold.
func (c *compiler) choiceForm(v value.Value, at diag.Pointer, name string, keeps bool) node {
	c.shape(v, at, name, []string{name, "then"}, []string{"else"})
	n := &choiceNode{at: at.Key(name)}
	if when := v.Get(name); !when.IsMissing() {
		n.when = predicateCompiler{c}.condition(when, n.at)
	}
	n.then = c.value(v.Get("then"), at.Key("then"), keeps)
	n.other = c.value(v.Get("else"), at.Key("else"), keeps)
	return n
}

// caseNode is $case: the value beside the first one that equals what is looked for.
type caseNode struct {
	at diag.Pointer
	of node
	// keys and values are the pairs.
	keys, values []node
	// other is nil where something has to be equal.
	other node
}

func (n *caseNode) eval(e *Env) (value.Value, bool) {
	of, ok := n.of.eval(e)
	if !ok {
		return value.Value{}, false
	}
	for i, key := range n.keys {
		k, ok := key.eval(e)
		if !ok {
			return value.Value{}, false
		}
		var compared int
		equal := value.EqualCounted(of, k, &compared)
		if !e.spend(1 + compared) {
			return value.Value{}, false
		}
		if equal {
			return n.values[i].eval(e)
		}
	}
	if n.other != nil {
		return n.other.eval(e)
	}
	return e.misfits(n.at, `none of the cases of $case equals the operand, and there is no "else"`)
}

// can reports whether one of the values may be of a kind.
func (n *caseNode) can(k value.Kind) bool {
	may := func(v node) bool { return can(v, k) }
	return slices.ContainsFunc(n.values, may) || n.other != nil && may(n.other)
}

// caseForm compiles $case.
func caseForm(c *compiler, v value.Value, at diag.Pointer, name string, keeps bool) node {
	c.shape(v, at, name, []string{name, "of"}, []string{"else"})
	n := &caseNode{at: at.Key(name), of: c.value(v.Get(name), at.Key(name), false)}
	if other := v.Get("else"); !other.IsMissing() {
		n.other = c.value(other, at.Key("else"), keeps)
	}
	of, at := v.Get("of"), at.Key("of")
	const example = `write {"$case": "$.data.status", "of": [["N", "new"], ["P", "paid"]], "else": "other"}`
	if !of.IsMissing() && (of.Kind() != value.Array || of.Len() == 0) {
		c.errorf(at, "the cases are an array of pairs, such as [\"N\", \"new\"]").Hintf(example)
	}
	for i, pair := range of.Elems() {
		if pair.Kind() != value.Array || pair.Len() != 2 {
			c.errorf(at.Index(i), "a case is an array of two: what the operand may equal, and the value for it").Hintf(example)
			continue
		}
		n.keys = append(n.keys, c.value(pair.Index(0), at.Index(i).Index(0), false))
		n.values = append(n.values, c.value(pair.Index(1), at.Index(i).Index(1), keeps))
	}
	return n
}

// Cases returns the values of a $case that compiles, that of "else" included.
func Cases(v value.Value) []value.Value {
	var out []value.Value
	for _, pair := range v.Get("of").Elems() {
		out = append(out, pair.Index(1))
	}
	if other := v.Get("else"); !other.IsMissing() {
		out = append(out, other)
	}
	return out
}
