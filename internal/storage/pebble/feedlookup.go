package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"

	"j17"
	"j17/internal/base/panics"
)

const (
	// minGathered and maxGathered bound how many events of a feed are looked up at a time for a page of pageBytes. Few
	// are enough for a reader that follows the feed; looking up many in the order of storage takes less work for each.
	minGathered, maxGathered = maxRun, 1024
	// dividedFrom is the number of events from which on several goroutines, up to mostLooking, look them up, each half
	// as many or more.
	dividedFrom = 4 * maxRun
	mostLooking = 4
)

// gathering looks up the events that many entries of a feed refer to.
type gathering struct {
	*lookup
	reader reader
	notes  bool
	refs   []gathered
	order  []sought
	// bytes is the size of the first event if only that was looked up, else the average size of the events looked up.
	bytes int
	// keys and values are the memory that refs point to.
	keys   []byte
	values [mostLooking]copies
}

// copies is a buffer for copies of values. Copies are never moved: when a buffer is full, a new one is allocated for
// those that follow, so that no memory is held twice.
type copies struct {
	// to is the present buffer, and largest the largest one so far, which is reused.
	to, largest []byte
}

// begin discards the values.
func (c *copies) begin() { c.to = c.largest[:0] }

// add copies a value. expected is about the size of it together with those that follow.
func (c *copies) add(value []byte, expected int) []byte {
	if cap(c.to)-len(c.to) < len(value) {
		c.to = make([]byte, 0, max(len(value), expected))
		if cap(c.to) > cap(c.largest) {
			c.largest = c.to
		}
	}
	begin := len(c.to)
	c.to = append(c.to, value...)
	return c.to[begin:]
}

// gathered is an event to be looked up, or a note.
type gathered struct {
	id j17.StreamID
	// key is the key of the event.
	key []byte
	// value is the value of the event, nil before it is looked up, or the note.
	value []byte
	note  bool
}

// sought is an event to be looked up: the first bytes of its key after those that all keys share, as a number, and its
// index in the order of the feed.
type sought struct {
	prefix uint64
	at     int
}

// begin begins to collect for a page.
func (g *gathering) begin(l *lookup, r reader, notes bool) {
	g.lookup, g.reader, g.notes = l, r, notes
	for i := range g.values {
		g.values[i].begin()
	}
}

// end releases the feed. The values looked up belong to the page.
func (g *gathering) end() { g.lookup, g.reader = nil, reader{} }

// trim drops buffers that are too large to keep.
func (g *gathering) trim() {
	clear(g.refs)
	for i := range g.values {
		if g.values[i].begin(); cap(g.values[i].largest) > 2*pageBytes {
			g.values[i] = copies{}
		}
	}
	if cap(g.refs) > 2*maxGathered {
		g.refs, g.order, g.keys = nil, nil, nil
	}
}

// next returns how many events to collect when those so far have not filled a page.
func (g *gathering) next(p *page) int {
	if len(g.refs) == 0 {
		return minGathered
	}
	room := (p.size() - p.bytes) / max(g.bytes, 1)
	return min(max(room+room/16, minGathered), maxGathered*(p.size()/pageBytes))
}

// gather collects the references of n events from a position on, and of the rest of the last run, but of at most limit.
// It reports whether there may be more after them.
func (g *gathering) gather(from j17.StreamID, n, limit int) (more bool, err error) {
	g.refs, g.keys = slices.Grow(g.refs[:0], min(n, limit)), g.keys[:0]
	for more = true; more && len(g.refs) < min(n, limit); more = g.feed.Next() {
		last, err := g.open()
		if err != nil {
			return false, err
		}
		if g.note != nil {
			if g.notes {
				g.refs = append(g.refs, gathered{id: last, value: bytes.Clone(g.note), note: true})
			}
			continue
		}
		for i, reference := range g.run {
			if id := ahead(last, len(g.run)-1-i); id.Compare(from) >= 0 && len(g.refs) < limit {
				begin := len(g.keys)
				g.keys = append(append(g.keys, g.key[:tenantPrefix+1]...), reference...)
				g.refs = append(g.refs, gathered{id: id, key: g.keys[begin:]})
			}
		}
	}
	return more, g.feed.Error()
}

// fetch looks up the collected events, in the order of their keys, for a page with room for so many bytes. If, going by
// the first event, they do not fit by far, or once that many bytes were looked up, the others are left to value, in the
// order of the feed. So little is read in vain, however large the events are.
func (g *gathering) fetch(room int) error {
	g.order, g.bytes = slices.Grow(g.order[:0], len(g.refs)), 0
	for i := range g.refs {
		if !g.refs[i].note {
			g.order = append(g.order, sought{at: i})
		}
	}
	if len(g.order) == 0 {
		return nil
	}
	first, err := g.value(&g.refs[g.order[0].at])
	if err != nil {
		return err
	}
	g.refs[g.order[0].at].value = g.values[0].add(first, 0)
	if g.bytes = len(first); g.bytes*len(g.order) > 2*room {
		return nil
	}
	defer func() {
		n, all := 0, 0
		for i := range g.refs {
			if size := len(g.refs[i].value); size > 0 && !g.refs[i].note {
				n, all = n+1, all+size
			}
		}
		g.bytes = all / max(n, 1)
	}()

	// Look up the others in the order of storage, up to slightly more bytes than there is room for. Several goroutines
	// do so, each for a part of the events and its share of the bytes.
	most := room + room/8
	g.order = g.order[1:]
	g.sort()
	parts := min(mostLooking, runtime.GOMAXPROCS(0), 2*len(g.order)/dividedFrom)
	if parts < 2 {
		return g.collect(0, g.lookup, g.order, most)
	}
	errs := make([]error, parts)
	var looking panics.Parts
	for part := 1; part < parts; part++ {
		looking.Go(func() {
			l, err := newLookup(g.reader.snapshot, g.reader.tenant, g.names)
			if err == nil {
				defer l.close(&errs[part])
				err = g.collect(part, l, g.order[len(g.order)*part/parts:len(g.order)*(part+1)/parts], most/parts)
			}
			errs[part] = err
		})
	}
	looking.Do(func() { errs[0] = g.collect(0, g.lookup, g.order[:len(g.order)/parts], most/parts) })
	looking.Wait()
	return errors.Join(errs...)
}

// sort sorts the events to be looked up by key, and equal keys by place in the feed.
func (g *gathering) sort() {
	if len(g.order) == 0 {
		return
	}
	first := g.refs[g.order[0].at].key
	same := len(first)
	for _, s := range g.order[1:] {
		key := g.refs[s.at].key
		same = min(same, len(key))
		for !bytes.Equal(key[:same], first[:same]) {
			same--
		}
	}
	for i := range g.order {
		var b [8]byte
		copy(b[:], g.refs[g.order[i].at].key[same:])
		g.order[i].prefix = binary.BigEndian.Uint64(b[:])
	}
	slices.SortFunc(g.order, func(a, b sought) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return cmp.Or(bytes.Compare(g.refs[a.at].key[same:], g.refs[b.at].key[same:]), cmp.Compare(a.at, b.at))
	})
}

// value returns the value of an event or a note. It is valid until the next look-up.
func (g *gathering) value(ref *gathered) ([]byte, error) {
	if ref.value != nil {
		return ref.value, nil
	}
	return g.lookup.value(ref.key)
}

// collect looks up some of the collected events, until they have as many bytes as its share. The last event may exceed
// that.
func (g *gathering) collect(part int, with *lookup, order []sought, share int) error {
	taken, average := 0, g.bytes
	for i := range order {
		if taken >= share {
			break
		}
		ref := &g.refs[order[i].at]
		v, err := with.value(ref.key)
		if err != nil {
			return err
		}
		ref.value = g.values[part].add(v, min((len(order)-i)*(average+average/16), share-taken))
		taken += len(v)
		average = taken / (i + 1)
	}
	return nil
}
