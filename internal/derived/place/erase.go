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

// Erase sets the places of rewritten streams to those of their present events, usually none. Places that a build has
// read before do not come back.
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
			_ = s.check(ctx, t, sl) // slots that are not ready are treated as such
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

		// Records in slots that are no longer needed, as far as this process knows the deployment.
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

// Leave returns the writes that set the places of streams to those of the events that an erasure leaves, usually none.
// The code that replaces the events commits these writes too, so that no place of an erased event is shown. The writes
// apply to the present slots as long as the fences hold. Erase still has to be called: a build may have read the place
// before.
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
	return sides, append(slices.Clip(fences), store.Fence{Space: resets, Key: resetKey, Rev: k.rev}), nil
}

// fenced returns the present slots as they are stored, and fences that hold while their spec is deployed: another
// process may have begun slots or builds again, and these must not bring back what they have read before.
func (s *Service) fenced(ctx context.Context, t j17.Tenant) (*known, []store.Fence, error) {
	s.known.Forget(t)
	return s.known.Present(ctx, t)
}

// parting returns the write that sets the place of a stream when its first events are replaced, nil if the place stays.
// If a build has not reached the stream, it still writes a record, so that the build does not bring back what it has
// read before.
func (s *Service) parting(
	ctx context.Context, t j17.Tenant, k *known, sl *slot, of *part.Replaced,
) (*store.Side, error) {
	// The present place. A complete slot without a record has no place in the remaining events either.
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

	// The remaining place. The write fails if the aggregate moves meanwhile.
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

// staying records, for an aggregate whose events are replaced in parts, the version that gives its last place, by the
// keys of its records. It saves reading the rest of a long stream again with each part.
type staying struct {
	key j17.Key
	at  map[string]uint64
}

// forgetParts drops the staying of one of some aggregates, whose events are all replaced. It is needed where concurrent
// writes have kept any part from being announced as the last one.
func (s *Service) forgetParts(t j17.Tenant, keys []j17.Key) {
	found, ok := s.staying.Load(t)
	if !ok {
		return
	}
	if of, _ := found.(*staying); slices.Contains(keys, of.key) {
		s.staying.CompareAndDelete(t, found)
	}
}

// left returns the last place that the remaining events give, nil if none gives one.
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

// maxOvertaken bounds how often a place is determined again because the aggregate has moved meanwhile.
const maxOvertaken = 100

var errOvertaken = errors.New("place: the aggregate moves over and over; it is tried again")

// locate writes the place of an aggregate by its present events.
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
