package pebble

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/store"
)

// view is the data as they were when a batch had become durable. readers is guarded by core.mu.
type view struct {
	snapshot *pebble.Snapshot
	number   uint64
	readers  int
}

// acquire returns the present view, which must be released.
func (s *core) acquire() (*view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquireLocked()
}

func (s *core) acquireLocked() (*view, error) {
	if s.closed {
		return nil, store.ErrClosed
	}
	s.view.readers++
	s.readers++
	return s.view, nil
}

func (s *core) release(v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.readers--
	s.readers--
	if v.readers == 0 && s.released != nil {
		close(s.released)
		s.released = nil
	}
}

// awaitRelease blocks until condition, which is tested under mu, holds. It returns false if one of the channels is
// closed first.
func (s *core) awaitRelease(done, end <-chan struct{}, condition func() bool) bool {
	for {
		s.mu.Lock()
		if condition() {
			s.mu.Unlock()
			return true
		}
		if s.released == nil {
			s.released = make(chan struct{})
		}
		released := s.released
		s.mu.Unlock()
		select {
		case <-released:
		case <-done:
			return false
		case <-end:
			return false
		}
	}
}

// reader is a view as one tenant's calls see it. tenant is the tenant's number, 0 when it holds nothing.
type reader struct {
	*view
	store  *core
	tenant uint32
	// tagging is what is known in memory of the tenant's index of tags, for reads by tags. streamFilter, if not nil, is
	// the filter over its streams.
	tagging      tagging
	streamFilter *filter
}

// read opens a reader, which must be closed.
func (s *core) read(t j17.Tenant) (reader, error) {
	if err := store.ValidTenant(t); err != nil {
		return reader{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.acquireLocked()
	if err != nil {
		return reader{}, err
	}
	return s.readerLocked(v, t), nil
}

// readerLocked returns a reader of the present view, which is released when the reader is closed.
func (s *core) readerLocked(v *view, t j17.Tenant) reader {
	r := reader{view: v, store: s}
	if known := s.tenants[t]; known != nil {
		r.tenant, r.tagging, r.streamFilter = known.number, known.taggingLocked(), known.streamFilter.Load()
	}
	return r
}

func (r reader) close() { r.store.release(r.view) }

func (s *core) numberLocked(t j17.Tenant) uint32 {
	if known := s.tenants[t]; known != nil {
		return known.number
	}
	return 0
}

// iterate returns an iterator over the keys in [lower, upper), which must be closed.
func (r reader) iterate(lower, upper []byte) (*pebble.Iterator, error) {
	return newIter(r.snapshot, lower, upper)
}

func newIter(from pebble.Reader, lower, upper []byte) (*pebble.Iterator, error) {
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fault("an index", err)
	}
	return it, nil
}

// closeIter closes an iterator and adds its error, if any, to err.
func closeIter(it *pebble.Iterator, err *error, where string) {
	if closing := it.Close(); closing != nil && *err == nil {
		*err = fault(where, closing)
	}
}

// getNumber reads a number of the store itself, 0 when there is none.
func (s *core) getNumber(key []byte) (uint32, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fault("the store's own records", err)
	}
	n, err := parseNumber(v)
	if err = errors.Join(err, closer.Close()); err != nil {
		return 0, corruption(err, "the store's own records")
	}
	return n, nil
}

// headCache holds recently used durable heads of streams, by the keys under which they are stored. It has two halves:
// entries enter the young one, and when that is full it becomes the old one, and the entries of the previous old one
// are dropped unless they were used since.
type headCache struct {
	young, old map[string]store.Head
	// limit is how many entries either of them takes.
	limit int
}

func newHeadCache() headCache {
	return headCache{young: map[string]store.Head{}, old: map[string]store.Head{}, limit: cachedHeads / 2}
}

func (c *headCache) get(headKey []byte) (store.Head, bool) {
	if h, ok := c.young[string(headKey)]; ok {
		return h, true
	}
	h, ok := c.old[string(headKey)]
	if ok {
		c.put(string(headKey), h)
	}
	return h, ok
}

// put keeps the key as well.
func (c *headCache) put(headKey string, h store.Head) {
	c.young[headKey] = h
	if len(c.young) >= c.limit {
		c.young, c.old = c.old, c.young
		clear(c.young)
	}
}

func (s *core) cachedHead(headKey []byte) (store.Head, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heads.get(headKey)
}

// getHead reads a head from disk; the zero Head when the stream has no events.
func getHead(from pebble.Reader, headKey []byte, key j17.Key) (store.Head, error) {
	v, closer, err := from.Get(headKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return store.Head{}, nil
	}
	if err != nil {
		return store.Head{}, fault("the head of "+key.String(), err)
	}
	h, err := parseHeadRecord(v)
	if err = errors.Join(err, closer.Close()); err != nil {
		return store.Head{}, corruption(err, "the head of %s", key)
	}
	return h, nil
}
