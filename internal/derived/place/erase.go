package place

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Erase puts streams that were rewritten where the events say that they have now, which mostly is nowhere. What a build
// has read before does not come back.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	return s.met(ctx, t, s.erase(ctx, t, e))
}

func (s *Service) erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	s.forgetParts(t, e.Keys)
	k, fences, err := s.fenced(ctx, t)
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
			if err := s.locate(ctx, t, k.decider, sl, key, fences); err != nil {
				return err
			}
		}

		// What is in slots that nobody needs any longer, as far as this process has heard of what is deployed.
		held, err := store.HeldBy(ctx, s.Store, t, []store.Declared{{Space: places, OfStreams: true}}, key)
		if err != nil {
			return err
		}
		for _, item := range held {
			if slotted[item.Key] {
				continue
			}
			if err := s.Store.Write(
				ctx, t, []store.Side{{Op: store.Delete, Space: places, Key: item.Key, Entries: cells}}, fences...,
			); err != nil {
				return store.UserError(err)
			}
		}
	}
	return nil
}

// Leave returns the writes by which streams are where the events say that an erasure leaves, which mostly is nowhere:
// who replaces their events commits them too, so that nobody is shown a place of what is erased. The writes are of the
// slots that there are as long as the fences hold. Erase is called all the same: a build may have read it before.
func (s *Service) Leave(
	ctx context.Context, t j17.Tenant, of []part.Replaced,
) (sides []store.Side, fences []store.Fence, err error) {
	k, fences, err := s.fenced(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	for i := range of {
		for _, sl := range k.slots[of[i].Key.Type] {
			side, err := s.parting(ctx, t, k, sl, &of[i])
			if err != nil {
				return nil, nil, err
			}
			if side != nil {
				sides = append(sides, *side)
			}
		}
		if of[i].Last {
			s.staying.Delete(t)
		}
	}
	return sides, append(fences, store.Fence{Space: resets, Key: resetKey, Rev: k.rev}), nil
}

// fenced returns the slots as they are now of what is deployed to a tenant, and what holds as long as it is: another
// process may have begun them again, or builds of them, that must not bring back what they have read before.
func (s *Service) fenced(ctx context.Context, t j17.Tenant) (*known, []store.Fence, error) {
	s.known.Delete(t)
	d, fences, err := s.Engine.Deployed(t)
	if err != nil {
		return nil, nil, err
	}
	k, err := s.of(ctx, t, d, fences)
	return k, slices.Clone(fences), store.UserError(err)
}

// parting returns the write that puts a stream where it is when the first events are replaced, nil where it stays.
// Where a build has not come to it there is a record as well, so that it does not bring back what it has read before.
func (s *Service) parting(
	ctx context.Context, t j17.Tenant, k *known, sl *slot, of *part.Replaced,
) (*store.Side, error) {
	// Where it is now. An aggregate without a place has none among the events that are left either.
	item, err := s.Store.Get(ctx, t, places, sl.key(of.Key.ID))
	absent := errors.Is(err, store.ErrNotFound)
	if err != nil && !absent {
		return nil, err
	}
	if absent {
		if s.check(ctx, t, sl) == nil {
			return nil, nil
		}
	} else if l, err := readRecord(&item); err == nil && l == nil {
		return nil, nil
	}

	// Where it is then. What moves it meanwhile counts.
	l := &decider.Location{}
	if !of.Last {
		stays, err := s.left(ctx, t, k, sl, of)
		if err != nil || stays != nil && !absent {
			return nil, err
		}
		l = cmp.Or(stays, l)
	}
	side := sl.record(of.Key.ID, l)
	if side.Cond, side.Rev = store.IfRev, item.Rev; absent {
		side.Cond = store.IfAbsent
	}
	return &side, nil
}

// staying has, for an aggregate whose events are replaced in parts, which of them has the last place, by the keys of
// its records: so that the rest of a long stream is not read again with each part.
type staying struct {
	key j17.Key
	at  map[string]uint64
}

// forgetParts releases what is known of one of some aggregates: all of its events are replaced. Where something is
// written to it over and over no part was announced as the last one.
func (s *Service) forgetParts(t j17.Tenant, keys []j17.Key) {
	found, ok := s.staying.Load(t)
	if !ok {
		return
	}
	if of, _ := found.(*staying); slices.Contains(keys, of.key) {
		s.staying.CompareAndDelete(t, found)
	}
}

// left returns the last place that the events have which are left, nil where none has one.
func (s *Service) left(
	ctx context.Context, t j17.Tenant, k *known, sl *slot, of *part.Replaced,
) (*decider.Location, error) {
	typ, record := k.decider.Types[of.Key.Type], sl.key(of.Key.ID)
	at := map[string]uint64{}
	if found, ok := s.staying.Load(t); ok {
		if before, _ := found.(*staying); before.key == of.Key {
			maps.Copy(at, before.at)
		}
	}
	if version := at[record]; version > of.To {
		if l, _, err := s.lastOf(ctx, t, typ, sl, of.Key.ID, version, version); err != nil || l != nil {
			return l, err
		}
	}
	l, version, err := s.lastOf(ctx, t, typ, sl, of.Key.ID, of.To+1, 0)
	if err != nil {
		return nil, err
	}
	at[record] = version
	s.staying.Store(t, &staying{of.Key, at})
	return l, nil
}

// maxOvertaken bounds how often a place is looked for again because the aggregate has moved meanwhile.
const maxOvertaken = 100

var errOvertaken = errors.New("place: the aggregate moves over and over; it is tried again")

// locate writes where an aggregate is by the events that it has now.
func (s *Service) locate(
	ctx context.Context, t j17.Tenant, d *decider.Decider, sl *slot, key j17.Key, fences []store.Fence,
) error {
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
		err = s.Store.Write(ctx, t, []store.Side{sl.record(key.ID, l).On(item.Rev)}, fences...)
		if conflict, is := errors.AsType[*store.SideConflict](err); !is || conflict.Space != places {
			return store.UserError(err)
		}
	}
	return errOvertaken
}
