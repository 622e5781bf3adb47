package envlog

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"j17"
	"j17/internal/storage/store"
)

// mostRepaired is how many items of tiles are rebuilt at a time: they are kept in memory until the whole log was read.
const mostRepaired = 1024

// Repair repairs the damaged items of a stored log: it computes the tiles from the leaves of all events and, if these
// have the root in the head, stores those that are missing or different. It returns how many items it has stored: about
// a thousand at most, others are left to the next call. If events, or the head itself, are damaged it stores nothing
// and is a *store.CorruptionError.
func (s *Service) Repair(ctx context.Context, t j17.Tenant) (repaired int, err error) {
	// The stored head.
	says := &log{service: s, tenant: t}
	if err := says.load(ctx); err != nil {
		return 0, err
	}
	size := says.stored * tileWidth
	want, err := tlog.TreeHash(int64(size), tlog.HashReaderFunc(says.readEdges))
	if err != nil || size == 0 {
		return 0, err
	}

	// Compute the log again, tile by tile.
	anew := &log{service: s, tenant: t}
	var wrong []store.Side
	for anew.size < size {
		before := anew.size
		for leaf, err := range s.Store.ReadLeaves(ctx, t, anew.last, int(min(readAtOnce, size-anew.size))) {
			if err != nil {
				return 0, err
			}
			anew.add(leaf.Position, leaf.Hash)
			for i := range anew.fresh {
				some, err := s.differing(ctx, t, &anew.fresh[i])
				if err != nil {
					return 0, err
				}
				if len(wrong) < mostRepaired {
					wrong = append(wrong, some...)
				}
			}
			anew.fresh = anew.fresh[:0]
		}
		if anew.size == before {
			return 0, damage(t, "the feed ends after %d of %d events", anew.size, size)
		}
	}

	// It is used if it is the same log.
	root, err := tlog.TreeHash(int64(size), tlog.HashReaderFunc(anew.readEdges))
	if err != nil {
		return 0, err
	}
	if root != want {
		return 0, damage(t, "its first %d events have the root %x, its head says %x", size, root, want)
	}
	for some := range slices.Chunk(wrong, mostFresh) {
		if err := s.putTiles(ctx, t, says.stored, some); err != nil {
			return repaired, err
		}
		repaired += len(some)
	}
	return repaired, nil
}

// putTiles stores items of tiles on the condition that the log still has them.
func (s *Service) putTiles(ctx context.Context, t j17.Tenant, stored uint64, sides []store.Side) error {
	item, err := s.Store.Get(ctx, t, headSpace, headItem)
	if err != nil {
		return err
	}
	if now, _, _, err := parseHead(item.Value); err != nil || now < stored {
		return errReplaced
	}
	head := store.Side{
		Op: store.Put, Space: headSpace, Key: headItem, Value: item.Value, Cond: store.IfRev, Rev: item.Rev,
	}
	return s.Store.Write(ctx, t, append(slices.Clone(sides), head))
}

// differing returns the writes that correct a tile and the positions of its events.
func (s *Service) differing(ctx context.Context, t j17.Tenant, f *freshTile) (sides []store.Side, err error) {
	for _, want := range f.sides() {
		item, err := s.Store.Get(ctx, t, want.Space, want.Key)
		_, damaged := errors.AsType[*store.CorruptionError](err)
		switch {
		case err != nil && !damaged && !errors.Is(err, store.ErrNotFound):
			return nil, err
		case err != nil || !bytes.Equal(item.Value, want.Value):
			sides = append(sides, want)
		}
	}
	return sides, nil
}
