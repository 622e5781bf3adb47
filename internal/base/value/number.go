package value

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"
)

// maxCoef bounds the coefficient of a number that is held inline: 18 nines, so that sums cannot overflow.
const maxCoef = 999_999_999_999_999_999

// maxInlineScale bounds the digits after the decimal point of a number that is held inline.
const maxInlineScale = 18

// Num returns the text of a number as it was written; "" for every other kind.
func (v Value) Num() string {
	switch {
	case v.Kind() != Number:
		return ""
	case v.text():
		return v.num()
	default:
		var buf [24]byte
		return string(appendDecimal(buf[:0], v.coef(), v.scale()))
	}
}

func appendDecimal(dst []byte, coef int64, scale uint8) []byte {
	if scale == 0 {
		return strconv.AppendInt(dst, coef, 10)
	}
	if coef < 0 {
		dst = append(dst, '-')
		coef = -coef
	}
	start := len(dst)
	dst = strconv.AppendInt(dst, coef, 10)
	for len(dst)-start <= int(scale) {
		dst = append(dst, 0)
		copy(dst[start+1:], dst[start:])
		dst[start] = '0'
	}
	point := len(dst) - int(scale)
	dst = append(dst, 0)
	copy(dst[point+1:], dst[point:])
	dst[point] = '.'
	return dst
}

// number returns the value of a number's text, which must be valid JSON.
func number(s string) Value {
	// Only plain decimals fit into a value; any other number stays as it was written.
	digits, scale, point := 0, 0, false
	for i := 0; i < len(s) && digits <= maxInlineScale; i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			digits++
			if point {
				scale++
			}
		case c == '.':
			point = true
		case c == '-':
		default:
			return numberText(s)
		}
	}
	if digits > maxInlineScale {
		return numberText(s)
	}

	// The digits as one integer. Minus zero is no integer.
	var coef int64
	negative := s[0] == '-'
	for i := range len(s) {
		if c := s[i]; c >= '0' && c <= '9' {
			coef = coef*10 + int64(c-'0')
		}
	}
	if negative {
		if coef == 0 {
			return numberText(s)
		}
		coef = -coef
	}
	return decimal(coef, uint8(scale))
}

func bigInt(i int64) Value { return numberText(strconv.FormatInt(i, 10)) }

// wide is a decimal of any size: coef * 10^-scale. scale may be negative.
type wide struct {
	coef  *big.Int
	scale int
}

func (v Value) wide() wide {
	if !v.text() {
		return wide{big.NewInt(v.coef()), int(v.scale())}
	}
	s, exponent := splitExponent(v.num())
	whole, frac, _ := strings.Cut(s, ".")
	coef, ok := new(big.Int).SetString(whole+frac, 10)
	if !ok {
		coef = new(big.Int)
	}
	return wide{coef, len(frac) - exponent}
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// aligned returns the coefficients of a and b over their larger scale.
func aligned(a, b wide) (x, y *big.Int, scale int) {
	switch {
	case a.scale < b.scale:
		return new(big.Int).Mul(a.coef, pow10(b.scale-a.scale)), b.coef, b.scale
	case a.scale > b.scale:
		return a.coef, new(big.Int).Mul(b.coef, pow10(a.scale-b.scale)), a.scale
	default:
		return a.coef, b.coef, a.scale
	}
}

// Add returns a+b as an exact decimal with the larger of the two scales (1.10 + 2 is 3.10). It reports false when
// one of them is no number or the sum would have more than MaxDigits digits.
func Add(a, b Value) (Value, bool) { return add(a, b, false) }

// Sub returns a-b under the rules of Add.
func Sub(a, b Value) (Value, bool) { return add(a, b, true) }

func add(a, b Value, negate bool) (Value, bool) {
	if a.Kind() != Number || b.Kind() != Number {
		return Value{}, false
	}
	if sum, scale, ok := addSmall(&a, &b, negate); ok {
		return decimal(sum, scale), true
	}
	v, ok := addDecimals(a.decimal(), b.decimal(), negate)
	return v, ok && (!v.text() || len(v.num()) <= MaxDigits)
}

// addSmall is add for numbers whose coefficients and those of the sum fit a machine word.
func addSmall(a, b *Value, negate bool) (sum int64, scale uint8, ok bool) {
	if a.Kind() != Number || b.Kind() != Number || a.text() || b.text() {
		return 0, 0, false
	}
	x, y := a.coef(), b.coef()
	if scale = a.scale(); scale != b.scale() {
		scale = max(scale, b.scale())
		var fits, fit bool
		x, fits = a.scaled(scale)
		y, fit = b.scaled(scale)
		if !fits || !fit {
			return 0, 0, false
		}
	}
	if negate {
		y = -y
	}
	sum = x + y
	return sum, scale, sum <= maxCoef && sum >= -maxCoef
}

func compareNumbers(a, b Value) int {
	if !a.text() && !b.text() {
		scale := max(a.scale(), b.scale())
		x, fits := a.scaled(scale)
		y, fit := b.scaled(scale)
		if fits && fit {
			return cmp.Compare(x, y)
		}
	}
	var one, other [24]byte
	x, y := a.parts(&one), b.parts(&other)
	switch {
	case x.sign != y.sign:
		return cmp.Compare(x.sign, y.sign)
	case x.sign == 0:
		return 0
	case x.mag != y.mag:
		return x.sign * cmp.Compare(x.mag, y.mag)
	default:
		return x.sign * compareDigits(x, y)
	}
}

// scaled returns the coefficient that a decimal has at a larger scale, and false when that does not fit.
func (v Value) scaled(scale uint8) (int64, bool) {
	coef := v.coef()
	for s := v.scale(); s < scale; s++ {
		if coef > maxCoef/10 || coef < -maxCoef/10 {
			return 0, false
		}
		coef *= 10
	}
	return coef, true
}

// IsInteger reports whether v is a number without a fractional part; 1.0 and 1e2 are integers.
func (v Value) IsInteger() bool {
	if v.Kind() != Number {
		return false
	}
	if !v.text() && v.scale() == 0 {
		return true
	}
	var buf [24]byte
	p := v.parts(&buf)
	return p.n <= int(p.mag) || p.n == 0
}

// Sign returns -1, 0 or 1 as a number is negative, zero or positive; 0 for every other kind.
func (v Value) Sign() int {
	switch {
	case v.Kind() != Number:
		return 0
	case v.text():
		var buf [24]byte
		return v.parts(&buf).sign
	case v.coef() < 0:
		return -1
	case v.coef() > 0:
		return 1
	default:
		return 0
	}
}

// MultipleOf reports whether the number v divided by the number m, which is not zero, is an integer.
func (v Value) MultipleOf(m Value) bool {
	if !v.text() && !m.text() {
		scale := max(v.scale(), m.scale())
		x, fits := v.scaled(scale)
		y, fit := m.scaled(scale)
		if fits && fit {
			return y != 0 && x%y == 0
		}
	}
	x, y, _ := aligned(v.wide(), m.wide())
	return y.Sign() != 0 && new(big.Int).Rem(x, y).Sign() == 0
}

// Int64 returns a number that is an integer of 64 bits. It reports false for everything else.
func (v Value) Int64() (int64, bool) {
	if v.Kind() != Number {
		return 0, false
	}
	if !v.text() && v.scale() == 0 {
		return v.coef(), true
	}

	// A number with a point or an exponent may be an integer still: it has no digit below one.
	var buf [24]byte
	p := v.parts(&buf)
	switch {
	case p.n == 0:
		return 0, true
	case p.n > int(p.mag), p.mag > 19:
		return 0, false
	}

	// Its digits, filled up with zeros.
	text := make([]byte, 0, 24)
	if p.sign < 0 {
		text = append(text, '-')
	}
	for i, k := 0, 0; k < int(p.mag); k++ {
		if k >= p.n {
			text = append(text, '0')
			continue
		}
		if p.text[i] == '.' {
			i++
		}
		text = append(text, p.text[i])
		i++
	}

	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// NumberEffort returns about how many units of package work it takes to inspect the number v alone, such as whether it
// is an integer: 0 for an ordinary one, and for every other kind.
func (v Value) NumberEffort() int {
	switch {
	case v.Kind() != Number || !v.text() && v.scale() == 0:
		return 0
	case !v.text():
		return wideEffort / 2
	default:
		return wideEffort + v.textEffort()
	}
}

// CompareEffort returns about how many units of package work it takes to compare the numbers a and b, or to divide one
// by the other.
func CompareEffort(a, b Value) int {
	if a.Kind() != Number || b.Kind() != Number {
		return 0
	}
	if !a.text() && !b.text() {
		if a.scale() == b.scale() {
			return 0
		}
		scale := max(a.scale(), b.scale())
		_, fits := a.scaled(scale)
		if _, fit := b.scaled(scale); fits && fit {
			return 0
		}
	}
	return wideEffort + a.textEffort() + b.textEffort()
}

// IsCheap reports whether v is a number that takes next to no work to compare with any other cheap one: its coefficient
// keeps fitting at the scale of the other.
func (v Value) IsCheap() bool {
	return v.Kind() == Number && !v.text() && v.scale() <= 9 && v.n+1e9 < 2e9
}

// wideEffort is what it takes, beside the digits, to work with numbers as a wide.
const wideEffort = 64

// textEffort is what it takes to read the text of a number, which grows faster than its length.
func (v Value) textEffort() int {
	if v.Kind() != Number || !v.text() {
		return 0
	}
	n := len(v.num())
	return n + n*n/4096
}
