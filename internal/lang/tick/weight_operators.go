package tick

import (
	"j17/internal/base/value"
	"j17/internal/base/work"
)

// What the weigher knows of operators that compute: see weight.go.

// mostDigits bounds value.Value.Digits of a result, and looseDigits that of an intermediate result.
const (
	mostDigits  = value.MaxDigits + 2*value.MaxExponent
	looseDigits = 4*value.MaxDigits + 2*value.MaxExponent
)

// computed weighs the evaluation of an operator.
func (w *weigher) computed(n node) weight {
	switch n := n.(type) {
	case *coalesceNode:
		return w.all(n.items)
	case *choiceNode:
		return sum(units(1), w.predicate(n.when), w.eval(n.then), w.eval(n.other))
	case *concatNode:
		total := sum(units(1), w.all(n.items))
		for _, v := range n.items {
			total = sum(total, units(2), w.size(v).times(elementsPerByte+2./work.BytesPerUnit))
		}
		return total
	case *numbersNode:
		return w.numbers(n)
	case *quotientNode:
		total := sum(units(2+value.MaxScale/4), w.eval(n.of))
		for _, v := range []node{n.by, n.scale} {
			if v != nil {
				total = sum(total, w.eval(v))
			}
		}
		x, y := w.digitsOf(n.of), 0.
		if n.by != nil {
			y = w.digitsOf(n.by)
		}
		return sum(total, units(1.5*(x+2*y+2*value.MaxScale)+(x+y+value.MaxScale)*(y+value.MaxScale)/4096))
	case *foldNode:
		if n.name == "$count" && n.where == nil {
			return w.eval(n.in)
		}
		// An element may take as much as a result may have digits, which is known when there are elements.
		return units(2 * work.Replay)
	// Texts and times.
	case *textNode:
		return sum(units(1), w.eval(n.of), w.size(n.of).times(1./textPerUnit))
	case *sliceNode:
		total := sum(units(1), w.eval(n.of), w.eval(n.from), w.size(n.of).times(1./textPerUnit))
		if n.to != nil {
			total = sum(total, w.eval(n.to))
		}
		return total
	case *splitNode:
		total := sum(units(1), w.eval(n.of), w.eval(n.by), w.size(n.of).times(2./textPerUnit+1))
		for _, v := range []node{n.limit, n.part} {
			if v != nil {
				total = sum(total, w.eval(v))
			}
		}
		return total
	case *joinNode:
		if n.in != nil {
			// What stands between elements may be as long as a state for each of them, unless it stands in the spec.
			by, ok := n.by.(*literal)
			if !ok {
				return units(2 * work.Replay)
			}
			perByte := elementsPerByte*(1+float64(len(by.v.Str()))/work.BytesPerUnit) + 1./work.BytesPerUnit
			return sum(units(1), w.eval(n.in), w.size(n.in).times(perByte))
		}
		total := sum(w.all(n.items), w.eval(n.by))
		for _, v := range n.items {
			total = sum(total, units(1), w.size(v).times(1./work.BytesPerUnit),
				w.size(n.by).times(1./work.BytesPerUnit))
		}
		return total
	case *numberNode:
		return sum(units(1+mostNumber/digitsPerUnit), w.eval(n.of))
	case *caseNode:
		total := sum(w.eval(n.of), w.all(n.keys), w.all(n.values))
		for _, key := range n.keys {
			total = sum(total, units(1), w.compared(n.of, key))
		}
		if n.other != nil {
			total = sum(total, w.eval(n.other))
		}
		return total
	case *nowNode:
		return sum(units(timeWork), w.eval(n.seconds))
	case *durationNode:
		return sum(
			units(timeWork+4*mostDigits), w.eval(n.time), w.eval(n.by), w.size(n.time).times(1./textPerUnit),
			w.size(n.by).times(1./textPerUnit),
		)
	case *truncateNode:
		return sum(units(timeWork+4*mostDigits), w.eval(n.time), w.size(n.time).times(1./textPerUnit))
	default:
		return units(2 * work.Replay)
	}
}

// all weighs the evaluation of several values.
func (w *weigher) all(nodes []node) weight {
	total := units(0)
	for _, n := range nodes {
		total = sum(total, w.eval(n))
	}
	return total
}

// numbers weighs a numbersNode. One that goes through an array may take as much for an element as a result may have
// digits.
func (w *weigher) numbers(n *numbersNode) weight {
	if n.in != nil {
		return units(2 * work.Replay)
	}
	total := sum(units(float64(2*len(n.items))), w.all(n.items))
	digits := 0.
	for i, item := range n.items {
		x := w.digitsOf(item)
		switch {
		case i > 0 && n.name == "$multiply":
			total = sum(total, units(1.5*(digits+x)+digits*x/4096))
		case n.orders():
			total = sum(total, w.size(item).times(1./work.BytesPerUnit))
		default:
			total = sum(total, units((digits+x)/digitsPerUnit))
		}
		digits = min(digits+x, looseDigits)
	}
	return sum(total, units(2*digits/digitsPerUnit))
}

// digitsOf bounds the digits that arithmetic has to go through for a value.
func (w *weigher) digitsOf(n node) float64 {
	if lit, ok := n.(*literal); ok {
		return float64(lit.v.Digits())
	}
	return min(w.size(n).most(w.event), value.MaxDigits) + 2*value.MaxExponent
}

// result bounds the size of what an operator yields.
func (w *weigher) result(n node) weight {
	const grown = 3 // what a letter may grow by when its case changes
	switch n := n.(type) {
	case *coalesceNode:
		return w.sizes(n.items)
	case *choiceNode:
		return sum(w.size(n.then), w.size(n.other))
	case *caseNode:
		if n.other != nil {
			return sum(w.sizes(n.values), w.size(n.other))
		}
		return w.sizes(n.values)
	case *splitNode:
		return sum(units(2), w.size(n.of).times(4)) // a letter may stand for itself, quotes and a comma
	case *joinNode:
		if n.in != nil {
			return units(MaxState)
		}
		return sum(units(2), w.sizes(n.items), w.size(n.by).times(float64(len(n.items))))
	case *numberNode:
		return units(mostNumber)
	case *concatNode:
		return sum(units(2), w.sizes(n.items).times(2)) // what is put into a text may have to be escaped
	case *numbersNode:
		if n.orders() && n.in != nil {
			return sum(units(mostDigits), w.size(n.in))
		}
		if n.orders() {
			return sum(units(mostDigits), w.sizes(n.items))
		}
	case *textNode:
		return w.size(n.of).times(grown)
	case *sliceNode:
		return w.size(n.of)
	case *durationNode:
		return sum(units(mostDigits), w.size(n.time))
	case *truncateNode:
		return sum(units(mostDigits), w.size(n.time))
	}
	return units(mostDigits)
}

func (w *weigher) sizes(nodes []node) weight {
	total := units(0)
	for _, n := range nodes {
		total = sum(total, w.size(n))
	}
	return total
}
