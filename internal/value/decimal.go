package value

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
)

// Digits returns about how many digits arithmetic has to go through for a number; 0 for those that fit a machine word and for
// every other kind.
func (v Value) Digits() int {
	if v.Kind() != Number || !v.text() {
		return 0
	}
	return len(v.num()) + min(abs(int(v.mag())), 2*MaxExponent)
}

func abs(n int) int { return max(n, -n) }

// parts are what numbers are compared by: sign times 0.d times ten to the power of mag, where d are the n digits at the
// beginning of text, which may have a decimal point among them. The first and the last digit are not zero; zero has none.
type parts struct {
	sign int
	mag  int32
	n    int
	text string
}

// parts takes a number apart without looking at its digits. buf is where those of a small number are written.
func (v Value) parts(buf *[24]byte) parts {
	if v.text() {
		text, n := v.digitsAt()
		switch {
		case n == 0:
			return parts{}
		case v.num()[0] == '-':
			return parts{sign: -1, mag: v.mag(), n: n, text: text}
		default:
			return parts{sign: 1, mag: v.mag(), n: n, text: text}
		}
	}
	coef, sign := v.coef(), 1
	switch {
	case coef == 0:
		return parts{}
	case coef < 0:
		coef, sign = -coef, -1
	}
	digits := strconv.AppendInt(buf[:0], coef, 10)
	mag := int32(len(digits)) - int32(v.scale())
	return parts{sign: sign, mag: mag, n: len(bytes.TrimRight(digits, "0")), text: bytesText(digits)}
}

// AppendDigits appends the significant digits d of a number, which is sign times 0.d times ten to the power of magnitude: the same
// for all texts of one number. Zero, and every other kind, has none and the sign 0.
func (v Value) AppendDigits(dst []byte) (digits []byte, sign, magnitude int) {
	if v.Kind() != Number {
		return dst, 0, 0
	}
	var buf [24]byte
	p := v.parts(&buf)
	for i := 0; p.n > 0; i++ {
		if c := p.text[i]; c != '.' {
			dst = append(dst, c)
			p.n--
		}
	}
	return dst, p.sign, int(p.mag)
}

// significant finds the significant digits in a number's text: what stands before the first, how many there are, and their
// magnitude.
func significant(s string) (before, digits int, mag int32) {
	seen, first, last, point, exponent := 0, -1, 0, -1, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			if c != '0' {
				if first < 0 {
					first, before = seen, i
				}
				last = seen
			}
			seen++
			continue
		case c == '.':
			point = seen
			continue
		case c == '-':
			continue
		}
		exponent, _ = strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
		break
	}
	switch {
	case first < 0:
		return 0, 0, 0
	case point < 0:
		point = seen
	}
	return before, last - first + 1, int32(max(min(point-first+exponent, maxMag), -maxMag))
}

const maxMag = 1<<31 - 1

// compareDigits orders the digits of two numbers of one magnitude.
func compareDigits(x, y parts) int {
	a, b := x.text, y.text
	i, j := 0, 0
	for range min(x.n, y.n) {
		if a[i] == '.' {
			i++
		}
		if b[j] == '.' {
			j++
		}
		if a[i] != b[j] {
			return cmp.Compare(a[i], b[j])
		}
		i++
		j++
	}
	return cmp.Compare(x.n, y.n)
}

// decimalText is a decimal of any size: its digits as text without a point, times ten to the power of -scale. scale may be
// negative.
type decimalText struct {
	negative bool
	digits   []byte
	scale    int
}

func (v Value) decimal() decimalText {
	var s string
	exponent := 0
	if v.text() {
		s = v.num()
		if i := strings.IndexAny(s, "eE"); i >= 0 {
			exponent, _ = strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
			s = s[:i]
		}
	} else {
		s = strconv.FormatInt(v.coef(), 10)
		exponent = -int(v.scale())
	}
	d := decimalText{negative: s[0] == '-'}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	d.digits = append(append(make([]byte, 0, len(s)), whole...), fraction...)
	d.scale = len(fraction) - exponent
	return d
}

// aligned returns the digits of d, as numbers, over a scale that is not smaller than its own, in n digits.
func (d *decimalText) aligned(n, scale int) []byte {
	out := make([]byte, n)
	from := n - (scale - d.scale) - len(d.digits)
	for i, c := range d.digits {
		out[from+i] = c - '0'
	}
	return out
}

// addDecimals returns the sum under the rules of Add. It reports false when the sum may have more than maxLoose digits.
func addDecimals(a, b decimalText, negate bool) (Value, bool) {
	scale := max(a.scale, b.scale, 0)
	n := 1 + max(len(a.digits)+scale-a.scale, len(b.digits)+scale-b.scale, scale)
	if n > maxLoose {
		return Value{}, false
	}
	b.negative = b.negative != negate
	x, y := a.aligned(n, scale), b.aligned(n, scale)
	negative := a.negative
	if a.negative == b.negative {
		addDigits(x, y)
	} else {
		if bytes.Compare(x, y) < 0 {
			x, y, negative = y, x, b.negative
		}
		subtractDigits(x, y)
	}
	return numberOf(x, scale, negative), true
}

// addDigits adds y to x, which has room for the sum.
func addDigits(x, y []byte) {
	carry := byte(0)
	for i := len(x) - 1; i >= 0; i-- {
		d := x[i] + y[i] + carry
		carry = 0
		if d > 9 {
			d, carry = d-10, 1
		}
		x[i] = d
	}
}

// subtractDigits takes y, which is not larger, from x.
func subtractDigits(x, y []byte) {
	borrow := byte(0)
	for i := len(x) - 1; i >= 0; i-- {
		d := x[i] - y[i] - borrow
		borrow = 0
		if d > 9 {
			d, borrow = d+10, 1
		}
		x[i] = d
	}
}

// numberOf returns the number of digits over a scale, which there are more than scale of.
func numberOf(digits []byte, scale int, negative bool) Value {
	from, zero := 0, true
	for i, d := range digits {
		zero = zero && d == 0
		if d == 0 && from == i && i < len(digits)-scale-1 {
			from++
		}
		digits[i] += '0'
	}
	text := make([]byte, 0, len(digits)+2)
	if negative && !zero {
		text = append(text, '-')
	}
	point := len(digits) - scale
	text = append(text, digits[from:point]...)
	if scale > 0 {
		text = append(append(text, '.'), digits[point:]...)
	}
	return number(bytesText(text))
}
