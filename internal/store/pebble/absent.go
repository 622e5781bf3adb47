package pebble

import (
	"slices"
	"strings"

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
	tenant *tenant
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
func (s *stagedEvents) add(tenant *tenant, events []store.NewEvent, ids []j17.StreamID) {
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
				k := stagedTag{u.tenant.nextNumber, tag}
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

// recentTags are the tags of the latest events of a tenant, each with the position of the last event that has it. They are kept from the
// first condition on. It is the committer's.
type recentTags struct {
	last map[string]j17.StreamID
	// Events behind from are in it, up to to.
	from, to j17.StreamID
}

// mostRecentTags bounds how many tags of a tenant are kept, and mostRecent of how many tenants.
const (
	mostRecentTags = 1 << 13
	mostRecent     = 64
)

// recentOf returns the tags of the latest events of a tenant, which are kept from here on.
func (b *batch) recentOf(t *tenant) *recentTags {
	if t.recent != nil {
		return t.recent
	}
	t.recent = &recentTags{last: map[string]j17.StreamID{}, from: t.last, to: t.last}
	if b.recent = append(b.recent, t); len(b.recent) > mostRecent {
		b.recent[0].recent = nil
		b.recent = slices.Delete(b.recent, 0, 1)
	}
	return t.recent
}

// forgetRecent forgets the tags of the latest events of a tenant.
func (b *batch) forgetRecent(t *tenant) {
	t.recent, b.recent = nil, slices.DeleteFunc(b.recent, func(other *tenant) bool { return other == t })
}

// lacks reports whether it is certain that no committed event is what a unit says is absent.
func (r *recentTags) lacks(t *tenant, a *store.Absent) bool {
	if r.to != t.last || a.After.Compare(r.from) < 0 {
		return false
	}
	return slices.ContainsFunc(a.Tags, func(tag string) bool {
		last, ok := r.last[tag]
		return !ok || last.Compare(a.After) <= 0
	})
}

// add adds the events of a unit that is durable.
func (r *recentTags) add(u *stagedUnit) {
	for i := range u.events {
		for _, tag := range u.events[i].Tags {
			if _, ok := r.last[tag]; !ok {
				tag = strings.Clone(tag) // which may be a part of something large
			}
			r.last[tag] = u.ids[i]
		}
	}
	r.to = u.ids[len(u.ids)-1]
	if len(r.last) > mostRecentTags {
		r.last, r.from = map[string]j17.StreamID{}, r.to
	}
}

// keepRecent adds the tags of a batch that is durable. What was stored in another way since cannot be told from them: they begin anew.
func (b *batch) keepRecent() {
	for i := range b.staged.units {
		u := &b.staged.units[i]
		r := u.tenant.recent
		if r == nil {
			continue
		}
		if r.to.Compare(u.tenant.last) < 0 {
			clear(r.last)
			r.from, r.to = u.tenant.last, u.tenant.last
		}
		r.add(u)
	}
}

// matches reports whether there is an event that the unit says is absent.
func (b *batch) matches(t *tenant, u *store.Append) (bool, error) {
	for i := range u.Unless {
		a := &u.Unless[i]
		if b.staged.match(t.nextNumber, a) {
			return true, nil
		}
		if t.last.Compare(a.After) <= 0 || t.nextNumber == 0 || b.recentOf(t).lacks(t, a) {
			continue // nothing was committed since that has its tags
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
