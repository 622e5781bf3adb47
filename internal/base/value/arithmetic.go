package value

import (
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"strings"
)

// Rounding says which of its two neighbours a number becomes that has more digits than it may keep.
type Rounding uint8

// The roundings. The first three take the nearer neighbour, and differ where both are as near.
const (
	HalfEven Rounding = iota // the one whose last digit is even
	HalfUp                   // the one away from zero
	HalfDown                 // the one towards zero
	Up                       // away from zero
	Down                     // towards zero
	Ceiling                  // the larger one
	Floor                    // the smaller one
)

// Roundings lists the names of the roundings by their numbers.
func Roundings() []string {
	return []string{"half_even", "half_up", "half_down", "up", "down", "ceiling", "floor"}
}

// MaxScale is how many digits after the point quotients and rounded numbers may have.
const MaxScale = 100

// maxMagnitude bounds the results of arithmetic: they are zero, or between 1e-400 and 1e400 beside their sign.
const maxMagnitude = 400

// maxLoose is how many digits a number may have on the way to a result.
const maxLoose = 4 * MaxDigits

// Why arithmetic has no result. Each is the rest of a sentence about it.
var (
	ErrNoNumber       = errors.New("not a number")
	ErrDivisionByZero = errors.New("division by zero")
	ErrInexact        = errors.New("the quotient has no last digit, and no scale to be rounded to")
	ErrDigits         = fmt.Errorf("the result would have more than %d digits", MaxDigits)
	ErrMagnitude      = fmt.Errorf("the result would be larger than 1e%d or smaller than 1e-%d", maxMagnitude, maxMagnitude)
)

// The following compute exact decimals, which are written without an exponent and never as minus zero. Intermediate
// results may be larger than final ones, so that the order of operands does not matter: see Bounded. Errors are those
// above.

// Sum returns a+b with the digits after the point of the more precise one: 1.10 + 2 is 3.10.
func Sum(a, b Value) (Value, error) { return sum(a, b, false) }

// Difference returns a-b under the rules of Sum.
func Difference(a, b Value) (Value, error) { return sum(a, b, true) }

func sum(a, b Value, negate bool) (Value, error) {
	if a.Kind() != Number || b.Kind() != Number {
		return Value{}, ErrNoNumber
	}
	if sum, scale, ok := addSmall(&a, &b, negate); ok {
		return decimal(sum, scale), nil
	}
	v, ok := addDecimals(a.decimal(), b.decimal(), negate)
	if !ok {
		return Value{}, ErrDigits
	}
	return v, nil
}

// Product returns a*b with the digits after the point of both: 1.20 * 1.5 is 1.800.
func Product(a, b Value) (Value, error) {
	if a.Kind() != Number || b.Kind() != Number {
		return Value{}, ErrNoNumber
	}
	if !a.text() && !b.text() {
		x, y := a.coef(), b.coef()
		high, low := bits.Mul64(magnitude(x), magnitude(y))
		if v, ok := small(high, low, x < 0 != (y < 0), int(a.scale())+int(b.scale())); ok {
			return v, nil
		}
	}
	x, y := a.wide(), b.wide()
	if fewestDigits(x.coef)+fewestDigits(y.coef) > maxLoose {
		return Value{}, ErrDigits
	}
	return wide{new(big.Int).Mul(x.coef, y.coef), x.scale + y.scale}.value()
}

// QuotientTo returns a/b with scale digits after the point, at most MaxScale of them, rounded once.
func QuotientTo(a, b Value, scale int, r Rounding) (Value, error) {
	switch {
	case a.Kind() != Number || b.Kind() != Number:
		return Value{}, ErrNoNumber
	case b.Sign() == 0:
		return Value{}, ErrDivisionByZero
	}
	if !a.text() && !b.text() {
		if v, ok := smallQuotient(a, b, scale, r); ok {
			return v, nil
		}
	}
	return quotient(a.wide(), b.wide(), scale, r)
}

// Rounded returns a with exactly scale digits after the point, at most MaxScale of them.
func Rounded(a Value, scale int, r Rounding) (Value, error) { return QuotientTo(a, Int(1), scale, r) }

// smallQuotient is QuotientTo where machine words have room for all of it.
func smallQuotient(a, b Value, scale int, r Rounding) (Value, bool) {
	num, den := magnitude(a.coef()), magnitude(b.coef())
	var high uint64
	switch shift := scale + int(b.scale()) - int(a.scale()); {
	case shift > maxInlineScale || -shift > maxInlineScale:
		return Value{}, false
	case shift >= 0:
		high, num = bits.Mul64(num, power(shift))
	default:
		high, den = bits.Mul64(den, power(-shift))
	}
	if high != 0 || den > 1<<62 {
		return Value{}, false
	}
	q, rest := num/den, num%den
	negative := a.coef() < 0 != (b.coef() < 0)
	if rest != 0 && r.away(negative, compareWords(2*rest, den), q&1 == 1) {
		q++
	}
	return small(0, q, negative, scale)
}

func compareWords(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// quotient is QuotientTo for numbers of any size.
func quotient(a, b wide, scale int, r Rounding) (Value, error) {
	num, den := new(big.Int).Abs(a.coef), new(big.Int).Abs(b.coef)
	if shift := scale + b.scale - a.scale; shift >= 0 {
		num.Mul(num, pow10(shift))
	} else {
		den.Mul(den, pow10(-shift))
	}
	q, rest := new(big.Int).QuoRem(num, den, new(big.Int))
	negative := a.coef.Sign()*b.coef.Sign() < 0
	if rest.Sign() != 0 && r.away(negative, rest.Lsh(rest, 1).Cmp(den), q.Bit(0) == 1) {
		q.Add(q, big.NewInt(1))
	}
	if negative {
		q.Neg(q)
	}
	return wide{q, scale}.value()
}

// away reports whether a number that lies between two neighbours becomes the one that is further from zero. rest says
// whether the rest is smaller than one half of the distance, that half, or more; odd is about the neighbour that is
// closer to zero.
func (r Rounding) away(negative bool, rest int, odd bool) bool {
	switch r {
	case HalfUp:
		return rest >= 0
	case HalfDown:
		return rest > 0
	case Up:
		return true
	case Down:
		return false
	case Ceiling:
		return !negative
	case Floor:
		return negative
	case HalfEven:
	}
	return rest > 0 || rest == 0 && odd
}

// Quotient returns a/b with as many digits after the point as it needs, and ErrInexact where no number of them is
// enough.
func Quotient(a, b Value) (Value, error) {
	switch {
	case a.Kind() != Number || b.Kind() != Number:
		return Value{}, ErrNoNumber
	case b.Sign() == 0:
		return Value{}, ErrDivisionByZero
	case a.Sign() == 0:
		return Int(0), nil
	}
	if !a.text() && !b.text() {
		if v, ok := smallExact(a, b); ok {
			return v, nil
		}
	}

	// It ends if nothing but twos and fives is left of the divisor. Those that both have do not count.
	x, y := a.wide(), b.wide()
	num, den := new(big.Int).Set(x.coef), new(big.Int).Abs(y.coef)
	twos := int(den.TrailingZeroBits())
	den.Rsh(den, uint(twos))
	shared := min(twos, int(num.TrailingZeroBits()))
	num.Rsh(num, uint(shared))
	twos -= shared
	fives := takeFives(den, len(y.coef.Bits())*bits.UintSize)
	fives -= takeFives(num, fives)
	q, rest := new(big.Int).QuoRem(num, den, den)
	if rest.Sign() != 0 {
		return Value{}, ErrInexact
	}

	// Each of those is one more digit, which the other of the two makes up for.
	digits := max(twos, fives)
	if fewestDigits(q)+digits > 2*maxLoose {
		return Value{}, ErrDigits
	}
	q.Lsh(q, uint(digits-twos))
	q.Mul(q, new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(digits-fives)), nil))
	if y.coef.Sign() < 0 {
		q.Neg(q)
	}
	return wide{q, x.scale - y.scale + digits}.shortest()
}

// smallExact is Quotient where machine words have room for it.
func smallExact(a, b Value) (Value, bool) {
	num, den := magnitude(a.coef()), magnitude(b.coef())
	scale := int(a.scale()) - int(b.scale())
	for num%den != 0 {
		high, low := bits.Mul64(num, 10)
		if high != 0 {
			return Value{}, false
		}
		num = low
		scale++
	}
	q := num / den
	for ; scale > 0 && q%10 == 0; scale-- {
		q /= 10
	}
	for ; scale < 0 && q <= maxCoef/10; scale++ {
		q *= 10
	}
	return small(0, q, a.coef() < 0 != (b.coef() < 0), scale)
}

// takeFives divides n, which is not zero, by five as often as that leaves no rest, at most so often, and returns how
// often.
func takeFives(n *big.Int, most int) int {
	const word = 27 // times five fit a machine word
	five, q, rest := new(big.Int), new(big.Int), new(big.Int)
	count := 0
	for step := min(word, most); step > 0; step = min(step, most-count) {
		five.SetUint64(powerOfFive(step))
		if q.QuoRem(n, five, rest); rest.Sign() != 0 {
			step /= 2
			continue
		}
		n.Set(q)
		count += step
	}
	return count
}

func powerOfFive(n int) uint64 {
	p := uint64(1)
	for range n {
		p *= 5
	}
	return p
}

// power returns ten to the power of n, at most maxInlineScale.
func power(n int) uint64 {
	p := uint64(1)
	for range n {
		p *= 10
	}
	return p
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return uint64(-n)
	}
	return uint64(n)
}

// small returns the number that is the integer of two words, with a sign, times ten to the power of -scale. It reports
// false where the value does not fit inline.
func small(high, low uint64, negative bool, scale int) (Value, bool) {
	if high != 0 || low > maxCoef || scale < 0 || scale >= maxInlineScale {
		return Value{}, false
	}
	coef := int64(low)
	if negative {
		coef = -coef
	}
	return decimal(coef, uint8(scale)), true
}

// fewestDigits returns about how many digits n has, never more of them.
func fewestDigits(n *big.Int) int { return max(n.BitLen()-1, 0) * 30_102 / 100_000 }

// value returns the number, written without an exponent.
func (w wide) value() (Value, error) {
	digits, negative, err := w.digits()
	if err != nil {
		return Value{}, err
	}
	return plain(digits, max(w.scale, 0), negative), nil
}

// shortest is value without trailing zeros after the point.
func (w wide) shortest() (Value, error) {
	digits, negative, err := w.digits()
	if err != nil {
		return Value{}, err
	}
	scale := max(w.scale, 0)
	for scale > 0 && len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		scale--
	}
	return plain(digits, scale, negative), nil
}

// digits returns the digits of the number down to its last one, at least to that before the point.
func (w wide) digits() (digits string, negative bool, err error) {
	zeros := max(-w.scale, 0)
	if w.coef.Sign() == 0 {
		zeros = 0
	}
	if max(fewestDigits(w.coef)+zeros, w.scale) > maxLoose {
		return "", false, ErrDigits
	}
	text, negative := strings.CutPrefix(w.coef.String(), "-")
	return text + strings.Repeat("0", zeros), negative, nil
}

// plain returns the number of digits of which scale stand after the point.
func plain(digits string, scale int, negative bool) Value {
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	var b strings.Builder
	b.Grow(len(digits) + 2)
	if negative {
		b.WriteByte('-')
	}
	point := len(digits) - scale
	b.WriteString(digits[:point])
	if scale > 0 {
		b.WriteByte('.')
		b.WriteString(digits[point:])
	}
	return number(b.String())
}

// Negative returns -a, which is never minus zero.
func Negative(a Value) (Value, error) { return Difference(Int(0), a) }

// Absolute returns a without its sign.
func Absolute(a Value) (Value, error) {
	if a.Sign() < 0 {
		return Negative(a)
	}
	return Sum(Int(0), a)
}

// Bounded returns an error if the number v may not be the final result of arithmetic: it has more than MaxDigits
// digits, or is not zero and its magnitude is outside 1e-400 to 1e400.
func Bounded(v Value) error {
	if !v.text() {
		return nil
	}
	text := v.num()
	if len(text)-strings.Count(text, "-")-strings.Count(text, ".") > MaxDigits {
		return ErrDigits
	}
	var buf [24]byte
	p := v.parts(&buf)
	largest := p.n == 1 && p.mag == maxMagnitude+1 && p.text[0] == '1'
	if p.n > 0 && (p.mag > maxMagnitude && !largest || p.mag <= -maxMagnitude) {
		return ErrMagnitude
	}
	return nil
}

// ProductWork and QuotientWork return about how many units of package work it takes to multiply a and b, and to divide
// a by b.
func ProductWork(a, b Value) int {
	x, y := a.Digits(), b.Digits()
	return (x+y)*unitsPerDigit/2 + x*y/productsPerUnit
}

// QuotientWork is described at ProductWork.
func QuotientWork(a, b Value) int {
	x, y := a.Digits(), b.Digits()
	if x == 0 && y == 0 {
		return 0
	}
	x, y = x+y+MaxScale, y+MaxScale
	return (x+y)*unitsPerDigit/2 + x*y/quotientsPerUnit
}

// How many units it takes to read and write two digits, and how many pairs of digits are multiplied and divided in the
// time of one unit.
const (
	unitsPerDigit    = 3
	productsPerUnit  = 4096
	quotientsPerUnit = 4096
)
