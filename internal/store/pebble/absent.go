package pebble

import (
	"slices"

	"j17"
	"j17/internal/store"
)

// Whether a unit's conditions on the feed hold is decided in two parts: by the index of tags for what is committed, from the position on
// that the unit was decided at, and by the events of the units before it in the same batch, which no index has yet. Between a decision and
// its commit there is little of either, however long the feed is.

// stagedEvents are the events of a batch by their tags. They are put in order when a unit asks for it first.
type stagedEvents struct {
	units []stagedUnit
	// sorted is the number of units whose events are in byTag.
	sorted int
	byTag  map[stagedTag][]stagedEvent
}

// stagedUnit is the events of a unit, and where they are.
type stagedUnit struct {
	tenant uint32
	events []store.NewEvent
	ids    []j17.StreamID
}

type stagedTag struct {
	tenant uint32
	tag    string
}

type stagedEvent struct {
	*store.NewEvent

	id j17.StreamID
}

// add adds the events of a unit.
func (s *stagedEvents) add(tenant uint32, events []store.NewEvent, ids []j17.StreamID) {
	s.units = append(s.units, stagedUnit{tenant, events, ids})
}

// clear forgets all of them.
func (s *stagedEvents) clear() {
	clear(s.units)
	s.units, s.sorted = s.units[:0], 0
	if cap(s.units) > keptScratch {
		s.units = nil
	}
	if s.byTag != nil {
		s.byTag = emptied(s.byTag)
	}
}

// match reports whether one of the events is what a unit says is absent.
func (s *stagedEvents) match(tenant uint32, a *store.Absent) bool {
	// Those that were staged since somebody asked.
	if s.byTag == nil {
		s.byTag = map[stagedTag][]stagedEvent{}
	}
	for ; s.sorted < len(s.units); s.sorted++ {
		u := &s.units[s.sorted]
		for i := range u.events {
			e := stagedEvent{&u.events[i], u.ids[i]}
			for _, tag := range e.Tags {
				k := stagedTag{u.tenant, tag}
				s.byTag[k] = append(s.byTag[k], e)
			}
		}
	}

	// The rarest tag leads.
	var rarest []stagedEvent
	for i, tag := range a.Tags {
		have := s.byTag[stagedTag{tenant, tag}]
		if len(have) == 0 {
			return false
		}
		if i == 0 || len(have) < len(rarest) {
			rarest = have
		}
	}
	return slices.ContainsFunc(rarest, func(e stagedEvent) bool {
		missing := func(tag string) bool { return !slices.Contains(e.Tags, tag) }
		return e.id.Compare(a.After) > 0 && a.Fits(e.Key.Type, e.Type) && !slices.ContainsFunc(a.Tags, missing)
	})
}

// matches reports whether there is an event that the unit says is absent.
func (b *batch) matches(t *tenant, u *store.Append) (bool, error) {
	for i := range u.Unless {
		a := &u.Unless[i]
		if b.staged.match(t.nextNumber, a) {
			return true, nil
		}
		if t.last.Compare(a.After) <= 0 || t.nextNumber == 0 {
			continue // nothing was committed since
		}
		if found, err := b.committed(t.nextNumber, a); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// committed reports whether there is an event in earlier batches that a unit says is absent.
func (b *batch) committed(tenant uint32, a *store.Absent) (found bool, err error) {
	state, err := getBuild(b.store.db, tenant)
	if err != nil {
		return false, err
	}
	if state != nil && a.After.Compare(state.end) < 0 {
		return false, &store.IndexingError{Done: state.done, Total: state.total}
	}

	// Where the tags meet.
	ids := make([]tagID, len(a.Tags))
	for i, tag := range a.Tags {
		ids[i] = idOfTag([]byte(tag))
	}
	w, err := newTagWalk(b.store.db, tenant, ids)
	if err != nil {
		return false, err
	}
	defer w.close(&err)
	for at := a.After.Next(); ; {
		ok, err := w.next(&at, nil)
		if err != nil || !ok {
			return false, err
		}
		if len(a.Types) == 0 {
			return true, nil
		}
		if fits, err := b.fits(tenant, at, a); err != nil || fits {
			return fits, err
		}
		at = at.Next()
	}
}

// fits reports whether the event at a position has one of the types that count.
func (b *batch) fits(tenant uint32, at j17.StreamID, a *store.Absent) (fits bool, err error) {
	l, err := newLookup(b.store.db, tenant, &typeNames{})
	if err != nil {
		return false, err
	}
	defer l.close(&err)
	var p page
	if _, err := l.copy(&p, at); err != nil {
		return false, err
	}
	e := &p.entries[0]
	var record eventRecord
	if err := record.parse(e.value); err != nil {
		return false, l.fault(err, at)
	}
	typ, err := record.eventType(len(e.key.Type) + len(":") + len(e.key.ID))
	if err != nil {
		return false, l.fault(err, at)
	}
	return a.Fits(e.key.Type, string(typ)), nil
}
