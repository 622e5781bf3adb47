package index

import (
	"context"
	"maps"
	"sync"
	"time"

	"j17/internal/base/clock"
	"j17/internal/follow/feed"

	"j17"
)

const (
	// restCalm is how long no event that concerns a slot must have been written for deferred upkeep to continue.
	restCalm = 250 * time.Millisecond
	// wantedFor is how long a slot counts as wanted after a reader has asked for it, restAfter how long its upkeep does
	// not rest after that.
	wantedFor, restAfter = time.Second, 5 * time.Second
)

// deferral is the state of a slot whose upkeep may be deferred. While many events come and no reader asks for the slot,
// they are left for later: processing many at once takes much less work per event (bulk.go), and writers have the
// processors meanwhile. A client that reads every few seconds finds no backlog. The longer the index was not read, the
// larger the backlog may be: the next read waits for a fraction of that time.
type deferral struct {
	// asked is when a reader last asked for the slot.
	asked time.Time
	// deferred is set while the upkeep is deferred. end is the position of the last event that concerns the slot, since
	// the time from which that has been the last one.
	deferred bool
	end      j17.StreamID
	since    time.Time
	// resume, if not nil, ends a pause in the processing of a backlog.
	resume func()
	// busy reports that a change of many rows is under way: the slot cannot be read until it is done.
	busy bool
	// singlyUpTo is the position up to which events are not processed in bulk, because too many rows depend on some of
	// them.
	singlyUpTo j17.StreamID
}

// deferrals has the deferrals of slots, and since when events wait for them.
type deferrals struct {
	clock  clock.Clock
	feed   *feed.Subscriptions
	limits *limits

	mu    sync.Mutex
	slots map[place]*deferral
	// waiting has the time since which events wait, for slots that are behind.
	waiting map[place]time.Time
}

// of returns the deferral of a slot, and adds it if there is none. The caller holds mu.
func (d *deferrals) of(t j17.Tenant, slot string) *deferral {
	at := place{t, slot}
	r := d.slots[at]
	if r == nil {
		r = &deferral{}
		d.slots[at] = r
	}
	return r
}

// mayDefer returns how long the upkeep of a slot may be deferred, unless the feed grows or a reader asks for it; 0
// means not at all. behind is the number of unhandled events that concern it, end the position of the last of them.
func (d *deferrals) mayDefer(t j17.Tenant, slot string, behind uint64, end j17.StreamID) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, r := d.clock.Now(), d.of(t, slot)
	if r.end != end {
		r.end, r.since = end, now
	}
	calm, unasked := now.Sub(r.since), now.Sub(r.asked)
	if r.busy || behind < d.limits.restFrom || behind >= d.limits.left(unasked) || calm < 0 || calm >= restCalm {
		d.end(t, slot, r)
		return 0
	}
	if r.deferred = true; d.waiting[place{t, slot}].IsZero() {
		d.waiting[place{t, slot}] = now // the first of these events has just come
	}
	return restCalm - calm
}

// left returns how many events may be left for later after a time without readers.
func (l limits) left(unasked time.Duration) uint64 {
	return min(
		uint64(max(unasked-restAfter, 0)/time.Millisecond)*l.restEach/uint64(time.Second/time.Millisecond), l.restMost,
	)
}

// isWanted reports whether a reader has asked for a slot lately: its rows are then computed before other work rather
// than beside it.
func (d *deferrals) isWanted(t j17.Tenant, slot string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.slots[place{t, slot}]
	if r == nil {
		return false
	}
	unasked := d.clock.Now().Sub(r.asked)
	return unasked >= 0 && unasked < wantedFor
}

// end ends the deferral of a slot's upkeep: from now on the handled events show how long they have waited. The caller
// holds mu.
func (d *deferrals) end(t j17.Tenant, slot string, r *deferral) {
	if r.deferred {
		r.deferred = false
		delete(d.waiting, place{t, slot})
	}
}

// setBusy notes whether a change of many rows of a slot is under way.
func (d *deferrals) setBusy(t j17.Tenant, slot string, is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if is || d.slots[place{t, slot}] != nil { // a slot that was removed meanwhile is not added again
		d.of(t, slot).busy = is
	}
}

// asked notes that a reader wants a slot to be up to date, and resumes the upkeep if it is deferred here.
func (d *deferrals) asked(ctx context.Context, t j17.Tenant, slot string) {
	d.mu.Lock()
	r := d.of(t, slot)
	r.asked = d.clock.Now()
	was := r.deferred
	d.end(t, slot, r)
	if r.resume != nil {
		r.resume()
	}
	d.mu.Unlock()
	if was {
		d.resume(ctx, t, slot)
	}
}

// pause leaves the processors to others for a while, unless a reader asks for the slot.
func (d *deferrals) pause(ctx context.Context, t j17.Tenant, slot string, most time.Duration) {
	pausing, end := context.WithCancel(ctx)
	defer end()
	resume := func(end func()) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if r := d.slots[place{t, slot}]; r != nil {
			r.resume = end
		}
	}
	resume(end)
	defer resume(nil)
	_ = d.clock.Wait(pausing, d.clock.Now().Add(most)) // a read ends the pause early
}

// resume wakes the deferred upkeep of a slot, in whichever process it runs.
func (d *deferrals) resume(ctx context.Context, t j17.Tenant, slot string) {
	_ = d.feed.Wake(ctx, t, kind, slot) // if this fails, the upkeep continues by itself a little later
}

// singlyUpTo returns the position up to which events are not processed in bulk; setSinglyUpTo sets it.
func (d *deferrals) singlyUpTo(t j17.Tenant, slot string) j17.StreamID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(t, slot).singlyUpTo
}

func (d *deferrals) setSinglyUpTo(t j17.Tenant, slot string, upTo j17.StreamID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of(t, slot).singlyUpTo = upTo
}

// setBehind notes since when events wait for a slot, the zero time for none.
func (d *deferrals) setBehind(t j17.Tenant, slot string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if since.IsZero() {
		delete(d.waiting, place{t, slot})
	} else {
		d.waiting[place{t, slot}] = since
	}
}

// drop removes the state of a slot.
func (d *deferrals) drop(t j17.Tenant, slot string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, place{t, slot})
	delete(d.slots, place{t, slot})
}

// forget removes the state of all slots of a tenant.
func (d *deferrals) forget(t j17.Tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.waiting, func(at place, _ time.Time) bool { return at.tenant == t })
	maps.DeleteFunc(d.slots, func(at place, _ *deferral) bool { return at.tenant == t })
}

// lag returns how long the oldest waiting event of any slot has waited.
func (d *deferrals) lag() (longest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	for _, since := range d.waiting {
		longest = max(longest, now.Sub(since))
	}
	return longest
}
