package unit

import (
	"slices"

	"j17"
	"j17/internal/storage/store"
)

// A unit's conditions on the feed are checked twice: by the Reader on the committed events, and here on the events of
// earlier units of the batch, which the Reader does not have yet.

// tagged has the events of a batch by their tags. Events are indexed only when a unit needs them.
type tagged[T Stateful] struct {
	units []Appended[T]
	// sorted is the number of units whose events are in byTag.
	sorted int
	byTag  map[tagKey][]placed
}

// Appended has the events of a unit and their positions.
type Appended[T Stateful] struct {
	Tenant T
	Events []store.NewEvent
	IDs    []j17.StreamID
}

type tagKey struct {
	number uint32
	tag    string
}

type placed struct {
	*store.NewEvent

	id j17.StreamID
}

// add adds the events of a unit.
func (s *tagged[T]) add(tenant T, events []store.NewEvent, ids []j17.StreamID) {
	s.units = append(s.units, Appended[T]{tenant, events, ids})
}

// clear removes all events.
func (s *tagged[T]) clear() {
	clear(s.units)
	s.units, s.sorted = s.units[:0], 0
	if cap(s.units) > keptScratch {
		s.units = nil
	}
	if s.byTag != nil {
		s.byTag = Emptied(s.byTag)
	}
}

// match reports whether a tenant, given by its number, has an event here that a unit requires to be absent.
func (s *tagged[T]) match(number uint32, a *store.Absent) bool {
	// Index the events of the units added since the last call.
	if s.byTag == nil {
		s.byTag = map[tagKey][]placed{}
	}
	for ; s.sorted < len(s.units); s.sorted++ {
		u := &s.units[s.sorted]
		for i := range u.Events {
			e := placed{&u.Events[i], u.IDs[i]}
			for _, tag := range e.Tags {
				k := tagKey{u.Tenant.Now().Number, tag}
				s.byTag[k] = append(s.byTag[k], e)
			}
		}
	}

	// Only events with the rarest tag are examined.
	var rarest []placed
	for i, tag := range a.Tags {
		have := s.byTag[tagKey{number, tag}]
		if len(have) == 0 {
			return false
		}
		if i == 0 || len(have) < len(rarest) {
			rarest = have
		}
	}
	return slices.ContainsFunc(rarest, func(e placed) bool {
		missing := func(tag string) bool { return !slices.Contains(e.Tags, tag) }
		return e.id.Compare(a.After) > 0 && a.Fits(e.Key.Type, e.Type) && !slices.ContainsFunc(a.Tags, missing)
	})
}

// Appended returns the events of the units of the batch.
func (b *Batch[T]) Appended() []Appended[T] { return b.events.units }

// matches reports whether there is an event that the unit requires to be absent.
func (b *Batch[T]) matches(t T, u *store.Append) (bool, error) {
	for i := range u.Unless {
		a := &u.Unless[i]
		if b.events.match(t.Now().Number, a) {
			return true, nil
		}
		if found, err := b.reader.ReadMatch(t, a); err != nil || found {
			return found, err
		}
	}
	return false, nil
}
