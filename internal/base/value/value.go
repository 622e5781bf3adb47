// Package value holds JSON documents as immutable trees: numbers are exact, objects keep the order of their keys.
//
// A Value may be shared by any number of goroutines. Trees are changed through an Editor, which copies a
// container the first time it touches it and changes its own copies in place from then on.
//
// The decisions behind it are in docs/internals/base.md.
package value

import (
	"slices"
	"unsafe"
)

// Kind is the JSON type of a value.
type Kind uint8

// The kinds. Missing is the kind of the zero Value: what a path that leads nowhere resolves to.
const (
	Missing Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// String returns the JSON Schema name of the kind.
func (k Kind) String() string {
	switch k {
	case Missing:
		return "missing"
	case Null:
		return "null"
	case Bool:
		return "boolean"
	case Number:
		return "number"
	case String:
		return "string"
	case Array:
		return "array"
	case Object:
		return "object"
	default:
		return "invalid"
	}
}

// Value is one JSON value. The zero Value is Missing.
//
// It is a tagged union in 24 bytes: p and n are, by kind, the bytes of a string, the text of a number that does
// not fit n, a *array, a *object, or n alone (booleans, small decimals). This file is the only one that knows.
type Value struct {
	p unsafe.Pointer
	n uint64
	t tag
}

// tag is the kind of a value, in the lowest byte, and what else a number needs. It is one word, like the two fields
// beside it, so that compilers keep values in registers.
type tag uint64

const (
	// tagText says of a Number that p is its text and n packs where its digits stand; else n is a decimal coefficient.
	tagText tag = 1 << 8
	// Above tagScale stands how many digits of a Number in n stand after the decimal point.
	tagScale = 16
	// Above tagMag stands, as an int32, the magnitude of a Number as text: it is 0.d times ten to the power of that,
	// where d are its significant digits.
	tagMag = 32
)

func (v Value) text() bool   { return v.t&tagText != 0 }
func (v Value) scale() uint8 { return uint8(v.t >> tagScale) }
func (v Value) mag() int32   { return int32(v.t >> tagMag) }

// A number's text is described by three lengths in n: that of the text, that of the part before the first significant
// digit, and the number of significant digits, which is zero for zero.
const (
	lenBits    = 21
	maxTextLen = 1<<lenBits - 1
)

// Member is one key and value of an object.
type Member struct {
	Key   string
	Value Value
}

type array struct {
	owner  *token
	elems  []Value
	weight known
}

type object struct {
	owner   *token
	members []Member
	index   *index
	weight  known
}

// index finds the members of a large object. It is shared by the versions of an object that have those members in the
// same order. It covers the first n members, except for those at the positions gone, which are sorted. Only the editor
// that owns it may change it, as long as nobody else has a version.
type index struct {
	owner *token
	at    map[string]int
	n     int
	gone  []int
}

// covers returns how many members the index knows.
func (x *index) covers() int {
	if x == nil {
		return 0
	}
	return x.n - len(x.gone)
}

// IndexFrom is the number of members from which an object gets an index.
const IndexFrom = 16

func newIndex(members []Member) *index {
	if len(members) <= IndexFrom {
		return nil
	}
	at := make(map[string]int, len(members))
	for i := range members {
		at[members[i].Key] = i
	}
	return &index{at: at, n: len(members)}
}

func (o *object) find(key string) int {
	from := 0
	if o.index != nil {
		if i, ok := o.index.at[key]; ok {
			if len(o.index.gone) == 0 {
				return i
			}
			if before, removed := slices.BinarySearch(o.index.gone, i); !removed {
				return i - before
			}
		}
		from = o.index.covers()
	}
	for i := from; i < len(o.members); i++ {
		if o.members[i].Key == key {
			return i
		}
	}
	return -1
}

// NullValue returns null.
func NullValue() Value { return Value{t: tag(Null)} }

// BoolValue returns true or false.
func BoolValue(b bool) Value {
	if b {
		return Value{n: 1, t: tag(Bool)}
	}
	return Value{t: tag(Bool)}
}

// StringValue returns a string; s must be valid UTF-8.
func StringValue(s string) Value {
	return Value{p: unsafe.Pointer(unsafe.StringData(s)), n: uint64(len(s)), t: tag(String)}
}

// Int returns an integer.
func Int(i int64) Value {
	if i > maxCoef || i < -maxCoef {
		return bigInt(i)
	}
	return decimal(i, 0)
}

func decimal(coef int64, scale uint8) Value {
	return Value{n: uint64(coef), t: tag(Number) | tag(scale)<<tagScale}
}

func numberText(s string) Value {
	before, digits, mag := significant(s)
	n := uint64(len(s)) | uint64(before)<<lenBits | uint64(digits)<<(2*lenBits)
	return Value{p: unsafe.Pointer(unsafe.StringData(s)), n: n, t: tag(Number) | tagText | tag(uint32(mag))<<tagMag}
}

// ArrayValue returns an array of elems, which must not be changed afterwards.
func ArrayValue(elems ...Value) Value { return arrayOf(&array{elems: elems}) }

// ObjectValue returns an object of members, which have distinct keys and must not be changed afterwards.
func ObjectValue(members ...Member) Value {
	o := &object{members: members, index: newIndex(members)}
	if len(members) == 0 {
		o.weight = emptyKnown()
	}
	return objectOf(o)
}

func arrayOf(a *array) Value   { return Value{p: unsafe.Pointer(a), t: tag(Array)} }
func objectOf(o *object) Value { return Value{p: unsafe.Pointer(o), t: tag(Object)} }

func (v Value) array() *array   { return (*array)(v.p) }
func (v Value) object() *object { return (*object)(v.p) }
func (v Value) coef() int64     { return int64(v.n) }

// str returns the bytes of a string.
func (v Value) str() string { return unsafe.String((*byte)(v.p), int(v.n)) }

// num returns the text of a number that is held as one.
func (v Value) num() string { return unsafe.String((*byte)(v.p), int(v.n&maxTextLen)) }

// digitsAt returns the text of such a number from its first significant digit on, and the number of those.
func (v Value) digitsAt() (string, int) {
	return v.num()[v.n>>lenBits&maxTextLen:], int(v.n >> (2 * lenBits))
}

// Kind returns the value's kind.
func (v Value) Kind() Kind { return Kind(v.t) }

// IsMissing reports whether there is no value.
func (v Value) IsMissing() bool { return v.Kind() == Missing }

// OrNull returns v, or null where v is missing.
func (v Value) OrNull() Value {
	if v.Kind() == Missing {
		return NullValue()
	}
	return v
}

// Truth returns the boolean; false for every other kind.
func (v Value) Truth() bool { return v.Kind() == Bool && v.n == 1 }

// Str returns the string; "" for every other kind.
func (v Value) Str() string {
	if v.Kind() != String {
		return ""
	}
	return v.str()
}

// Elems returns the elements of an array, nil for every other kind. The slice must not be changed.
func (v Value) Elems() []Value {
	if v.Kind() != Array {
		return nil
	}
	return v.array().elems
}

// Members returns the members of an object in order, nil for every other kind. The slice must not be changed.
func (v Value) Members() []Member {
	if v.Kind() != Object {
		return nil
	}
	return v.object().members
}

// Len returns the number of elements or members; 0 for scalars.
func (v Value) Len() int {
	switch v.Kind() {
	case Array:
		return len(v.array().elems)
	case Object:
		return len(v.object().members)
	case Missing, Null, Bool, Number, String:
	}
	return 0
}

// Get returns the member of an object, or the zero Value.
func (v Value) Get(key string) Value {
	if v.Kind() != Object {
		return Value{}
	}
	o := v.object()
	if i := o.find(key); i >= 0 {
		return o.members[i].Value
	}
	return Value{}
}

// Index returns the element of an array, counted from the end when i is negative, or the zero Value.
func (v Value) Index(i int) Value {
	if v.Kind() != Array {
		return Value{}
	}
	elems := v.array().elems
	if i < 0 {
		i += len(elems)
	}
	if i < 0 || i >= len(elems) {
		return Value{}
	}
	return elems[i]
}

// Step is one step of a path: a member's key or an element's index.
type Step struct {
	Key     string
	Index   int
	IsIndex bool
}

// At follows steps from v and returns what they lead to, or the zero Value.
func (v Value) At(steps []Step) Value {
	for i := range steps {
		if steps[i].IsIndex {
			v = v.Index(steps[i].Index)
		} else {
			v = v.Get(steps[i].Key)
		}
		if v.Kind() == Missing {
			return v
		}
	}
	return v
}

// Equal reports whether a and b are the same JSON value: numbers compare by value, objects regardless of order. Values
// of different kinds are never equal; Missing equals Missing only.
func Equal(a, b Value) bool {
	var work int
	return EqualCounted(a, b, &work)
}

// EqualCounted is Equal, and adds to work about how many values and sixteens of bytes had to be compared. It does not
// count a and b themselves.
func EqualCounted(a, b Value, work *int) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	switch a.Kind() {
	case Missing, Null:
		return true
	case Bool:
		return a.n == b.n
	case Number:
		*work += CompareWork(a, b)
		return compareNumbers(a, b) == 0
	case String:
		if a.n != b.n {
			return false
		}
		*work += int(a.n >> 4)
		return a.str() == b.str()
	case Array:
		return equalArrays(a.array(), b.array(), work)
	case Object:
		return equalObjects(a.object(), b.object(), work)
	default:
		return false
	}
}

func equalArrays(x, y *array, work *int) bool {
	if x == y {
		return true
	}
	if len(x.elems) != len(y.elems) {
		return false
	}
	for i := range x.elems {
		*work++
		if !EqualCounted(x.elems[i], y.elems[i], work) {
			return false
		}
	}
	return true
}

func equalObjects(x, y *object, work *int) bool {
	if x == y {
		return true
	}
	if len(x.members) != len(y.members) {
		return false
	}
	for i := range x.members {
		m := &x.members[i]
		*work += 1 + len(m.Key)>>4
		var other Value
		if i < len(y.members) && y.members[i].Key == m.Key {
			other = y.members[i].Value
		} else if j := y.find(m.Key); j >= 0 {
			*work++
			other = y.members[j].Value
		}
		if !EqualCounted(m.Value, other, work) {
			return false
		}
	}
	return true
}

// CompareWork returns about how many sixteens of bytes Compare looks at, at most.
func CompareWork(a, b Value) int {
	switch {
	case a.Kind() == String && b.Kind() == String:
		return int(min(a.n, b.n) >> 4)
	case a.text() && b.text():
		return int(min(a.n, b.n) >> (2*lenBits + 3))
	default:
		return 0
	}
}

// Compare orders two numbers or two strings (by code point). It reports false for every other pair.
func Compare(a, b Value) (int, bool) {
	switch {
	case a.Kind() == Number && b.Kind() == Number:
		return compareNumbers(a, b), true
	case a.Kind() == String && b.Kind() == String:
		x, y := a.str(), b.str()
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		default:
			return 0, true
		}
	default:
		return 0, false
	}
}

// Within reports whether v is nested at most depth containers deep and made of at most nodes values.
func (v Value) Within(depth, nodes int) bool {
	_, ok := v.measure(depth, nodes)
	return ok
}

// measure returns how many of the allowed nodes are left.
func (v Value) measure(depth, nodes int) (int, bool) {
	nodes--
	if nodes < 0 {
		return nodes, false
	}
	switch v.Kind() {
	case Array, Object:
		if depth == 0 {
			return nodes, false
		}
	case Missing, Null, Bool, Number, String:
		return nodes, true
	}
	ok := true
	for i := 0; ok && i < v.Len(); i++ {
		if v.Kind() == Array {
			nodes, ok = v.array().elems[i].measure(depth-1, nodes)
		} else {
			nodes, ok = v.object().members[i].Value.measure(depth-1, nodes)
		}
	}
	return nodes, ok
}

// bytesText returns b as a string without copying it. b must not be changed afterwards.
func bytesText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
