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
	// restCalm is for how long nothing is written that concerns a slot when deferred upkeep goes on.
	restCalm = 250 * time.Millisecond
	// wantedFor is for how long a slot is wanted after somebody has asked for it, and restAfter for how long it does
	// not rest then.
	wantedFor, restAfter = time.Second, 5 * time.Second
)

// deferral is what is known of a slot whose upkeep may be deferred. While many events come, and nobody asks for the
// slot, they are left for later: many of them take much less work an event (bulk.go), and those who write have the
// processors meanwhile. A client that reads every few seconds finds nothing left. The longer the index was not read,
// the more may be: the next read waits for a fraction of that time.
type deferral struct {
	// asked is when somebody asked for the slot last.
	asked time.Time
	// deferred is set while the upkeep is deferred. end is where the last event is that concerns the slot, and since
	// when it has been that one.
	deferred bool
	end      j17.StreamID
	since    time.Time
	// resume, if not nil, ends a pause of a backlog that is worked off.
	resume func()
	// busy reports that a change of many rows is under way: until it is done nobody can read the slot.
	busy bool
	// singlyUpTo is up to where events are worked off as they come, because too many rows follow from some of them.
	singlyUpTo j17.StreamID
}

// deferrals says of slots whether their upkeep is deferred, and since when events wait for them.
type deferrals struct {
	clock  clock.Clock
	feed   *feed.Subscriptions
	limits *limits

	mu    sync.Mutex
	slots map[place]*deferral
	// waiting has since when events wait for slots that are behind.
	waiting map[place]time.Time
}

// of returns what is known of a slot. The caller holds mu.
func (d *deferrals) of(t j17.Tenant, slot string) *deferral {
	at := place{t, slot}
	r := d.slots[at]
	if r == nil {
		r = &deferral{}
		d.slots[at] = r
	}
	return r
}

// mayDefer says for how long the upkeep of a slot may be deferred, unless the feed grows or somebody asks for it: 0 for
// not at all. behind is how many events concern it that it has not passed, end where the last of them is.
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
		d.waiting[place{t, slot}] = now // the first of these events has come just now
	}
	return restCalm - calm
}

// left returns how many events may be left for later where nobody has asked for so long.
func (l limits) left(unasked time.Duration) uint64 {
	return min(
		uint64(max(unasked-restAfter, 0)/time.Millisecond)*l.restEach/uint64(time.Second/time.Millisecond), l.restMost,
	)
}

// isWanted reports whether somebody has asked for a slot lately: then its rows are not computed beside other work, but
// before it.
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

// end notes that the upkeep of a slot is no longer deferred: how long events wait for it is known from those that are
// handled. The caller holds mu.
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
	if is || d.slots[place{t, slot}] != nil { // nothing is noted of a slot that was removed meanwhile
		d.of(t, slot).busy = is
	}
}

// asked notes that a reader wants a slot to be up to date. Its upkeep goes on if it is deferred here.
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

// pause leaves the processors to others for a while, unless somebody asks for the slot.
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
	_ = d.clock.Wait(pausing, d.clock.Now().Add(most)) // the read that ends it goes on
}

// resume lets the upkeep of a slot go on that is deferred, wherever it is done.
func (d *deferrals) resume(ctx context.Context, t j17.Tenant, slot string) {
	_ = d.feed.Wake(ctx, t, kind, slot) // else it goes on by itself, a little later
}

// singlyUpTo is up to where the events of a slot are worked off as they come; setSinglyUpTo sets it.
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

// drop forgets a slot.
func (d *deferrals) drop(t j17.Tenant, slot string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waiting, place{t, slot})
	delete(d.slots, place{t, slot})
}

// forget forgets the slots of a tenant.
func (d *deferrals) forget(t j17.Tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.waiting, func(at place, _ time.Time) bool { return at.tenant == t })
	maps.DeleteFunc(d.slots, func(at place, _ *deferral) bool { return at.tenant == t })
}

// lag returns for how long the first event has waited that a slot is behind with.
func (d *deferrals) lag() (longest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	for _, since := range d.waiting {
		longest = max(longest, now.Sub(since))
	}
	return longest
}
