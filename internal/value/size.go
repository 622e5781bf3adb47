package value

import "sync/atomic"

// Size returns the number of bytes that the value has as JSON, as AppendJSON writes it. Containers remember theirs, so asking
// again costs nothing; an Editor keeps it up to date.
func (v Value) Size() int {
	switch {
	case v.Kind() == String:
		return StringSize(v.str())
	case v.Kind() == Number && !v.text():
		return decimalSize(v.coef(), v.scale())
	case v.Kind() == Object:
		if known := atomic.LoadInt64(&v.object().size); known != 0 {
			return int(known)
		}
	}
	size, _ := v.Weigh()
	return size
}

// Weigh is Size, and tells how many values had to be visited and how many sixteens of bytes to be read to find it.
func (v Value) Weigh() (size, work int) {
	switch v.Kind() {
	case Missing:
		return 0, 0
	case Null:
		return len("null"), 0
	case Bool:
		return len("false") - int(v.n), 0
	case Number:
		if v.text() {
			return len(v.num()), 0
		}
		return decimalSize(v.coef(), v.scale()), 0
	case String:
		return StringSize(v.str()), len(v.str()) >> 4
	case Array:
		a := v.array()
		if known := atomic.LoadInt64(&a.size); known != 0 {
			return int(known), 0
		}
		size = 1 + max(len(a.elems), 1) // brackets and commas
		for i := range a.elems {
			n, visited := a.elems[i].Weigh()
			size += n
			work += visited + 1
		}
		atomic.StoreInt64(&a.size, int64(size))
	case Object:
		o := v.object()
		if known := atomic.LoadInt64(&o.size); known != 0 {
			return int(known), 0
		}
		size = 1 + max(len(o.members), 1)
		for i := range o.members {
			m := &o.members[i]
			n, visited := m.Value.Weigh()
			size += StringSize(m.Key) + 1 + n
			work += visited + 1 + len(m.Key)>>4
		}
		atomic.StoreInt64(&o.size, int64(size))
	}
	return size, work
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

// Nested tells whether the value is nested at most depth containers deep, and how many values were visited to find out.
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

// AtMost reports whether the value has at most limit bytes as JSON. It takes no longer than is in proportion to limit.
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
