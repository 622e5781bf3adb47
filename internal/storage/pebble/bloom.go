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

// filter is a Bloom filter over the tags or streams of a tenant: it recognizes most of those that the tenant lacks
// without reading the store. Everything stored is added before it becomes visible, and nothing is removed, so there are
// no false negatives.
type filter struct {
	// number is the number that the tenant had when the filter was made, and events how many events it had.
	number uint32
	events uint64
	// whole reports that everything the tenant has is in the filter; until then it cannot be used.
	whole atomic.Bool
	// words has a length that is a power of two.
	words []atomic.Uint64
}

const (
	// filterProbes is how many bits an element sets, filterBits how many bits a new filter has for each event.
	filterProbes = 4
	filterBits   = 16
	// minFiltered and maxFiltered bound the events of a tenant with a filter: with fewer, reading the store is fast
	// enough, with more, filling a filter would take long.
	minFiltered = 1 << 12
	maxFiltered = 1 << 24
	// mostFilterBytes bounds the size of a filter, and allFilterBytes that of all. Tenants get filters in the order of
	// need.
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

// filtered is an element, as two hashes of it.
type filtered struct{ first, second uint64 }

// bit returns one of the bits of an element.
func (f *filter) bit(h filtered, probe int) (word *atomic.Uint64, mask uint64) {
	at := h.first + uint64(probe)*(h.second|1)
	return &f.words[at>>6&uint64(len(f.words)-1)], 1 << (at & 63)
}

// add adds an element that the tenant with a number has. f may be nil.
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

// lacks reports whether the tenant with a number certainly lacks an element. f may be nil.
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

// lacksAny reports whether the tenant with a number certainly has no event with all of the tags.
func (f *filter) lacksAny(number uint32, ids []tagID) bool {
	return slices.ContainsFunc(ids, func(id tagID) bool { return f.lacks(number, id.filtered()) })
}

// size returns the bytes of a filter, 0 for nil.
func (f *filter) size() int {
	if f == nil {
		return 0
	}
	return 8 * len(f.words)
}

// filterKind describes what the elements of filters are.
type filterKind struct {
	// kind is the kind of the keys that name the elements, and what describes them in words.
	kind byte
	what string
	// whole reports whether all elements of a tenant are stored under such keys, and none is still being indexed.
	whole func(t *tenant) bool
	// of returns the place of a tenant's filter.
	of func(t *tenant) *atomic.Pointer[filter]
	// named returns the element that a key names, and the length of the prefix of all keys that name the same one, 0 if
	// there are no others. ok is false for an invalid key.
	named func(s *filters, key []byte) (h filtered, same int, ok bool)
}

// makeFilter begins to make a filter for a tenant if it has none, or a new one would be larger. It is called after a
// read of the store that a filter might have saved. One filter is made at a time. It reports whether it began.
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

// fillFilter installs a filter for a tenant and fills it. It ends early if the tenant is gone.
func (s *filters) fillFilter(k filterKind, name j17.Tenant, f *filter) error {
	// From here on the committer adds everything that is stored.
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
		return nil //nolint:nilerr // the store accepts no writes any longer and has logged that
	}

	// Everything stored before is visible now, and is read from later views.
	for from := appendPrefix(nil, f.number, k.kind); err == nil && from != nil; {
		from, err = s.filterSome(k, name, f, from)
	}
	return err
}

// dropFilter removes a filter that could not be filled, so that another one is made soon. If stored data is damaged no
// filter could be completed, so the unusable one stays until the tenant has twice as many events.
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

// filterSome adds elements to a filter, from a key on, and returns the key to continue at, nil at the end.
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

	// Skip further keys that name the same element.
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
