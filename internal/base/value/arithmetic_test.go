//go:build !race

package value_test

import (
	"errors"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/value"
)

func numeral(tb interface {
	Helper()
	Fatalf(format string, args ...any)
}, text string,
) value.Value {
	tb.Helper()
	v, err := value.ParseString(text)
	if err != nil || v.Kind() != value.Number {
		tb.Fatalf("%s is no number: %v", text, err)
	}
	return v
}

// pointed returns how many digits a number without an exponent has after the point, and whether it is written so.
func pointed(text string) (int, bool) {
	if strings.ContainsAny(text, "eE") {
		return 0, false
	}
	_, fraction, _ := strings.Cut(text, ".")
	return len(fraction), true
}

// TestDecimalCases holds arithmetic against cases that others have computed: see the file.
func TestDecimalCases(t *testing.T) {
	src, err := os.ReadFile("testdata/decimals.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]int{}
	for line := range strings.Lines(string(src)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		cases[f[0]]++
		checkCase(t, f[0], f[1], f[2], f[3], f[4])
	}
	for _, op := range []string{
		"add", "subtract", "multiply", "divide", "round", "add_to", "subtract_to", "multiply_to", "divide_to", "minus",
		"abs", "compare",
	} {
		if cases[op] < 40 {
			t.Errorf("there are %d cases of %s", cases[op], op)
		}
	}
}

func checkCase(t *testing.T, op, rounding, first, second, result string) {
	t.Helper()
	a, want := numeral(t, first), numeral(t, result)
	mode := value.Rounding(max(slices.Index(value.Roundings(), rounding), 0))
	scale, written := pointed(result)
	var b, got value.Value
	var err error
	if second != "-" {
		b = numeral(t, second)
	}
	op, to := strings.CutSuffix(op, "_to")
	switch op {
	case "add":
		got, err = value.Sum(a, b)
	case "subtract":
		got, err = value.Difference(a, b)
	case "multiply":
		got, err = value.Product(a, b)
	case "divide":
		if got, err = value.Quotient(a, b); to {
			if err == nil && !value.Equal(got, want) && len(got.String()) < len(result) {
				t.Errorf("%s / %s is %s, and to be rounded to %s", a, b, got, want)
			}
			got, err = value.QuotientTo(a, b, scale, mode)
			to = false
		}
		written = false // as many digits as it needs
	case "round":
		digits, _ := strconv.Atoi(second)
		got, err = value.Rounded(a, digits, mode)
	case "minus":
		got, err = value.Negative(a)
	case "abs":
		got, err = value.Absolute(a)
	case "compare":
		order, _ := value.Compare(a, b)
		got = value.Int(int64(order))
	}
	if to && err == nil {
		got, err = value.Rounded(got, scale, mode)
	}
	if err != nil || !value.Equal(got, want) || value.Bounded(got) != nil {
		t.Errorf("%s (%s) of %s and %s is %s (%v), want %s", op, rounding, first, second, got, err, result)
		return
	}
	if digits, plain := pointed(got.String()); !plain || written && digits != scale ||
		strings.HasPrefix(got.String(), "-0") && got.Sign() == 0 {
		t.Errorf("%s of %s and %s is written %s, want the digits of %s", op, first, second, got, result)
	}
}

// decimals draws numbers of all forms: small ones, long ones, with and without exponents, zeros of any sort.
func decimals() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		text := rapid.SampledFrom([]string{"", "", "-"}).Draw(t, "sign")
		whole := rapid.StringMatching(`0|[1-9][0-9]{0,3}|[1-9][0-9]{10,24}|[1-9]0{0,30}`).Draw(t, "whole")
		text += whole
		if rapid.Bool().Draw(t, "pointed") {
			text += "." + rapid.StringMatching(`[0-9]{1,4}|[0-9]{10,24}|0{1,20}[0-9]|5|50|25`).Draw(t, "fraction")
		}
		if rapid.IntRange(0, 5).Draw(t, "exponent?") == 0 {
			text += "e" + strconv.Itoa(rapid.IntRange(-60, 60).Draw(t, "exponent"))
		}
		return text
	})
}

func rat(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	return r
}

// rounded returns a number rounded by the definitions of the roundings, as the text of a decimal.
func rounded(r *big.Rat, scale int, mode value.Rounding) *big.Rat {
	ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
	scaled := new(big.Rat).Mul(r, ten)
	below := new(big.Int).Div(scaled.Num(), scaled.Denom()) // towards minus infinity, since denominators are positive
	above := new(big.Int).Add(below, big.NewInt(1))
	under := new(big.Rat).Sub(scaled, new(big.Rat).SetInt(below))
	if under.Sign() == 0 {
		above = below
	}
	toZero, fromZero := below, above
	if r.Sign() < 0 {
		toZero, fromZero = above, below
	}
	nearer, tie := below, under.Cmp(big.NewRat(1, 2))
	if tie > 0 {
		nearer = above
	}
	out := nearer
	switch {
	case mode == value.Up:
		out = fromZero
	case mode == value.Down:
		out = toZero
	case mode == value.Ceiling:
		out = above
	case mode == value.Floor:
		out = below
	case tie != 0:
	case mode == value.HalfUp:
		out = fromZero
	case mode == value.HalfDown:
		out = toZero
	case below.Bit(0) == 1:
		out = above
	}
	return new(big.Rat).Quo(new(big.Rat).SetInt(out), ten)
}

// TestResultsAreExact holds arithmetic against fractions of big integers.
func TestResultsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := decimals().Draw(t, "a"), decimals().Draw(t, "b")
		a, b, x, y := numeral(t, first), numeral(t, second), rat(first), rat(second)
		check := func(what string, got value.Value, err error, want *big.Rat) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s of %s and %s: %v", what, first, second, err)
			}
			text := got.String()
			if _, plain := pointed(text); !plain || rat(text).Cmp(want) != 0 || got.Sign() == 0 && text[0] == '-' {
				t.Fatalf("%s of %s and %s is %s, want %s", what, first, second, text, want.FloatString(40))
			}
			if again := numeral(t, text); !value.Equal(again, got) || again.Weight() != got.Weight() {
				t.Fatalf("%s is not %s when it is read again", text, again)
			}
		}
		got, err := value.Sum(a, b)
		check("the sum", got, err, new(big.Rat).Add(x, y))
		got, err = value.Difference(a, b)
		check("the difference", got, err, new(big.Rat).Sub(x, y))
		got, err = value.Product(a, b)
		check("the product", got, err, new(big.Rat).Mul(x, y))
		if !strings.Contains(first+second, "e") {
			digits, _ := pointed(got.String())
			m, _ := pointed(first)
			n, _ := pointed(second)
			if digits != m+n {
				t.Fatalf("%s * %s is %s", first, second, got)
			}
		}
		got, err = value.Negative(a)
		check("the negative", got, err, new(big.Rat).Neg(x))
		got, err = value.Absolute(a)
		check("the absolute value", got, err, new(big.Rat).Abs(x))

		scale := rapid.SampledFrom([]int{0, 1, 2, 3, 7, 17, 18, 19, 40, 100}).Draw(t, "scale")
		mode := value.Rounding(rapid.IntRange(0, len(value.Roundings())-1).Draw(t, "rounding"))
		got, err = value.Rounded(a, scale, mode)
		check("rounding", got, err, rounded(x, scale, mode))
		if digits, _ := pointed(got.String()); digits != scale {
			t.Fatalf("%s with %d digits is %s", first, scale, got)
		}
		if y.Sign() == 0 {
			_, err = value.Quotient(a, b)
			_, other := value.QuotientTo(a, b, scale, mode)
			if !errors.Is(err, value.ErrDivisionByZero) || !errors.Is(other, value.ErrDivisionByZero) {
				t.Fatalf("division by %s: %v and %v", second, err, other)
			}
			return
		}
		quotient := new(big.Rat).Quo(x, y)
		got, err = value.QuotientTo(a, b, scale, mode)
		check("the quotient", got, err, rounded(quotient, scale, mode))
		got, err = value.Quotient(a, b)
		if errors.Is(err, value.ErrInexact) {
			if rest := new(big.Int).Set(quotient.Denom()); finite(rest) {
				t.Fatalf("%s / %s has a last digit", first, second)
			}
			return
		}
		check("the exact quotient", got, err, quotient)
		if text := got.String(); strings.Contains(text, ".") && strings.HasSuffix(text, "0") {
			t.Fatalf("%s / %s is %s", first, second, text)
		}
	})
}

// finite reports whether fractions with a denominator have a last digit.
func finite(n *big.Int) bool {
	for _, prime := range []int64{2, 5} {
		for rest := new(big.Int); ; {
			q, r := new(big.Int).QuoRem(n, big.NewInt(prime), rest)
			if r.Sign() != 0 {
				break
			}
			n = q
		}
	}
	return n.IsInt64() && n.Int64() == 1
}

// What a result may be is decided by its digits and its magnitude, on the way to it there may be more of both.
func TestBoundsOfArithmetic(t *testing.T) {
	nines := strings.Repeat("9", value.MaxDigits/2)
	long := "0." + nines + nines[1:]
	for text, want := range map[string]error{
		"0": nil, "12.50": nil, "1e400": nil, "-1e400": nil, "1e-400": nil, "-10e399": nil, "0.1e-399": nil,
		"1.1e400": value.ErrMagnitude, "-2e400": value.ErrMagnitude, "9e-401": value.ErrMagnitude,
		long: nil, "-" + long: nil, "1" + strings.Repeat("0", 400): nil,
		"1" + strings.Repeat("0", 401):        value.ErrMagnitude,
		"0." + strings.Repeat("0", 400) + "1": value.ErrMagnitude, "0." + strings.Repeat("0", 399) + "1": nil,
		"0." + strings.Repeat("0", 9000): nil,
	} {
		v, err := value.ParseStored(text)
		if err != nil {
			t.Fatalf("%.30s: %v", text, err)
		}
		if got := value.Bounded(v); !errors.Is(got, want) {
			t.Errorf("%.30s: %v, want %v", text, got, want)
		}
	}
}

// Whatever numbers there are, arithmetic on them ends soon, and what it gives up it says.
func TestArithmeticOfLongNumbers(t *testing.T) {
	long := strings.Repeat("7", value.MaxDigits-450)
	fives := new(big.Int).Exp(big.NewInt(5), big.NewInt(13_000), nil).String()
	twos := new(big.Int).Exp(big.NewInt(2), big.NewInt(30_000), nil).String()
	threes := new(big.Int).Mul(big.NewInt(3), new(big.Int).Exp(big.NewInt(2), big.NewInt(30_000), nil)).String()
	numbers := []string{
		long, "-" + long + "e400", "0." + long, "1e400", "1e-400", fives, twos, threes, "0", "-0.0", "3", "0e-400",
	}
	for _, first := range numbers {
		for _, second := range numbers {
			a, b := numeral(t, first), numeral(t, second)
			for _, f := range []func() (value.Value, error){
				func() (value.Value, error) { return value.Sum(a, b) },
				func() (value.Value, error) { return value.Product(a, b) },
				func() (value.Value, error) { return value.Quotient(a, b) },
				func() (value.Value, error) { return value.QuotientTo(a, b, value.MaxScale, value.HalfUp) },
			} {
				v, err := f()
				if known := errors.Is(err, value.ErrDigits) || errors.Is(err, value.ErrInexact) ||
					errors.Is(err, value.ErrDivisionByZero); err != nil && !known {
					t.Errorf("%.20s and %.20s: %v", first, second, err)
				}
				if err == nil && v.Size() > 5*value.MaxDigits {
					t.Errorf("%.20s and %.20s give %d digits", first, second, v.Size())
				}
			}
		}
	}
	if v, err := value.Quotient(numeral(t, threes), numeral(t, twos)); err != nil || v.String() != "3" {
		t.Errorf("what both have of twos does not count: %.20s, %v", v, err)
	}
	if v, err := value.Quotient(numeral(t, fives), numeral(t, fives+"0")); err != nil || v.String() != "0.1" {
		t.Errorf("what both have of fives does not count: %.20s, %v", v, err)
	}
	if _, err := value.Product(value.StringValue("2"), value.Int(1)); !errors.Is(err, value.ErrNoNumber) {
		t.Errorf("a text is multiplied: %v", err)
	}
}

// Ordinary amounts take no memory.
func TestSmallArithmeticTakesNoMemory(t *testing.T) {
	price, quantity, rate := numeral(t, "19.99"), numeral(t, "3"), numeral(t, "0.0125")
	if n := testing.AllocsPerRun(100, func() {
		line, _ := value.Product(price, quantity)
		fee, _ := value.Product(line, rate)
		fee, _ = value.Rounded(fee, 2, value.HalfUp)
		total, _ := value.Sum(line, fee)
		part, _ := value.QuotientTo(total, quantity, 2, value.HalfEven)
		if part.Sign() < 0 {
			t.Error("it is negative")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkArithmetic(b *testing.B) {
	price, quantity := numeral(b, "19.99"), numeral(b, "3")
	long := numeral(b, strings.Repeat("7", 9000))
	b.Run("product", func(b *testing.B) {
		for b.Loop() {
			_, _ = value.Product(price, quantity)
		}
	})
	b.Run("quotient", func(b *testing.B) {
		for b.Loop() {
			_, _ = value.QuotientTo(price, quantity, 2, value.HalfUp)
		}
	})
	b.Run("long product", func(b *testing.B) {
		for b.Loop() {
			_, _ = value.Product(long, long)
		}
		b.ReportMetric(
			float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(value.ProductWork(long, long)), "ns/unit",
		)
	})
	b.Run("long quotient", func(b *testing.B) {
		for b.Loop() {
			_, _ = value.QuotientTo(long, numeral(b, "3"), 100, value.HalfUp)
		}
		b.ReportMetric(
			float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(value.QuotientWork(long, numeral(b, "3"))),
			"ns/unit",
		)
	})
}
