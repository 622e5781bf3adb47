package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"j17"
	"j17/internal/store"
)

// pageBytes is how much of an iteration is copied at a time. The last event may exceed it.
const pageBytes = 256 << 10

// page is a copy of some values that stood next to each other in a stream or in a feed. Who reads them may take as long as he
// likes: no view and no iterator waits for him. A value that is erased meanwhile is never handed out: see rewrites.
type page struct {
	values  []byte
	entries []pageEntry
	// full tells that there may be more after the last entry.
	full bool
	// rewrites is how often events had been rewritten before the page was filled.
	rewrites uint64
}

// pageEntry is an event of a page. id is its position where a feed says so, else the zero one.
type pageEntry struct {
	id         j17.StreamID
	key        j17.Key
	version    uint64
	start, end int
}

// pages keeps the memory of pages for others.
type pages struct{ pool sync.Pool }

func (p *pages) get() *page {
	if free, ok := p.pool.Get().(*page); ok {
		return free
	}
	return &page{}
}

func (p *pages) put(free *page) {
	if cap(free.values) <= 2*pageBytes {
		clear(free.entries)
		p.pool.Put(free)
	}
}

// fillPage fills a page from the present view. A tenant that was removed since its iteration began, or has given its name to
// another one, is ErrNotFound.
func (s *Store) fillPage(p *page, t j17.Tenant, number uint32, fill func(reader) error) error {
	p.values, p.entries, p.full = p.values[:0], p.entries[:0], false
	// First the count, then the view: a rewrite that the view does not have is one that the count does not have either.
	p.rewrites = s.rewrites.Load()
	r, err := s.read(t)
	if err != nil {
		return err
	}
	defer r.close()
	if r.tenant != number {
		return fmt.Errorf("tenant %s was removed while it was read: %w", t, store.ErrNotFound)
	}
	return fill(r)
}

// add copies a value to the end of the page. It reports whether there is room for more.
func (p *page) add(entry pageEntry, value []byte) bool {
	entry.start = len(p.values)
	p.values = append(p.values, value...)
	entry.end = len(p.values)
	p.entries = append(p.entries, entry)
	p.full = len(p.values) >= pageBytes
	return !p.full
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
		if !p.add(pageEntry{key: key, version: version}, v) {
			return nil
		}
		version++
	}
	return nil
}

// eventCursor hands out the events of pages, one after the other in the same memory.
type eventCursor struct {
	event  j17.Event
	record eventRecord
	keyLen int
	types  typeNames
}

// load fills c.event with an event of a page.
func (c *eventCursor) load(p *page, entry *pageEntry) error {
	c.event.Version = entry.version
	return c.record.fill(p.values[entry.start:entry.end:entry.end], c.keyLen, &c.types, &c.event)
}

// feed copies up to limit events that stand after a position in the feed.
func (p *page) feed(r reader, position j17.StreamID, limit int, names *typeNames) (err error) {
	feed, err := r.iterate(appendFeedKey(nil, r.tenant, position.Next()), after(appendPrefix(nil, r.tenant, kindFeed)))
	if err != nil {
		return err
	}
	defer closeIter(feed, &err, "the feed")
	events, err := r.iterate(appendPrefix(nil, r.tenant, kindEvent), after(appendPrefix(nil, r.tenant, kindEvent)))
	if err != nil {
		return err
	}
	defer closeIter(events, &err, "events")
	at := position
	fault := func(err error) error {
		return corruption(err, "the feed of tenant number %d after %s", r.tenant, at)
	}
	eventKey := appendPrefix(nil, r.tenant, kindEvent)
	var run [][]byte
	for ok := feed.First(); ok; ok = feed.Next() {
		last, known := feedPosition(feed.Key())
		value, err := feed.ValueAndErr()
		if err == nil {
			run, err = references(run[:0], value)
		}
		if err == nil && !known {
			err = errFormat
		}
		if err != nil {
			return fault(err)
		}
		for i, reference := range run {
			id := ahead(last, len(run)-1-i)
			if id.Compare(position) <= 0 {
				continue
			}
			entry, err := parseReference(reference, names)
			if err != nil {
				return fault(err)
			}
			entry.id = id
			eventKey = append(eventKey[:tenantPrefix+1], reference...)
			if !events.SeekGE(eventKey) || !bytes.Equal(events.Key(), eventKey) {
				return fault(errors.Join(errGap, events.Error()))
			}
			v, err := events.ValueAndErr()
			if err != nil {
				return fault(err)
			}
			if !p.add(entry, v) || len(p.entries) == limit {
				return nil
			}
			at = id
		}
	}
	return nil
}

// parseReference returns what a reference of the feed names.
func parseReference(reference []byte, names *typeNames) (pageEntry, error) {
	n := len(reference) - versionSuffix - 1
	if n < 0 || reference[n] != 0 {
		return pageEntry{}, errFormat
	}
	typ, id, ok := bytes.Cut(reference[:n], []byte{0})
	if !ok {
		return pageEntry{}, errFormat
	}
	return pageEntry{
		key: j17.Key{Type: names.name(typ), ID: string(id)}, version: binary.BigEndian.Uint64(reference[n+1:]),
	}, nil
}
