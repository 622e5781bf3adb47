package value

import (
	"hash/maphash"
	"slices"
)

// Lookups finds the elements of arrays that have a value, or whose member at some path does. An array that is searched
// again and again gets an index. Lookups are for one goroutine, and either for arrays that do not change or part of the
// Editor that changes them.
type Lookups struct {
	seed   maphash.Seed
	recent [4]*lookup
	next   int
}

const (
	// lookupFrom and lookupUpTo are the numbers of elements from which and up to which an array gets an index.
	lookupFrom, lookupUpTo = 32, 1 << 17
	// lookupAfter is how many times all elements are looked at before an index is made: that takes about as long.
	lookupAfter = 4
)

// lookup is what is known about one array and one path.
type lookup struct {
	arr   *array
	field string
	steps []Step
	// scanned is how many elements have been looked at without an index.
	scanned int

	// Elements are numbered in the order in which they came, so the numbers of those in the array ascend. at has them,
	// by position. Elements with the same hash are a chain in that order, of which chains has both ends.
	at            []uint32
	chains        map[uint64]chain
	hashes        []uint64
	before, after []uint32
}

// chain is the first and the last of the numbers of elements with one hash.
type chain struct{ first, last uint32 }

// none ends a chain.
const none = 1<<32 - 1

// Find appends to hits the positions, in order, of the elements of an array whose value at steps equals want; only the
// first if first is set. field names the steps. work is about how many values were looked at.
func (l *Lookups) Find(
	arr Value, field string, steps []Step, want Value, first bool, hits []int,
) (found []int, work int) {
	// Few elements are looked through faster than looked up.
	if arr.Kind() != Array {
		return hits, 0
	}
	a := arr.array()
	if n := len(a.elems); n < lookupFrom || n > lookupUpTo {
		return scan(a, steps, want, first, hits)
	}

	// An index is made once so many elements have been looked through that it would have paid off.
	x := l.of(a, field, steps)
	if x.chains == nil {
		if x.scanned < lookupAfter*len(a.elems) {
			found, work = scan(a, steps, want, first, hits)
			x.scanned += work
			return found, work
		}
		work = l.build(x)
	}

	// The elements with the hash of what is wanted, each compared.
	hash, hashed := l.hash(want)
	work += hashed
	c, ok := x.chains[hash]
	if !ok {
		return hits, work
	}
	for n := c.first; n != none; n = x.after[n] {
		i, _ := slices.BinarySearch(x.at, n)
		work += 2
		if EqualCounted(a.elems[i].At(steps), want, &work) {
			if hits = append(hits, i); first {
				break
			}
		}
	}
	return hits, work
}

// scan is Find without an index.
func scan(a *array, steps []Step, want Value, first bool, hits []int) (found []int, work int) {
	visited := 0
	for i := range a.elems {
		v := a.elems[i].At(steps)
		if visited++; a.elems[i].Kind() == Object {
			visited += 1 + len(steps)
		}
		if EqualCounted(v, want, &work) {
			if hits = append(hits, i); first {
				break
			}
		}
	}
	return hits, 1 + (work+visited)/2
}

// of returns what is known about an array.
func (l *Lookups) of(a *array, field string, steps []Step) *lookup {
	for _, x := range l.recent {
		if x != nil && x.arr == a && x.field == field {
			return x
		}
	}
	if l.seed == (maphash.Seed{}) {
		l.seed = maphash.MakeSeed()
	}
	// One without an index goes before one that has it.
	at := l.next
	for i := range l.recent {
		at = (l.next + i) % len(l.recent)
		if x := l.recent[at]; x == nil || x.chains == nil {
			break
		}
	}
	l.next = (at + 1) % len(l.recent)
	l.recent[at] = &lookup{arr: a, field: field, steps: steps}
	return l.recent[at]
}

// Forget drops all arrays.
func (l *Lookups) Forget() { l.recent = [4]*lookup{} }

// indexedWork is what it takes to put an element into an index.
const indexedWork = 6

// build makes the index and returns how many values were looked at.
func (l *Lookups) build(x *lookup) (work int) {
	n := len(x.arr.elems)
	x.chains, x.at, x.hashes = make(map[uint64]chain, n), make([]uint32, 0, n+n/4), make([]uint64, 0, n+n/4)
	x.before, x.after = make([]uint32, 0, n+n/4), make([]uint32, 0, n+n/4)
	for i := range n {
		work += indexedWork + l.add(x, i)
	}
	return work
}

// add takes the last element, which is at position i, into the index.
func (l *Lookups) add(x *lookup, i int) (work int) {
	hash, work := l.hash(x.arr.elems[i].At(x.steps))
	n := uint32(len(x.hashes))
	x.at = append(x.at, n)
	x.hashes = append(x.hashes, hash)
	x.before, x.after = append(x.before, none), append(x.after, none)
	x.link(n)
	return work
}

// link puts an element at the end of its chain. It reports false where it belongs before the last one there.
func (x *lookup) link(n uint32) bool {
	hash := x.hashes[n]
	c, ok := x.chains[hash]
	switch {
	case !ok:
		c = chain{first: n, last: none}
	case c.last > n:
		return false
	default:
		x.after[c.last] = n
	}
	x.before[n], x.after[n] = c.last, none
	c.last = n
	x.chains[hash] = c
	return true
}

func (x *lookup) unlink(n uint32) {
	hash := x.hashes[n]
	c := x.chains[hash]
	before, after := x.before[n], x.after[n]
	if before == none && after == none {
		delete(x.chains, hash)
		return
	}
	if before == none {
		c.first = after
	} else {
		x.after[before] = after
	}
	if after == none {
		c.last = before
	} else {
		x.before[after] = before
	}
	x.chains[hash] = c
}

// follow records that an array was copied, and that the copy is the one to be changed and searched from now on.
func (l *Lookups) follow(from, to *array) {
	for _, x := range l.recent {
		if x != nil && x.arr == from {
			x.arr = to
		}
	}
}

func (l *Lookups) appended(a *array) {
	for _, x := range l.recent {
		switch {
		case x == nil || x.arr != a || x.chains == nil:
		case len(a.elems) > lookupUpTo || len(x.hashes) > 2*len(a.elems)+lookupFrom:
			x.drop()
		default:
			l.add(x, len(a.elems)-1)
		}
	}
}

func (l *Lookups) replaced(a *array, i int) {
	for _, x := range l.recent {
		if x == nil || x.arr != a || x.chains == nil {
			continue
		}
		n := x.at[i]
		if hash, _ := l.hash(a.elems[i].At(x.steps)); hash != x.hashes[n] {
			x.unlink(n)
			x.hashes[n] = hash
			if !x.link(n) {
				x.drop()
			}
		}
	}
}

func (l *Lookups) removed(a *array, i int) {
	for _, x := range l.recent {
		if x != nil && x.arr == a && x.chains != nil {
			x.unlink(x.at[i])
			x.at = slices.Delete(x.at, i, i+1)
		}
	}
}

// drop forgets the index. It is rebuilt when the array has been searched some more.
func (x *lookup) drop() { *x = lookup{arr: x.arr, field: x.field, steps: x.steps} }

// Limits of what a hash looks at, so that hashing is quick for any value.
const (
	hashedBytes  = 256
	hashedValues = 16
)

// hash returns the same for values that are equal. Of large values it looks at a part.
func (l *Lookups) hash(v Value) (hash uint64, work int) {
	switch v.Kind() {
	case Array:
		hash = uint64(v.Len())<<1 + 1
		for _, elem := range v.Elems()[:min(v.Len(), hashedValues)] {
			hash = maphash.Comparable(l.seed, [2]uint64{hash, l.scalar(elem)})
			work++
		}
		return hash, work
	case Object:
		hash = uint64(v.Len()) << 1
		if v.Len() > hashedValues {
			return hash, 0
		}
		// The order of members does not count.
		for _, m := range v.Members() {
			hash += maphash.Comparable(l.seed, [2]uint64{l.text(m.Key), l.scalar(m.Value)})
			work++
		}
		return hash, work
	case Missing, Null, Bool, Number, String:
	}
	return l.scalar(v), 0
}

// scalar is hash for what is no container, and the same for all containers of a kind.
func (l *Lookups) scalar(v Value) uint64 {
	switch v.Kind() {
	case Number:
		return l.number(v)
	case String:
		return l.text(v.str())
	case Missing, Null, Array, Object:
		return uint64(v.Kind())
	case Bool:
	}
	return maphash.Comparable(l.seed, [2]uint64{uint64(v.Kind()), v.n})
}

func (l *Lookups) text(s string) uint64 {
	if len(s) > hashedBytes {
		return maphash.String(l.seed, s[:hashedBytes/2]) + maphash.String(l.seed, s[len(s)-hashedBytes/2:])
	}
	return maphash.String(l.seed, s)
}

func (l *Lookups) number(v Value) uint64 {
	var buf, digits [24]byte
	p := v.parts(&buf)
	text := digits[:0]
	for i := 0; len(text) < min(p.n, len(digits)); i++ {
		if p.text[i] != '.' {
			text = append(text, p.text[i])
		}
	}
	return maphash.Comparable(l.seed, [3]uint64{
		maphash.Bytes(l.seed, text), uint64(int64(p.mag)<<2 + int64(p.sign) + 1), uint64(p.n),
	})
}
