package upcast

import (
	"maps"
	"sync/atomic"

	"j17"
	"j17/internal/base/work"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Tried says up to which positions of the feed the stored events of an environment were tried under one spec, without
// one that failed. Readers do not check again what was. The zero Tried, and a nil one, cover nothing. It is safe for
// concurrent use.
type Tried struct {
	upTo atomic.Pointer[map[*tick.Plan]j17.StreamID]
}

// Set replaces what is covered: for each plan of the spec the position up to which all events that take it fit.
func (t *Tried) Set(upTo map[*tick.Plan]j17.StreamID) {
	upTo = maps.Clone(upTo)
	t.upTo.Store(&upTo)
}

// Covers reports whether the event at a position, which takes a plan, was tried.
func (t *Tried) Covers(plan *tick.Plan, at j17.StreamID) bool {
	if t == nil {
		return false
	}
	upTo := t.upTo.Load()
	if upTo == nil {
		return false
	}
	last, ok := (*upTo)[plan]
	return ok && at.Compare(last) <= 0
}

// Stream reads events of one aggregate type, one after the other, for handlers. What was tried is not checked, and is
// brought to the newest generation as far as something reads it. It is for one goroutine.
type Stream struct {
	typ   *spec.AggregateType
	tried *Tried
	older tick.Older
	// stored and newest are those of older.
	stored *j17.Event
	newest *spec.EventType
}

// NewStream returns what reads events as an aggregate type does.
func NewStream(typ *spec.AggregateType, tried *Tried) *Stream {
	s := &Stream{typ: typ, tried: tried}
	s.older.Metadata = s.metadata
	return s
}

// Read sets ev, whose key is set already, to the event as handlers see it; see the function Read. It is valid until the
// next call, and as long as the stored event.
func (s *Stream) Read(stored *j17.Event, ev *tick.Event, b *work.Budget) error {
	stored = stored.AsStored()
	ev.Timestamp = stored.Timestamp
	et := s.typ.Events[stored.Type]
	if et == nil || et.System {
		s.asStored(stored, ev)
		return nil
	}
	number, _, _ := stored.Generation()
	if et.As == nil && number == et.Generation {
		s.asStored(stored, ev)
		return nil
	}

	// Custom code takes the whole data.
	plan, newest := et.Plan(number), et.Newest()
	covered := plan != nil && s.tried.Covers(plan, stored.StreamID)
	if !covered || newest.Code != nil {
		r, err := read(s.typ, stored, ev.Key, covered, b)
		if err == nil {
			*ev = r.seen(ev.Key)
		}
		return err
	}
	s.stored, s.newest, s.older.Plan = stored, newest, plan
	s.older.Stored.Key = ev.Key
	s.asStored(stored, &s.older.Stored)
	s.older.Stored.Timestamp = stored.Timestamp
	ev.Type = newest.Name
	s.older.Newest(ev)
	return nil
}

// asStored sets the parts of an event that may differ between generations to what is stored.
func (s *Stream) asStored(stored *j17.Event, ev *tick.Event) {
	ev.Type, ev.Data, ev.Metadata = stored.Type, tick.Raw(stored.Data), tick.Raw(stored.Metadata)
}

// metadata returns the metadata of the present event in the newest generation.
func (s *Stream) metadata() []byte {
	r := reading{stored: s.stored, newest: s.newest}
	r.generation, r.at, r.end = s.stored.Generation()
	return j17.AppendTimestamp(r.appendMetadata(nil, false), s.stored.Timestamp)
}
