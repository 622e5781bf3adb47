//go:build !race

package value

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIndexesCostNoMoreThanScans searches arrays of which many elements are alike, or hash alike, with an index and
// without one, while they change. Both find the same, and the index takes no more than a few times what the scan takes.
func TestIndexesCostNoMoreThanScans(t *testing.T) {
	const most = 5
	elements := []string{`1`, `1.0`, `"a"`, `{"n":1,"m":[1]}`, `{"n":1,"m":[2]}`, `[[1]]`, `[[2]]`, `{"n":2}`}
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Value {
			v, err := ParseString(rapid.SampledFrom(elements).Draw(t, "element"))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		e := NewEditor()
		common := draw()
		elems := make([]Value, 400)
		for i := range elems {
			elems[i] = common
		}
		arr := e.Array(elems, Weight{})
		search := func() {
			want, first := draw(), rapid.Bool().Draw(t, "first")
			scanned, plain := scan(arr.array(), nil, want, first, nil)
			x := e.Lookups().of(arr.array(), "", nil)
			indexed := x.chains != nil // a search that makes the index takes what that takes
			found, work := e.Lookups().Find(arr, "", nil, want, first, nil)
			if !slices.Equal(found, scanned) {
				t.Fatalf("%v: the index has %v, the scan %v", want, found, scanned)
			}
			if indexed && work > most*plain+hashedValues+2 {
				t.Fatalf("%v: the index takes %d, the scan %d", want, work, plain)
			}
		}
		absent, err := ParseString(`"absent"`)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			e.Lookups().Find(arr, "", nil, absent, true, nil)
		}
		if e.Lookups().recent[0].chains == nil {
			t.Fatal("there is no index")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := arr.Len()
			switch i := rapid.IntRange(0, n-1).Draw(t, "position"); rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				arr = e.Append(arr, draw())
			case 1:
				arr = e.RemoveElem(arr, i)
			case 2:
				arr = e.SetElem(arr, i, draw(), Weight{})
			default:
				search()
			}
		}
		search()
	})
}

// TestSearchesOfEqualElements is what made a search of an index take as long as all elements.
func TestSearchesOfEqualElements(t *testing.T) {
	const n = 10_000
	e, elems := NewEditor(), make([]Value, n)
	for i := range elems {
		elems[i] = StringValue("same")
	}
	arr, total := e.Array(elems, Weight{}), 0
	for i := range n {
		want := elems[0]
		if i < 10 {
			want = StringValue(fmt.Sprint("absent", i)) // until there is an index
		}
		_, work := e.Lookups().Find(arr, "", nil, want, true, nil)
		total += work
	}
	if total > 40*n {
		t.Errorf("%d searches take %d", n, total)
	}
}
