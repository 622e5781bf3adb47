package pebble

import (
	"slices"
	"strings"
	"sync"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// recentTags are the tags of the latest events of a tenant, each with the position of the last event that has it. They
// are kept from the first condition on. Only the committer changes them, before what it has stored can be seen.
type recentTags struct {
	mu   sync.RWMutex
	last map[string]j17.StreamID
	// It has the tags of events after from, up to to.
	from, to j17.StreamID
}

// mostRecentTags bounds the tags kept for a tenant, and mostRecent the tenants.
const (
	mostRecentTags = 1 << 13
	mostRecent     = 64
)

// recentOf returns the tags of the latest events of a tenant, which are kept from here on.
func (b *batch) recentOf(t *tenant) *recentTags {
	if r := t.recent.Load(); r != nil {
		return r
	}
	r := &recentTags{last: map[string]j17.StreamID{}, from: t.last, to: t.last}
	t.recent.Store(r)
	if b.recent = append(b.recent, t); len(b.recent) > mostRecent {
		b.recent[0].recent.Store(nil)
		b.recent = slices.Delete(b.recent, 0, 1)
	}
	return r
}

// forgetRecent forgets the tags of the latest events of a tenant.
func (b *batch) forgetRecent(t *tenant) {
	t.recent.Store(nil)
	b.recent = slices.DeleteFunc(b.recent, func(other *tenant) bool { return other == t })
}

// lacks reports whether certainly no event after a position, up to that of the last event, has all of the tags.
func (r *recentTags) lacks(tags []string, after, last j17.StreamID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.to.Compare(last) < 0 || after.Compare(r.from) < 0 {
		return false
	}
	return slices.ContainsFunc(tags, func(tag string) bool {
		if j17.IsCorrelationTag(tag) {
			return false
		}
		at, ok := r.last[tag]
		return !ok || at.Compare(after) <= 0
	})
}

// add adds the events of a unit that is durable. before is the position of the tenant's last event before: if it is
// after to, events have come that were not added here, and the tags start again.
func (r *recentTags) add(u *unit.Appended[*tenant], before j17.StreamID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to.Compare(before) < 0 {
		clear(r.last)
		r.from, r.to = before, before
	}
	for i := range u.Events {
		for _, tag := range u.Events[i].Tags {
			if j17.IsCorrelationTag(tag) {
				continue // nearly every event has a different one, and no condition needs it
			}
			if _, ok := r.last[tag]; !ok {
				tag = strings.Clone(tag) // which may be a part of something large
			}
			r.last[tag] = u.IDs[i]
		}
	}
	r.to = u.IDs[len(u.IDs)-1]
	if len(r.last) > mostRecentTags {
		r.last, r.from = map[string]j17.StreamID{}, r.to
	}
}

// keepRecent adds the tags of a batch that is durable.
func (b *batch) keepRecent() {
	appended := b.units.Appended()
	for i := range appended {
		u := &appended[i]
		if r := u.Tenant.recent.Load(); r != nil {
			r.add(u, u.Tenant.last)
		}
	}
}

// tagging is what is known in memory of a tenant's index of tags, as of a view.
type tagging struct {
	// building reports that older events are still being indexed.
	building bool
	// linking reports that older events are still being indexed, but only by their correlation ids.
	linking bool
	// recent, if not nil, has the tags of the latest events, up to position last.
	recent *recentTags
	last   j17.StreamID
	// filter, if not nil, is the filter over the tags of all events.
	filter *filter
}

// taggingLocked returns what is known in memory of the index of tags as of the present view.
func (t *tenant) taggingLocked() tagging {
	return tagging{
		building: t.building != 0 && t.building == t.number, linking: t.linking != 0 && t.linking == t.number,
		recent: t.recent.Load(), last: t.last, filter: t.tagFilter.Load(),
	}
}

// lacksTags reports whether certainly no event after a position has all of the tags; ids are the ids of tags.
func (r *reader) lacksTags(tags []string, ids []tagID, after j17.StreamID) bool {
	t := &r.tagging
	return t.recent != nil && t.recent.lacks(tags, after, t.last) || t.filter.lacksAny(r.tenant, ids)
}

// ReadMatch reports whether there is an event in earlier batches that a unit requires to be absent. Between a decision
// and its commit there are few events, however long the feed is.
func (b *batch) ReadMatch(t *tenant, a *store.Absent) (bool, error) {
	if t.last.Compare(a.After) <= 0 || t.next.Number == 0 || b.recentOf(t).lacks(a.Tags, a.After, t.last) {
		return false, nil // nothing was committed since that has its tags
	}
	return b.committed(t, a)
}

// committed reports whether there is an event in earlier batches that a unit requires to be absent.
func (b *batch) committed(t *tenant, a *store.Absent) (found bool, err error) {
	tenant := t.next.Number
	if t.building == tenant { // which only the committer changes
		state, err := getBuild(b.store.db, tenant)
		if err != nil {
			return false, err
		}
		if state != nil && a.After.Compare(state.end) < 0 {
			return false, &store.IndexingError{Done: state.done, Total: state.total}
		}
	}

	// Walk over the events that have all tags.
	ids := make([]tagID, len(a.Tags))
	for i, tag := range a.Tags {
		ids[i] = idOfTag([]byte(tag))
	}
	if t.tagFilter.Load().lacksAny(tenant, ids) {
		return false, nil
	}
	w, err := b.store.newTagWalk(b.store.db, tenant, ids)
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
	l, err := newLookup(b.store.db, tenant, &record.TypeNames{})
	if err != nil {
		return false, err
	}
	defer l.close(&err)
	n, err := l.seek(at)
	if err != nil {
		return false, err
	}
	value, err := l.find(n)
	if err != nil {
		return false, l.fault(err, at)
	}
	typ, err := typeOf(l.run[n], value)
	if err != nil {
		return false, l.fault(err, at)
	}
	return a.Fits(string(aggregateOf(l.run[n])), string(typ)), nil
}
