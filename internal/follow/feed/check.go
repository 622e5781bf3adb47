package feed

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// check compares the last stretch, from the last mark to the checkpoint, with the feed. It runs whenever a tenant has
// been taken, before anything is handed out. If the reader's hash is not that of the events, it has passed other events
// than the feed holds: it goes back to the mark, because repeating events is better than losing them.
func (r *reader) check() {
	ctx := r.h.work
	c := r.saved
	m, err := r.h.s.lastMark(ctx, r.h.tenant, r.key, c.Count)
	whole := err == nil && m.Count == max(c.Origin, c.Count-c.Count%markEvery)
	if whole {
		whole, err = r.h.s.compare(ctx, r.h.tenant, m, &c.state)
	}
	if err != nil {
		r.h.s.warn(ctx, "compare a checkpoint with the feed", r.h.tenant, err)
		r.lock(func() { r.pauseFor(r.h.s.o.Clock.Now(), readPause) })
		return
	}
	if !whole {
		r.goBack(ctx, m)
	}
	r.lock(func() { r.checked = true })
}

// goBack makes everything after a state come again; it does nothing for a subscription that was removed meanwhile, with
// its marks.
func (r *reader) goBack(ctx context.Context, to state) {
	it, err := r.h.s.get(ctx, r.h.tenant, r.key)
	if errors.Is(err, store.ErrNotFound) || err == nil && it.ID != r.saved.ID {
		return
	}
	r.h.s.count.gaps.Add(1)
	r.h.s.o.Logger.LogAttrs(ctx, slog.LevelError, "a subscription has passed other events than the feed holds; those after the last place that is right come again",
		slog.String("tenant", string(r.h.tenant)), slog.String("subscription", r.key),
		slog.String("after", to.After.String()))
	r.lock(func() { r.now, r.marks, r.shown, r.idle = to, nil, min(r.shown, to.Count), 0 })
}

const (
	// checkEvery is the pause between the stretches that an otherwise idle set checks. Each has markEvery events.
	checkEvery = time.Second
	// checkAgain is when a tenant that was given back before all of it was checked is looked at again.
	checkAgain = time.Minute
)

// unshown returns a reader with unchecked stretches. The caller holds the holding's mu.
func (h *holding) unshown() *reader {
	for _, r := range h.readers {
		if !r.running && r.checked && !r.saved.Paused && r.stretch() <= r.saved.Count {
			return r
		}
	}
	return nil
}

// stretch returns the mark at which the next unchecked stretch ends.
func (r *reader) stretch() uint64 { return nextMark(r.shown) }

// nextMark returns the first multiple of markEvery after a number of events.
func nextMark(count uint64) uint64 { return count - count%markEvery + markEvery }

// checkStretch begins to check a stretch, if the pause between checks is over and a slot is free. It reports whether
// there is a stretch to check. The caller holds mu.
func (h *holding) checkStretch(now time.Time) bool {
	r := h.unshown()
	if r == nil {
		return false
	}
	if h.s.mayCheck(now) && h.s.acquire(h) {
		h.begin(r, r.checkNext)
	}
	return true
}

// mayCheck enforces the pause between stretches.
func (s *Subscriptions) mayCheck(now time.Time) bool {
	s.slots.Lock()
	defer s.slots.Unlock()
	if now.Before(s.nextCheck) {
		return false
	}
	s.nextCheck = now.Add(checkEvery)
	return true
}

// checkNext compares the next unchecked stretch.
func (r *reader) checkNext() {
	ctx := r.h.work
	end := r.stretch()
	from, err := r.h.s.lastMark(ctx, r.h.tenant, r.key, r.shown)
	var to state
	if err == nil {
		to, err = r.h.s.lastMark(ctx, r.h.tenant, r.key, end)
	}
	whole := err == nil && from.Count == r.shown && to.Count == end
	if whole {
		whole, err = r.h.s.compare(ctx, r.h.tenant, from, &to)
	}
	switch {
	case err != nil:
		r.h.s.warn(ctx, "compare a stretch with the feed", r.h.tenant, err)
	case whole:
		r.lock(func() { r.shown = end })
	default:
		r.goBack(ctx, from)
	}
}

// lastMark returns the last mark of a subscription with at most count events; without one, the beginning of the feed.
func (s *Subscriptions) lastMark(ctx context.Context, t j17.Tenant, key string, count uint64) (state, error) {
	// The wanted mark or, if it does not exist, the nearest one before it.
	from := count - count%markEvery
	for {
		items, err := s.o.Store.Scan(
			ctx, t, marks, store.Range{From: markKey(key, from), To: markKey(key, count+1)}, markEvery,
		)
		if err != nil {
			return state{}, err
		}
		if len(items) > 0 {
			it := &items[len(items)-1]
			c, err := parseCheckpoint(it.Key, it.Value)
			return c.state, err
		}
		if from == 0 {
			return state{}, nil
		}
		count, from = from-1, from-markEvery
	}
}

// compare reports whether the events after one state lead to the other.
func (s *Subscriptions) compare(ctx context.Context, t j17.Tenant, from state, to *state) (whole bool, err error) {
	s.count.checked.Add(1)
	if from == *to {
		return true, nil
	}
	for e, err := range s.o.Store.ReadFeed(ctx, t, from.After, int(to.Count-from.Count)) {
		if err != nil {
			return false, err
		}
		if e.StreamID.Compare(to.After) > 0 {
			break
		}
		from.pass(e.StreamID, e.Leaf())
	}
	return from.Count == to.Count && from.Hash == to.Hash, nil
}
