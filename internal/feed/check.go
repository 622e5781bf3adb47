package feed

import (
	"context"
	"errors"
	"log/slog"

	"j17"
	"j17/internal/store"
)

// check compares the last stretch, from the last mark to the checkpoint, with the feed. It is done whenever a tenant was
// taken, before anything is handed out. A reader whose hash is not that of the events has passed others than the feed holds: it
// goes back to the mark, for to repeat is better than to lose.
func (r *reader) check() {
	ctx := r.h.work
	c := r.saved
	from := max(c.Origin, c.Count-c.Count%markEvery)
	m, err := r.h.s.readMark(ctx, r.h.tenant, r.key, from)
	whole := err == nil
	if err == nil {
		whole, err = r.h.s.compare(ctx, r.h.tenant, m, &c.state)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		r.h.s.warn(ctx, "compare a checkpoint with the feed", r.h.tenant, err)
		r.lock(func() { r.pauseFor(r.h.s.o.Clock.Now(), readPause) })
		return
	}
	if !whole {
		r.h.s.count.gaps.Add(1)
		r.h.s.o.Logger.LogAttrs(ctx, slog.LevelError, "a subscription has passed other events than the feed holds; it goes back to the last mark",
			slog.String("tenant", string(r.h.tenant)), slog.String("subscription", r.key))
	}
	r.lock(func() {
		r.checked = true
		if !whole {
			r.now, r.marks = m, nil
		}
	})
}

// readMark returns a mark of a subscription.
func (s *Subscriptions) readMark(ctx context.Context, t j17.Tenant, key string, count uint64) (state, error) {
	it, err := s.o.Store.Get(ctx, t, marks, markKey(key, count))
	if err != nil {
		return state{}, err
	}
	c, err := parseCheckpoint(it.Key, it.Value)
	return c.state, err
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
