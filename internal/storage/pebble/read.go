package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// cancelEvery is the number of events after which an iteration checks whether it was cancelled.
const cancelEvery = 1024

var errGap = errors.New("an event is missing")

// usualHeadKey is the length of most keys of heads, so that they need no memory from the heap.
const usualHeadKey = 128

// streams is the part of the store that implements store.Aggregates.
type streams struct{ *core }

// Heads returns the durable heads of streams. See store.Store.
func (s *streams) Heads(_ context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	if err := store.ValidTenant(t); err != nil {
		return nil, err
	}

	// Most heads are in memory.
	heads := make([]store.Head, len(keys))
	s.mu.Lock()
	r := s.readerLocked(nil, t)
	var missing []int
	headKey := make([]byte, 0, usualHeadKey)
	for i, key := range keys {
		var ok bool
		headKey = appendHeadKey(headKey[:0], r.tenant, key)
		if heads[i], ok = s.heads.get(headKey); !ok && r.tenant != 0 && !r.lacks(headKey) {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 && !s.closed {
		s.mu.Unlock()
		return heads, nil
	}
	// Take the view of the same moment.
	var err error
	r.view, err = s.acquireLocked()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}

	// The others come from the view, without the lock.
	defer r.close()
	if len(missing) >= manyHeads {
		return heads, r.loadMany(keys, missing, heads)
	}
	for _, i := range missing {
		if !canExist(keys[i]) {
			continue
		}
		if heads[i], err = r.load(keys[i]); err != nil {
			return nil, err
		}
	}
	return heads, nil
}

// manyHeads is the number of heads from which on they are read with one iterator.
const manyHeads = 4

// loadMany is load for the keys at some indexes.
func (r reader) loadMany(keys []j17.Key, places []int, heads []store.Head) (err error) {
	prefix := appendPrefix(nil, r.tenant, kindHead)
	it, err := r.iterate(prefix, after(prefix))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "the heads of streams")
	want := prefix
	for _, i := range places {
		if !canExist(keys[i]) {
			continue
		}
		want = appendStream(want[:len(prefix)], keys[i])
		if it.SeekPrefixGE(want) && bytes.Equal(it.Key(), want) { // filters exclude levels that do not have it
			v, err := it.ValueAndErr()
			if err != nil {
				return fault("the head of "+keys[i].String(), err)
			}
			if heads[i], err = parseHeadRecord(v); err != nil {
				return corruption(err, "the head of %s", keys[i])
			}
		}
		if err := it.Error(); err != nil {
			return fault("the head of "+keys[i].String(), err)
		}
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.store.view == r.view {
		for _, i := range places {
			if canExist(keys[i]) {
				want = appendStream(want[:len(prefix)], keys[i])
				r.store.heads.put(string(want), heads[i])
			}
		}
	}
	return nil
}

// canExist reports whether a stream can have the key. An impossible key is not an error: it has no events.
func canExist(key j17.Key) bool { return store.ValidKey(key) == nil }

// load reads a head from disk and puts it into the cache, unless it may be outdated. The cache also records that a
// stream has no events: its first one is probably written next.
func (r reader) load(key j17.Key) (store.Head, error) {
	headKey := appendHeadKey(make([]byte, 0, usualHeadKey), r.tenant, key)
	if r.lacks(headKey) {
		return store.Head{}, nil
	}
	h, err := getHead(r.snapshot, headKey, key)
	if err != nil {
		return store.Head{}, err
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.store.view == r.view {
		r.store.heads.put(string(headKey), h)
	}
	return h, nil
}

// head returns the head of a stream as of the reader's view.
func (r reader) head(key j17.Key) (store.Head, error) {
	if r.tenant == 0 || !canExist(key) {
		return store.Head{}, nil
	}
	r.store.mu.Lock()
	current := r.store.view == r.view
	var h store.Head
	var ok bool
	if current {
		h, ok = r.store.heads.get(appendHeadKey(make([]byte, 0, usualHeadKey), r.tenant, key))
	}
	r.store.mu.Unlock()
	if ok {
		return h, nil
	}
	return r.load(key)
}

// ReadStream yields the durable events of one stream. See store.Store.
func (s *streams) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error {
		return s.readStream(ctx, t, key, from, to, yield)
	})
}

// interrupted returns an error if an iteration has to end before its nth step: the store closes, or ctx has ended.
func (s *core) interrupted(ctx context.Context, n uint64) error {
	if s.ending.Load() {
		return store.ErrClosed
	}
	if n%cancelEvery == 0 {
		return ctx.Err()
	}
	return nil
}

// readStream reads page by page. It holds nothing of the engine between pages, and while the caller handles one.
func (s *streams) readStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64, yield func(*j17.Event) bool,
) error {
	number, head, err := s.headOf(t, key)
	if err != nil {
		return err
	}

	// Limit the range to what the head has.
	from = max(from, 1)
	if to == 0 || to > head.Length {
		to = head.Length
	}
	p := s.pages.get()
	defer s.pages.put(p)
	c := eventCursor{event: j17.Event{Key: key}, keyLen: len(key.Type) + len(":") + len(key.ID)}

	// Pages are copied from short views, and handed over with no view open.
	for version := from; version <= to; {
		if err := s.fillPage(p, t, number, func(r reader) error { return p.stream(r, key, version, to) }); err != nil {
			return err
		}
		for i := range p.entries {
			entry := &p.entries[i]
			if s.rewrites.Load() != p.rewrites {
				break // the contents of the page may have been erased
			}
			if err := s.interrupted(ctx, version); err != nil {
				return err
			}
			if err := c.load(entry); err != nil {
				return corruption(err, "%s version %d of tenant %s", key, version, t)
			}

			// A stream that is cut short must not pass for complete.
			if version == head.Length && (c.event.StreamID != head.Last || c.event.Timestamp != head.LastTime) {
				return corruption(errors.New("the last event is not the one that the head names"), "%s of tenant %s", key, t)
			}
			version++
			if !yield(&c.event) {
				return nil
			}
		}
	}
	return nil
}

// number returns the number of a tenant; 0 for one that holds nothing.
func (s *core) number(t j17.Tenant) (uint32, error) {
	r, err := s.read(t)
	if err != nil {
		return 0, err
	}
	defer r.close()
	return r.tenant, nil
}

// ReadStreams yields the first durable events of several streams. See store.Store.
func (s *streams) ReadStreams(
	ctx context.Context, t j17.Tenant, keys []j17.Key, most uint64,
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error { return s.readStreams(ctx, t, keys, most, yield) })
}

// readStreams is readStream for the first events of several streams.
func (s *streams) readStreams(
	ctx context.Context, t j17.Tenant, keys []j17.Key, most uint64, yield func(*j17.Event) bool,
) error {
	number, err := s.number(t)
	if err != nil || number == 0 {
		return err
	}
	for _, key := range keys {
		if err := store.ValidKey(key); err != nil {
			return fmt.Errorf("%w: the events of %s", store.ErrInvalid, key)
		}
	}

	// Read the rest a page at a time. The snapshot of a page is closed before its events are handed out.
	p := s.pages.get()
	defer s.pages.put(p)
	var c eventCursor
	for n, version, more := uint64(0), uint64(1), len(keys) > 0; more; {
		if err := s.fillPage(
			p, t, number, func(r reader) error { return p.streams(r, keys, version, most) },
		); err != nil {
			return err
		}
		more = p.full
		for i := range p.entries {
			entry := &p.entries[i]
			if s.rewrites.Load() != p.rewrites {
				more = true
				break // the contents of the page may have been erased
			}
			if err := s.interrupted(ctx, n); err != nil {
				return err
			}
			for keys[0] != entry.key {
				keys, version = keys[1:], 1
			}
			if c.event.Key != entry.key {
				c.event.Key, c.keyLen = entry.key, len(entry.key.Type)+len(":")+len(entry.key.ID)
			}
			if err := c.load(entry); err != nil {
				return corruption(err, "%s version %d of tenant %s", entry.key, entry.version, t)
			}
			n, version = n+1, entry.version+1
			if !yield(&c.event) {
				return nil
			}
		}
	}
	return nil
}

// headOf returns the present head of a stream, and the tenant's number.
func (s *streams) headOf(t j17.Tenant, key j17.Key) (uint32, store.Head, error) {
	r, err := s.read(t)
	if err != nil {
		return 0, store.Head{}, err
	}
	defer r.close()
	head, err := r.head(key)
	return r.tenant, head, err
}

// fill parses an event's value into e, which has key and version already.
func (r *eventRecord) fill(v []byte, keyLen int, types *record.TypeNames, e *j17.Event) error {
	if err := r.parse(v); err != nil {
		return err
	}
	typ, err := r.eventType(keyLen)
	if err != nil {
		return err
	}
	e.StreamID, e.Timestamp, e.Type = r.id, r.timestamp, types.Name(typ)
	e.Raw, e.Kept = slices.Clip(r.raw), r.kept
	e.Data, e.Metadata = r.layout.DataOf(r.raw), r.layout.MetadataOf(r.raw)
	return nil
}

// VersionAfter returns the version of the first event after a position. See store.Store.
func (s *streams) VersionAfter(_ context.Context, t j17.Tenant, key j17.Key, after j17.StreamID) (_ uint64, err error) {
	r, err := s.read(t)
	if err != nil {
		return 0, err
	}
	defer r.close()

	// No event of the stream is later than its last one.
	head, err := r.head(key)
	if err != nil || after.Compare(head.Last) >= 0 {
		return head.Length + 1, err
	}

	// Positions rise with versions, so use a binary search.
	it, err := r.iterate(appendEventKey(nil, r.tenant, key, 1), next(appendEventKey(nil, r.tenant, key, head.Length)))
	if err != nil {
		return 0, err
	}
	defer closeIter(it, &err, key.String())
	var record eventRecord
	n := sort.Search(int(head.Length), func(i int) bool {
		if err != nil {
			return true
		}
		version := uint64(i) + 1
		want := appendEventKey(nil, r.tenant, key, version)
		if !it.SeekGE(want) || !bytes.Equal(it.Key(), want) {
			err = errors.Join(errGap, it.Error())
		} else if v, failed := it.ValueAndErr(); failed != nil {
			err = failed
		} else {
			err = record.parse(v)
		}
		if err != nil {
			err = corruption(err, "%s version %d of tenant %s", key, version, t)
		}
		return record.id.Compare(after) > 0
	})
	return uint64(n) + 1, err
}

// Streams returns ids of streams. See store.Store.
func (s *streams) Streams(
	_ context.Context, t j17.Tenant, aggregateType, afterID string, limit int,
) (ids []string, err error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if r.tenant == 0 || limit <= 0 || strings.IndexByte(aggregateType+afterID, 0) >= 0 {
		return nil, nil
	}
	lower := appendHeadKey(nil, r.tenant, j17.Key{Type: aggregateType})
	prefix := len(lower)
	upper := after(lower)
	if afterID != "" {
		lower = next(append(lower, afterID...))
	}
	it, err := r.iterate(lower, upper)
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "the list of streams")
	for it.First(); it.Valid() && len(ids) < limit; it.Next() {
		ids = append(ids, string(it.Key()[prefix:]))
	}
	return ids, nil
}
