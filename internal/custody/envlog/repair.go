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

// mostRepaired is how many tiles, with their positions, are rebuilt at a time: they are in memory until all of the log
// was read.
const mostRepaired = 1024

// Repair makes what is damaged of a stored log again: it computes the tiles from the leaves of all events, and where
// these come to the root that the head says, it stores those that are missing or other than they should be. It returns
// how many items it has stored: at most a thousand tiles, others are left to the next call. Where events, or the head
// itself, are damaged it stores nothing and is a *store.CorruptionError.
func (s *Service) Repair(ctx context.Context, t j17.Tenant) (repaired int, err error) {
	// What the head says, of what is stored.
	says := &log{service: s, tenant: t}
	if err := says.load(ctx); err != nil {
		return 0, err
	}
	size := says.stored * tileWidth
	want, err := tlog.TreeHash(int64(size), tlog.HashReaderFunc(says.readEdges))
	if err != nil || size == 0 {
		return 0, err
	}

	// The log again, tile by tile.
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

	// It counts if it is the same log.
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

// putTiles stores items of tiles on the condition that the log is still the one that has them.
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

// differing returns what has to be stored so that a tile, and the positions of its events, are what they should be.
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
