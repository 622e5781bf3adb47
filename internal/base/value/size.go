package value

import "sync/atomic"

// Weight is how large a value is, or by how much something grows: the number of bytes as JSON, as AppendJSON writes it,
// and the number of values in it, itself included.
type Weight struct{ Bytes, Values int }

// Plus returns the sum of two weights.
func (w Weight) Plus(o Weight) Weight { return Weight{w.Bytes + o.Bytes, w.Values + o.Values} }

// Minus returns the difference of two weights.
func (w Weight) Minus(o Weight) Weight { return Weight{w.Bytes - o.Bytes, w.Values - o.Values} }

// Fits reports whether something may grow by w where there is so much room. What does not grow always may.
func (w Weight) Fits(room Weight) bool {
	return (w.Bytes <= 0 || w.Bytes <= room.Bytes) && (w.Values <= 0 || w.Values <= room.Values)
}

// known is the weight that a container remembers; that of no bytes is not known yet.
type known struct{ bytes, values int64 }

// emptyKnown is the weight of an empty container.
func emptyKnown() known { return known{2, 1} }

// load is for containers that others may read, too.
func (k *known) load() (Weight, bool) {
	bytes := atomic.LoadInt64(&k.bytes)
	return Weight{int(bytes), int(atomic.LoadInt64(&k.values))}, bytes != 0
}

func (k *known) store(w Weight) {
	atomic.StoreInt64(&k.values, int64(w.Values)) // before the bytes, which show that it is set
	atomic.StoreInt64(&k.bytes, int64(w.Bytes))
}

func (k *known) clone() known {
	w, _ := k.load()
	return known{int64(w.Bytes), int64(w.Values)}
}

// grow adds to a weight that is known, of a container that nobody else reads.
func (k *known) grow(by Weight) {
	if k.bytes != 0 {
		k.bytes += int64(by.Bytes)
		k.values += int64(by.Values)
	}
}

// Size returns the number of bytes that the value has as JSON; see Weight.
func (v Value) Size() int { return v.Weight().Bytes }

// Weight returns how large the value is. Containers remember theirs, so asking again costs nothing; an Editor keeps it
// up to date.
func (v Value) Weight() Weight {
	switch v.Kind() {
	case String:
		return Weight{StringSize(v.str()), 1}
	case Number:
		if !v.text() {
			return Weight{decimalSize(v.coef(), v.scale()), 1}
		}
	case Object:
		if w, ok := v.object().weight.load(); ok {
			return w
		}
	case Missing, Null, Bool, Array:
	}
	w, _ := v.Weigh()
	return w
}

// Weigh is Weight, and returns how many values had to be visited, and how many sixteens of bytes read, to find it.
func (v Value) Weigh() (w Weight, work int) {
	switch v.Kind() {
	case Missing:
		return Weight{}, 0
	case Null:
		return Weight{len("null"), 1}, 0
	case Bool:
		return Weight{len("false") - int(v.n), 1}, 0
	case Number:
		if v.text() {
			return Weight{len(v.num()), 1}, 0
		}
		return Weight{decimalSize(v.coef(), v.scale()), 1}, 0
	case String:
		return Weight{StringSize(v.str()), 1}, len(v.str()) >> 4
	case Array:
		a := v.array()
		// A container that was weighed before remembers.
		if w, ok := a.weight.load(); ok {
			return w, 0
		}
		w = Weight{1 + max(len(a.elems), 1), 1} // brackets and commas
		for i := range a.elems {
			n, visited := a.elems[i].Weigh()
			w = w.Plus(n)
			work += visited + 1
		}
		a.weight.store(w)
	case Object:
		o := v.object()
		if w, ok := o.weight.load(); ok {
			return w, 0
		}
		w = Weight{1 + max(len(o.members), 1), 1}
		for i := range o.members {
			m := &o.members[i]
			n, visited := m.Value.Weigh()
			w = w.Plus(n)
			w.Bytes += StringSize(m.Key) + 1
			work += visited + 1 + len(m.Key)>>4
		}
		o.weight.store(w)
	}
	return w, work
}

// StringSize returns the number of bytes that AppendString appends.
func StringSize(s string) int {
	n := len(s) + 2
	for i := 0; i < len(s); i++ {
		// Eight bytes at a time while none of them has to be escaped.
		for i+8 <= len(s) && special(eightBytes(s, i)) == 0 {
			i += 8
		}
		if i < len(s) {
			n += escapeSize(s[i])
		}
	}
	return n
}

// escapeSize returns how many bytes more than one it takes to write c in a string.
func escapeSize(c byte) int {
	if c >= 0x20 && c != '"' && c != '\\' {
		return 0
	}
	switch c {
	case '"', '\\', '\b', '\f', '\n', '\r', '\t':
		return 1
	default:
		return 5
	}
}

// decimalSize returns the number of bytes that appendDecimal appends.
func decimalSize(coef int64, scale uint8) int {
	n := 0
	if coef < 0 {
		n, coef = 1, -coef
	}
	digits := digitsOf(uint64(coef))
	if scale == 0 {
		return n + digits
	}
	return n + max(digits, int(scale)+1) + 1
}

// digitsOf returns the number of decimal digits of n.
func digitsOf(n uint64) int {
	digits := 1
	if n >= 1e16 {
		n /= 1e16
		digits += 16
	}
	if n >= 1e8 {
		n /= 1e8
		digits += 8
	}
	if n >= 1e4 {
		n /= 1e4
		digits += 4
	}
	if n >= 1e2 {
		n /= 1e2
		digits += 2
	}
	if n >= 10 {
		digits++
	}
	return digits
}

// Nested reports whether the value is nested at most depth containers deep, and how many values were visited to find
// out.
func (v Value) Nested(depth int) (ok bool, work int) {
	if v.Kind() != Array && v.Kind() != Object {
		return true, 0
	}
	if depth == 0 {
		return false, 0
	}
	ok = true
	visit := func(v Value) {
		var n int
		ok, n = v.Nested(depth - 1)
		work += n
	}
	work = v.Len()
	if v.Kind() == Array {
		elems := v.array().elems
		for i := 0; ok && i < len(elems); i++ {
			visit(elems[i])
		}
		return ok, work
	}
	members := v.object().members
	for i := 0; ok && i < len(members); i++ {
		visit(members[i].Value)
	}
	return ok, work
}

// AtMost reports whether the value has at most limit bytes as JSON. Its time is proportional to limit at most.
func (v Value) AtMost(limit int) bool {
	_, ok := v.room(limit)
	return ok
}

// room returns how many of the allowed bytes are left.
func (v Value) room(left int) (int, bool) {
	switch v.Kind() {
	case String:
		if len(v.str()) > left {
			return -1, false
		}
		left -= StringSize(v.str())
	case Array:
		elems := v.array().elems
		left -= 1 + max(len(elems), 1)
		for i := 0; left >= 0 && i < len(elems); i++ {
			left, _ = elems[i].room(left)
		}
	case Object:
		members := v.object().members
		left -= 1 + max(len(members), 1)
		for i := 0; left >= 0 && i < len(members); i++ {
			if len(members[i].Key) > left {
				return -1, false
			}
			left, _ = members[i].Value.room(left - StringSize(members[i].Key) - 1)
		}
	case Missing, Null, Bool, Number:
		left -= v.Size()
	}
	return left, left >= 0
}
