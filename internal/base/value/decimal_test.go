//go:build !race

package value_test

import (
	"cmp"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/value"
)

// Numbers of any size compare, add up and are found by what they are worth, however they are written.
func TestNumbersAgainstRationals(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) value.Value {
		text := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
		whole := strings.TrimLeft(rapid.StringMatching(`[0-9]{0,4}(0{18}|9{20}|)[0-9]{0,3}`).Draw(t, "whole"), "0")
		text += cmp.Or(whole, "0")
		text += rapid.StringMatching(`(|\.[0-9]{1,4}|\.0{17}[0-9]|\.9{19}0{3})`).Draw(t, "fraction")
		text += rapid.SampledFrom([]string{"", "", "", "e0", "e+3", "E-20", "e40"}).Draw(t, "exponent")
		return parse(t, text)
	})
	rat := func(v value.Value) *big.Rat {
		r, ok := new(big.Rat).SetString(v.Num())
		if !ok {
			t.Fatalf("%s is no number", v)
		}
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, y := rat(a), rat(b)
		if got, _ := value.Compare(a, b); got != x.Cmp(y) || value.Equal(a, b) != (x.Cmp(y) == 0) {
			t.Fatalf("%s and %s compare as %d", a, b, got)
		}
		if sum, ok := value.Add(a, b); !ok || rat(sum).Cmp(new(big.Rat).Add(x, y)) != 0 ||
			sum.Size() != len(sum.String()) {
			t.Fatalf("%s + %s is %s", a, b, sum)
		}
		if sum, ok := value.Sub(a, b); !ok || rat(sum).Cmp(new(big.Rat).Sub(x, y)) != 0 {
			t.Fatalf("%s - %s is %s", a, b, sum)
		}
		if a.IsInteger() != x.IsInt() || a.Sign() != x.Sign() {
			t.Fatalf("%s is an integer: %t, its sign is %d", a, a.IsInteger(), a.Sign())
		}
		n, ok := a.Int64()
		if want := x.IsInt() && x.Num().IsInt64(); ok != want || ok && n != x.Num().Int64() {
			t.Fatalf("%s is %d, %t", a, n, ok)
		}
	})
}

// What is looked up is what a search finds, while the array changes.
func TestLookupsAgainstSearch(t *testing.T) {
	scalar := rapid.Custom(func(t *rapid.T) value.Value {
		return parse(t, rapid.SampledFrom([]string{
			`1`, `1.0`, `10e-1`, `2`, `"1"`, `"x"`, `null`, `true`, `[1]`, `[1.0]`, `{"a":1,"b":2}`, `{"b":2,"a":1.0}`,
			`123456789012345678901`, `123456789012345678901.0`,
		}).Draw(t, "value"))
	})
	rapid.Check(t, func(t *rapid.T) {
		ed := value.NewEditor()
		arr := value.ArrayValue()
		element := func() value.Value {
			return value.ObjectValue(value.Member{Key: "id", Value: scalar.Draw(t, "id")})
		}
		steps := []value.Step{{Key: "id"}}
		for range 200 {
			n := arr.Len()
			switch op := rapid.IntRange(0, 9).Draw(t, "operation"); {
			case n < 40 || op < 3:
				arr = ed.Append(arr, element())
			case op == 3:
				arr = ed.RemoveElem(arr, rapid.IntRange(0, n-1).Draw(t, "at"))
			case op == 4:
				i := rapid.IntRange(0, n-1).Draw(t, "at")
				v := element()
				arr = ed.SetElem(arr, i, v, v.Weight().Minus(arr.Index(i).Weight()))
			case op == 5:
				ed.Freeze()
			default:
				want := scalar.Draw(t, "want")
				hits, _ := ed.Lookups().Find(arr, "id", steps, want, false, nil)
				var found []int
				for i, elem := range arr.Elems() {
					if value.Equal(elem.At(steps), want) {
						found = append(found, i)
					}
				}
				if one, _ := ed.Lookups().Find(arr, "id", steps, want, true, nil); len(one) != min(len(found), 1) ||
					len(one) == 1 && one[0] != found[0] {
					t.Fatalf("%s is found first at %v, and is at %v of %s", want, one, found, arr)
				}
				if len(hits) != len(found) {
					t.Fatalf("%s is found at %v, and is at %v of %s", want, hits, found, arr)
				}
				for i := range hits {
					if hits[i] != found[i] {
						t.Fatalf("%s is found at %v, and is at %v", want, hits, found)
					}
				}
			}
			if want := (value.Weight{Bytes: len(arr.String()), Values: count(arr)}); arr.Weight() != want {
				t.Fatalf("the array has %v and says %v", want, arr.Weight())
			}
		}
	})
}
