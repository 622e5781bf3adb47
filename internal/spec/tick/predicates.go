package tick

import "j17/internal/value"

// verdict is what a predicate says.
type verdict uint8

const (
	no verdict = iota
	yes
	// skip means that the operation the predicate belongs to is to be skipped.
	skip
)

func verdictOf(holds bool) verdict {
	if holds {
		return yes
	}
	return no
}

// predicate is a compiled condition.
type predicate interface {
	test(e *Env) verdict
}

// equalNode is "equals" and "not_equals".
type equalNode struct {
	left, right node
	unequal     bool
}

func (n *equalNode) test(e *Env) verdict {
	a, ok := n.left.eval(e)
	if !ok {
		return skip
	}
	b, ok := n.right.eval(e)
	if !ok {
		return skip
	}
	return verdictOf(value.Equal(a, b) != n.unequal)
}

// orderNode is "gt", "gte", "lt" and "lte".
type orderNode struct {
	left, right node
	// less, equal and greater say which orders satisfy it.
	less, equal, greater bool
}

func (n *orderNode) test(e *Env) verdict {
	a, ok := n.left.eval(e)
	if !ok {
		return skip
	}
	b, ok := n.right.eval(e)
	if !ok {
		return skip
	}
	order, ok := value.Compare(a, b)
	switch {
	case !ok:
		return no
	case order < 0:
		return verdictOf(n.less)
	case order > 0:
		return verdictOf(n.greater)
	default:
		return verdictOf(n.equal)
	}
}

// memberNode is "in", "not_in" and "includes".
type memberNode struct {
	value, array node
	absent       bool
}

func (n *memberNode) test(e *Env) verdict {
	v, ok := n.value.eval(e)
	if !ok {
		return skip
	}
	array, ok := n.array.eval(e)
	if !ok || !e.spend(array.Len()) {
		return skip
	}
	return verdictOf(contains(array.Elems(), v) != n.absent)
}

func contains(elems []value.Value, v value.Value) bool {
	for i := range elems {
		if value.Equal(elems[i], v) {
			return true
		}
	}
	return false
}

// existsNode is "exists".
type existsNode struct{ path *pathNode }

func (n *existsNode) test(e *Env) verdict { return verdictOf(!n.path.find(e).IsMissing()) }

// countNode is "minItems" and "maxItems".
type countNode struct {
	array, limit node
	most         bool
}

func (n *countNode) test(e *Env) verdict {
	array, ok := n.array.eval(e)
	if !ok {
		return skip
	}
	limit, ok := n.limit.eval(e)
	if !ok {
		return skip
	}
	if array.Kind() != value.Array {
		return no
	}
	order, ok := value.Compare(value.Int(int64(array.Len())), limit)
	if n.most {
		return verdictOf(ok && order <= 0)
	}
	return verdictOf(ok && order >= 0)
}

// expiredNode is "expired".
type expiredNode struct{ timestamp, age, now node }

func (n *expiredNode) test(e *Env) verdict {
	var operands [3]value.Value
	for i, operand := range [...]node{n.timestamp, n.age, n.now} {
		v, ok := operand.eval(e)
		if !ok {
			return skip
		}
		operands[i] = v
	}
	passed, ok := value.Sub(operands[2], operands[0])
	if !ok {
		return no
	}
	order, ok := value.Compare(passed, operands[1])
	return verdictOf(ok && order > 0)
}

// elementsNode is "every" and "some".
type elementsNode struct {
	in    node
	slot  int
	match predicate
	every bool
	// optional tells that the match has optional paths.
	optional bool
}

func (n *elementsNode) test(e *Env) verdict {
	array, ok := n.in.eval(e)
	if !ok {
		return skip
	}
	if array.Kind() != value.Array {
		return no
	}
	outer := e.slots[n.slot]
	v := n.over(e, array.Elems())
	e.slots[n.slot] = outer
	return v
}

func (n *elementsNode) over(e *Env, elems []value.Value) verdict {
	stop := verdictOf(!n.every)
	for i := range elems {
		if !e.spend(1) {
			return skip
		}
		e.slots[n.slot] = elems[i]
		if v := n.match.test(e); v == stop || v == skip {
			return v
		}
	}
	return verdictOf(n.every)
}

// subsetNode is "subset_of".
type subsetNode struct{ items, array node }

func (n *subsetNode) test(e *Env) verdict {
	items, ok := n.items.eval(e)
	if !ok {
		return skip
	}
	array, ok := n.array.eval(e)
	if !ok {
		return skip
	}
	if items.Kind() != value.Array || array.Kind() != value.Array {
		return no
	}
	for _, v := range items.Elems() {
		if !e.spend(array.Len()) {
			return skip
		}
		if !contains(array.Elems(), v) {
			return no
		}
	}
	return yes
}

type notNode struct{ of predicate }

func (n *notNode) test(e *Env) verdict {
	switch n.of.test(e) {
	case yes:
		return no
	case no:
		return yes
	case skip:
	}
	return skip
}

// listNode is "and" and "or".
type listNode struct {
	of  []predicate
	any bool
}

func (n *listNode) test(e *Env) verdict {
	stop := verdictOf(n.any)
	for _, p := range n.of {
		if v := p.test(e); v == stop || v == skip {
			return v
		}
	}
	return verdictOf(!n.any)
}

// match says which elements of an array are meant: those that have all fields, or those for which the predicate
// holds.
type match struct {
	fields []field
	when   predicate
	slot   int
}

// field demands that a member of an element has a value.
type field struct {
	steps []value.Step
	want  node
}

// probe is a match with the values of its fields.
type probe struct {
	*match
	first value.Value
	more  []value.Value
}

// begin evaluates the values of the fields. It reports false when the operation is to be skipped.
func (m *match) begin(e *Env) (probe, bool) {
	p := probe{match: m}
	for i := range m.fields {
		v, ok := m.fields[i].want.eval(e)
		if !ok {
			return p, false
		}
		if i == 0 {
			p.first = v
		} else {
			p.more = append(p.more, v)
		}
	}
	return p, true
}

// test says whether elem is meant. An element without the field never is.
func (p *probe) test(e *Env, elem value.Value) verdict {
	if !e.spend(1) {
		return skip
	}
	if p.when != nil {
		e.slots[p.slot] = elem
		return p.when.test(e)
	}
	for i := range p.fields {
		want := p.first
		if i > 0 {
			want = p.more[i-1]
		}
		if !value.Equal(elem.At(p.fields[i].steps), want) {
			return no
		}
	}
	return yes
}

// all collects the positions of the elements that are meant into e.hits. It reports false when the operation is to be
// skipped.
func (p *probe) all(e *Env, elems []value.Value) bool {
	e.hits = e.hits[:0]
	outer := p.enter(e)
	defer p.leave(e, outer)
	for i := range elems {
		switch p.test(e, elems[i]) {
		case yes:
			e.hits = append(e.hits, i)
		case skip:
			return false
		case no:
		}
	}
	return true
}

// find returns the position of the first element that is meant, -1 if there is none. It reports false when the
// operation is to be skipped.
func (p *probe) find(e *Env, elems []value.Value) (int, bool) {
	outer := p.enter(e)
	defer p.leave(e, outer)
	for i := range elems {
		switch p.test(e, elems[i]) {
		case yes:
			return i, true
		case skip:
			return -1, false
		case no:
		}
	}
	return -1, true
}

// enter returns the outer value of the slot that test binds elements to, for leave.
func (p *probe) enter(e *Env) value.Value {
	if p.when == nil {
		return value.Value{}
	}
	return e.slots[p.slot]
}

func (p *probe) leave(e *Env, outer value.Value) {
	if p.when != nil {
		e.slots[p.slot] = outer
	}
}
