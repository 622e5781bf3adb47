package tick

import "j17/internal/base/value"

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
	if !e.spend(1) {
		return skip
	}
	a, ok := n.left.eval(e)
	if !ok {
		return skip
	}
	b, ok := n.right.eval(e)
	if !ok {
		return skip
	}
	var compared int
	equal := value.EqualCounted(a, b, &compared)
	if !e.spend(compared) {
		return skip
	}
	return verdictOf(equal != n.unequal)
}

// orderNode is "gt", "gte", "lt" and "lte".
type orderNode struct {
	left, right node
	// less, equal and greater say which orders satisfy it.
	less, equal, greater bool
}

func (n *orderNode) test(e *Env) verdict {
	if !e.spend(1) {
		return skip
	}
	a, ok := n.left.eval(e)
	if !ok {
		return skip
	}
	b, ok := n.right.eval(e)
	if !ok {
		return skip
	}
	if !e.spend(value.CompareWork(a, b)) {
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
	if !ok {
		return skip
	}
	has, ok := e.contains(array, v)
	if !ok {
		return skip
	}
	return verdictOf(has != n.absent)
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
	if !e.spend(1) {
		return skip
	}
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
	if !e.spend(1 + sumWork(operands[2], operands[0])) {
		return skip
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
	// optional reports that the match has optional paths.
	optional bool
	// all reports that the match is evaluated for every element, since an operator without a value may be in each.
	all bool
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
	stop, out := verdictOf(!n.every), verdictOf(n.every)
	for i := range elems {
		if !e.spend(1) {
			return skip
		}
		e.slots[n.slot] = elems[i]
		switch v := n.match.test(e); {
		case v == skip, v == stop && !n.all:
			return v
		case v == stop:
			out = stop
		}
	}
	return out
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
		has, ok := e.contains(array, v)
		if !ok {
			return skip
		}
		if !has {
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
	// all reports that all predicates are evaluated, since an operator without a value may be in each.
	all bool
}

func (n *listNode) test(e *Env) verdict {
	stop, out := verdictOf(n.any), verdictOf(!n.any)
	for _, p := range n.of {
		switch v := p.test(e); {
		case v == skip, v == stop && !n.all:
			return v
		case v == stop:
			out = stop
		}
	}
	return out
}

// match selects elements of an array: those that have all fields, or those for which the predicate holds.
type match struct {
	fields []field
	when   predicate
	slot   int
}

// field demands that a member of an element has a value.
type field struct {
	text  string
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

// fit reports whether elem has all fields from number i on. An element without the field never does.
func (p *probe) fit(e *Env, elem value.Value, i int) bool {
	for ; i < len(p.fields); i++ {
		want := p.first
		if i > 0 {
			want = p.more[i-1]
		}
		var n int
		equal := value.EqualCounted(elem.At(p.fields[i].steps), want, &n)
		if !e.spend(1+n+len(p.fields[i].steps)) || !equal {
			return false
		}
	}
	return true
}

// all collects the positions of the selected elements into e.hits. It reports false when the operation is to be
// skipped.
func (p *probe) all(e *Env, arr value.Value) bool { return p.collect(e, arr, false) }

// find returns the position of the first selected element, -1 if there is none. It reports false when the operation is
// to be skipped.
func (p *probe) find(e *Env, arr value.Value) (int, bool) {
	if ok := p.collect(e, arr, true); !ok || len(e.hits) == 0 {
		return -1, ok
	}
	return e.hits[0], true
}

// collect is all, or only looks for the first.
func (p *probe) collect(e *Env, arr value.Value, first bool) bool {
	e.hits = e.hits[:0]
	if p.when != nil {
		return p.ask(e, arr.Elems(), first)
	}
	var n int
	alone := len(p.fields) == 1
	e.hits, n = e.lookups().Find(arr, p.fields[0].text, p.fields[0].steps, p.first, first && alone, e.hits)
	if !e.spend(1 + n) {
		return false
	}
	if alone {
		return true
	}
	kept := e.hits[:0]
	for _, i := range e.hits {
		if p.fit(e, arr.Index(i), 1) {
			kept = append(kept, i)
		}
	}
	e.hits = kept
	return e.work.Err() == nil
}

// ask is collect for a predicate.
func (p *probe) ask(e *Env, elems []value.Value, first bool) bool {
	outer := p.enter(e)
	defer p.leave(e, outer)
	for i := range elems {
		if !e.spend(1) {
			return false
		}
		e.slots[p.slot] = elems[i]
		switch p.when.test(e) {
		case yes:
			if e.hits = append(e.hits, i); first {
				return true
			}
		case skip:
			return false
		case no:
		}
	}
	return true
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
