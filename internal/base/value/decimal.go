package value

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
)

// Digits returns about how many digits arithmetic has to go through for a number; 0 for those that fit a machine word
// and for every other kind.
func (v Value) Digits() int {
	if v.Kind() != Number || !v.text() {
		return 0
	}
	return len(v.num()) + min(abs(int(v.mag())), 2*MaxExponent)
}

func abs(n int) int { return max(n, -n) }

// parts are what numbers are compared by: sign times 0.d times ten to the power of mag, where d are the n digits at the
// beginning of text, which may have a decimal point among them. The first and the last digit are not zero; zero has
// none.
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

// AppendDigits appends the significant digits d of a number, which is sign times 0.d times ten to the power of
// magnitude: the same for all texts of one number. Zero, and every other kind, has none and the sign 0.
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

// significant finds the significant digits in a number's text: the length of the text before the first, how many there
// are, and their magnitude. It looks at the zeros around them alone.
func significant(s string) (before, digits int, mag int32) {
	mantissa, exponent := splitExponent(s)
	point := strings.IndexByte(mantissa, '.')
	if point < 0 {
		point = len(mantissa)
	}
	before = len(mantissa) - len(strings.TrimLeft(mantissa, "-0."))
	if before == len(mantissa) {
		return 0, 0, 0
	}
	last := len(strings.TrimRight(mantissa, "0.")) - 1

	// The point is among the digits, before or after them; magnitude is counted from the first of them.
	digits = last - before + 1
	if before < point && point < last {
		digits--
	}
	magnitude := point - before
	if magnitude < 0 {
		magnitude++
	}
	return before, digits, int32(max(min(magnitude+exponent, maxMag), -maxMag))
}

// splitExponent returns the text of a number without its exponent, and that.
func splitExponent(s string) (mantissa string, exponent int) {
	i := strings.IndexByte(s, 'e')
	if i < 0 {
		i = strings.IndexByte(s, 'E')
	}
	if i < 0 {
		return s, 0
	}
	exponent, _ = strconv.Atoi(strings.TrimPrefix(s[i+1:], "+"))
	return s[:i], exponent
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

// decimalText is a decimal of any size: its digits as text without a point, times ten to the power of -scale. scale may
// be negative.
type decimalText struct {
	negative bool
	digits   string
	scale    int
}

func (v Value) decimal() decimalText {
	var s string
	var exponent int
	if v.text() {
		s, exponent = splitExponent(v.num())
	} else {
		s, exponent = strconv.FormatInt(v.coef(), 10), -int(v.scale())
	}
	unsigned := strings.TrimPrefix(s, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	d := decimalText{negative: len(unsigned) < len(s), digits: whole, scale: len(fraction) - exponent}
	if fraction != "" {
		d.digits = whole + fraction
	}
	return d
}

// aligned returns d over a scale that is not smaller than its own, in n digits, and the place of the first that is its
// own.
func (d *decimalText) aligned(n, scale int) (digits []byte, from int) {
	digits = make([]byte, n)
	from = n - (scale - d.scale) - len(d.digits)
	fillZeros(digits[:from])
	fillZeros(digits[from+copy(digits[from:], d.digits):])
	return digits, from
}

func fillZeros(digits []byte) {
	if len(digits) == 0 {
		return
	}
	digits[0] = '0'
	for n := 1; n < len(digits); n *= 2 {
		copy(digits[n:], digits[:n])
	}
}

// addDecimals returns the sum under the rules of Add. It reports false when the sum may have more than maxLoose digits.
func addDecimals(a, b decimalText, negate bool) (Value, bool) {
	scale := max(a.scale, b.scale, 0)
	n := 1 + max(len(a.digits)+scale-a.scale, len(b.digits)+scale-b.scale, scale)
	if n > maxLoose {
		return Value{}, false
	}
	b.negative = b.negative != negate
	x, xFrom := a.aligned(n, scale)
	y, yFrom := b.aligned(n, scale)
	negative := a.negative
	if a.negative == b.negative {
		if xFrom > yFrom {
			x, y, yFrom = y, x, xFrom
		}
		addDigits(x, y, yFrom)
	} else {
		if bytes.Compare(x, y) < 0 {
			x, y, yFrom, negative = y, x, xFrom, b.negative
		}
		subtractDigits(x, y, yFrom)
	}
	return numberOf(x, scale, negative), true
}

// addDigits adds y, which has none but zeros before from, to x, which has room for the sum.
func addDigits(x, y []byte, from int) {
	carry := byte(0)
	for i := len(x) - 1; i >= from || carry != 0; i-- {
		d := x[i] + (y[i] - '0') + carry
		carry = 0
		if d > '9' {
			d, carry = d-10, 1
		}
		x[i] = d
	}
}

// subtractDigits takes y, which is not larger and has none but zeros before from, from x.
func subtractDigits(x, y []byte, from int) {
	borrow := byte(0)
	for i := len(x) - 1; i >= from || borrow != 0; i-- {
		d := x[i] - (y[i] - '0') - borrow
		borrow = 0
		if d < '0' {
			d, borrow = d+10, 1
		}
		x[i] = d
	}
}

// numberOf returns the number of digits over a scale, which there are more than scale of.
func numberOf(digits []byte, scale int, negative bool) Value {
	point := len(digits) - scale
	whole := bytes.TrimLeft(digits[:point-1], "0")
	from := point - 1 - len(whole)
	text := make([]byte, 0, len(digits)-from+2)
	if negative && len(bytes.TrimLeft(digits, "0")) > 0 {
		text = append(text, '-')
	}
	text = append(text, digits[from:point]...)
	if scale > 0 {
		text = append(append(text, '.'), digits[point:]...)
	}
	return number(bytesText(text))
}
