package pebble

import (
	"bytes"
	"log/slog"
	"math/bits"
	"slices"
	"sync/atomic"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/queue"
)

// filter tells of most of what a tenant does not have, tags or streams, that it does not, without a look at what is
// stored: a Bloom filter. Whatever is stored is in it before it can be seen, and nothing is taken out of it, so that
// what it says is missing is missing.
type filter struct {
	// number is the number that the tenant had when the filter was made, and events how many events it had.
	number uint32
	events uint64
	// whole tells that all of what the tenant has is in it; until then it says nothing.
	whole atomic.Bool
	// words are a power of two.
	words []atomic.Uint64
}

const (
	// filterProbes is how many bits one thing sets, filterBits how many there are for each event when a filter is made.
	filterProbes = 4
	filterBits   = 16
	// minFiltered and maxFiltered are how many events a tenant with a filter has: with less what is stored is fast
	// enough, with more it would take long to make one.
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

func newFilter(number uint32, events uint64) *filter {
	return &filter{number: number, events: events, words: make([]atomic.Uint64, max(filterBytes(events)/8, 1))}
}

// filtered is one thing by two hashes of it.
type filtered struct{ first, second uint64 }

// bit returns one of the bits of a thing.
func (f *filter) bit(h filtered, probe int) (word *atomic.Uint64, mask uint64) {
	at := h.first + uint64(probe)*(h.second|1)
	return &f.words[at>>6&uint64(len(f.words)-1)], 1 << (at & 63)
}

// add adds something that the tenant with a number has. There may be no filter.
func (f *filter) add(number uint32, h filtered) {
	if f == nil || f.number != number {
		return
	}
	for probe := range filterProbes {
		if word, mask := f.bit(h, probe); word.Load()&mask == 0 {
			word.Or(mask)
		}
	}
}

// lacks reports whether it is certain that the tenant with a number does not have something. There may be no filter.
func (f *filter) lacks(number uint32, h filtered) bool {
	if f == nil || f.number != number || !f.whole.Load() {
		return false
	}
	for probe := range filterProbes {
		if word, mask := f.bit(h, probe); word.Load()&mask == 0 {
			return true
		}
	}
	return false
}

// addAll adds tags that the tenant with a number has.
func (f *filter) addAll(number uint32, ids []tagID) {
	for _, id := range ids {
		f.add(number, id.filtered())
	}
}

// lacksAny reports whether it is certain that no event of the tenant with a number has all of some tags.
func (f *filter) lacksAny(number uint32, ids []tagID) bool {
	return slices.ContainsFunc(ids, func(id tagID) bool { return f.lacks(number, id.filtered()) })
}

// size returns the bytes of a filter, 0 where there is none.
func (f *filter) size() int {
	if f == nil {
		return 0
	}
	return 8 * len(f.words)
}

// filterKind is what filters are over.
type filterKind struct {
	// kind is that of the keys that name what there is, and what says in words what they are.
	kind byte
	what string
	// whole reports whether all of what a tenant has is stored under such keys, and not still being indexed.
	whole func(t *tenant) bool
	// of is where the filter of a tenant is.
	of func(t *tenant) *atomic.Pointer[filter]
	// named returns what a key names, and how many bytes the keys begin with that name the same; 0 where no other one
	// does. It reports false for a key that is none.
	named func(s *filters, key []byte) (h filtered, same int, ok bool)
}

// makeFilter begins to make a filter for a tenant where one would help, which somebody has found who had to look at
// what is stored: there is none, or it would be larger by now. One is made at a time. It reports whether one is.
func (s *filters) makeFilter(k filterKind, name j17.Tenant) (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[name]
	if t == nil || !k.whole(t) || t.events < minFiltered || t.events > maxFiltered || s.making || s.closed {
		return false
	}
	f, size := k.of(t).Load(), filterBytes(t.events)
	if f != nil && (t.events/2 < f.events || size <= f.size()) || s.held-f.size()+size > allFilterBytes {
		return false
	}
	s.making = true
	f = newFilter(t.number, t.events)
	s.background.Go(func() {
		if err := panics.Caught(func() error { return s.fillFilter(k, name, f) }); err != nil && !s.ending.Load() {
			s.dropFilter(k, name, f, err)
			s.logger.Warn("what a tenant has could not be read as a whole, so that new events take longer than they might",
				slog.String("tenant", string(name)), slog.String("read", k.what), slog.Any("error", err))
		}
		s.mu.Lock()
		s.making = false
		s.mu.Unlock()
	})
	return true
}

// fillFilter makes a filter a tenant's. It ends early when the tenant is gone.
func (s *filters) fillFilter(k filterKind, name j17.Tenant, f *filter) error {
	// What is stored from here on is put into it by the committer.
	err := s.queue.Do(s.life, queue.Always, func(b *batch) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t := s.tenants[name]; t.next.Number == f.number {
			s.held += f.size() - k.of(t).Load().size()
			k.of(t).Store(f)
		}
		return nil
	})
	if err != nil {
		return nil //nolint:nilerr // the store takes no writes any more and has said so
	}

	// What was stored before can be seen by now, and is read from views that come later.
	for from := appendPrefix(nil, f.number, k.kind); err == nil && from != nil; {
		from, err = s.filterSome(k, name, f, from)
	}
	return err
}

// dropFilter takes away a filter that could not be filled, so that another one is made soon. Where what is stored is
// damaged none would be whole, and the filter stays as it is, without use, until the tenant has twice as many events.
func (s *filters) dropFilter(k filterKind, name j17.Tenant, f *filter, cause error) {
	if isDamage(cause) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[name]; t != nil && k.of(t).CompareAndSwap(f, nil) {
		s.held -= f.size()
	}
}

// filterSome puts what there is into a filter, from a key on, and returns where to go on, nil for nowhere.
func (s *filters) filterSome(k filterKind, name j17.Tenant, f *filter, from []byte) (next []byte, err error) {
	if err := s.interrupted(s.life, 0); err != nil {
		return nil, err
	}
	r, err := s.read(name)
	if err != nil || r.tenant != f.number {
		return nil, err
	}
	defer r.close()
	it, err := r.iterate(from, after(appendPrefix(nil, f.number, k.kind)))
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, k.what)

	// Of several keys that name the same the first one is enough.
	ok := it.First()
	for range maxTagSteps {
		if !ok {
			break
		}
		key := it.Key()
		h, same, valid := k.named(s, key)
		if !valid {
			return nil, corruption(errFormat, "%s of tenant %s", k.what, name)
		}
		f.add(f.number, h)
		prefix := bytes.Clone(key[:same])
		if ok = it.Next(); ok && same > 0 && bytes.HasPrefix(it.Key(), prefix) {
			ok = it.SeekGE(after(prefix))
		}
	}
	if ok {
		return bytes.Clone(it.Key()), nil
	}
	if err := it.Error(); err != nil {
		return nil, fault(k.what, err)
	}
	f.whole.Store(true)
	return nil, nil
}
