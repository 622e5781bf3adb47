package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/store"
)

// maxRun is the number of events that one entry of the feed refers to at most: whoever reads from a position inside a run
// has to skip what is before it.
const maxRun = 64

// A feed entry has the position of the last event of a run: events of one unit, whose positions follow each other without
// a gap. Its value is the reference to the event if there is only one, else a zero byte and, for each, its length as a
// varint and the reference. A reference is the rest of the event's key after the kind, and never begins with a zero byte.

// feedRun gathers the references of an entry.
type feedRun struct {
	value []byte
	n     int
}

// add appends the reference to the event with the given key.
func (r *feedRun) add(eventKey []byte) {
	reference := eventKey[tenantPrefix+1:]
	if r.n == 0 {
		r.value = append(r.value[:0], 0)
	}
	r.value = binary.AppendUvarint(r.value, uint64(len(reference)))
	r.value = append(r.value, reference...)
	r.n++
}

// take returns the value of the entry, valid until the next add, and begins another one.
func (r *feedRun) take() []byte {
	n := r.n
	r.n = 0
	if n == 1 {
		_, width := binary.Uvarint(r.value[1:])
		return r.value[1+width:]
	}
	return r.value
}

// references appends the references of a feed entry to dst. They are views into value.
func references(dst [][]byte, value []byte) ([][]byte, error) {
	if len(value) > 0 && value[0] != 0 {
		return append(dst, value), nil
	}
	from := len(dst)
	for rest := value[min(1, len(value)):]; len(rest) > 0; {
		n, width := binary.Uvarint(rest)
		if width <= 0 || n > uint64(len(rest)-width) { //nolint:gosec // not negative
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
	if back := uint32(n); back <= id.Seq { //nolint:gosec // at most maxRun
		return j17.StreamID{Ms: id.Ms, Seq: id.Seq - back}
	}
	return j17.StreamID{Ms: id.Ms - 1, Seq: math.MaxUint32 - (uint32(n) - 1 - id.Seq)} //nolint:gosec // at most maxRun
}

// ReadFeed yields durable events in order of their positions. See store.Store.
func (s *Store) ReadFeed(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[*j17.Event, error] {
	return sequence(func(yield func(*j17.Event) bool) error {
		return s.readFeed(ctx, t, after, limit, yield)
	})
}

func (s *Store) readFeed(
	ctx context.Context, t j17.Tenant, position j17.StreamID, limit int, yield func(*j17.Event) bool,
) (err error) {
	r, err := s.read(t)
	if err != nil {
		return err
	}
	defer r.close()
	if r.tenant == 0 || limit <= 0 {
		return nil
	}
	feed, err := r.iterate(
		appendFeedKey(nil, r.tenant, position.Next()), after(appendPrefix(nil, r.tenant, kindFeed)))
	if err != nil {
		return err
	}
	defer closeIter(feed, &err, "the feed")
	events, err := r.iterate(
		appendPrefix(nil, r.tenant, kindEvent), after(appendPrefix(nil, r.tenant, kindEvent)))
	if err != nil {
		return err
	}
	defer closeIter(events, &err, "events")
	c := feedCursor{events: events, key: appendPrefix(nil, r.tenant, kindEvent)}
	n := 0
	for ok := feed.First(); ok; ok = feed.Next() {
		last, err := c.open(feed)
		if err != nil {
			return corruption(err, "the feed of tenant %s after %s", t, c.event.StreamID)
		}
		for i, reference := range c.run {
			id := ahead(last, len(c.run)-1-i)
			if id.Compare(position) <= 0 {
				continue
			}
			n++
			if err := s.interrupted(ctx, uint64(n)); err != nil {
				return err
			}
			if err := c.load(id, reference); err != nil {
				return corruption(err, "the feed of tenant %s after %s", t, c.event.StreamID)
			}
			if !yield(&c.event) || n == limit {
				return nil
			}
		}
	}
	return nil
}

// feedCursor looks up the events that feed entries refer to.
type feedCursor struct {
	events *pebble.Iterator
	key    []byte
	// run holds the references of the present entry.
	run    [][]byte
	record eventRecord
	// The names of event types and of aggregate types.
	types, aggregates typeNames

	event j17.Event
}

// open fills c.run with the references of the entry that feed stands at and returns the position of the last one.
func (c *feedCursor) open(feed *pebble.Iterator) (j17.StreamID, error) {
	last, ok := feedPosition(feed.Key())
	value, err := feed.ValueAndErr()
	if err != nil {
		return last, err
	}
	c.run, err = references(c.run[:0], value)
	if err == nil && !ok {
		err = errFormat
	}
	return last, err
}

// load fills c.event with the event at a position.
func (c *feedCursor) load(id j17.StreamID, reference []byte) error {
	n := len(reference) - versionSuffix - 1
	if n < 0 || reference[n] != 0 {
		return errFormat
	}
	typ, aggregate, ok := bytes.Cut(reference[:n], []byte{0})
	if !ok {
		return errFormat
	}
	key := j17.Key{Type: c.aggregates.name(typ), ID: string(aggregate)}
	c.key = append(c.key[:tenantPrefix+1], reference...)
	if !c.events.SeekGE(c.key) || !bytes.Equal(c.events.Key(), c.key) {
		return errors.Join(errGap, c.events.Error())
	}
	v, err := c.events.ValueAndErr()
	if err != nil {
		return err
	}
	c.event.Key, c.event.Version = key, binary.BigEndian.Uint64(reference[n+1:])
	if err := c.record.fill(v, len(key.Type)+len(":")+len(key.ID), &c.types, &c.event); err != nil {
		return err
	}
	if c.event.StreamID != id {
		return fmt.Errorf("the entry %s refers to an event of another position, %s", id, c.event.StreamID)
	}
	return nil
}

// AwaitFeed blocks until the feed has grown. See store.Store.
func (s *Store) AwaitFeed(ctx context.Context, name j17.Tenant, after j17.StreamID) error {
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
