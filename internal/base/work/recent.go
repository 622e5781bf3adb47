package work

import "sync/atomic"

// Recent remembers the hashes of what a cache was asked for lately. A cache that keeps only what it is asked for a
// second time survives a scan, which asks for everything once. A hash takes four bytes and no pointer for the garbage
// collector to follow; another hash may replace it, and two things may share one, so that only a cache may rely on the
// answers. It is safe for concurrent use.
type Recent struct {
	marks []atomic.Uint32
	shift int
}

const (
	// leastMarks and mostMarks bound the size of a set: 4 KiB to 4 MiB.
	leastMarks, mostMarks = 1 << 10, 1 << 20
	hashBits              = 64
)

// NewRecent returns a set that remembers about so many of the latest hashes.
func NewRecent(hashes int64) *Recent {
	bits := 0
	for int64(1)<<bits < min(max(hashes, leastMarks), mostMarks) {
		bits++
	}
	return &Recent{marks: make([]atomic.Uint32, 1<<bits), shift: hashBits - bits}
}

// Again reports whether a hash was asked for lately, and remembers that it was asked for now.
func (r *Recent) Again(hash uint64) bool {
	mark := uint32(hash) | 1 // 0 marks an empty place
	return r.marks[hash>>r.shift].Swap(mark) == mark
}
