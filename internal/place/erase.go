package place

import (
	"context"
	"errors"

	"j17"
	"j17/internal/decider"
	"j17/internal/engine"
	"j17/internal/erasure"
	"j17/internal/store"
)

// Spaces lists where data of streams may stand: the records of places, and the entries, whose keys have coordinates.
func (s *Service) Spaces() []store.Declared {
	return []store.Declared{{Space: places, OfStreams: true}, {Space: cells, Whole: true}}
}

// Erase puts streams that were rewritten where the events say that they have now, which mostly is nowhere. What a build has read before
// does not come back.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e erasure.Erased) error {
	return s.met(ctx, t, s.erase(ctx, t, e))
}

func (s *Service) erase(ctx context.Context, t j17.Tenant, e erasure.Erased) error {
	// The slots as they are now: a build that another process has begun must not bring back what it has read before.
	s.known.Delete(t)
	k, err := s.present(ctx, t)
	if err != nil {
		return err
	}
	for _, list := range k.slots {
		for _, sl := range list {
			_ = s.check(ctx, t, sl) // those that are not ready are treated as such
		}
	}
	for _, key := range e.Keys {
		slotted := map[string]bool{}
		for _, sl := range k.slots[key.Type] {
			slotted[sl.key(key.ID)] = true
			if err := s.locate(ctx, t, k.decider, sl, key); err != nil {
				return err
			}
		}

		// What is in slots that nobody needs any more.
		held, err := store.HeldBy(ctx, s.Store, t, s.Spaces(), key)
		if err != nil {
			return err
		}
		for _, item := range held {
			if slotted[item.Key] {
				continue
			}
			if err := s.Store.Write(ctx, t, []store.Side{{Op: store.Delete, Space: places, Key: item.Key, Entries: cells}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Leave returns the writes by which streams are nowhere any more: who replaces their events commits them too, so that nobody is shown a place of what
// is erased. Erase is called all the same: a build may have read it before.
func (s *Service) Leave(ctx context.Context, t j17.Tenant, keys []j17.Key) (sides []store.Side, err error) {
	k, err := s.present(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		for _, sl := range k.slots[key.Type] {
			item, err := s.Store.Get(ctx, t, places, sl.key(key.ID))
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if l, err := readRecord(&item); err != nil || l != nil {
				sides = append(sides, sl.record(key.ID, &decider.Location{}))
			}
		}
	}
	return sides, nil
}

// maxOvertaken bounds how often a place is looked for anew because the aggregate has moved meanwhile.
const maxOvertaken = 100

var errOvertaken = errors.New("place: the aggregate moves over and over; it is tried again")

// locate writes where an aggregate is by the events that it has now.
func (s *Service) locate(ctx context.Context, t j17.Tenant, d *decider.Decider, sl *slot, key j17.Key) error {
	for range maxOvertaken {
		item, err := s.Store.Get(ctx, t, places, sl.key(key.ID))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if item.Rev == 0 && (!sl.Built || sl.ready.Load()) {
			return nil
		}
		l, err := s.last(ctx, t, d.Types[key.Type], sl, key.ID)
		if err != nil {
			return err
		}
		if l == nil {
			l = &decider.Location{}
		}
		side := sl.record(key.ID, l)
		if side.Cond = store.IfAbsent; item.Rev != 0 {
			side.Cond, side.Rev = store.IfRev, item.Rev
		}
		err = s.Store.Write(ctx, t, []store.Side{side})
		if _, conflict := errors.AsType[*store.SideConflict](err); !conflict {
			return engine.StorageError(err)
		}
	}
	return errOvertaken
}
