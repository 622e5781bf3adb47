//go:build !race

package leaves

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
	l := &Latest{most: most}
	rng := rand.New(rand.NewPCG(1, 2))
	type written struct {
		kept   Kept
		last   j17.StreamID
		events uint64
		all    []store.Leaf
	}
	tenants := make([]*written, 5)
	for i := range tenants {
		tenants[i] = &written{}
	}
	answers := 0
	for n := range 3000 {
		of := tenants[rng.IntN(len(tenants))]
		if rng.IntN(len(tenants)) > 0 {
			of = tenants[0] // one writes more than the others
		}
		var added []Leaf
		known := n%500 != 499 // some events come in another way
		for range rng.IntN(20) {
			of.last = of.last.Next()
			of.events++
			leaf := store.Leaf{Position: of.last, Hash: [32]byte{byte(n), byte(n >> 8)}}
			of.all = append(of.all, leaf)
			if known {
				added = append(added, Leaf{Leaf: leaf})
			}
		}
		l.Add(&of.kept, added, of.last, of.events)

		kept := 0
		for _, other := range tenants {
			for _, piece := range other.kept.pieces {
				kept += len(piece.leaves)
			}
		}
		if kept > most || kept > l.held {
			t.Fatalf("%d are kept, %d by the count", kept, l.held)
		}
		other := tenants[rng.IntN(len(tenants))]
		if len(other.all) == 0 {
			continue
		}
		from := rng.IntN(len(other.all))
		want, limit := other.all[from+1:], rng.IntN(2000)
		some, noted, ok := other.kept.Behind(other.all[from].Position, limit)
		if !ok {
			continue
		}
		answers++
		got := []store.Leaf{}
		for _, part := range some {
			for _, leaf := range part {
				got = append(got, leaf.Leaf)
			}
		}
		if len(got) > limit+pieceLeaves || len(got) <= limit && len(got) < len(want) ||
			fmt.Sprint(got) != fmt.Sprint(want[:min(len(got), len(want))]) || noted {
			t.Fatalf("%d behind number %d of %d, of more than %d, noted: %t", len(got), from, len(other.all), limit, noted)
		}
	}
	if answers < 100 {
		t.Errorf("%d answers from memory: the test shows nothing", answers)
	}
}

// TestNotesAreNoticed adds events, notes and commits that add neither.
func TestNotesAreNoticed(t *testing.T) {
	l, of, last, events := New(), &Kept{}, j17.StreamID{Ms: 1}, uint64(1)
	event := func() {
		last, events = last.Next(), events+1
		l.Add(of, []Leaf{l.Leaf(last, [32]byte{}, "order")}, last, events)
	}
	noted := func(after j17.StreamID) bool {
		_, noted, ok := of.Behind(after, 9)
		if !ok {
			t.Fatalf("nothing is known behind %s", after)
		}
		return noted
	}
	l.Add(of, nil, last, events)
	begin := last
	event()
	l.Add(of, nil, last, events)
	if noted(begin) {
		t.Error("a commit without events passes for a note")
	}
	before := last
	last = last.Next()
	l.Add(of, nil, last, events)
	if !noted(begin) || !noted(before) || noted(last) {
		t.Error("a note is not where it is")
	}
	event()
	if !noted(before) || noted(last) {
		t.Error("a note is forgotten")
	}
	of.Forget()
	if _, _, ok := of.Behind(begin, 9); ok {
		t.Error("what was forgotten is known")
	}
}
