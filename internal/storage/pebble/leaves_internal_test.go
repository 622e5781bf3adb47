//go:build !race

package pebble

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"j17"
	"j17/internal/storage/store"
)

// TestFewLeavesAreKept adds leaf hashes of several tenants, some events past them, and looks what is kept: no more than
// so many, of each tenant all behind a position or none, and in the right order.
func TestFewLeavesAreKept(t *testing.T) {
	const most = 1000
	r := recentLeaves{most: most}
	rng := rand.New(rand.NewPCG(1, 2))
	tenants := make([]*tenant, 5)
	all := map[*tenant][]store.Leaf{}
	for i := range tenants {
		tenants[i] = &tenant{name: j17.Tenant(fmt.Sprint(i))}
	}
	answers := 0
	for n := range 3000 {
		of := tenants[rng.IntN(len(tenants))]
		if rng.IntN(len(tenants)) > 0 {
			of = tenants[0] // one writes more than the others
		}
		of.added = nil
		known := n%500 != 499 // some events come in another way
		for range rng.IntN(20) {
			of.next.Last = of.next.Last.Next()
			of.next.Events++
			leaf := store.Leaf{Position: of.next.Last, Hash: [32]byte{byte(n), byte(n >> 8)}}
			all[of] = append(all[of], leaf)
			if known {
				of.added = append(of.added, keptLeaf{Leaf: leaf})
			}
		}
		r.add(of)

		kept := 0
		for _, other := range tenants {
			for _, piece := range other.leaves.pieces {
				kept += len(piece.leaves)
			}
		}
		if kept > most || kept > r.held {
			t.Fatalf("%d are kept, %d by the count", kept, r.held)
		}
		other := tenants[rng.IntN(len(tenants))]
		if len(all[other]) == 0 {
			continue
		}
		from := rng.IntN(len(all[other]))
		want, limit := all[other][from+1:], rng.IntN(2000)
		pieces, ok := other.leaves.behind(all[other][from].Position, limit)
		if !ok {
			continue
		}
		answers++
		got := []store.Leaf{}
		for _, piece := range pieces {
			for _, leaf := range piece {
				got = append(got, leaf.Leaf)
			}
		}
		if len(got) > limit+pieceLeaves || len(got) <= limit && len(got) < len(want) ||
			fmt.Sprint(got) != fmt.Sprint(want[:min(len(got), len(want))]) {
			t.Fatalf("%d behind number %d of %d, of more than %d", len(got), from, len(all[other]), limit)
		}
	}
	if answers < 100 {
		t.Errorf("%d answers from memory: the test shows nothing", answers)
	}
}
