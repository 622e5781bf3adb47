package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// The index of tags has an entry for each tag of a run of the feed, at the position of the run's last event. Its value
// is empty if the run has one event, else 8 bytes: bit n is set if the event n places before the last one has the tag.

// maxTagSteps bounds the index entries read for one page, so that no view is held for long if nothing matches.
const maxTagSteps = 4096

// allTags returns the tags of an event, none if it was erased.
func (r *eventRecord) allTags() ([]string, error) {
	if r.kept != nil {
		return nil, nil
	}
	own, err := r.ownTags()
	return append(j17.MetadataTags(r.layout.MetadataOf(r.raw)), own...), err
}

// ownTags returns the tags that do not come from the metadata.
func (r *eventRecord) ownTags() (tags []string, err error) { return record.ParseTags(r.tags) }

// tagRun collects the tags of a run.
type tagRun struct {
	n   int
	ids []tagID
	// first has bit n set for the nth event, from 0.
	first []uint64
	// places are the indexes of ids, once there are manyTags.
	places map[tagID]int
	text   []byte
}

// manyTags is the number of tags from which on a run has places.
const manyTags = 32

// add adds the tags of the next event.
func (r *tagRun) add(tags []string) {
	r.n++
	for _, tag := range tags {
		r.text = append(r.text[:0], tag...)
		r.mark(idOfTag(r.text))
	}
}

// mark records that the latest event has a tag.
func (r *tagRun) mark(id tagID) {
	at := r.place(id)
	if at < 0 {
		at = len(r.ids)
		r.ids, r.first = append(r.ids, id), append(r.first, 0)
		if len(r.places) > 0 {
			r.places[id] = at
		}
	}
	r.first[at] |= 1 << (r.n - 1)
}

// place returns the index of a tag, -1 if the run does not have it.
func (r *tagRun) place(id tagID) int {
	if len(r.ids) < manyTags {
		return slices.Index(r.ids, id)
	}
	if len(r.places) == 0 {
		if r.places == nil {
			r.places = make(map[tagID]int, 2*manyTags)
		}
		for at, other := range r.ids {
			r.places[other] = at
		}
	}
	if at, ok := r.places[id]; ok {
		return at
	}
	return -1
}

// each calls do for the entries of the run, which ends at last, and begins another run. Key and value are valid until
// do returns.
func (r *tagRun) each(last j17.StreamID, tenant uint32, do func(key, value []byte)) {
	var value [8]byte
	for i, id := range r.ids {
		r.text = appendTagKey(r.text[:0], tenant, id, last)
		if r.n == 1 {
			do(r.text, nil)
			continue
		}
		binary.BigEndian.PutUint64(value[:], bits.Reverse64(r.first[i])>>(64-r.n))
		do(r.text, value[:])
	}
	r.clear()
}

// write stages the entries of the run, which ends at last, and begins another run.
func (r *tagRun) write(to *pebble.Batch, tenant uint32, last j17.StreamID) {
	r.each(last, tenant, func(key, value []byte) { must(to.Set(key, value, nil)) })
}

func (r *tagRun) clear() {
	r.n, r.ids, r.first = 0, r.ids[:0], r.first[:0]
	if len(r.places) > 0 {
		r.places = unit.Emptied(r.places)
	}
}

// tagBits returns which events of a run an entry names: bit n is the event n places before the last one.
func tagBits(value []byte) (uint64, error) {
	switch len(value) {
	case 0:
		return 1, nil
	case 8:
		return binary.BigEndian.Uint64(value), nil
	default:
		return 0, errFormat
	}
}

// untag stages the removal of an event's tags. staged holds the entries that the rewrite has changed so far.
func (b *batch) untag(t *tenant, stored *eventRecord, staged map[string]uint64) error {
	// Each tag has an entry for the run, with the set of the events that have it.
	tags, err := stored.allTags()
	if err != nil {
		return err
	}
	for _, tag := range tags {
		prefix := appendTagPrefix(nil, t.next.Number, idOfTag([]byte(tag)))
		it, err := newIter(b.store.db, prefix, after(prefix))
		if err != nil {
			return err
		}
		key, set, err := tagEntry(it, record.AppendPosition(prefix, stored.id))
		if err = errors.Join(err, it.Close()); err != nil {
			return err
		}
		if key == nil {
			continue // older events are not indexed yet
		}

		// Earlier events of the same batch may have changed the set.
		if now, ok := staged[string(key)]; ok {
			set = now
		}

		// Find the event's place in the run.
		last, ok := record.ParsePosition(key[len(key)-positionBytes:])
		if !ok {
			return errFormat
		}
		n := 0
		for n < maxRun && ahead(last, n) != stored.id {
			n++
		}
		if n == maxRun {
			continue
		}

		// An empty set needs no entry.
		set &^= 1 << n
		staged[string(key)] = set
		if set == 0 {
			b.remove(key)
		} else {
			must(b.writes.Set(key, binary.BigEndian.AppendUint64(nil, set), nil))
		}
	}
	return nil
}

// tagEntry returns a copy of the first key from a place on, and its bits; nil when there is none.
func tagEntry(it *pebble.Iterator, from []byte) ([]byte, uint64, error) {
	if !it.SeekGE(from) {
		return nil, 0, it.Error()
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, 0, err
	}
	set, err := tagBits(value)
	return bytes.Clone(it.Key()), set, err
}

// ReadTagged yields the events that have all of some tags. See store.Store.
func (s *feeds) ReadTagged(
	ctx context.Context, t j17.Tenant, of store.Tagged, after j17.StreamID, limit int,
	looked func(steps int, upTo j17.StreamID) bool,
) iter.Seq2[*j17.Event, error] {
	return store.Sequence(func(yield func(*j17.Event) bool) error {
		if len(of.Tags) == 0 {
			return fmt.Errorf("%w: no tags to read events by", store.ErrInvalid)
		}
		ids := make([]tagID, len(of.Tags))
		for i, tag := range of.Tags {
			ids[i] = idOfTag([]byte(tag))
		}
		copied := func(r reader, p *page, from j17.StreamID, limit int, names *record.TypeNames) error {
			if err := r.indexed(of.Tags); err != nil {
				return err
			}
			if r.lacksTags(of.Tags, ids, after) {
				return nil // the filters in memory say that there is nothing
			}
			if err := p.tagged(r, ids, &of, from, limit, names); err != nil || len(p.entries)+p.passed > 0 {
				return err
			}
			s.filters.filterTags(t)
			return nil
		}
		return s.readPages(ctx, t, after, limit, eventsOnly(yield), pager{copy: copied, looked: looked})
	})
}

// tagCursor iterates over the events that have a tag.
type tagCursor struct {
	id tagID
	// it, if not nil, is an iterator over the tag's entries alone.
	it *pebble.Iterator
	// prefix is the prefix of their keys, end the first key after them.
	prefix, end []byte
	// set has a bit for each event with the tag, of the entry that was found last and ends at last, that was not passed
	// yet.
	set  uint64
	last j17.StreamID
}

// ofRun returns the position of the first event from a position on that has the tag, if it belongs to the entry that
// was found last.
func (c *tagCursor) ofRun(from j17.StreamID) (at j17.StreamID, ok bool) {
	for c.set != 0 {
		n := bits.Len64(c.set) - 1
		if at = ahead(c.last, n); at.Compare(from) >= 0 {
			return at, true
		}
		c.set &^= 1 << n
	}
	return at, false
}

// seek returns the position of the first event from a position on that has the tag; the position must never decrease.
// The iterator may be one over all tags.
func (c *tagCursor) seek(it *pebble.Iterator, from j17.StreamID) (at j17.StreamID, ok bool, err error) {
	if at, ok = c.ofRun(from); ok {
		return at, true, nil
	}
	// An iterator over all tags needs the end of this tag as its limit; one over this tag alone is faster without a
	// limit.
	limit := c.end
	if it == c.it {
		limit = nil
	}
	state := it.SeekGEWithLimit(record.AppendPosition(c.prefix, from), limit)
	for ; state == pebble.IterValid && bytes.HasPrefix(it.Key(), c.prefix); state = it.NextWithLimit(limit) {
		value, err := it.ValueAndErr()
		if err != nil {
			return at, false, err
		}
		key := it.Key()
		c.set, err = tagBits(value)
		if err != nil || len(key) != len(c.prefix)+positionBytes {
			return at, false, errFormat
		}
		if c.last, ok = record.ParsePosition(key[len(c.prefix):]); !ok {
			return at, false, errFormat
		}
		if at, ok = c.ofRun(from); ok {
			return at, true, nil
		}
	}
	return at, false, it.Error()
}

// tagHints remembers some tags by which events were found the last time. A walk looks up other tags first, since the
// first tag without events ends it. Hints may be wrong, which only costs time.
type tagHints [1 << 10]atomic.Uint64

// of returns the slot of a tag, and the value that it has if events were found by the tag.
func (h *tagHints) of(tenant uint32, id tagID) (*atomic.Uint64, uint64) {
	return &h[int(binary.BigEndian.Uint16(id[:]))%len(h)], binary.BigEndian.Uint64(id[8:]) ^ uint64(tenant)
}

func (h *tagHints) found(tenant uint32, id tagID) bool {
	place, mark := h.of(tenant, id)
	return place.Load() == mark
}

// note records whether events were found by a tag.
func (h *tagHints) note(tenant uint32, id tagID, found bool) {
	place, mark := h.of(tenant, id)
	if was := place.Load() == mark; found && !was {
		place.Store(mark)
	} else if was && !found {
		place.Store(0)
	}
}

// sharedRounds is the number of rounds in which a walk uses one iterator for all tags. Opening an iterator costs as
// much as one look-up, and most walks end soon; longer ones get an iterator for each tag, which goes on from its place.
const sharedRounds = 2

// tagWalk iterates over the events that have all of some tags.
type tagWalk struct {
	from    pebble.Reader
	hints   *tagHints
	tenant  uint32
	cursors []tagCursor
	// all iterates over the entries of all tags.
	all *pebble.Iterator
	// turn is the index of the next tag to look up, rounds how often all of them were.
	turn, rounds int
}

// newTagWalk opens a walk, which must be closed.
func (s *core) newTagWalk(from pebble.Reader, tenant uint32, ids []tagID) (*tagWalk, error) {
	// Tags without a hint come first.
	w := &tagWalk{from: from, hints: &s.tagHints, tenant: tenant, cursors: make([]tagCursor, 0, len(ids))}
	var known []tagCursor
	for _, id := range ids {
		prefix := appendTagPrefix(make([]byte, 0, tagPrefixBytes+positionBytes), tenant, id)
		c := tagCursor{id: id, prefix: prefix, end: after(prefix)}
		if s.tagHints.found(tenant, id) {
			known = append(known, c)
		} else {
			w.cursors = append(w.cursors, c)
		}
	}
	if w.cursors = append(w.cursors, known...); len(ids) == 1 {
		return w, nil
	}

	kind := appendPrefix(nil, tenant, kindTag)
	var err error
	w.all, err = newIter(from, kind, after(kind))
	return w, err
}

func (w *tagWalk) close(err *error) {
	if w.all != nil {
		closeIter(w.all, err, "the index of tags")
	}
	for _, c := range w.cursors {
		if c.it != nil {
			closeIter(c.it, err, "the index of tags")
		}
	}
}

// ask returns the position of the first event from a position on that has the tag with the index turn.
func (w *tagWalk) ask(from j17.StreamID) (at j17.StreamID, ok bool, err error) {
	c, it := &w.cursors[w.turn], w.all
	if it == nil || w.rounds >= sharedRounds {
		if c.it == nil {
			if c.it, err = newIter(w.from, c.prefix, c.end); err != nil {
				return at, false, err
			}
		}
		it = c.it
	}
	if at, ok, err = c.seek(it, from); err != nil {
		return at, false, corruption(err, "the index of tags of tenant number %d", w.tenant)
	}
	if w.rounds == 0 {
		w.hints.note(w.tenant, c.id, ok)
	}
	if w.turn++; w.turn == len(w.cursors) {
		w.turn, w.rounds = 0, w.rounds+1
	}
	return at, ok, nil
}

// next moves at to the first event from there on that has all tags; it returns false if there is none, or if step, if
// not nil, ends the walk after a step. Each tag in turn is advanced to its next event, and the others follow, so that
// the rarest one sets the pace.
func (w *tagWalk) next(at *j17.StreamID, step func(passed j17.StreamID) bool) (bool, error) {
	agreed := 0
	var passed j17.StreamID
	for {
		if step != nil && !step(passed) {
			return false, nil
		}
		found, ok, err := w.ask(*at)
		if err != nil || !ok {
			return false, err
		}
		if found != *at {
			passed, *at, agreed = *at, found, 0
		}
		if agreed++; agreed == len(w.cursors) {
			return true, nil
		}
	}
}

// tagged copies up to limit events from a position on that have all tags, and one of the types.
func (p *page) tagged(
	r reader, ids []tagID, of *store.Tagged, at j17.StreamID, limit int, names *record.TypeNames,
) (err error) {
	w, err := r.store.newTagWalk(r.snapshot, r.tenant, ids)
	if err != nil {
		return err
	}
	defer w.close(&err)

	// A page ends after maxTagSteps, whether anything was found or not.
	var reached j17.StreamID
	enough := false
	step := func(passed j17.StreamID) bool {
		if passed != (j17.StreamID{}) {
			reached = passed
		}
		if enough = p.steps == maxTagSteps; !enough {
			p.steps++
		}
		return !enough
	}

	// Mostly nothing is found, so no event has to be looked up.
	g := &p.gathering
	defer func() {
		if g.lookup != nil {
			g.close(&err)
			g.end()
		}
	}()
	for n, more := minGathered, true; more; n = g.next(p) {
		// First collect some references. With types it is unknown how many are needed.
		if len(of.Types) == 0 {
			n = min(n, limit-len(p.entries))
		}
		g.refs, g.keys = g.refs[:0], g.keys[:0]
		for more && len(g.refs) < n {
			if more, err = w.next(&at, step); err != nil {
				return err
			}
			if !more {
				break
			}
			if g.lookup == nil {
				l, err := newLookup(r.snapshot, r.tenant, names)
				if err != nil {
					return err
				}
				g.begin(l, r, false)
			}
			if err := g.take(at, of, p); err != nil {
				return err
			}
			reached, at = at, at.Next()
		}
		if len(g.refs) == 0 {
			break
		}

		// Then fetch the events.
		g.latest = !more && len(g.refs) <= dividedFrom
		if err := g.fetch(p.size() - p.bytes); err != nil {
			return g.fault(err, at)
		}
		if all, err := p.takeFitting(g, of, limit); err != nil || !all {
			return err
		}
	}

	// The view has no more, or the page has reached its limit.
	if p.reached, p.full = r.tagging.last, enough; enough {
		p.reached = reached
	}
	return nil
}

// take collects the reference of the event at a position, after those collected before, unless its aggregate type is
// not wanted.
func (g *gathering) take(at j17.StreamID, of *store.Tagged, p *page) error {
	n, err := g.seek(at)
	if err != nil {
		return err
	}
	reference := g.run[n]
	if len(of.Types) > 0 && !of.Names(string(aggregateOf(reference))) {
		p.passed++
		return nil
	}
	begin := len(g.keys)
	g.keys = append(append(g.keys, g.key[:tenantPrefix+1]...), reference...)
	g.refs = append(g.refs, gathered{id: at, key: g.keys[begin:]})
	return nil
}

// takeFitting copies the collected events that are of a wanted type. It returns false when the page is full.
func (p *page) takeFitting(g *gathering, of *store.Tagged, limit int) (bool, error) {
	for i := range g.refs {
		ref := &g.refs[i]
		value, err := g.value(ref)
		if err != nil {
			return false, g.fault(err, ref.id)
		}
		reference := ref.key[tenantPrefix+1:]
		if len(of.Types) > 0 {
			typ, err := typeOf(reference, value)
			if err != nil {
				return false, g.fault(err, ref.id)
			}
			if !of.Fits(string(aggregateOf(reference)), string(typ)) {
				p.passed++
				continue
			}
		}
		var entry *pageEntry
		if ref.value != nil {
			entry = p.hold(value)
		} else {
			entry = p.add(value)
		}
		p.reached, entry.id = ref.id, ref.id
		if entry.key, entry.version, err = parseReference(reference, g.names); err != nil {
			return false, g.fault(err, ref.id)
		}
		if p.full || len(p.entries) == limit {
			return false, nil
		}
	}
	return true, nil
}
