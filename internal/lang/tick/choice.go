package tick

import (
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
