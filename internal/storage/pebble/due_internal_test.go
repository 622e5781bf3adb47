package pebble

import (
	"container/heap"
	"math"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestEarliest compares the earliest entries of an order with those of a sorted list.
func TestEarliest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(1, 50), 0, 60).Draw(t, "times")
		o := dueOrder{of: map[*tenant]*dueEntry{}}
		at := map[*tenant]int64{}
		for _, time := range times {
			e := &dueEntry{tenant: &tenant{}, at: time}
			at[e.tenant] = time
			heap.Push(&o, e)
		}
		many, now := rapid.IntRange(0, 70).Draw(t, "many"), rapid.Int64Range(0, 60).Draw(t, "now")
		first := o.earliest(many, now)
		slices.Sort(times)
		want := slices.DeleteFunc(times, func(time int64) bool { return time > now })
		want = want[:min(len(want), many)]
		if len(first) != len(want) {
			t.Fatalf("%d are found, want %d", len(first), len(want))
		}
		for i, found := range first {
			if at[found] != want[i] {
				t.Fatalf("number %d is due at %d, want %d", i, at[found], want[i])
			}
		}
	})
}

// TestEarliestCostsLittle finds a few entries among very many.
func TestEarliestCostsLittle(t *testing.T) {
	o := dueOrder{of: map[*tenant]*dueEntry{}}
	const all, few = 30_000, 100
	for n := range all {
		heap.Push(&o, &dueEntry{tenant: &tenant{}, at: int64(n*7919%all) + 1})
	}
	spent := uint64(math.MaxUint64)
	for range 10 { // others may take memory meanwhile
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		first := o.earliest(few, all+1)
		runtime.ReadMemStats(&after)
		if len(first) != few {
			t.Fatalf("%d entries, want %d", len(first), few)
		}
		spent = min(spent, after.TotalAlloc-before.TotalAlloc)
	}
	const most = 200 << 10 // a copy of all entries is seven times that
	if spent > most {
		t.Errorf("%d entries of %d take %d bytes", few, all, spent)
	}
}
