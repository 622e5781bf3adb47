// Package recent tells caches what was asked for before: what is asked for once need not be kept, and a scan asks for everything once.
package recent

import "sync/atomic"

// Set remembers hashes of what was asked for lately, each in a place of its own or that of another one: in four bytes, and with no
// pointers for the garbage collector to follow. It forgets, and takes one thing for another now and then, so that nothing but a
// cache may rest on it. It is safe for concurrent use.
type Set struct {
	marks []atomic.Uint32
	shift int
}

const (
	// leastPlaces and mostPlaces bound the places of a set: 4 KiB to 4 MiB.
	leastPlaces, mostPlaces = 1 << 10, 1 << 20
	hashBits                = 64
)

// New returns a set that remembers about so many of the latest things.
func New(things int64) *Set {
	bits := 0
	for int64(1)<<bits < min(max(things, leastPlaces), mostPlaces) {
		bits++
	}
	return &Set{marks: make([]atomic.Uint32, 1<<bits), shift: hashBits - bits}
}

// Again reports whether a thing was asked for lately, and remembers that it was now.
func (s *Set) Again(hash uint64) bool {
	mark := uint32(hash) | 1 // 0 is the mark of nothing
	return s.marks[hash>>s.shift].Swap(mark) == mark
}
