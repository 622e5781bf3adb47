package pebble

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/store"
)

// Rewrite replaces events. See store.Store.
func (s *Store) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (result store.Result, err error) {
	if err := errors.Join(store.ValidTenant(t), r.Validate()); err != nil {
		return store.Result{}, err
	}

	// The conditions are those of a unit without events.
	err = s.run(ctx, ordinary, func(b *batch) error {
		tn := b.tenant(t)
		u := &store.Append{Pre: r.Pre, Fences: r.Fences, Side: r.Side}
		result = store.Result{Outcome: store.Committed, Timestamp: tn.next.raise(0)}
		if err := b.checkUnit(tn, u, &result); err != nil {
			return err
		}
		if len(result.Streams) > 0 || len(result.Sides) > 0 {
			result.Outcome = store.Conflict
			return nil
		}

		// What can fail for its side writes comes before the first change.
		if err := b.loadUnit(tn, u); err != nil {
			return err
		}

		// The events, each stream under a new generation.
		note := store.Note{Position: b.position(tn)}
		for i := range r.Streams {
			stream := &r.Streams[i]
			if len(stream.Events) == 0 {
				continue
			}
			generation, err := b.rewrite(tn, stream)
			if err != nil {
				return err
			}
			note.Streams = append(note.Streams, store.Generation{Key: stream.Key, Number: generation})
		}

		// Readers of the feed meet the note where they would meet an event.
		if len(note.Streams) > 0 {
			b.stageNote(tn, &note)
			result.IDs = []j17.StreamID{note.Position}
		}
		for i := range u.Side {
			b.stageSide(tn, &u.Side[i], b.sides[i], nil)
		}
		return nil
	})
	return result, err
}

// Rewrites returns how often events were rewritten. See store.Store.
func (s *Store) Rewrites() uint64 { return s.rewrites.Load() }

// rewrite stages the new content of a stream's events and returns the stream's generation.
func (b *batch) rewrite(t *tenant, stream *store.RewrittenStream) (uint64, error) {
	// The events.
	key, untagged, leaves := stream.Key, map[string]uint64{}, map[uint64][hashBytes]byte{}
	for i := range stream.Events {
		e := &stream.Events[i]
		var old eventRecord
		v, err := b.event(t.nextNumber, key, e.Version)
		if err == nil {
			err = old.parse(v)
		}
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return 0, fmt.Errorf("version %d of %s: %w", e.Version, key, store.ErrNotFound)
		case err != nil:
			return 0, corruption(err, "%s version %d of tenant %s", key, e.Version, t.name)
		}
		if err := b.untag(t, &old, untagged); err != nil {
			return 0, corruption(err, "the tags of %s version %d of tenant %s", key, e.Version, t.name)
		}
		leaf := old.leaf()
		b.put(appendEventKey(b.key[:0], t.nextNumber, key, e.Version),
			appendEventRecord(b.value[:0], old.id, key, e.Type, e.Data, e.Metadata, old.timestamp, leaf[:], nil))
		leaves[e.Version] = sha256.Sum256(b.value[eventHeader+hashBytes:])
	}
	b.rewritten = true

	// The head.
	h, err := b.head(t.nextNumber, key)
	if err != nil {
		return 0, err
	}
	if h.Present, err = b.presentChain(t, key, h.Length, leaves); err != nil {
		return 0, err
	}
	h.Generation++
	if !h.changed {
		h.changed = true
		b.changed = append(b.changed, h)
	}
	return h.Generation, nil
}

// presentChain returns the chain over the bytes that the events of a stream have now. leaves are those of the events that the batch
// rewrites.
func (b *batch) presentChain(t *tenant, key j17.Key, length uint64, leaves map[uint64][hashBytes]byte) (chain [hashBytes]byte, err error) {
	it, err := newIter(b.store.db, appendEventPrefix(nil, t.nextNumber, key), next(appendEventKey(nil, t.nextNumber, key, length)))
	if err != nil {
		return chain, err
	}
	defer closeIter(it, &err, key.String())
	var record eventRecord
	ok := it.First()
	for version := uint64(1); version <= length; version, ok = version+1, it.Next() {
		if !ok || !bytes.HasSuffix(it.Key(), binary.BigEndian.AppendUint64(nil, version)) {
			return chain, corruption(errors.Join(errGap, it.Error()), "%s version %d of tenant %s", key, version, t.name)
		}
		leaf, changed := leaves[version]
		if !changed {
			v, err := it.ValueAndErr()
			if err == nil {
				err = record.parse(v)
			}
			if err != nil {
				return chain, corruption(err, "%s version %d of tenant %s", key, version, t.name)
			}
			leaf = sha256.Sum256(record.leafInput)
		}
		chain = j17.Link(chain, leaf)
	}
	return chain, nil
}

// stageNote stages a note in the feed.
func (b *batch) stageNote(t *tenant, note *store.Note) {
	b.stage(t)
	must(b.writes.Set(appendFeedKey(nil, t.nextNumber, note.Position), appendNote(nil, note), nil))
	t.next.last = note.Position
}

// event returns a copy of an event's value.
func (b *batch) event(tenant uint32, key j17.Key, version uint64) ([]byte, error) {
	v, closer, err := b.store.db.Get(appendEventKey(nil, tenant, key, version))
	if err != nil {
		return nil, err
	}
	v = append([]byte(nil), v...)
	return v, closer.Close()
}

// Purge removes from disk what rewritten events and the side items of their streams have replaced. See store.Store.
//
//  1. It waits until nobody can read the old values any more: the calls that read, which are short, and exports of the tenant.
//  2. It touches the ranges of keys of the streams' events, of their side items and of the index of tags: it writes that they
//     have no range keys. Whatever file holds an old value now overlaps a younger one, so that a compaction has to merge the two
//     and cannot move the file as it is.
//  3. It flushes, so that no log is needed any more that exists now, and compacts these ranges.
//  4. It waits until the old tables are deleted, and removes the logs.
func (s *Store) Purge(ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName) error {
	r, err := s.read(t)
	if err != nil {
		return err
	}
	defer r.close()
	ranges := purged(r.tenant, keys, spaces, items)
	if r.tenant == 0 || len(ranges) == 0 {
		return nil
	}

	// From here on nobody reads the old values.
	s.endArchives(r.view, store.ErrEnded)
	if !s.awaitRelease(ctx.Done(), nil, func() bool { return s.idleBefore(r.view) }) {
		return ctx.Err()
	}

	// Every file that holds an old value is overlapped by a younger one.
	err = s.run(ctx, ordinary, func(b *batch) error {
		s.reap()
		for i := range ranges {
			must(b.writes.RangeKeyUnset(ranges[i].lower, ranges[i].upper, nil, nil))
		}
		return nil
	})
	if err != nil {
		return err
	}

	// No log is needed any more that exists now, and no table that holds an old value.
	s.disk.scrub()
	if err := s.inBackground(ctx, s.db.Flush); err != nil {
		return err
	}
	for i := range ranges {
		err := s.inBackground(ctx, func() error { return s.db.Compact(ctx, ranges[i].lower, ranges[i].upper, false) })
		if err != nil {
			return err
		}
	}

	// What is not needed goes from the disk.
	if err := s.awaitDeletion(ctx); err != nil {
		return err
	}
	return s.disk.removeScrubbed()
}

// keyRange is the keys in [lower, upper).
type keyRange struct{ lower, upper []byte }

// purged returns where values of streams and of other items stand, or stood.
func purged(tenant uint32, keys []j17.Key, spaces []store.Declared, items []store.ItemName) (ranges []keyRange) {
	whole := func(prefix []byte) { ranges = append(ranges, keyRange{prefix, after(prefix)}) }
	if len(keys) > 0 {
		whole(appendPrefix(nil, tenant, kindTag))
	}
	for _, key := range keys {
		whole(appendEventPrefix(nil, tenant, key))
		for i := range spaces {
			for _, of := range spaces[i].RangesOf(key) {
				ranges = append(ranges, keyRange{
					appendItemKey(nil, tenant, spaces[i].Space, of.From), appendItemKey(nil, tenant, spaces[i].Space, of.To),
				})
			}
		}
	}
	for i := range spaces {
		if spaces[i].Whole {
			whole(appendSpace(nil, tenant, kindItem, spaces[i].Space))
		}
	}
	for i := range items {
		key := appendItemKey(nil, tenant, items[i].Space, items[i].Key)
		ranges = append(ranges, keyRange{key, next(key)})
	}
	return ranges
}

// idleBefore reports whether no view that is older than v has readers. It needs mu.
func (s *Store) idleBefore(v *view) bool {
	for _, old := range s.retired {
		if old.number < v.number && old.readers > 0 {
			return false
		}
	}
	return true
}

// inBackground runs work of Pebble that may never return after a fault. It holds the store open until the work ends.
func (s *Store) inBackground(ctx context.Context, work func() error) error {
	v, err := s.acquire()
	if err != nil {
		return err
	}
	err = s.unlessFaulted(ctx.Done(), func() error {
		defer s.release(v)
		return work()
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("remove old bytes: %w", err)
	}
	return nil
}

// awaitDeletion blocks until each table file that is on disk now is either in use or gone.
func (s *Store) awaitDeletion(ctx context.Context) error {
	names, err := s.disk.List(s.disk.dir)
	if err != nil {
		return fmt.Errorf("list the data folder: %w", err)
	}
	for {
		changed := s.events.next()
		live, err := s.liveTables()
		if err != nil {
			return err
		}
		waiting := false
		for _, name := range names {
			if isTable(name) && !live[name] {
				_, err := s.disk.Stat(s.disk.PathJoin(s.disk.dir, name))
				waiting = waiting || err == nil
			}
		}
		if !waiting {
			return nil
		}
		select {
		case <-changed:
		case <-s.queue.faulted:
			return s.queue.refusal()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// liveTables returns the names of the table files that are in use.
func (s *Store) liveTables() (map[string]bool, error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	live := map[string]bool{}
	for _, level := range levels {
		for i := range level {
			live[level[i].BackingSSTNum.String()+tableSuffix] = true
		}
	}
	return live, nil
}
