package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// maxRun bounds the events that one entry of the feed refers to: reading from a position inside a run has to skip the
// events before it.
const maxRun = 64

// A feed entry has the position of the last event of a run: events of one batch with consecutive positions. Its value
// is the reference to the event if there is only one, else a zero byte followed, for each event, by the length of its
// reference as a varint and the reference. A reference is the rest of the event's key after the kind, and never begins
// with a zero byte.

// feedRun collects the references of an entry.
type feedRun struct {
	value []byte
	n     int
}

// add appends the reference to the event with the given key.
func (r *feedRun) add(eventKey []byte) { r.refer(eventKey[tenantPrefix+1:]) }

// refer appends a reference.
func (r *feedRun) refer(reference []byte) {
	if r.n == 0 {
		r.value = append(r.value[:0], 0)
	}
	r.value = binary.AppendUvarint(r.value, uint64(len(reference)))
	r.value = append(r.value, reference...)
	r.n++
}

// take returns the value of the entry, valid until the next add, and begins another entry.
func (r *feedRun) take() []byte {
	n := r.n
	r.n = 0
	if n == 1 {
		_, width := binary.Uvarint(r.value[1:])
		return r.value[1+width:]
	}
	return r.value
}

// references appends the references of a feed entry to dst. They are parts of value.
func references(dst [][]byte, value []byte) ([][]byte, error) {
	if record.IsNote(value) {
		return dst, nil
	}
	if len(value) > 0 && value[0] != 0 {
		return append(dst, value), nil
	}
	from := len(dst)
	for rest := value[min(1, len(value)):]; len(rest) > 0; {
		n, width := binary.Uvarint(rest)
		if width <= 0 || n > uint64(len(rest)-width) {
			return dst, errFormat
		}
		rest = rest[width:]
		dst, rest = append(dst, rest[:n]), rest[n:]
	}
	if n := len(dst) - from; n < 2 || n > maxRun {
		return dst, errFormat
	}
	return dst, nil
}

// ahead returns the position n places before id in a run.
func ahead(id j17.StreamID, n int) j17.StreamID {
	if back := uint32(n); back <= id.Seq {
		return j17.StreamID{Ms: id.Ms, Seq: id.Seq - back}
	}
	return j17.StreamID{Ms: id.Ms - 1, Seq: math.MaxUint32 - (uint32(n) - 1 - id.Seq)}
}

// feeds is the part of the store that implements store.Feed.
type feeds struct{ *core }

// ReadFeed yields durable events in order of their positions. See store.Store.
func (s *feeds) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error {
		return s.readPages(ctx, t, after, limit, eventsOnly(yield), feedPager(false))
	})
}

// eventsOnly adapts yield for feeds that are read without notes.
func eventsOnly(yield func(*j17.Event) bool) func(store.Entry) bool {
	return func(e store.Entry) bool { return yield(e.Event) }
}

// ReadChanges yields events and notes. See store.Store.
func (s *feeds) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return store.Sequence(func(yield func(store.Entry) bool) error {
		return s.readPages(ctx, t, after, limit, yield, feedPager(true))
	})
}

// named is the key, version and position of an event of a feed, or a note.
type named struct {
	id      j17.StreamID
	key     j17.Key
	version uint64
	note    *store.Note
}

// ReadNames yields the names of events, and notes. See store.Store.
func (s *feeds) ReadNames(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return store.Sequence(func(yield func(store.Entry) bool) error { return s.readNames(ctx, t, after, limit, yield) })
}

// readNames reads some names at a time, and hands them out with no view open. Rewrites do not change names.
func (s *feeds) readNames(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int, yield func(store.Entry) bool,
) error {
	number, err := s.number(t)
	if err != nil || number == 0 {
		return err
	}
	var some []named
	var types record.TypeNames
	var event j17.Event
	n := 0
	for more := limit > 0; more && n < limit; {
		if err := s.interrupted(ctx, 0); err != nil {
			return err
		}
		err := s.use(t, number, func(r reader) (err error) {
			some, more, err = r.names(some[:0], after.Next(), min(limit-n, viewEvents), &types)
			return err
		})
		if err != nil {
			return err
		}
		for i := range some {
			one := &some[i]
			if err := s.interrupted(ctx, uint64(i)+1); err != nil {
				return err
			}
			n, after = n+1, one.id
			e := store.Entry{Note: one.note}
			if one.note == nil {
				event = j17.Event{StreamID: one.id, Key: one.key, Version: one.version}
				e.Event = &event
			}
			if !yield(e) {
				return nil
			}
		}
	}
	return nil
}

// names appends the names of up to limit events and notes of a feed from a position on. It reports whether there may be
// more.
func (r reader) names(
	to []named, from j17.StreamID, limit int, types *record.TypeNames,
) (_ []named, more bool, err error) {
	l, err := newLookup(r.snapshot, r.tenant, types)
	if err != nil {
		return to, false, err
	}
	defer l.close(&err)
	for more = l.feed.SeekGE(appendFeedKey(nil, r.tenant, from)); more && len(to) < limit; more = l.feed.Next() {
		last, err := l.open()
		if err != nil {
			return to, false, l.fault(err, from)
		}
		if l.note != nil {
			note, err := record.ParseNote(last, l.note)
			if err != nil {
				return to, false, l.fault(err, last)
			}
			to = append(to, named{id: last, note: note})
			continue
		}
		for i, reference := range l.run {
			id := ahead(last, len(l.run)-1-i)
			if id.Compare(from) < 0 {
				continue
			}
			if len(to) == limit {
				return to, true, nil
			}
			key, version, err := parseReference(reference, types)
			if err != nil {
				return to, false, l.fault(err, id)
			}
			to = append(to, named{id: id, key: key, version: version})
		}
	}
	if err := l.feed.Error(); err != nil {
		return to, false, fault("the feed", err)
	}
	return to, more, nil
}

// readPages hands out the entries that a pager copies from a feed, page by page, like readStream.
func (s *feeds) readPages(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int, yield func(store.Entry) bool, of pager,
) error {
	// A tenant without a number has no events.
	number, err := s.number(t)
	if err != nil || number == 0 || limit <= 0 {
		return err
	}

	of.tenant = t
	of.use = func(do func(reader) error) error { return s.use(t, number, do) }
	of.stale = func(p *page) bool { return s.rewrites.Load() != p.rewrites }
	return s.eachPage(ctx, of, after, limit, func(e store.Entry, _ *eventRecord) bool { return yield(e) })
}

// pager defines how pages of a feed are made.
type pager struct {
	tenant j17.Tenant
	// use runs a short read.
	use func(do func(reader) error) error
	// copy fills an empty page with up to limit entries from a position on.
	copy func(r reader, p *page, from j17.StreamID, limit int, names *record.TypeNames) error
	// windows reports that pages leave out nothing of the feed but possibly notes, so that they can come from a window;
	// notes that notes are included.
	windows, notes bool
	// stale reports that the contents of a page may no longer be handed out.
	stale func(p *page) bool
	// rest, if not nil, is called after each part of a window that was read, with its size in bytes, while nothing is
	// held.
	rest func(bytes int) error
	// looked, if not nil, is called for a page that took steps, with their number and the position up to which
	// everything was examined, zero if unknown. It reports whether to go on.
	looked func(steps int, upTo j17.StreamID) bool
}

// feedPager is a pager of a whole feed, with notes or without.
func feedPager(notes bool) pager {
	return pager{
		windows: true, notes: notes,
		copy: func(r reader, p *page, from j17.StreamID, limit int, names *record.TypeNames) error {
			return p.feed(r, from, limit, names, notes)
		},
	}
}

// tell calls looked for a page.
func (of *pager) tell(p *page, upTo j17.StreamID) bool {
	return of.looked == nil || p.steps == 0 || of.looked(p.steps+p.passed, upTo)
}

// eachPage hands out the entries of pages.
func (s *feeds) eachPage(
	ctx context.Context, of pager, after j17.StreamID, limit int, yield func(e store.Entry, record *eventRecord) bool,
) error {
	// Pages are copied from short views, and handed over with no view open.
	p := s.pages.get()
	defer s.pages.put(p)
	var c eventCursor
	var aggregates record.TypeNames
	n, from := 0, after.Next()
	for more, pages := true, 0; more; pages++ {
		if err := s.nextPage(ctx, &of, p, pages >= growAfter, from, limit-n, &aggregates); errors.Is(err, errOutdated) {
			s.pages.shrink(p)
			pages = 0
			continue
		} else if err != nil {
			return err
		}
		if err := s.interrupted(ctx, 0); err != nil {
			return err
		}

		more = p.full
		outdated := false
		for i := range p.entries {
			entry := &p.entries[i]
			if of.stale(p) {
				// The contents of the page may have been erased. Make a smaller one, which is more likely to be done
				// before the next erasure.
				more, p.reached, pages, outdated = true, j17.StreamID{}, 0, true
				break
			}
			if err := s.interrupted(ctx, uint64(n)+1); err != nil {
				return err
			}

			// A note.
			if entry.version == 0 {
				note, err := record.ParseNote(entry.id, entry.value)
				if err != nil {
					return corruption(err, "the note at %s of tenant %s", entry.id, of.tenant)
				}
				n, from = n+1, entry.id.Next()
				if !yield(store.Entry{Note: note}, nil) || n == limit {
					of.tell(p, j17.StreamID{})
					return nil
				}
				continue
			}

			// An event, checked against the position that the feed has it at.
			c.event.Key, c.keyLen = entry.key, len(entry.key.Type)+len(":")+len(entry.key.ID)
			if err := c.load(entry); err != nil {
				return corruption(err, "the feed of tenant %s at %s", of.tenant, entry.id)
			}
			if c.event.StreamID != entry.id {
				return corruption(fmt.Errorf("the entry %s refers to an event of another position, %s", entry.id, c.event.StreamID), "the feed of tenant %s", of.tenant)
			}
			tags, err := c.record.ownTags()
			if err != nil {
				return corruption(err, "the tags of the event at %s of tenant %s", entry.id, of.tenant)
			}
			n, from = n+1, entry.id.Next()
			if !yield(store.Entry{Event: &c.event, Tags: tags}, &c.record) || n == limit {
				of.tell(p, j17.StreamID{})
				return nil
			}
		}

		// Report the steps of the page, and begin the next one after it.
		if !p.reached.IsZero() {
			from = p.reached.Next()
		}
		if !of.tell(p, p.reached) {
			return nil
		}
		if outdated {
			s.pages.shrink(p)
		}
	}
	return nil
}

// nextPage fills a page, or opens the next one of a window. In a long iteration pages are larger, and come from
// windows.
func (s *feeds) nextPage(
	ctx context.Context, of *pager, p *page, on bool, from j17.StreamID, limit int, names *record.TypeNames,
) error {
	if !p.window.left() && on {
		s.pages.grow(p, of.windows)
		if of.windows && p.room > 0 {
			if err := p.window.fill(ctx, s, of, p, from, limit); err != nil {
				return err
			}
		}
	}
	if p.window.left() {
		if err := p.window.open(p, names); err != nil {
			return corruption(err, "the feed of tenant %s behind %s", of.tenant, from)
		}
		return nil
	}
	s.beginPage(p)
	return of.use(func(r reader) error { return of.copy(r, p, from, limit, names) })
}

// AwaitFeed blocks until the feed has grown. See store.Store.
func (s *feeds) AwaitFeed(ctx context.Context, name j17.Tenant, after j17.StreamID) error {
	if err := store.ValidTenant(name); err != nil {
		return err
	}
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return store.ErrClosed
		}
		t := s.tenantLocked(name)
		if t.last.Compare(after) > 0 {
			s.mu.Unlock()
			return nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		s.mu.Unlock()
		if err := s.await(ctx, changed); err != nil {
			return err
		}
	}
}
