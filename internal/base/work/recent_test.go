package work_test

import (
	"hash/maphash"
	"testing"

	"j17/internal/base/work"
)

// TestRecent checks that a thing is known from the second time on as long as few others came between, whatever its
// hash, and that what came long ago is forgotten.
func TestRecent(t *testing.T) {
	for _, hash := range []uint64{0, 1, 2, 1 << 32, 1 << 63, ^uint64(0)} {
		s := work.NewRecent(0)
		if s.Again(hash) || !s.Again(hash) || !s.Again(hash) {
			t.Errorf("%x is not known from the second time on", hash)
		}
	}

	const things = 10_000
	seed := maphash.MakeSeed()
	s := work.NewRecent(things)
	for n := range things / 100 {
		s.Again(maphash.Comparable(seed, n))
	}
	known := 0
	for n := range things / 100 {
		if s.Again(maphash.Comparable(seed, n)) {
			known++
		}
	}
	if known < 90 {
		t.Errorf("%d of 100 are known again", known)
	}
	for n := range 100 * things {
		s.Again(maphash.Comparable(seed, -n))
	}
	known = 0
	for n := range things / 100 {
		if s.Again(maphash.Comparable(seed, n)) {
			known++
		}
	}
	if known > 10 {
		t.Errorf("%d of 100 are known long after", known)
	}
}
