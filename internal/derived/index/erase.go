package index

import (
	"context"
	"errors"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

// Erase waits until no row shows streams as they were before they were rewritten. Indexes that follow the feed get
// there by the notes in it. A build that has not come so far begins again, since some of its rows may be outdated; the
// slot of a failed build is removed.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	for keys := (store.Range{}); ; {
		const page = 100
		items, err := s.o.Store.Scan(ctx, t, slotSpace, keys, page)
		if err = s.reset(ctx, t, keptDamage(err)); errors.Is(err, store.ErrNotFound) {
			continue // there are no slots any longer
		}
		if err != nil {
			return err
		}
		for i := range items {
			keys = keys.After(items[i].Key)
			if err := s.awaitErased(ctx, t, items[i].Key, e.Note); err != nil {
				return err
			}
		}
		if len(items) < page {
			return s.o.Build.AwaitRemovals(ctx, t, removalPrefix)
		}
	}
}

// awaitErased waits until a slot shows nothing from before a note, or is gone.
func (s *Service) awaitErased(ctx context.Context, t j17.Tenant, name string, note j17.StreamID) error {
	machine := clock.System{}
	roused := false
	var next *wait
	defer func() { next.leave() }()
	for {
		behind := s.waiters.next(t, name)
		sl, err := s.slot(ctx, t, name)
		next.leave()
		next = behind
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if sl.after().Compare(note) >= 0 && sl.Fanout == nil {
			return nil
		}

		// A slot that follows the feed gets there, whichever process does its upkeep.
		s.deferrals.asked(ctx, t, name)
		_, err = s.o.Feed.Status(ctx, t, kind, name)
		if errors.Is(err, store.ErrNotFound) {
			if err := s.beginAnew(ctx, t, sl); err != nil && !conflict(err) {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		known, err := s.handled(ctx, t, name)
		if err != nil || known.of(sl).Compare(note) >= 0 && sl.Fanout == nil {
			return err
		}

		// Wait for its next step.
		if !clock.Either(ctx, machine, machine.Now().Add(lookEvery), next.moved) && !roused {
			roused = true
			s.deferrals.resume(ctx, t, name) // it may rest in another process
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// beginAnew removes a slot that does not follow the feed. If the slot was being built, a new build begins in the same
// commit; if its definition is not known here, the index is built when it is next asked for.
func (s *Service) beginAnew(ctx context.Context, t j17.Tenant, sl *slot) error {
	h, err := s.head(ctx, t, sl.ID)
	if err != nil {
		return err
	}
	status, err := s.o.Build.Status(ctx, t, kind, sl.name)
	if err != nil {
		return err
	}
	gone, err := s.drop(ctx, t, sl.name)
	if err != nil {
		return err
	}
	defer s.waiters.wake(t, sl.name)
	if h.Building != sl.name && h.Serving == sl.name { // the build that is to replace it may never finish
		h.Serving = ""
		return s.o.Store.Write(ctx, t, append(gone, h.put(sl.ID)))
	}
	if h.Building != sl.name {
		return s.o.Store.Write(ctx, t, gone, store.Fence{Space: headSpace, Key: sl.ID, Rev: h.rev})
	}

	// A running build begins again.
	d := s.knows(t, sl.ID)
	switch {
	case d != nil && status.State == build.Running:
		sides, err := s.starting(ctx, t, d, &h)
		if err != nil {
			return err
		}
		gone = append(gone, sides...)
	case h.Serving != "" && h.Serving != sl.name:
		h.Building = ""
		gone = append(gone, h.put(sl.ID))
	default:
		gone = append(gone, store.Side{Op: store.Delete, Space: headSpace, Key: sl.ID, Cond: store.IfRev, Rev: h.rev})
	}
	return s.o.Store.Write(ctx, t, gone)
}
