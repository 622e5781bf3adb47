package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sort"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// A rewrite leaves a record of the tag entries that it has changed, and forgetting commands leaves one of these, so
// that Purge finds what it has to remove without reading the whole index. A record has the keys in order, each as the
// number of bytes that it shares with the one before, and the length and bytes of the rest; numbers are varints.

// stagePurge stages the record of a rewrite whose note is at a position.
func (b *batch) stagePurge(t *tenant, at j17.StreamID, changed map[string]uint64) {
	if len(changed) == 0 {
		return
	}
	must(b.writes.Set(
		record.AppendPosition(appendPrefix(nil, t.next.Number, kindPurge), at),
		purgeRecord(slices.Sorted(maps.Keys(changed))),
		nil,
	))
}

// purgeRecord returns the record of keys, which must be sorted.
func purgeRecord(keys []string) []byte {
	value, before := []byte{recordFormat}, ""
	for _, key := range keys {
		key = key[tenantPrefix:]
		shared := 0
		for shared < len(before) && shared < len(key) && before[shared] == key[shared] {
			shared++
		}
		value = binary.AppendUvarint(binary.AppendUvarint(value, uint64(shared)), uint64(len(key)-shared))
		value = append(value, key[shared:]...)
		before = key
	}
	return value
}

// parsePurge appends the keys of a record to ranges.
func parsePurge(ranges []keyRange, tenant uint32, value []byte) ([]keyRange, error) {
	if len(value) == 0 || value[0] != recordFormat {
		return nil, errFormat
	}
	var before []byte
	for rest := value[1:]; len(rest) > 0; {
		shared, width := binary.Uvarint(rest)
		if width <= 0 || shared > uint64(len(before)) {
			return nil, errFormat
		}
		n, width2 := binary.Uvarint(rest[width:])
		rest = rest[width+max(width2, 0):]
		if width2 <= 0 || n > uint64(len(rest)) {
			return nil, errFormat
		}
		before, rest = append(before[:shared:shared], rest[:n]...), rest[n:]
		key := append(binary.BigEndian.AppendUint32(nil, tenant), before...)
		ranges = append(ranges, keyRange{key, next(key)})
	}
	return ranges, nil
}

// replaced calls do with the ranges of each record that rewrites have left, and returns the keys of the records.
func (r reader) replaced(do func([]keyRange)) (records [][]byte, err error) {
	prefix := appendPrefix(nil, r.tenant, kindPurge)
	it, err := r.iterate(prefix, after(prefix))
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "the records of rewrites")
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		var ranges []keyRange
		if err == nil {
			ranges, err = parsePurge(nil, r.tenant, value)
		}
		if err != nil {
			return nil, corruption(err, "the records of rewrites of tenant number %d", r.tenant)
		}
		do(ranges)
		records = append(records, bytes.Clone(it.Key()))
	}
	return records, nil
}

// purgedAtOnce is the number of streams whose ranges are in memory before they are joined.
const purgedAtOnce = 1000

// Purge removes from disk the data that rewritten events and changed side items of their streams have replaced. See
// store.Store.
//
//  1. It removes old values in the ranges of keys of the streams' events, of their side items, of the entries of tags
//     that rewrites have changed, and of commands that were forgotten.
//  2. Then the records of these entries are no longer needed, and are removed in the same way.
//
// The cost depends only on the tables that hold such keys.
func (s *eraser) Purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName,
) (store.Purged, error) {
	return store.Purged{
		Method:  "The tables of the data folder that had it were written anew without it, and the logs from before were deleted.",
		Remains: "Copies of the data folder from before, such as snapshots of its disk, have what was erased until they are removed.",
	}, s.purge(ctx, t, keys, spaces, items)
}

func (s *eraser) purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName,
) error {
	r, err := s.read(t)
	if err != nil {
		return err
	}
	tables, err := s.lowest()
	if err != nil {
		r.close()
		return err
	}
	ranges := purged(r.tenant, nil, spaces, items)
	add := func(more []keyRange) { ranges = joined(append(ranges, more...), tables) }
	for some := range slices.Chunk(keys, purgedAtOnce) {
		add(purged(r.tenant, some, spaces, nil))
	}
	if r.tenant == 0 || len(ranges) == 0 {
		r.close()
		return nil
	}
	records, err := r.replaced(add)
	r.close()
	if err != nil {
		return err
	}

	// Include records that an earlier, interrupted call removed: they are old bytes as well.
	prefix := appendPrefix(nil, r.tenant, kindPurge)
	all := keyRange{prefix, after(prefix)}
	if err := s.removeOld(ctx, t, append(ranges, all)); err != nil || len(records) == 0 {
		return err
	}
	err = s.queue.Do(ctx, queue.Always, func(b *batch) error {
		for _, key := range records {
			b.remove(key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.removeOld(ctx, t, []keyRange{all})
}

// removeOld removes from disk the old values in ranges of a tenant's keys.
//
//  1. It ends archives, and the bulk writes of the tenant: those of others hold nothing of it. It waits until nobody
//     can read the old values any longer, which is soon, since reads are short.
//  2. It touches the ranges: it writes that they have no range keys. Every file that holds an old value then overlaps
//     a younger one, so that a compaction has to merge the two and cannot move the file unchanged.
//  3. It flushes, so that no present log is needed any longer, and compacts these ranges.
//  4. It waits until the old tables are deleted, and removes the logs.
func (s *eraser) removeOld(ctx context.Context, t j17.Tenant, ranges []keyRange) error {
	// From here on nobody reads the old values.
	present, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(present)
	s.bulk.endArchives(present, store.ErrEnded)
	s.bulk.endBulkWrites(t, store.ErrEnded)
	if !s.awaitRelease(ctx.Done(), nil, func() bool { return s.idleBefore(present) }) {
		return ctx.Err()
	}

	// Ranges in the same tables are touched and compacted together.
	tables, err := s.lowest()
	if err != nil {
		return err
	}
	ranges = joined(ranges, tables)

	// Make a younger file overlap every file that holds an old value.
	err = s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		b.store.reap()
		for i := range ranges {
			must(b.writes.RangeKeyUnset(ranges[i].lower, ranges[i].upper, nil, nil))
		}
		return nil
	})
	if err != nil {
		return err
	}

	// Make all present logs, and all tables that hold an old value, unnecessary.
	s.disk.scrub()
	if err := s.inBackground(ctx, s.db.Flush); err != nil {
		return fmt.Errorf("remove old bytes: %w", err)
	}
	for i := range ranges {
		err := s.inBackground(ctx, func() error { return s.db.Compact(ctx, ranges[i].lower, ranges[i].upper, false) })
		if err != nil {
			return fmt.Errorf("remove old bytes: %w", err)
		}
	}

	// Wait until they are removed.
	if err := s.awaitDeletion(ctx); err != nil {
		return err
	}
	return s.disk.removeScrubbed()
}

// lowest returns the ranges of the tables of the lowest level, each from its first to its last key inclusive.
func (s *core) lowest() ([]keyRange, error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	last := levels[len(levels)-1]
	tables := make([]keyRange, len(last))
	for i := range last {
		tables[i] = keyRange{last[i].Smallest.UserKey, last[i].Largest.UserKey}
	}
	return tables, nil
}

// joined returns fewer ranges that cover the same keys: ranges without a whole table of the lowest level between them
// become one. Separate ranges would make the engine write the same tables repeatedly, and a single range over all of
// them would make it write tables that hold none of the keys. Tables are in order, each from its first to its last key
// inclusive.
func joined(ranges, tables []keyRange) (few []keyRange) {
	slices.SortFunc(ranges, func(a, b keyRange) int { return bytes.Compare(a.lower, b.lower) })
	last := -1 // the last table that the last range reaches into
	for _, r := range ranges {
		// The tables that the range overlaps, or lies between.
		first := sort.Search(len(tables), func(i int) bool { return bytes.Compare(tables[i].upper, r.lower) >= 0 })
		end := sort.Search(len(tables), func(i int) bool { return bytes.Compare(tables[i].lower, r.upper) >= 0 }) - 1
		if n := len(few); n > 0 && first <= last+1 {
			if bytes.Compare(r.upper, few[n-1].upper) > 0 {
				few[n-1].upper = r.upper
			}
		} else {
			few = append(few, r)
		}
		last = max(last, end)
	}
	return few
}

// keyRange is the keys in [lower, upper).
type keyRange struct{ lower, upper []byte }

// purged returns the ranges of keys that have, or had, values of streams and of side items, without the index of tags.
func purged(tenant uint32, keys []j17.Key, spaces []store.Declared, items []store.ItemName) (ranges []keyRange) {
	whole := func(prefix []byte) { ranges = append(ranges, keyRange{prefix, after(prefix)}) }
	for _, key := range keys {
		whole(appendEventPrefix(nil, tenant, key))
		for i := range spaces {
			for _, of := range spaces[i].RangesOf(key) {
				ranges = append(ranges, keyRange{
					appendItemKey(nil, tenant, spaces[i].Space, of.From),
					appendItemKey(nil, tenant, spaces[i].Space, of.To),
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

// idleBefore reports whether no view older than v has readers. The caller holds mu.
func (s *core) idleBefore(v *view) bool {
	for _, old := range s.retired {
		if old.number < v.number && old.readers > 0 {
			return false
		}
	}
	return true
}

// inBackground runs work of Pebble that may never return after a fault. It keeps the store open until the work ends.
func (s *core) inBackground(ctx context.Context, work func() error) error {
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
	return err
}

// awaitDeletion blocks until each table file that is on disk now is either in use or gone.
func (s *eraser) awaitDeletion(ctx context.Context) error {
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
		case <-s.queue.Faulted():
			return s.queue.Refusal()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// liveTables returns the names of the table files that are in use.
func (s *eraser) liveTables() (map[string]bool, error) {
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
