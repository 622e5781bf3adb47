package index

import (
	"cmp"
	"hash/maphash"
)

const (
	// mostIDs and mostIDBytes bound the IDs that a query holds in memory. Only as many queries as the pool has places
	// may hold more than fewIDs at a time, see View.room.
	fewIDs      = 1 << 16
	mostIDs     = 1 << 20
	mostIDBytes = 40 << 20
	// idCost is the cost of finding an ID among them, in units of work.
	idCost = 4
	// sortCost is the cost of sorting, for each ID.
	sortCost = 8
)

// uuid is an ID that is a UUID in canonical text form. It compares like the text.
type uuid struct{ high, low uint64 }

// uuidOf parses a UUID; it reports false for any other ID.
func uuidOf[T string | []byte](id T) (u uuid, ok bool) {
	if len(id) != 36 {
		return u, false
	}
	for i := range 36 {
		c := id[i]
		var digit byte
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return u, false
			}
			continue
		case c >= '0' && c <= '9':
			digit = c - '0'
		case c >= 'a' && c <= 'f':
			digit = c - 'a' + 10
		default:
			return u, false
		}
		u.high, u.low = u.high<<4|u.low>>60, u.low<<4|uint64(digit)
	}
	return u, true
}

func (u uuid) compare(o uuid) int {
	if u.high != o.high {
		return cmp.Compare(u.high, o.high)
	}
	return cmp.Compare(u.low, o.low)
}

// String returns the UUID in text form.
func (u uuid) String() string {
	const digits = "0123456789abcdef"
	var text [36]byte
	high, low := u.high, u.low
	for i := 35; i >= 0; i-- {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			text[i] = '-'
			continue
		}
		text[i] = digits[low&15]
		high, low = high>>4, low>>4|high<<60
	}
	return string(text[:])
}

// ids is a set of row IDs in memory, in the order in which they were added. IDs can be marked.
type ids struct {
	seed maphash.Seed
	// text has the IDs one after the other; ends has the offset at which each ends.
	text []byte
	ends []uint32
	// places is a hash table with linear probing: each place has the upper half of an ID's hash and, in the lower half,
	// the ID's number from 1. At least half of the places are free.
	places []uint64
	marks  []bool
	// most is the maximum number of IDs.
	most int
}

func newIDs(most int) *ids {
	return &ids{seed: maphash.MakeSeed(), places: make([]uint64, 1<<10), most: most}
}

func (s *ids) len() int    { return len(s.ends) }
func (s *ids) empty() bool { return s.len() == 0 }

// full reports whether there is no room for another ID.
func (s *ids) full() bool { return len(s.ends) >= s.most || len(s.text) >= mostIDBytes }

// of returns the ID of a place.
func (s *ids) of(place uint64) []byte {
	number, from := uint32(place), uint32(0)
	if number > 1 {
		from = s.ends[number-2]
	}
	return s.text[from:s.ends[number-1]]
}

// numbers masks the half of a place that has the number.
const numbers = 1<<32 - 1

// find returns the place of an ID, or the free place where it belongs, and its hash.
func (s *ids) find(id string) (place *uint64, hash uint64) {
	hash = maphash.String(s.seed, id)
	for at := hash; ; at++ {
		place = &s.places[at&uint64(len(s.places)-1)]
		if *place == 0 || (*place^hash)&^numbers == 0 && string(s.of(*place)) == id {
			return place, hash
		}
	}
}

// grow doubles the number of places.
func (s *ids) grow() {
	before := s.places
	s.places = make([]uint64, 2*len(before))
	for _, place := range before {
		if place == 0 {
			continue
		}
		at := maphash.Bytes(s.seed, s.of(place))
		for s.places[at&uint64(len(s.places)-1)] != 0 {
			at++
		}
		s.places[at&uint64(len(s.places)-1)] = place
	}
}

// has reports whether an ID is in the set.
func (s *ids) has(id string) bool {
	place, _ := s.find(id)
	return *place != 0
}

// add adds an ID. It reports false if the set had it already.
func (s *ids) add(id string) bool {
	if 2*len(s.ends) >= len(s.places) {
		s.grow()
	}
	place, hash := s.find(id)
	if *place != 0 {
		return false
	}
	s.text = append(s.text, id...)
	s.ends = append(s.ends, uint32(len(s.text)))
	s.marks = append(s.marks, false)
	*place = hash&^numbers | uint64(len(s.ends))
	return true
}

// mark marks an ID if it is in the set.
func (s *ids) mark(id string) {
	if place, _ := s.find(id); *place != 0 {
		s.marks[*place&numbers-1] = true
	}
}

// each passes all IDs until do reports false.
func (s *ids) each(do func(id string, marked bool) bool) {
	from := uint32(0)
	for number, marked := range s.marks {
		if !do(string(s.text[from:s.ends[number]]), marked) {
			return
		}
		from = s.ends[number]
	}
}
