package pebble

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/store"
)

// Rewrite replaces the content of events and removes the old bytes from disk. See store.Store.
//
// A caller that is inside an iteration of its own would wait for itself.
func (s *Store) Rewrite(ctx context.Context, t j17.Tenant, key j17.Key, events []store.Rewritten) error {
	if err := errors.Join(store.ValidTenant(t), store.ValidKey(key)); err != nil {
		return err
	}
	if err := store.ValidateRewrite(events); err != nil || len(events) == 0 {
		return err
	}
	var number uint32
	err := s.run(ctx, ordinary, func(b *batch) error {
		tn := b.tenant(t)
		number = tn.nextNumber
		return b.rewrite(tn, key, events)
	})
	if err != nil {
		return err
	}
	return s.purge(ctx, number, key, events)
}

func (b *batch) rewrite(t *tenant, key j17.Key, events []store.Rewritten) error {
	b.rewritten = true
	untagged := map[string]uint64{}
	for i := range events {
		e := &events[i]
		var old eventRecord
		v, err := b.event(t.nextNumber, key, e.Version)
		if err == nil {
			err = old.parse(v)
		}
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return fmt.Errorf("version %d of %s: %w", e.Version, key, store.ErrNotFound)
		case err != nil:
			return corruption(err, "%s version %d of tenant %s", key, e.Version, t.name)
		}
		if err := b.untag(t, &old, untagged); err != nil {
			return corruption(err, "the tags of %s version %d of tenant %s", key, e.Version, t.name)
		}
		leaf := old.leaf()
		b.put(appendEventKey(b.key[:0], t.nextNumber, key, e.Version),
			appendEventRecord(b.value[:0], old.id, key, e.Type, e.Data, e.Metadata, old.timestamp, leaf[:], nil))
	}
	return nil
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

// purge removes from disk what rewritten events have replaced:
//
//  1. It waits until nobody can read the old values any more.
//  2. It writes the new values once more. Whatever file holds an old value now overlaps a younger one, so that a
//     compaction has to merge the two and cannot move the file as it is.
//  3. It flushes, so that no log is needed any more that exists now, and compacts the events' range of keys.
//  4. It waits until the old tables are deleted, and removes the logs.
func (s *Store) purge(ctx context.Context, number uint32, key j17.Key, events []store.Rewritten) error {
	v, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(v)
	if !s.awaitRelease(ctx.Done(), nil, func() bool { return s.idleBefore(v) }) {
		return ctx.Err()
	}
	err = s.run(ctx, ordinary, func(b *batch) error {
		s.reap()
		for i := range events {
			v, err := b.event(number, key, events[i].Version)
			if errors.Is(err, pebble.ErrNotFound) {
				// The tenant was dropped meanwhile.
				continue
			}
			if err != nil {
				return fault(key.String(), err)
			}
			b.put(appendEventKey(b.key[:0], number, key, events[i].Version), v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.disk.scrub()
	if err := s.inBackground(ctx, s.db.Flush); err != nil {
		return err
	}
	first, last := events[0].Version, events[0].Version
	for i := range events {
		first, last = min(first, events[i].Version), max(last, events[i].Version)
	}
	lower, upper := appendEventKey(nil, number, key, first), next(appendEventKey(nil, number, key, last))
	err = s.inBackground(ctx, func() error { return s.db.Compact(ctx, lower, upper, false) })
	if err != nil {
		return err
	}
	if err := s.awaitDeletion(ctx); err != nil {
		return err
	}
	return s.disk.removeScrubbed()
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
