package feed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// holding is a tenant whose lease the set has. One goroutine serves it: run. mu may be locked while the set's mu is
// held, not the other way round.
type holding struct {
	s      *Subscriptions
	tenant j17.Tenant
	// work is the context of all work for the tenant; cut ends it when the lease is lost.
	work   context.Context //nolint:containedctx // it lives as long as the holding, which no single call does
	cut    context.CancelFunc
	wakeUp chan struct{}

	// sig has the signals of others to run. Its lock may be taken while the set's mu is held.
	sig struct {
		sync.Mutex
		// changes counts the signals that there may be new events; a reader that has found nothing since the last one
		// waits for the next.
		changes uint64
		// stale is set when the subscriptions have to be read again, ending when the tenant is to be given back,
		// settling when it is to be given back once there is nothing to do.
		stale, ending, settling bool
		// woken has the keys of the subscriptions whose pauses were ended.
		woken map[string]bool
		// closed is set when the tenant is given back; left is the number of changes at that time.
		closed bool
		left   uint64
	}

	// page is the page that run read last, ahead the pages being read ahead, nil for none.
	page  *page
	ahead *ahead

	mu      sync.Mutex
	lease   lease
	readers map[string]*reader
	running int
	began   time.Time
	busy    time.Time
	// measured is when behind, the number of events that the subscriptions have not passed, was measured.
	measured time.Time
	behind   atomic.Uint64
}

func (s *Subscriptions) newHolding(work context.Context, t j17.Tenant, l lease) *holding {
	now := s.o.Clock.Now()
	h := &holding{
		s: s, tenant: t, lease: l, readers: map[string]*reader{}, wakeUp: make(chan struct{}, 1), began: now, busy: now,
	}
	h.sig.stale, h.sig.woken = true, map[string]bool{}
	h.work, h.cut = context.WithCancel(work)
	return h
}

// poke makes run check what there is to do.
func (h *holding) poke() {
	select {
	case h.wakeUp <- struct{}{}:
	default: // already poked
	}
}

// tell changes a signal and pokes run.
func (h *holding) tell(change func()) {
	h.sig.Lock()
	change()
	h.sig.Unlock()
	h.poke()
}

// changed signals that the feed has changed.
func (h *holding) changed() { h.tell(func() { h.sig.changes++ }) }

// look makes run read the subscriptions again.
func (h *holding) look() { h.tell(func() { h.sig.stale = true }) }

// end gives the tenant back as soon as no call is under way.
func (h *holding) end() { h.tell(func() { h.sig.ending = true }) }

// settle gives the tenant back as soon as there is nothing to do.
func (h *holding) settle() { h.tell(func() { h.sig.settling = true }) }

// wake ends the pause of a subscription. It reports false if the tenant is about to be given back.
func (h *holding) wake(key string) (held bool) {
	h.tell(func() {
		if held = !h.sig.closed; held {
			h.sig.woken[key] = true
			h.sig.changes++
		}
	})
	return held
}

// close decides that the tenant is given back, unless there was a signal since run last checked.
func (h *holding) close(changes uint64) bool {
	h.sig.Lock()
	defer h.sig.Unlock()
	h.sig.closed, h.sig.left = h.sig.changes == changes && !h.sig.stale, changes
	return h.sig.closed
}

// reopen undoes close. run continues with the next upkeep.
func (h *holding) reopen() {
	h.sig.Lock()
	defer h.sig.Unlock()
	h.sig.closed = false
}

// beyond replaces the stored state of a subscription by the state in memory. If somebody else has written the
// subscription since, such as a set that has taken the tenant over, the stored state is left: the other set continues
// from there.
func (h *holding) beyond(it *item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.readers[it.key]; r != nil && r.saved.ID == it.ID && r.rev == it.rev && r.now.Count > it.Count {
		it.state = r.now
	}
}

// missed reports whether there was a signal since the readers last looked.
func (h *holding) missed() bool {
	h.sig.Lock()
	defer h.sig.Unlock()
	return h.sig.stale || h.sig.closed && h.sig.changes != h.sig.left
}

// run serves the tenant until the set gives it back or loses it.
func (h *holding) run() {
	defer h.s.drop(h)
	defer h.endAhead()
	for h.work.Err() == nil {
		kept, err := h.keep()
		if err != nil {
			h.s.warn(h.work, "keep the lease", h.tenant, err)
		}
		if !kept {
			break
		}
		if err == nil {
			var left bool
			err = panics.Caught(func() (err error) {
				left, err = h.step()
				return err
			})
			if err != nil {
				h.s.warn(h.work, "read and store", h.tenant, err)
			}
			if left {
				return
			}
		}
		select {
		case <-h.wakeUp:
		case <-h.work.Done():
		}
	}

	// The lease is lost: work under way is cut off, and has no effect.
	h.cut()
	for h.underWay() {
		<-h.wakeUp
	}
}

func (h *holding) underWay() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running > 0
}

// keep renews the lease when half of it has passed, and reads the subscriptions again when that was requested. It
// reports whether the set still has the tenant.
func (h *holding) keep() (kept bool, err error) {
	now := h.s.o.Clock.Now()
	h.mu.Lock()
	l := h.lease
	h.mu.Unlock()
	h.sig.Lock()
	stale := h.sig.stale
	h.sig.stale = false
	h.sig.Unlock()
	if !stale && l.Until.Sub(now) >= h.s.o.Lease/2 {
		return true, nil
	}
	defer func() {
		if err != nil && stale {
			h.sig.Lock()
			h.sig.stale = true // still to be done, at the next upkeep
			h.sig.Unlock()
		}
		kept = kept || err != nil && now.Before(l.Until)
	}()
	err = panics.Caught(func() (err error) {
		kept, err = h.renew(now, l, &stale)
		return err
	})
	return kept, err
}

// renew renews the lease, and reads the subscriptions if stale is set, or if the due time of the lease's item was
// changed to request it.
func (h *holding) renew(now time.Time, l lease, stale *bool) (kept bool, err error) {
	// Another set may have the tenant by now, or may have asked for a look at it.
	found, err := h.s.readLease(h.work, h.tenant)
	if err != nil {
		return false, err
	}
	if found.Holder != h.s.id || found.Term != l.Term {
		h.s.count.lost.Add(1)
		return false, nil
	}
	*stale = *stale || !found.due.Equal(l.Until)
	found.Until = now.Add(h.s.o.Lease)
	if err := h.s.o.Store.Write(h.work, h.tenant, []store.Side{found.put(found.Until)}); err != nil {
		if _, conflict := errors.AsType[*store.SideConflict](err); conflict {
			h.look() // reads the changes at once
			return now.Before(l.Until), nil
		}
		return false, err
	}
	h.mu.Lock()
	h.lease.Until = found.Until
	h.mu.Unlock()
	if *stale {
		return true, h.read()
	}
	return true, nil
}

// read reads the subscriptions.
func (h *holding) read() error {
	items, err := h.s.scan(h.work, h.tenant, "")
	if err != nil {
		return err
	}

	// Present subscriptions.
	h.mu.Lock()
	defer h.mu.Unlock()
	found := map[string]bool{}
	for i := range items {
		it := &items[i]
		found[it.key] = true
		r := h.readers[it.key]
		if r == nil {
			kind, name, _ := strings.Cut(it.key, "/")
			if h.s.kinds[kind] == nil {
				continue
			}
			r = &reader{h: h, kind: h.s.kinds[kind], key: it.key, name: name}
			h.readers[it.key] = r
		}
		if r.running {
			r.missed = true
			continue
		}
		if it.rev != r.rev {
			r.until = time.Time{} // the subscription has been changed, so it is looked at now
			if r.rev != 0 {
				r.rouse()
			}
		}
		r.adopt(it)
	}

	// Removed subscriptions.
	for key, r := range h.readers {
		switch {
		case found[key]:
		case r.running:
			r.missed = true
		default:
			delete(h.readers, key)
		}
	}
	return nil
}

// step begins the work that can be done, stores progress, or gives the tenant back.
func (h *holding) step() (left bool, err error) {
	now := h.s.o.Clock.Now()
	crowded := h.s.crowded()
	h.sig.Lock()
	changes, ending, settling, woken := h.sig.changes, h.sig.ending, h.sig.settling, h.sig.woken
	h.sig.woken = map[string]bool{}
	h.sig.Unlock()
	ending = ending || crowded && now.Sub(h.began) >= turnTime
	h.rouse(woken)
	if !ending {
		err = errors.Join(h.start(now, changes, settling), h.measure(now))
	}
	if h.ahead != nil && now.Sub(h.ahead.used) >= aheadTime {
		h.endAhead()
	}

	// Checkpoints that are due are stored. No work begins meanwhile: only run begins work.
	c := h.closing(now, changes, ending, settling, crowded)
	if leave := c.leave && h.close(changes); !leave {
		return false, errors.Join(err, h.flush(c.sides, c.moved))
	}
	if failed := h.giveBack(c.sides, c.due); failed != nil {
		h.reopen()
		if _, conflict := errors.AsType[*store.SideConflict](failed); conflict {
			h.look() // keep finds out the cause
			failed = nil
		}
		return false, errors.Join(err, failed)
	}
	return true, err
}

// closing is what is to be stored once all possible work has begun.
type closing struct {
	// sides move the checkpoints of the readers in moved.
	sides []store.Side
	moved []*reader
	// leave reports that the tenant is to be given back; due is when it has to be looked at again.
	leave bool
	due   time.Time
}

// closing determines what is to be stored, and whether the tenant is to be given back.
func (h *holding) closing(now time.Time, changes uint64, ending, settling, crowded bool) (c closing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	idle := h.running == 0 && len(h.ready(now, changes)) == 0 && !h.resting()
	checking := idle && h.checkStretch(now)
	c.leave = h.running == 0 && (ending || idle && (settling || crowded || !checking && now.Sub(h.busy) >= idleTime))
	for _, r := range h.readers {
		if r.running {
			continue
		}
		if r.now != r.saved.state && (c.leave || now.Sub(r.since) >= upkeepEvery) ||
			c.leave && r.shown > r.saved.Checked {
			c.sides = append(c.sides, r.move(&r.now)...)
			c.moved = append(c.moved, r)
		}
	}

	// The lease is given back with the time of the next look.
	c.due = h.firstUntil()
	if !idle {
		c.due = now
	} else if again := now.Add(checkAgain); crowded && h.unshown() != nil && (c.due.IsZero() || again.Before(c.due)) {
		c.due = again
	}
	return c
}

// rouse ends the pauses of the subscriptions with some keys.
func (h *holding) rouse(keys map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range keys {
		if r := h.readers[key]; r != nil {
			r.until, r.woken = time.Time{}, r.running
			r.rouse()
		}
	}
}

// giveBack ends the lease. due is when the tenant has to be looked at again.
func (h *holding) giveBack(sides []store.Side, due time.Time) error {
	l, err := h.s.readLease(h.work, h.tenant)
	if err != nil {
		return err
	}
	if l.Holder != h.s.id || l.Term != h.lease.Term || !l.due.Equal(h.lease.Until) {
		return &store.SideConflict{Space: leases, Key: leaseKey, Rev: l.rev}
	}
	l.Holder, l.Until = "", time.Time{}
	return h.s.o.Store.Write(h.work, h.tenant, append(sides, l.put(due)))
}

// flush stores the checkpoints of readers that only the caller changes. It waits for a commit, so the caller must not
// hold mu.
func (h *holding) flush(sides []store.Side, moved []*reader) error {
	if len(sides) == 0 {
		return nil
	}
	err := h.s.o.Store.Write(h.work, h.tenant, sides)
	if _, conflict := errors.AsType[*store.SideConflict](err); conflict {
		err = nil
	}
	if err != nil {
		return err
	}
	for _, r := range moved {
		it, err := h.s.get(h.work, h.tenant, r.key)
		if errors.Is(err, store.ErrNotFound) {
			h.look()
			continue
		}
		if err != nil {
			return err
		}
		r.lock(func() { r.adopt(&it) })
	}
	return nil
}

// ready returns the readers that may find something to hand out. The caller holds mu.
func (h *holding) ready(now time.Time, changes uint64) (ready []*reader) {
	for _, r := range h.readers {
		if !r.running && !r.saved.Paused && !now.Before(r.until) && !h.s.stuck(h.tenant, r.key) &&
			(r.idle != changes+1 || !r.checked) {
			ready = append(ready, r)
		}
	}
	return ready
}

// resting reports whether any reader leaves events for later. The caller holds mu.
func (h *holding) resting() bool {
	for _, r := range h.readers {
		if r.resting && !r.saved.Paused {
			return true
		}
	}
	return false
}

// firstUntil returns when the first pause ends, the zero time if there is none. The caller holds mu.
func (h *holding) firstUntil() (first time.Time) {
	for _, r := range h.readers {
		if !r.saved.Paused && !h.s.stuck(h.tenant, r.key) && !r.until.IsZero() &&
			(first.IsZero() || r.until.Before(first)) {
			first = r.until
		}
	}
	return first
}

// start begins to hand out events; all readers at one position share a page. If the tenant is to be given back, no
// reader rests.
func (h *holding) start(now time.Time, seen uint64, settling bool) error {
	places, room := h.places(now, seen, settling)
	for at, readers := range places {
		if room <= 0 || !h.s.acquire(h) {
			return nil
		}
		far := !at.IsZero() && slices.ContainsFunc(readers, func(r *reader) bool { return r.quick == at })
		var p *page
		err := panics.Caught(func() (err error) {
			p, err = h.pageAt(at, seen, far)
			return err
		})
		if err != nil || len(p.entries) == 0 {
			h.s.release()
			h.leave(readers, seen, err != nil)
			if err != nil {
				return err
			}
			continue
		}
		room = h.share(p, readers, room)
	}
	return nil
}

// places groups the ready readers by position, and returns for how many there are slots. Unchecked readers are checked
// first.
func (h *holding) places(now time.Time, seen uint64, settling bool) (places map[j17.StreamID][]*reader, room int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	places = map[j17.StreamID][]*reader{}
	room = h.s.o.Each - h.running
	for _, r := range h.ready(now, seen) {
		if !r.checked {
			if room > 0 && h.s.acquire(h) {
				room--
				h.begin(r, r.check)
			}
			continue
		}
		r.resting = false
		if !r.skip(now, seen) && (settling || !r.rests(now, seen)) {
			places[r.now.After] = append(places[r.now.After], r)
		}
	}
	return places, room
}

// leave makes readers wait for a change, because nothing follows their position; if the feed could not be read, they
// wait for readPause.
func (h *holding) leave(readers []*reader, seen uint64, failed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range readers {
		if r.idle = seen + 1; failed {
			r.pauseFor(h.s.o.Clock.Now(), readPause)
		}
	}
}

// share begins the work of readers on a page, the first of them with the slot already acquired, and returns how many
// slots are left.
func (h *holding) share(p *page, readers []*reader, room int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range readers {
		if i > 0 && (room <= 0 || !h.s.acquire(h)) {
			break
		}
		room--
		p.users.Add(1)
		h.begin(r, func() {
			defer p.users.Add(-1)
			r.take(p)
		})
	}
	return room
}

// begin starts work of a reader in an acquired slot. The caller holds mu.
func (h *holding) begin(r *reader, do func()) {
	r.running = true
	h.running++
	go func() {
		err := panics.Caught(func() error {
			do()
			return nil
		})
		if err != nil {
			r.end(err)
		}
		h.mu.Lock()
		r.running = false
		h.running--
		missed := r.missed
		r.missed = false
		h.busy = h.s.o.Clock.Now()
		h.mu.Unlock()
		h.s.release()
		if missed {
			h.look()
		}
		h.poke()
	}()
}

// measure determines from time to time how far the subscriptions are behind.
func (h *holding) measure(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.measured) < upkeepEvery {
		return nil
	}
	h.measured = now
	extent, err := h.s.o.Store.Extent(h.work, h.tenant)
	if err != nil {
		return err
	}
	behind := uint64(0)
	for _, r := range h.readers {
		if extent.Events > r.now.Count {
			behind += extent.Events - r.now.Count
		}
	}
	h.behind.Store(behind)
	return nil
}

// readPause is the pause after the feed of a tenant could not be read.
const readPause = time.Second
