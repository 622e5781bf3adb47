package tick

import (
	"j17/internal/base/value"
	"j17/internal/base/work"
)

// eventSizes are sizes of events, in bytes, for which the work of a handler is bounded: the largest possible, and
// smaller ones, since many handlers have a bound for these although they have none for the largest.
func eventSizes() []int { return []int{16 << 20, 4 << 20, 1 << 20, 128 << 10, 16 << 10} }

// weight is a bound of the work that something takes, or of the size of a value: a number, and units per byte for each
// value that operations work on. The first of those values is the state, further ones are elements of arrays, which do
// not overlap, so that going over all of them takes no more than their array has bytes.
type weight []float64

func units(n float64) weight { return weight{n} }

// each returns n units for each byte of the value at a level.
func each(n float64, level int) weight {
	w := make(weight, level+1)
	w[level] = n
	return w
}

func sum(all ...weight) weight {
	var out weight
	for _, w := range all {
		for i, n := range w {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] += n
		}
	}
	return out
}

func (w weight) times(n float64) weight {
	out := make(weight, len(w))
	for i := range w {
		out[i] = w[i] * n
	}
	return out
}

// most is the weight at its largest, with events of up to so many bytes.
func (w weight) most(event int) float64 {
	out := 0.0
	for i, n := range w {
		switch i {
		case 0:
			out += n
		case 1:
			out += n * MaxState
		default:
			out += n * float64(max(MaxState, event))
		}
	}
	return out
}

// Bounds of what a byte can stand for: an element takes two of them, as in "0,", a member five, as in `"":0,`. All the
// bytes that a state may have stand for no more values than it may be made of.
const (
	elementsPerByte = 1. / 2
	membersPerByte  = 1. / 5
	valuesPerByte   = float64(MaxValues) / MaxState
)

// What operations cost that package value counts: to copy a container, and to index a member.
const (
	copiedUnits  = 4
	indexedUnits = 6
)

// weigher finds the weights of the parts of a handler.
type weigher struct {
	// event is how many bytes an event has at most.
	event int
	// current is the level of the value that operations are at work on, levels the number of them so far.
	current, levels int
	// slots has the level of the elements that a slot stands for; none for one that is bound by let.
	slots map[int]int
	// foreign are the levels of elements that may be those of an event.
	foreign map[int]bool
	// epochs is how many times everything may have to be copied; wholes is how many of these are because all of the
	// state was given up, and not only what was kept.
	epochs, wholes int
}

// Heavy reports whether the handler may take more than work.Replay on some state within the limits and some event of
// that many bytes. Its cost at admission then has to be found out by applying it; a handler that is not heavy can
// always be replayed.
func (h *Handler) Heavy(event int) bool { return event > h.light }

// lightUpTo returns up to how many bytes of an event the handler is not heavy; -1 where it always is.
func lightUpTo(ops []operation) int {
	for _, event := range eventSizes() {
		if weigh(ops, event) <= work.Replay {
			return event
		}
	}
	return -1
}

// weigh bounds the work of a handler from its operations, for events of up to so many bytes.
func weigh(ops []operation, event int) float64 {
	w := &weigher{event: event, current: 1, levels: 1, slots: map[int]int{}, foreign: map[int]bool{}}
	total := w.operations(ops)
	// The event is parsed and measured once, and each time that the state was frozen its containers are copied again.
	eventWork := float64(event) *
		(parsedUnits*elementsPerByte + 1./work.BytesPerUnit + elementsPerByte/weighedPerUnit + 2./work.BytesPerUnit)
	return total.most(event) + eventWork + float64(w.epochs+1)*MaxValues*(copiedUnits+1./movedPerUnit+1./weighedPerUnit)
}

// operations weighs operations that follow each other. Objects that get new members are indexed again now and then.
func (w *weigher) operations(ops []operation) weight {
	total := units(float64(len(ops)))
	added := 0
	for _, op := range ops {
		total = sum(total, w.operation(op))
		added++
	}
	if added == 0 {
		return total
	}
	// Each may add a member to an object that has an index, and so many members.
	if w.current == 1 {
		total = sum(total, units(float64(indexedUnits*added)))
	} else {
		total = sum(total, each(indexedUnits*valuesPerByte*float64(added)/value.IndexFrom, w.current))
	}
	return sum(total, each(indexedUnits*valuesPerByte*float64(1+min(added/32, w.epochs)), w.current))
}

func (w *weigher) operation(op operation) weight {
	switch op := op.(type) {
	// What adds to its target.
	case *setOp:
		return w.kept(&op.value)
	case *mergeOp:
		return w.merged(&op.value)
	case *appendOp:
		return w.kept(&op.value)
	case *appendUniqueOp:
		return sum(w.kept(&op.value), w.search(each(1, w.current), 1))
	case *addOp:
		return sum(w.eval(op.by), w.amount(op.by), w.digits(each(1, w.current)))
	// What goes through the elements of an array.
	case *removeOp:
		return sum(w.matched(op.match, each(1, w.current)), w.rest())
	case *removeValueOp:
		return sum(w.eval(op.value), w.search(each(1, w.current), 0), w.rest())
	case *filterOp:
		return sum(w.matched(op.keep, each(1, w.current)), w.rest())
	case *updateWhereOp:
		return w.updated(op)
	case *upsertOp:
		return sum(w.kept(&op.value), w.matched(op.match, each(1, w.current)), w.rest())
	case *mapOp:
		return w.mapped(op)
	// What reaches a member by a name that is computed.
	case *setAtOp:
		return sum(w.eval(op.key), w.size(op.key).times(1./work.BytesPerUnit), w.kept(&op.value))
	case *mergeAtOp:
		return sum(w.eval(op.key), w.size(op.key).times(1./work.BytesPerUnit), w.merged(&op.value))
	case *removeAtOp:
		return sum(w.eval(op.key), w.size(op.key).times(1./work.BytesPerUnit), each(2*membersPerByte, w.current))
	case *incrementAtOp:
		return sum(
			w.eval(op.key), w.size(op.key).times(1./work.BytesPerUnit), w.eval(op.by), w.amount(op.by),
			w.digits(each(1, w.current)),
		)
	// What changes where members are, or whether they are there.
	case *moveOp:
		return sum(each(4*membersPerByte+elementsPerByte/weighedPerUnit, w.current), units(copiedUnits))
	case *dropOp:
		return each(2*membersPerByte, w.current)
	case *defaultOp:
		return w.kept(&op.value)
	// What only binds names, or decides whether operations are carried out.
	case *ifOp:
		return sum(w.predicate(op.when), w.operations(op.then), w.operations(op.orElse))
	case *letOp:
		delete(w.slots, op.slot)
		w.keeps(op.keeps, op.keepsMade)
		found := sum(w.eval(op.in), w.matched(op.match, w.size(op.in)))
		delete(w.slots, op.slot)
		return found
	default:
		return units(2 * work.Replay)
	}
}

// keeps counts that something of the state is kept in a second place, or something that is made of the state.
func (w *weigher) keeps(part, made bool) {
	if part || made {
		w.epochs++
	}
	if made {
		w.wholes++
	}
}

// rest is what it takes to move the elements of an array.
func (w *weigher) rest() weight { return each(2*valuesPerByte/movedPerUnit, w.current) }

// digits is what it takes to add a number of that size. A number that is not larger may have zeros up to
// value.MaxExponent on one side.
func (w *weigher) digits(size weight) weight {
	return units(min(size.most(w.event), 2*value.MaxDigits)/digitsPerUnit + 3*value.MaxExponent/digitsPerUnit)
}

// amount is digits for what a value may be.
func (w *weigher) amount(n node) weight {
	if lit, ok := n.(*literal); ok {
		return units(float64(lit.v.Digits()) / digitsPerUnit)
	}
	return w.digits(w.size(n))
}

// kept weighs an operand that ends up in the state.
func (w *weigher) kept(o *operand) weight {
	size := w.size(o.node).times(1. / (work.BytesPerUnit * weighedPerUnit))
	if o.deep {
		size = sum(size, w.size(o.node).times(elementsPerByte/weighedPerUnit))
	}
	return sum(w.eval(o.node), size)
}

// mergedUnits is what it takes to set a member in an object that may be indexed, which is paid for beforehand, and to
// index it.
const mergedUnits = memberWork + indexedUnits

// merged weighs an operand whose members are set.
func (w *weigher) merged(o *operand) weight {
	if n, ok := o.node.(*objectNode); ok {
		return sum(w.kept(o), units(float64(mergedUnits*len(n.keys))))
	}
	// What is larger than a state is refused before.
	members := w.size(o.node)
	if members.most(w.event) > MaxState {
		members = units(MaxState)
	}
	return sum(w.kept(o), members.times(mergedUnits*w.share(members)))
}

func (w *weigher) updated(op *updateWhereOp) weight {
	target := each(1, w.current)
	found := w.matched(op.match, target)
	if op.freezes {
		w.epochs++
	}
	if !op.freezes {
		// It is evaluated once, and where all would not fit into a state nothing is done.
		return sum(found, w.kept(&op.merge), each(valuesPerByte, w.current), units(mergedUnits*MaxValues))
	}
	return sum(found, w.over(target, op.match.slot, func() weight { return sum(units(2), w.merged(&op.merge)) }))
}

func (w *weigher) mapped(op *mapOp) weight {
	if op.freezes {
		w.epochs++
	}
	outer := w.current
	wholes := w.wholes
	body := w.over(each(1, w.current), op.slot, func() weight {
		w.current = w.levels
		defer func() { w.current = outer }()
		return sum(units(1), w.operations(op.ops))
	})
	if w.wholes > wholes {
		// An element may give up what the others have to copy again.
		return units(2 * work.Replay)
	}
	return sum(body, w.rest())
}

// over weighs what is done for every element of an array of that size, which slot stands for.
func (w *weigher) over(size weight, slot int, f func() weight) weight {
	w.levels++
	level := w.levels
	outer, bound := w.slots[slot]
	w.slots[slot] = level
	share := w.share(size)
	w.foreign[level] = share > valuesPerByte
	body := f()
	if bound {
		w.slots[slot] = outer
	} else {
		delete(w.slots, slot)
	}
	w.levels--
	// What each element takes whatever its size, and what values around it take, is taken for each of them.
	total := units(0)
	for i, n := range body {
		switch {
		case n == 0:
		case i == level:
			total = sum(total, size.times(n))
		case i == 0:
			total = sum(total, size.times(n*share))
		default:
			total = sum(total, each(n*size.most(w.event)*share, i))
		}
	}
	return total
}

// share is how many values there may be for each byte of something of that size: fewer where all of it is part of the
// state.
func (w *weigher) share(size weight) float64 {
	for i, n := range size {
		if n > 0 && (i == 0 || w.foreign[i]) {
			return elementsPerByte
		}
	}
	return valuesPerByte
}

// matched weighs the choice of elements of an array of that size.
func (w *weigher) matched(m *match, size weight) weight {
	if m.when != nil {
		return w.over(size, m.slot, func() weight { return sum(units(1), w.predicate(m.when)) })
	}
	total := units(1)
	for i := range m.fields {
		f := &m.fields[i]
		total = sum(total, w.eval(f.want), w.search(size, len(f.steps)))
	}
	return total
}

// search weighs a look for a value in an array of that size: each element is visited, and nothing in it is compared
// twice. What is made of an index instead, and all elements with one hash, are within the same bound.
func (w *weigher) search(size weight, steps int) weight {
	const indexed = 6 << 17
	perByte := max(0.45, 0.05+float64(2+steps)/6)
	if len(size) > 2 {
		return sum(units(2), size.times(perByte+6*elementsPerByte))
	}
	return sum(units(indexed+2), size.times(perByte))
}

// eval weighs the evaluation of a value.
func (w *weigher) eval(n node) weight {
	switch n := n.(type) {
	case *literal:
		return units(0)
	case *pathNode:
		// Steps are cheap; the entries of an object are built each time.
		w.keeps(n.keeps, n.keeps && n.entries)
		cost := units(float64(1 + len(n.steps)/2))
		if n.entries {
			cost = sum(cost, w.base(n).times(entryWork*elementsPerByte))
		}
		return cost
	case *objectNode:
		return sum(units(float64(1+2*len(n.keys))), w.all(n.values))
	case *arrayNode:
		return sum(units(float64(1+len(n.elems))), w.all(n.elems))
	case *mergeNode:
		total := units(0)
		for _, v := range n.items {
			total = sum(
				total, units(1+copiedUnits), w.eval(v),
				w.size(v).times((mergedUnits+1)*min(membersPerByte, w.share(w.size(v)))),
			)
		}
		return total
	default:
		return w.computed(n)
	}
}

// base bounds the size of the value that a path leads to, before entries are made of it.
func (w *weigher) base(n *pathNode) weight {
	switch n.from {
	case fromCurrent:
		return each(1, w.current)
	case fromState:
		return units(MaxState)
	case fromSlot:
		if level, ok := w.slots[n.slot]; ok {
			return each(1, level)
		}
	case fromKey, fromType, fromTimestamp:
		return units(1 << 10)
	case fromEvent, fromData, fromMetadata, fromID, fromMembers, fromWhole, fromRead, fromView:
	}
	return units(float64(w.event))
}

// size bounds the size of a value.
func (w *weigher) size(n node) weight {
	switch n := n.(type) {
	case *literal:
		return units(float64(n.v.Size()))
	case *pathNode:
		if n.entries {
			const entry = 20 // what stands around a key and its value
			return w.base(n).times(1 + entry*membersPerByte)
		}
		return w.base(n)
	case *objectNode:
		total := units(2)
		for i, v := range n.values {
			total = sum(total, units(float64(value.StringSize(n.keys[i])+2)), w.size(v))
		}
		return total
	case *arrayNode:
		return sum(units(float64(2+len(n.elems))), w.sizes(n.elems))
	case *mergeNode:
		return sum(units(float64(2+len(n.items))), w.sizes(n.items))
	default:
		return w.result(n)
	}
}

// compared weighs a comparison: no more than the smaller of the two is looked through.
func (w *weigher) compared(left, right node) weight {
	const perByte = elementsPerByte + 1./work.BytesPerUnit
	for _, n := range []node{left, right} {
		if lit, ok := n.(*literal); ok && !isContainer(lit.v) {
			return units(float64(len(lit.v.Str())/work.BytesPerUnit + lit.v.Digits()/8))
		}
	}
	a, b := w.size(left), w.size(right)
	// What is part of the innermost element is looked through once for all of them.
	switch {
	case len(a) > len(b):
		return a.times(perByte)
	case len(b) > len(a):
		return b.times(perByte)
	case a.most(w.event) < b.most(w.event):
		return a.times(perByte)
	default:
		return b.times(perByte)
	}
}

func (w *weigher) predicate(p predicate) weight {
	switch p := p.(type) {
	case guarded:
		return sum(units(2), w.predicate(p.predicate).times(2))
	case *equalNode:
		return sum(units(1), w.eval(p.left), w.eval(p.right), w.compared(p.left, p.right))
	case *orderNode:
		return sum(units(1), w.eval(p.left), w.eval(p.right), w.compared(p.left, p.right))
	case *memberNode:
		// A list in the spec is of a size that is known.
		if lit, ok := p.array.(*literal); ok {
			n := float64(lit.v.Len())
			return sum(units(2+n), w.eval(p.value), w.compared(p.value, p.array).times(1))
		}
		return sum(units(1), w.eval(p.value), w.eval(p.array), w.search(w.size(p.array), 0))
	case *existsNode:
		return sum(units(1), w.eval(p.path))
	case *countNode:
		return sum(units(1), w.eval(p.array), w.eval(p.limit))
	case *expiredNode:
		total := units(1)
		for _, n := range []node{p.timestamp, p.age, p.now} {
			total = sum(total, w.eval(n))
		}
		return sum(total, w.amount(p.timestamp), w.amount(p.now))
	case *elementsNode:
		return sum(
			units(2), w.eval(p.in),
			w.over(w.size(p.in), p.slot, func() weight { return sum(units(1), w.predicate(p.match)) }),
		)
	case *subsetNode:
		total := sum(units(1), w.eval(p.items), w.eval(p.array))
		items := w.size(p.items).most(w.event) * elementsPerByte
		return sum(total, w.search(w.size(p.array), 0).times(1+items))
	case *notNode:
		return sum(units(1), w.predicate(p.of))
	case *listNode:
		total := units(1)
		for _, of := range p.of {
			total = sum(total, w.predicate(of))
		}
		return total
	default:
		return units(2 * work.Replay)
	}
}
