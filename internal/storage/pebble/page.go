package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

const (
	// pageBytes is how much of an iteration is copied at a time; the last event may exceed it.
	pageBytes = 256 << 10
	// maxPageBytes bounds the pages of a long iteration over tagged events: events of about the same time are stored
	// far apart, and the more of them are looked up at a time, the more share a block of a table. maxWindowBytes bounds
	// a window of a feed. allPageBytes bounds all such pages and windows together.
	maxPageBytes   = 48 << 20
	maxWindowBytes = 64 << 20
	allPageBytes   = 128 << 20
	// growBy is the factor by which pages grow, growWindowBy that for windows, which are expensive when small.
	growBy       = 4
	growWindowBy = 16
	// growAfter is the number of pages after which an iteration counts as long.
	growAfter = 4
)

// page is a copy of consecutive values of a stream or a feed. Readers may hold it indefinitely: it keeps no view and no
// iterator open. A value that is erased meanwhile is never handed out: see rewrites.
type page struct {
	values  []byte
	entries []pageEntry
	// bytes is the size of all entries.
	bytes int
	// full reports that there may be more after the last entry.
	full bool
	// reached, if not zero, is the position up to which everything was examined, beyond the last entry. steps counts
	// the index entries looked up for that, passed the events that were skipped because of their types.
	reached       j17.StreamID
	steps, passed int
	// room is the size at which the page, or the window it comes from, is full; 0 stands for pageBytes.
	room int
	// rewrites is the count of rewrites (core.rewrites) before the page was filled.
	rewrites  uint64
	gathering gathering
	// window provides the next pages as long as it has any left.
	window window
}

// pageEntry is an event of a page, or a note, which has no version. id is set only in pages of a feed, key in those of
// feeds and of several streams. value is a copy.
type pageEntry struct {
	id      j17.StreamID
	key     j17.Key
	version uint64
	value   []byte
}

// size is the number of bytes at which the page is full.
func (p *page) size() int { return max(p.room, pageBytes) }

// pages reuses the memory of pages.
type pages struct {
	pool sync.Pool
	// wide is the size of all pages that have grown.
	wide atomic.Int64
}

// grow makes the pages of an iteration, or its windows, larger if allPageBytes allows it.
func (p *pages) grow(one *page, windows bool) {
	room := min(growBy*one.size(), maxPageBytes)
	if windows {
		room = min(growWindowBy*one.size(), maxWindowBytes)
	}
	more := int64(room - one.room)
	if p.wide.Add(more) > allPageBytes {
		p.wide.Add(-more)
		return
	}
	one.room = room
}

// shrink makes the pages of an iteration as small as they were at first. It drops a larger one with its memory.
func (p *pages) shrink(one *page) {
	if one.room > 0 {
		p.wide.Add(-int64(one.room))
		*one = page{}
	}
}

func (p *pages) get() *page {
	if free, ok := p.pool.Get().(*page); ok {
		return free
	}
	return &page{}
}

func (p *pages) put(free *page) {
	p.shrink(free)
	if cap(free.values) <= 2*pageBytes {
		free.gathering.trim()
		if cap(free.entries) > 2*maxGathered {
			free.entries = nil
		}
		clear(free.entries)
		p.pool.Put(free)
	}
}

// clear empties a page.
func (p *page) clear() {
	p.values, p.entries, p.bytes, p.full = p.values[:0], p.entries[:0], 0, false
	p.reached, p.steps, p.passed = j17.StreamID{}, 0, 0
}

// fillPage fills a page from the present view.
func (s *core) fillPage(p *page, t j17.Tenant, number uint32, fill func(reader) error) error {
	s.beginPage(p)
	return s.use(t, number, fill)
}

// beginPage empties a page and reads the count of rewrites before the view is acquired, so that the count includes no
// rewrite that the view lacks.
func (s *core) beginPage(p *page) {
	p.clear()
	p.rewrites = s.rewrites.Load()
}

// use reads from the present view. It returns ErrNotFound if the tenant with the number was removed, even if there is
// another one of that name.
func (s *core) use(t j17.Tenant, number uint32, do func(reader) error) error {
	r, err := s.read(t)
	if err != nil {
		return err
	}
	defer r.close()
	if r.tenant != number {
		return fmt.Errorf("tenant %s was removed while it was read: %w", t, store.ErrNotFound)
	}
	return do(r)
}

// add copies a value to the end of the page and returns its entry. The page is full when there is no room for more.
// Values of a large page are never moved, since its entries keep the old memory alive: when a buffer is full, a new one
// is allocated for the values that follow.
func (p *page) add(value []byte) *pageEntry {
	if len(p.values) >= pageBytes && cap(p.values)-len(p.values) < len(value) {
		p.values = make([]byte, 0, max(len(value), min(p.bytes, p.size()-p.bytes)))
	}
	start := len(p.values)
	p.values = append(p.values, value...)
	return p.hold(p.values[start:])
}

// hold is add for a value that need not be copied.
func (p *page) hold(value []byte) *pageEntry {
	p.entries = append(p.entries, pageEntry{value: slices.Clip(value)})
	p.bytes += len(value)
	p.full = p.bytes >= p.size()
	return &p.entries[len(p.entries)-1]
}

// stream copies events of a stream.
func (p *page) stream(r reader, key j17.Key, from, to uint64) (err error) {
	lower := appendEventKey(nil, r.tenant, key, from)
	it, err := r.iterate(lower, next(appendEventKey(nil, r.tenant, key, to)))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, key.String())
	prefix, version := len(lower)-versionSuffix, from
	missing := func(cause error) error {
		return corruption(cause, "%s version %d of tenant number %d", key, version, r.tenant)
	}
	for ok := it.First(); version <= to; ok = it.Next() {
		if !ok {
			return missing(errors.Join(errGap, it.Error()))
		}
		if k := it.Key(); len(k) != prefix+versionSuffix || binary.BigEndian.Uint64(k[prefix:]) != version {
			return missing(errGap)
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return missing(err)
		}
		p.add(v).version = version
		if p.full {
			return nil
		}
		version++
	}
	return nil
}

// streams copies the events of several streams up to the version most, of the first stream those from version from on.
func (p *page) streams(r reader, keys []j17.Key, from, most uint64) (err error) {
	prefix := appendPrefix(nil, r.tenant, kindEvent)
	it, err := r.iterate(prefix, after(prefix))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "streams")
	var want []byte
	for _, key := range keys {
		want = appendEventKey(want[:0], r.tenant, key, from)
		stream := len(want) - versionSuffix
		for ok := it.SeekGE(want); ok && from <= most && bytes.HasPrefix(it.Key(), want[:stream]); ok = it.Next() {
			// An event that is not at its version's key is missing.
			binary.BigEndian.PutUint64(want[stream:], from)
			v, failed := it.ValueAndErr()
			if failed != nil || !bytes.Equal(it.Key(), want) {
				return corruption(cmp.Or(failed, errGap), "%s version %d of tenant number %d", key, from, r.tenant)
			}
			entry := p.add(v)
			if entry.key, entry.version = key, from; p.full {
				return nil
			}
			from++
		}
		if err := it.Error(); err != nil {
			return fault(key.String(), err)
		}
		from = 1
	}
	return nil
}

// eventCursor hands out the events of pages, one after the other in the same memory.
type eventCursor struct {
	event  j17.Event
	record eventRecord
	keyLen int
	types  record.TypeNames
}

// load fills c.event with an event of a page.
func (c *eventCursor) load(entry *pageEntry) error {
	c.event.Version = entry.version
	return c.record.fill(entry.value, c.keyLen, &c.types, &c.event)
}

// feed copies up to limit events of the feed, and notes if they are wanted, from a position on.
func (p *page) feed(r reader, from j17.StreamID, limit int, names *record.TypeNames, notes bool) (err error) {
	l, err := newLookup(r.snapshot, r.tenant, names)
	if err != nil {
		return err
	}
	defer l.close(&err)
	g := &p.gathering
	g.begin(l, r, notes)
	defer g.end()

	more := l.feed.SeekGE(appendFeedKey(nil, r.tenant, from))
	for n := minGathered; more; n = g.next(p) {
		// First the references of many, and what they refer to.
		if more, err = g.gather(from, n, limit-len(p.entries)); err == nil {
			l.latest = !more && len(g.refs) <= dividedFrom
			err = g.fetch(p.size() - p.bytes)
		}
		if err != nil {
			return l.fault(err, from)
		}

		// Then all in order. Events that were not fetched for lack of room are looked up one by one.
		p.entries = slices.Grow(p.entries, len(g.refs))
		for i := range g.refs {
			ref := &g.refs[i]
			var entry *pageEntry
			if ref.value != nil {
				entry = p.hold(ref.value)
			} else {
				value, err := g.value(ref)
				if err != nil {
					return l.fault(err, ref.id)
				}
				entry = p.add(value)
			}
			if entry.id = ref.id; !ref.note {
				if entry.key, entry.version, err = parseReference(ref.key[tenantPrefix+1:], names); err != nil {
					return l.fault(err, ref.id)
				}
			}
			if p.full || len(p.entries) == limit {
				return nil
			}
			from = ref.id
		}
	}
	if err := l.feed.Error(); err != nil {
		return fault("the feed", err)
	}
	return nil
}

// lookup finds the events that entries of the feed refer to.
type lookup struct {
	tenant uint32
	from   pebble.Reader
	feed   *pebble.Iterator
	// events iterates over events that are looked up in sequence; nil until the first one.
	events *pebble.Iterator
	// latest reports that the events are recent; held then closes the value that was looked up last.
	latest bool
	held   io.Closer
	// key is the buffer for the keys of events, place that for keys of the feed.
	key, place []byte
	// run holds the references of the present entry of feed, the last of which is at position last.
	run  [][]byte
	last j17.StreamID
	// note is the entry itself if it is a note.
	note  []byte
	names *record.TypeNames
}

// newLookup opens a feed, which must be closed.
func newLookup(from pebble.Reader, tenant uint32, names *record.TypeNames) (*lookup, error) {
	prefix := appendPrefix(nil, tenant, kindFeed)
	feed, err := newIter(from, prefix, after(prefix))
	if err != nil {
		return nil, err
	}
	return &lookup{tenant: tenant, from: from, feed: feed, key: appendPrefix(nil, tenant, kindEvent), names: names}, nil
}

func (l *lookup) close(err *error) {
	l.release(err)
	closeIter(l.feed, err, "the feed")
	if l.events != nil {
		closeIter(l.events, err, "events")
	}
}

// release closes the value that was looked up last, if latest.
func (l *lookup) release(err *error) {
	if l.held != nil {
		*err = errors.Join(*err, l.held.Close())
		l.held = nil
	}
}

// value returns the value of an event's key, valid until the next look-up. Recent events are looked up individually:
// they are in memory or in the highest levels of the store. Others are looked up with an iterator over all levels,
// which is cheap if they follow each other.
func (l *lookup) value(key []byte) (value []byte, err error) {
	if l.latest {
		l.release(&err)
		if err != nil {
			return nil, err
		}
		value, l.held, err = l.from.Get(key)
		if errors.Is(err, pebble.ErrNotFound) {
			err = errGap
		}
		return value, err
	}
	if l.events == nil {
		prefix := key[:tenantPrefix+1]
		if l.events, err = newIter(l.from, prefix, after(prefix)); err != nil {
			return nil, err
		}
	}
	if !l.events.SeekGE(key) || !bytes.Equal(l.events.Key(), key) {
		return nil, errors.Join(errGap, l.events.Error())
	}
	return l.events.ValueAndErr()
}

func (l *lookup) fault(err error, at j17.StreamID) error {
	return corruption(err, "the feed of tenant number %d at %s", l.tenant, at)
}

// open fills l.run with the references of the present entry of the feed, and returns the position of the last one.
func (l *lookup) open() (j17.StreamID, error) {
	last, ok := feedPosition(l.feed.Key())
	value, err := l.feed.ValueAndErr()
	l.note = nil
	if err == nil && record.IsNote(value) {
		l.note = value
	}
	if err == nil {
		l.run, err = references(l.run[:0], value)
	}
	if err == nil && !ok {
		err = errFormat
	}
	l.last = last
	return last, err
}

// seek opens the entry of the event at a position, which must exist, and returns its index in the run.
func (l *lookup) seek(at j17.StreamID) (int, error) {
	if len(l.run) == 0 || at.Compare(l.last) > 0 || at.Compare(ahead(l.last, len(l.run)-1)) < 0 {
		if l.place = appendFeedKey(l.place[:0], l.tenant, at); !l.feed.SeekGE(l.place) {
			return 0, l.fault(errors.Join(errGap, l.feed.Error()), at)
		}
		if _, err := l.open(); err != nil {
			return 0, l.fault(err, at)
		}
	}
	for i := range l.run {
		if ahead(l.last, len(l.run)-1-i) == at {
			return i, nil
		}
	}
	return 0, l.fault(errGap, at)
}

// find returns the value of the nth event of the run.
func (l *lookup) find(n int) ([]byte, error) {
	l.key = append(l.key[:tenantPrefix+1], l.run[n]...)
	return l.value(l.key)
}

// typeOf returns the event type from the record of an event and its reference. The result is a part of value.
func typeOf(reference, value []byte) ([]byte, error) {
	var record eventRecord
	if err := record.parse(value); err != nil {
		return nil, err
	}
	return record.eventType(len(reference) - versionSuffix - 1)
}

// aggregateOf returns the aggregate type from the reference of an event. The result is a part of it.
func aggregateOf(reference []byte) []byte { return reference[:max(bytes.IndexByte(reference, 0), 0)] }

// parseReference returns the key and the version that a reference of the feed names.
func parseReference(reference []byte, names *record.TypeNames) (j17.Key, uint64, error) {
	n := len(reference) - versionSuffix - 1
	if n < 0 || reference[n] != 0 {
		return j17.Key{}, 0, errFormat
	}
	typ, id, ok := bytes.Cut(reference[:n], []byte{0})
	if !ok {
		return j17.Key{}, 0, errFormat
	}
	return j17.Key{Type: names.Name(typ), ID: string(id)}, binary.BigEndian.Uint64(reference[n+1:]), nil
}
