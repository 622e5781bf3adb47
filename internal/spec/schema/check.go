package schema

import (
	"hash/maphash"
	"strconv"
	"strings"
	"unicode/utf8"

	"j17/internal/value"
)

// run is one pass over a value.
type run struct {
	// steps is what may still be done. Once it is negative the pass has been given up and no result of it counts.
	steps int
	seed  maphash.Seed
}

// accepts reports whether v fits n.
func (r *run) accepts(n *node, v value.Value) bool {
	if r.steps--; r.steps < 0 || n.never {
		return false
	}
	if n.types != 0 && !n.types.accepts(v) {
		return false
	}
	if n.enum != nil && !r.oneOf(n.enum, v) {
		return false
	}
	switch v.Kind() {
	case value.Number:
		if n.number != nil && !n.number.accepts(v) {
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

func (r *run) oneOf(e *enumRule, v value.Value) bool {
	switch v.Kind() {
	case value.String:
		if e.texts != nil {
			_, ok := e.texts[v.Str()]
			return ok
		}
	case value.Array, value.Object:
		r.steps -= e.weight
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	r.steps -= len(e.values) / 8
	for i := range e.values {
		if value.Equal(e.values[i], v) {
			return true
		}
	}
	return false
}

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

// formatShare is how many bytes of a text a format reads in the time of one step.
const formatShare = 16

func (r *run) acceptsText(t *textRule, s string) bool {
	if t.minLength > 0 || t.maxLength != unlimited {
		if n := utf8.RuneCountInString(s); n < t.minLength || t.maxLength != unlimited && n > t.maxLength {
			return false
		}
	}
	if t.format.Valid != nil {
		r.steps -= len(s) / formatShare
		if !t.format.Valid(s) {
			return false
		}
	}
	return t.pattern == nil || t.pattern.Match(s, &r.steps)
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

func (r *run) acceptsObject(o *objectRule, v value.Value) bool {
	members := v.Members()
	if len(members) < o.minFields || o.maxFields != unlimited && len(members) > o.maxFields {
		return false
	}
	required, next := 0, 0
	for i := range members {
		m := &members[i]
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
			if p := &o.patterns[j]; p.pattern.Match(m.Key, &r.steps) {
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
	r.steps -= len(members)
	return required == o.required && r.steps >= 0 && r.acceptsDependents(o, v)
}

func (r *run) acceptsDependents(o *objectRule, v value.Value) bool {
	r.steps -= len(o.needs) + len(o.dependents)
	for i := range o.needs {
		if !has(v, o.needs[i].name) {
			continue
		}
		r.steps -= len(o.needs[i].required)
		for _, name := range o.needs[i].required {
			if !has(v, name) {
				return false
			}
		}
	}
	for i := range o.dependents {
		if has(v, o.dependents[i].name) && !r.accepts(o.dependents[i].schema, v) {
			return false
		}
	}
	return true
}

func has(object value.Value, name string) bool { return !object.Get(name).IsMissing() }

func (r *run) acceptsSame(s *sameRule, v value.Value) bool {
	if s.ref != nil && !r.accepts(s.ref, v) {
		return false
	}
	for _, n := range s.allOf {
		if !r.accepts(n, v) {
			return false
		}
	}
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
		branch := s.otherwise
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
				r.steps--
				if value.Equal(elems[first], elems[second]) {
					return first, second, true
				}
			}
		}
		return 0, 0, false
	}
	seen := make(map[uint64][]int, len(elems))
	for second := range elems {
		h := r.hash(elems[second])
		for _, first := range seen[h] {
			if value.Equal(elems[first], elems[second]) {
				return first, second, true
			}
		}
		seen[h] = append(seen[h], second)
	}
	return 0, 0, false
}

// hash is equal for equal values.
func (r *run) hash(v value.Value) uint64 {
	r.steps--
	switch v.Kind() {
	case value.Missing, value.Null:
		return uint64(v.Kind())
	case value.Bool:
		return maphash.Comparable(r.seed, v.Truth())
	case value.Number:
		if i, ok := v.Int64(); ok {
			return maphash.Comparable(r.seed, i)
		}
		digits, exponent := scientific(v.Num())
		return maphash.String(r.seed, digits+"e"+strconv.Itoa(exponent))
	case value.String:
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
