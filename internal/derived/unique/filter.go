package unique

import "hash/maphash"

// filterWords makes a filter 8 MiB large: with four million keys, about two percent of absent keys pass as written.
const filterWords = 1 << 20

// filter recognizes most keys that were never written, so that the store need not be asked.
type filter struct {
	seed maphash.Seed
	bits []uint64
}

func newFilter() *filter { return &filter{maphash.MakeSeed(), make([]uint64, filterWords)} }

// places returns the bits of a key.
func (f *filter) places(key string) (at [4]uint64) {
	h := maphash.String(f.seed, key)
	for i := range at {
		at[i] = h % (filterWords * 64)
		h += h>>32 | 1
	}
	return at
}

// add notes that a key is written.
func (f *filter) add(key string) {
	for _, at := range f.places(key) {
		f.bits[at/64] |= 1 << (at % 64)
	}
}

// lacks reports whether a key was certainly not written.
func (f *filter) lacks(key string) bool {
	if f == nil {
		return false
	}
	for _, at := range f.places(key) {
		if f.bits[at/64]>>(at%64)&1 == 0 {
			return true
		}
	}
	return false
}
