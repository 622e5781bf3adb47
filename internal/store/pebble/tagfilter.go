package pebble

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/bits"
	"sync/atomic"

	"j17"
	"j17/internal/panics"
)

// tagFilter tells of most tags that no event of a tenant has them, without a look at the index: a Bloom filter over the tags in the index.
// Whatever is stored is in it before it can be seen, and nothing is taken out of it, so that what it says is missing is missing.
type tagFilter struct {
	// number is the number that the tenant had when the filter was made, and events how many events it had.
	number uint32
	events uint64
	// whole tells that the tags of all events are in it; until then it says nothing.
	whole atomic.Bool
	// words are a power of two.
	words []atomic.Uint64
}

const (
	// filterProbes is how many bits a tag sets, filterBits how many there are for each event when a filter is made.
	filterProbes = 4
	filterBits   = 16
	// minFiltered and maxFiltered are how many events a tenant with a filter has: with less the index is fast enough, with more it would take
	// long to make one.
	minFiltered = 1 << 12
	maxFiltered = 1 << 24
	// mostFilterBytes is the size of a filter, and allFilterBytes that of all. Those who come first have one.
	mostFilterBytes = 8 << 20
	allFilterBytes  = 32 << 20
)

// filterBytes is the size of the filter of a tenant with some events.
func filterBytes(events uint64) int {
	return min(1<<bits.Len64(events*filterBits/8), mostFilterBytes)
}

func newTagFilter(number uint32, events uint64) *tagFilter {
	return &tagFilter{number: number, events: events, words: make([]atomic.Uint64, max(filterBytes(events)/8, 1))}
}

// bit returns one of the bits of a tag.
func (f *tagFilter) bit(id tagID, probe int) (word *atomic.Uint64, mask uint64) {
	at := binary.BigEndian.Uint64(id[:]) + uint64(probe)*(binary.BigEndian.Uint64(id[8:])|1)
	return &f.words[at>>6&uint64(len(f.words)-1)], 1 << (at & 63)
}

// add adds tags of the tenant with a number. There may be no filter.
func (f *tagFilter) add(number uint32, ids ...tagID) {
	if f == nil || f.number != number {
		return
	}
	for _, id := range ids {
		for probe := range filterProbes {
			if word, mask := f.bit(id, probe); word.Load()&mask == 0 {
				word.Or(mask)
			}
		}
	}
}

// lacks reports whether it is certain that no event of the tenant with a number has all of some tags. There may be no filter.
func (f *tagFilter) lacks(number uint32, ids []tagID) bool {
	if f == nil || f.number != number || !f.whole.Load() {
		return false
	}
	for _, id := range ids {
		for probe := range filterProbes {
			if word, mask := f.bit(id, probe); word.Load()&mask == 0 {
				return true
			}
		}
	}
	return false
}

// size returns the bytes of a filter, 0 where there is none.
func (f *tagFilter) size() int {
	if f == nil {
		return 0
	}
	return 8 * len(f.words)
}

// filterTags begins to make a filter for a tenant where one would help, which somebody has found who had to ask the index: there is none, or
// one for half as many events that can grow. One is made at a time.
func (s *Store) filterTags(name j17.Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[name]
	if t == nil || t.building != 0 || t.events < minFiltered || t.events > maxFiltered || s.filtering || s.closed {
		return
	}
	f, size := t.filter.Load(), filterBytes(t.events)
	if f != nil && (t.events/2 < f.events || size <= f.size()) || s.filterBytes-f.size()+size > allFilterBytes {
		return
	}
	s.filtering = true
	f = newTagFilter(t.number, t.events)
	s.background.Go(func() {
		if err := panics.Caught(func() error { return s.makeFilter(name, f) }); err != nil && !s.ending.Load() {
			s.logger.Warn("the index of a tenant's tags could not be read as a whole, so that conditions on tags take longer than they might",
				slog.String("tenant", string(name)), slog.Any("error", err))
		}
		s.mu.Lock()
		s.filtering = false
		s.mu.Unlock()
	})
}

// makeFilter makes a filter a tenant's. It ends early when the tenant is gone.
func (s *Store) makeFilter(name j17.Tenant, f *tagFilter) error {
	// What is stored from here on is put into it by the committer.
	err := s.run(s.life, always, func(b *batch) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t := s.tenants[name]; t.nextNumber == f.number {
			s.filterBytes += f.size() - t.filter.Load().size()
			t.filter.Store(f)
		}
		return nil
	})
	if err != nil {
		return nil //nolint:nilerr // the store takes no writes any more and has said so
	}

	// What was stored before can be seen by now, and is read from views that come later.
	for from := appendPrefix(nil, f.number, kindTag); err == nil && from != nil; {
		from, err = s.filterSome(name, f, from)
	}
	return err
}

// filterSome puts tags into a filter, from a key of the index on, and returns where to go on, nil for nowhere.
func (s *Store) filterSome(name j17.Tenant, f *tagFilter, from []byte) (next []byte, err error) {
	if err := s.interrupted(s.life, 0); err != nil {
		return nil, err
	}
	r, err := s.read(name)
	if err != nil || r.tenant != f.number {
		return nil, err
	}
	defer r.close()
	it, err := r.iterate(from, after(appendPrefix(nil, f.number, kindTag)))
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "the index of tags")

	// Of a tag with many entries the first one is enough.
	ok := it.First()
	for range maxTagSteps {
		if !ok {
			break
		}
		key := it.Key()
		if len(key) != tagPrefixBytes+positionBytes {
			return nil, corruption(errFormat, "the index of tags of tenant %s", name)
		}
		id := tagID(key[tenantPrefix+1:])
		f.add(f.number, id)
		if ok = it.Next(); ok && bytes.HasPrefix(it.Key()[tenantPrefix+1:], id[:]) {
			ok = it.SeekGE(after(appendTagPrefix(nil, f.number, id)))
		}
	}
	if ok {
		return bytes.Clone(it.Key()), nil
	}
	if err := it.Error(); err != nil {
		return nil, fault("the index of tags", err)
	}
	f.whole.Store(true)
	return nil, nil
}
