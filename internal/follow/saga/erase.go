package saga

import (
	"context"
	"errors"

	"j17"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// wasErased is the error of a saga whose trigger was erased.
const wasErased = "The event that has started the saga was erased."

// Erase ends the sagas started by events of rewritten streams: they fail, without compensation, and cannot be retried.
// Their stored errors are removed.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	gone := e.Gone()
	for it, err := range store.Items(ctx, s.store, t, rowSpace, store.Range{}, entriesPage) {
		if err != nil {
			return err
		}
		g, err := decode(it.Value)
		if err != nil {
			return err
		}
		at, err := j17.ParseStreamID(g.Trigger.StreamID)
		if err != nil {
			return &store.CorruptionError{Where: string(rowSpace), Err: err}
		}
		if end, is := gone[g.Trigger.Key]; is && at.Compare(end.Own) <= 0 {
			if err := s.eraseOne(ctx, t, g.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// eraseOne ends a saga, and tries again on conflicts.
func (s *Service) eraseOne(ctx context.Context, t j17.Tenant, id string) error {
	for range maxOvertaken {
		it, err := s.store.Get(ctx, t, rowSpace, id)
		if isAbsent(err) {
			return nil
		}
		if err != nil {
			return err
		}
		g, err := decode(it.Value)
		if err != nil || g.Erased {
			return err
		}
		c, err := conflict(s.endErased(ctx, t, g, it))
		if err != nil || c == nil {
			return err
		}
	}
	return errOvertaken
}

const maxOvertaken = 100

var errOvertaken = errors.New("the saga is changed by others over and over; it is tried again")

// endErased writes that a saga has failed, replacing an item. An attempt under way finds its work item gone.
func (s *Service) endErased(ctx context.Context, t j17.Tenant, g *Saga, it store.Item) error {
	// The saga, without its stored errors.
	was, waits := g.Status, g.Waits
	m := machine{Saga: g, now: s.clock.Now().Unix()}
	m.erased()
	e := &effects{Service: s, Decided: &part.Decided{Tenant: t, Timestamp: m.now}}
	sides, err := save(g, nil, m.now)
	if err != nil {
		return err
	}
	sides[0].Cond, sides[0].Rev = store.IfRev, it.Rev
	if was == Completed {
		sides[0].Expires = it.Expires
	}
	e.put(sides...)

	// Its due work, its waits, and its place among the running or queued ones.
	switch was { //nolint:exhaustive // the others have none
	case Queued:
		at, err := j17.ParseStreamID(g.Trigger.StreamID)
		if err != nil {
			return err
		}
		e.put(
			store.Side{Op: store.Delete, Space: arrivalSpace, Key: g.ID},
			store.Side{Op: store.Delete, Space: queueSpace, Key: queueKey(at, g.ID)})
	case Running:
		work, err := s.get(ctx, t, workSpace, g.ID)
		if err != nil {
			return err
		}
		e.fence(workSpace, g.ID, work.Rev)
		e.put(store.Side{Op: store.Delete, Space: workSpace, Key: g.ID})
		_, woken, err := worker.ReadAttempts(work.Value)
		if err != nil {
			return err
		}
		if waits != "" && string(woken) == timesOut { // otherwise an answer has come, and has ended the wait
			e.put(forget(waits, g.ID)...)
		}
		if err := e.leave(ctx); err != nil {
			return err
		}
	}
	if err := s.store.Write(ctx, t, e.Side, e.Fences...); err != nil {
		return err
	}
	if was == Running || was == Queued {
		s.counts.failed.Add(1)
		s.tell(ctx, t)
	}
	return nil
}
