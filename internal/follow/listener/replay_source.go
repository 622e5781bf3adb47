package listener

import (
	"context"
	"errors"
	"strings"

	"j17"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// replaySource finds what a replay delivers again.
type replaySource struct {
	o *Options
	// countWork bounds the work of a request that counts what a replay delivers.
	countWork int64
}

func (s *replaySource) countReplay(ctx context.Context, l *listener, r Replay) (n int, err error) {
	b := work.New(ctx, s.countWork)
	at, err := s.replayed(ctx, l, replay(r), maxReplayed, b, func(*j17.Event, *delivery) (bool, error) {
		n++
		return true, nil
	})
	if j17.CodeOf(err) == j17.CodeWorkLimit || err == nil && at.Compare(r.Until) < 0 {
		return 0, j17.Errorf(j17.CodeWorkLimit, "The replay would go through more than %d events, or through some that take too much work to look at. Give 'until', and replay them in parts.", maxReplayed)
	}
	return n, failure(err)
}

// replayed passes what a replay delivers next to do, until that reports false or limit events were looked at: the event
// or, if only failed deliveries are repeated, the delivery. It returns the position up to which it has searched, also
// after an error, including that of the budget.
func (s *replaySource) replayed(
	ctx context.Context, l *listener, r replay, limit int, b *work.Budget,
	do func(*j17.Event, *delivery) (more bool, err error),
) (at j17.StreamID, err error) {
	if r.OnlyFailed {
		return s.replayedFailures(ctx, l, r, limit, b, do)
	}
	matches := matcher(l.definition, b)
	at = r.After
	looked := 0
	for ev, err := range s.o.Store.ReadFeed(ctx, l.tenant, r.After, limit) {
		if err != nil {
			return at, err
		}
		if ev.StreamID.Compare(r.Until) > 0 {
			return r.Until, nil
		}
		if ev, err = s.o.shown(ctx, l.tenant, ev); err != nil {
			return at, err
		}
		is, err := matches(ev)
		more := true
		if err == nil && is {
			more, err = do(ev, nil)
		}
		if err != nil {
			return at, err
		}
		if at = ev.StreamID; !more {
			return at, nil
		}
		looked++
	}
	if looked < limit {
		at = r.Until
	}
	return at, nil
}

// replayedFailures is replayed for failed deliveries.
func (s *replaySource) replayedFailures(
	ctx context.Context, l *listener, r replay, limit int, b *work.Budget,
	do func(*j17.Event, *delivery) (more bool, err error),
) (at j17.StreamID, err error) {
	prefix := l.name + "/"
	keys := store.Range{From: prefix + place(r.After), To: prefix + place(r.Until.Next())}.After(
		prefix + place(r.After),
	)
	at = r.After
	for looked := 0; looked < limit; {
		page := min(limit-looked, pageOf)
		items, err := s.o.Store.Scan(ctx, l.tenant, failedSpace, keys, page)
		if err != nil {
			return at, err
		}
		for i := range items {
			if !b.Spend(unitsPerEvent) {
				return at, b.Err()
			}
			position, err := positionOf(strings.TrimPrefix(items[i].Key, prefix))
			if err != nil {
				return at, err
			}
			d, _, err := read[*delivery](ctx, s.o.Store, l.tenant, deliverySpace, string(items[i].Value))
			more := true
			switch {
			case err == nil:
				more, err = do(nil, d)
			case errors.Is(err, store.ErrNotFound):
				err = nil // It was kept for as long as it is.
			}
			if err != nil {
				return at, err
			}
			if at = position; !more {
				return at, nil
			}
			keys = keys.After(items[i].Key)
		}
		if looked += len(items); len(items) < page {
			return r.Until, nil
		}
	}
	return at, nil
}

// bounded sets the end of a replay.
func (s *replaySource) bounded(ctx context.Context, t j17.Tenant, r Replay) (Replay, error) {
	extent, err := s.o.Store.Extent(ctx, t)
	if err != nil {
		return r, failure(err)
	}
	if r.Until.IsZero() {
		r.Until = extent.Last
		return r, nil
	}
	if r.Until.Compare(r.After) < 0 {
		return r, j17.Errorf(j17.CodeInvalidField, "'until' is a position before 'after': a replay goes from 'after', which it leaves out, to 'until'.").At("until")
	}
	if r.Until.Compare(extent.Last) > 0 {
		r.Until = extent.Last // later events are delivered anyway
	}
	return r, nil
}
