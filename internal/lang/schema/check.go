package schema

import (
	"hash/maphash"
	"strconv"
	"strings"
	"unicode/utf8"

	"j17/internal/base/value"
	"j17/internal/base/work"
)

// run is one pass over a value. Once its budget is used up the pass is given up, and its results mean nothing.
type run struct {
	budget *work.Budget
	seed   maphash.Seed
	// steps is how many units are left of those taken last. Those that were used are paid for when it is below zero,
	// and by end.
	steps, taken int
}

// unitsTaken is how many units a pass uses before it pays for them.
const unitsTaken = 1 << 12

// spend uses n units and reports false when the pass has been given up.
func (r *run) spend(n int) bool {
	r.steps -= n
	return r.steps >= 0 || r.more()
}

// more pays for the units that were used, and reports whether there are more.
func (r *run) more() bool {
	if !r.end() {
		r.steps = -1
		return false
	}
	r.taken = int(min(unitsTaken, r.budget.Left()))
	r.steps = r.taken
	return true
}

// end pays for the units that were used, and reports false when the pass has been given up.
func (r *run) end() bool {
	used := r.taken - r.steps
	r.taken, r.steps = 0, 0
	return r.budget.Spend(used)
}

// givenUp reports whether the budget was used up.
func (r *run) givenUp() bool { return r.budget.Err() != nil }

// accepts reports whether v fits n.
func (r *run) accepts(n *node, v value.Value) bool {
	// What holds for a value of every kind.
	if !r.spend(1) || n.never {
		return false
	}
	if n.types != 0 && !r.hasType(n.types, v) {
		return false
	}
	if n.enum != nil && !r.oneOf(n.enum, v) {
		return false
	}

	// What holds for values of its kind.
	switch v.Kind() {
	case value.Number:
		switch {
		case n.number == nil:
		case !n.number.dear && v.IsCheap():
			if !n.number.accepts(v) {
				return false
			}
		case !r.acceptsDear(n.number, v):
			return false
		}
	case value.String:
		if n.text != nil && !r.acceptsText(n.text, v.Str()) {
			return false
		}
	case value.Array:
		if n.array != nil && !r.acceptsArray(n.array, v) {
			return false
		}
	case value.Object:
		if n.object != nil && !r.acceptsObject(n.object, v) {
			return false
		}
	case value.Missing, value.Null, value.Bool:
	}

	return n.same == nil || r.acceptsSame(n.same, v)
}

// hasType reports whether v has one of the types.
func (r *run) hasType(t typeSet, v value.Value) bool {
	if t&(1<<(v.Kind()&15)) != 0 {
		return true
	}
	if t&integers == 0 || v.Kind() != value.Number {
		return false
	}
	if effort := v.NumberEffort(); effort > 0 && !r.spend(effort) {
		return false
	}
	return v.IsInteger()
}

// enumShare is how many values of other types are passed over in the time of one unit.
const enumShare = 8

func (r *run) oneOf(e *enumRule, v value.Value) bool {
	if v.Kind() == value.String && e.texts != nil {
		if !r.spend(len(v.Str()) / work.BytesPerUnit) {
			return false
		}
		_, ok := e.texts[v.Str()]
		return ok
	}
	if !r.spend(len(e.values) / enumShare) {
		return false
	}
	for i := range e.values {
		if r.equal(e.values[i], v) {
			return true
		}
	}
	return false
}

// equal is value.Equal with its work counted.
func (r *run) equal(a, b value.Value) bool {
	if a.Kind() != b.Kind() || !r.spend(1) {
		return false
	}
	switch a.Kind() {
	case value.Number:
		return r.spend(value.CompareEffort(a, b)) && value.Equal(a, b)
	case value.String:
		x, y := a.Str(), b.Str()
		return len(x) == len(y) && r.spend(len(x)/work.BytesPerUnit) && x == y
	case value.Array:
		x, y := a.Elems(), b.Elems()
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !r.equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case value.Object:
		return r.equalObjects(a.Members(), b)
	case value.Missing, value.Null, value.Bool:
	}
	return value.Equal(a, b)
}

func (r *run) equalObjects(members []value.Member, object value.Value) bool {
	others := object.Members()
	if len(members) != len(others) {
		return false
	}
	for i := range members {
		m := &members[i]
		if !r.spend(len(m.Key) / work.BytesPerUnit) {
			return false
		}
		other := others[i].Value
		if others[i].Key != m.Key {
			other = r.get(object, m.Key)
		}
		if !r.equal(m.Value, other) {
			return false
		}
	}
	return true
}

// getCost is what it takes to look up a member of an object, beside reading its name.
const getCost = 2

// get is Value.Get with its work counted.
func (r *run) get(object value.Value, name string) value.Value {
	if !r.spend(getCost + len(name)/work.BytesPerUnit) {
		return value.Value{}
	}
	return object.Get(name)
}

// has reports whether an object has a member with the name.
func (r *run) has(object value.Value, name string) bool { return !r.get(object, name).IsMissing() }

func (n *numberRule) accepts(v value.Value) bool {
	return (n.minimum.IsMissing() || compare(v, n.minimum) >= 0) &&
		(n.maximum.IsMissing() || compare(v, n.maximum) <= 0) &&
		(n.exclusiveMinimum.IsMissing() || compare(v, n.exclusiveMinimum) > 0) &&
		(n.exclusiveMaximum.IsMissing() || compare(v, n.exclusiveMaximum) < 0) &&
		(n.multipleOf.IsMissing() || v.MultipleOf(n.multipleOf))
}

func compare(a, b value.Value) int {
	c, _ := value.Compare(a, b)
	return c
}

// acceptsDear is numberRule.accepts with its work counted.
func (r *run) acceptsDear(n *numberRule, v value.Value) bool {
	return (n.minimum.IsMissing() || r.compare(v, n.minimum) >= 0) &&
		(n.maximum.IsMissing() || r.compare(v, n.maximum) <= 0) &&
		(n.exclusiveMinimum.IsMissing() || r.compare(v, n.exclusiveMinimum) > 0) &&
		(n.exclusiveMaximum.IsMissing() || r.compare(v, n.exclusiveMaximum) < 0) &&
		(n.multipleOf.IsMissing() || r.spend(value.CompareEffort(v, n.multipleOf)) && v.MultipleOf(n.multipleOf))
}

// compare orders two numbers.
func (r *run) compare(a, b value.Value) int {
	if !r.spend(value.CompareEffort(a, b)) {
		return 0
	}
	return compare(a, b)
}

func (r *run) acceptsText(t *textRule, s string) bool {
	if !r.fitsLength(t, s) {
		return false
	}
	if t.format.Valid != nil && (!r.spend(t.format.Effort(len(s))) || !t.format.Valid(s)) {
		return false
	}
	return t.pattern == nil || t.pattern.Match(s, r.budget)
}

// fitsLength checks the number of characters. It counts them only where the number of bytes leaves it open.
func (r *run) fitsLength(t *textRule, s string) bool {
	if t.minLength == 0 && t.maxLength == unlimited {
		return true
	}
	if len(s) < t.minLength || t.maxLength != unlimited && len(s) > utf8.UTFMax*t.maxLength {
		return false
	}
	if len(s) >= utf8.UTFMax*t.minLength && (t.maxLength == unlimited || len(s) <= t.maxLength) {
		return true
	}
	if !r.spend(len(s) / work.BytesPerUnit) {
		return false
	}
	n := utf8.RuneCountInString(s)
	return n >= t.minLength && (t.maxLength == unlimited || n <= t.maxLength)
}

func (r *run) acceptsArray(a *arrayRule, v value.Value) bool {
	elems := v.Elems()
	if len(elems) < a.minItems || a.maxItems != unlimited && len(elems) > a.maxItems {
		return false
	}
	prefix := min(len(a.prefix), len(elems))
	for i := range prefix {
		if !r.accepts(a.prefix[i], elems[i]) {
			return false
		}
	}
	if a.items != nil {
		for i := prefix; i < len(elems); i++ {
			if !r.accepts(a.items, elems[i]) {
				return false
			}
		}
	}
	if a.contains != nil {
		if n := r.count(a, elems); n < a.minContains || a.maxContains != unlimited && n > a.maxContains {
			return false
		}
	}
	if a.unique {
		_, _, found := r.duplicates(elems)
		return !found
	}
	return true
}

// count returns how many items fit contains. It stops where more make no difference.
func (r *run) count(a *arrayRule, elems []value.Value) int {
	n := 0
	for i := range elems {
		if a.maxContains == unlimited && n >= a.minContains || a.maxContains != unlimited && n > a.maxContains {
			break
		}
		if r.accepts(a.contains, elems[i]) {
			n++
		}
	}
	return n
}

// longName is the length from which the name of a member costs more than the member itself.
const longName = 64

func (r *run) acceptsObject(o *objectRule, v value.Value) bool {
	members := v.Members()
	if len(members) < o.minFields || o.maxFields != unlimited && len(members) > o.maxFields {
		return false
	}
	if !r.spend(len(members)) {
		return false
	}

	// Members and fields are in the same order most of the time, so that the search goes on where it was.
	required, next := 0, 0
	for i := range members {
		m := &members[i]
		if len(m.Key) > longName && !r.spend(len(m.Key)/work.BytesPerUnit) {
			return false
		}

		// What is declared by name or by pattern has its own schemas; the rest has the schema for the rest.
		declared := false
		if at := o.find(m.Key, next); at >= 0 {
			next = at + 1
			f := &o.fields[at]
			if f.required {
				required++
			}
			if f.schema != nil {
				declared = true
				if !r.accepts(f.schema, m.Value) {
					return false
				}
			}
		}
		for j := range o.patterns {
			if p := &o.patterns[j]; p.pattern.Match(m.Key, r.budget) {
				declared = true
				if !r.accepts(p.schema, m.Value) {
					return false
				}
			}
		}
		if !declared && o.additional != nil && !r.accepts(o.additional, m.Value) {
			return false
		}

		if o.names != nil && !r.accepts(o.names, value.StringValue(m.Key)) {
			return false
		}
	}

	return required == o.required && r.acceptsDependents(o, v)
}

func (r *run) acceptsDependents(o *objectRule, v value.Value) bool {
	for i := range o.needs {
		if !r.has(v, o.needs[i].name) {
			continue
		}
		for _, name := range o.needs[i].required {
			if !r.has(v, name) {
				return false
			}
		}
	}
	for i := range o.dependents {
		if r.has(v, o.dependents[i].name) && !r.accepts(o.dependents[i].schema, v) {
			return false
		}
	}
	return true
}

func (r *run) acceptsSame(s *sameRule, v value.Value) bool {
	// Schemas that have to fit as well.
	if s.ref != nil && !r.accepts(s.ref, v) {
		return false
	}
	for _, n := range s.allOf {
		if !r.accepts(n, v) {
			return false
		}
	}

	// Combinations, of which some number has to fit.
	if s.anyOf != nil && !r.acceptsAny(s.anyOf, v) {
		return false
	}
	if s.oneOf != nil {
		fitting := 0
		for _, n := range s.oneOf {
			if r.accepts(n, v) {
				if fitting++; fitting > 1 {
					return false
				}
			}
		}
		if fitting == 0 {
			return false
		}
	}

	if s.not != nil && r.accepts(s.not, v) {
		return false
	}

	if s.condition != nil {
		branch := s.ifFalse
		if r.accepts(s.condition, v) {
			branch = s.ifTrue
		}
		return branch == nil || r.accepts(branch, v)
	}
	return true
}

func (r *run) acceptsAny(nodes []*node, v value.Value) bool {
	for _, n := range nodes {
		if r.accepts(n, v) {
			return true
		}
	}
	return false
}

// hashFrom is the number of items from which hashing finds duplicates faster than comparing each with each.
const hashFrom = 8

// duplicates returns the places of the first two items that are equal: the one that comes back soonest.
func (r *run) duplicates(elems []value.Value) (first, second int, found bool) {
	if len(elems) < hashFrom {
		for second := range elems {
			for first := range second {
				if r.equal(elems[first], elems[second]) {
					return first, second, true
				}
			}
		}
		return 0, 0, false
	}
	if !r.spend(keepCost * len(elems)) {
		return 0, 0, false
	}
	seen := make(map[uint64][]int, len(elems))
	for second := range elems {
		h := r.hash(elems[second])
		for _, first := range seen[h] {
			if r.equal(elems[first], elems[second]) {
				return first, second, true
			}
		}
		if r.givenUp() {
			return 0, 0, false
		}
		seen[h] = append(seen[h], second)
	}
	return 0, 0, false
}

// keepCost is what it takes to keep the hash of an item.
const keepCost = 8

// hash is equal for equal values.
func (r *run) hash(v value.Value) uint64 {
	if !r.spend(1) {
		return 0
	}
	switch v.Kind() {
	case value.Missing, value.Null:
		return uint64(v.Kind())
	case value.Bool:
		return maphash.Comparable(r.seed, v.Truth())
	case value.Number:
		if !r.spend(2 * v.NumberEffort()) {
			return 0
		}
		// Numbers are equal however they are written.
		if i, ok := v.Int64(); ok {
			return maphash.Comparable(r.seed, i)
		}
		digits, exponent := scientific(v.Num())
		return maphash.String(r.seed, digits+"e"+strconv.Itoa(exponent))
	case value.String:
		r.spend(len(v.Str()) / work.BytesPerUnit)
		return maphash.String(r.seed, v.Str())
	case value.Array:
		h := uint64(v.Kind())
		for _, e := range v.Elems() {
			h = h*31 + r.hash(e)
		}
		return maphash.Comparable(r.seed, h)
	case value.Object:
		h := uint64(v.Kind())
		for _, m := range v.Members() { // the order makes no difference
			r.spend(len(m.Key) / work.BytesPerUnit)
			h += maphash.Comparable(r.seed, [2]uint64{maphash.String(r.seed, m.Key), r.hash(m.Value)})
		}
		return h
	default:
		return 0
	}
}

// scientific returns the one pair of an integer without trailing zeros and an exponent of ten that a number's text
// stands for.
func scientific(text string) (digits string, exponent int) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(strings.TrimPrefix(text[i+1:], "+"))
		text = text[:i]
	}
	sign := ""
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		sign, text = "-", rest
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits = whole + fraction
	exponent -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	return sign + strings.TrimLeft(trimmed, "0"), exponent
}
