package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

const (
	// sweepEvery is the time between two searches for what has expired.
	sweepEvery = time.Minute
	// maxKeptValue is the length of the longest value that the committer keeps of an item it looks up: that of a name.
	maxKeptValue = store.MaxNameBytes
	// sweepLimit is the number of items that are removed in one batch.
	sweepLimit = 1000
)

// Get returns one side item. See store.Store.
func (s *Store) Get(_ context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	r, err := s.read(t)
	if err != nil {
		return store.Item{}, err
	}
	defer r.close()
	return r.get(t, space, key)
}

// get returns one side item as of the reader's view.
func (r reader) get(t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if strings.IndexByte(string(space), 0) >= 0 {
		return store.Item{}, store.ErrNotFound
	}
	v, closer, err := r.snapshot.Get(appendItemKey(nil, r.tenant, space, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return store.Item{}, store.ErrNotFound
	}
	if err != nil {
		return store.Item{}, fault("a side item", err)
	}
	item, err := r.stored(t, space, key, v)
	if closing := closer.Close(); closing != nil && err == nil {
		err = fault("a side item", closing)
	}
	return item, err
}

// stored returns the item that a value is of, store.ErrNotFound if it has expired.
func (r reader) stored(t j17.Tenant, space store.Space, key string, v []byte) (store.Item, error) {
	meta, value, err := parseItem(&r.store.sealing, space, key, v)
	if err != nil {
		return meta.item(key, nil), corruption(err, "side item %s/%s of tenant %s", space, key, t)
	}
	if !meta.live(r.store.clock.Now().UnixNano()) {
		return store.Item{}, store.ErrNotFound
	}
	return meta.item(key, value), nil
}

// GetEach passes side items that have some keys. See store.Store.
func (s *Store) GetEach(ctx context.Context, t j17.Tenant, space store.Space, keys []string, do func(i int, value []byte) error) error {
	r, err := s.read(t)
	if err != nil {
		return err
	}
	defer r.close()
	return r.getEach(ctx, t, space, keys, do)
}

// getEach passes side items that have some keys, as of the reader's view.
func (r reader) getEach(
	ctx context.Context, t j17.Tenant, space store.Space, keys []string, do func(i int, value []byte) error,
) (err error) {
	if len(keys) == 0 || strings.IndexByte(string(space), 0) >= 0 {
		return nil
	}
	all := appendSpace(nil, r.tenant, kindItem, space)
	it, err := r.iterate(append(slices.Clip(all), keys[0]...), next(append(slices.Clip(all), keys[len(keys)-1]...)))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "side items")
	now, key := r.store.clock.Now().UnixNano(), all
	for i := range keys {
		if err := r.store.interrupted(ctx, uint64(i)); err != nil {
			return err
		}
		key = append(key[:len(all)], keys[i]...)
		if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) { // filters say which levels do not have it
			if err := it.Error(); err != nil {
				return fault("side items", err)
			}
			continue
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return fault("side items", err)
		}
		meta, value, err := parseItem(&r.store.sealing, space, keys[i], v)
		if err != nil {
			return corruption(err, "side item %s/%s of tenant %s", space, keys[i], t)
		}
		if !meta.live(now) {
			continue
		}
		if err := do(i, value); err != nil {
			return err
		}
	}
	return nil
}

// item returns the item in its public form, with a copy of the value.
func (m itemMeta) item(key string, value []byte) store.Item {
	return store.Item{
		Key: key, Value: append([]byte(nil), value...), Rev: m.rev, Expires: fromNanos(m.expires), Due: fromNanos(m.due),
	}
}

// Scan returns side items in order of their keys. See store.Store.
func (s *Store) Scan(
	_ context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.scan(t, space, keys, limit)
}

// scan returns side items in order of their keys, as of the reader's view.
func (r reader) scan(t j17.Tenant, space store.Space, keys store.Range, limit int) (items []store.Item, err error) {
	err = r.eachItem(t, space, keys, func(key []byte, meta itemMeta, value []byte) bool {
		if limit > 0 {
			items = append(items, meta.item(string(key), value))
		}
		return len(items) < limit
	})
	return items, err
}

// Count returns how many side items there are. See store.Store.
func (s *Store) Count(_ context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int) (int, error) {
	r, err := s.read(t)
	if err != nil {
		return 0, err
	}
	defer r.close()
	return r.count(t, space, keys, limit)
}

// count returns how many side items there are as of the reader's view, up to limit.
func (r reader) count(t j17.Tenant, space store.Space, keys store.Range, limit int) (n int, err error) {
	err = r.eachItem(t, space, keys, func([]byte, itemMeta, []byte) bool {
		if limit > 0 {
			n++
		}
		return n < limit
	})
	return n, err
}

// eachItem passes the live items of a space whose keys are in a range, in byte order of their keys, until do reports false. What it
// passes is valid until do returns.
func (r reader) eachItem(t j17.Tenant, space store.Space, keys store.Range, do func(key []byte, meta itemMeta, value []byte) bool) (err error) {
	if strings.IndexByte(string(space), 0) >= 0 {
		return nil
	}

	// The keys between the bounds, of this space only.
	lower, upper := itemBounds(r.tenant, space, keys)
	if bytes.Compare(lower, upper) >= 0 {
		return nil
	}
	it, err := r.iterate(lower, upper)
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "side items")
	return r.passItems(t, space, it, keyRange{lower, upper}, keys.Backward, do)
}

// passItems passes the live items of a space that are between the bounds of an iterator, until do reports false.
func (r reader) passItems(
	t j17.Tenant, space store.Space, it *pebble.Iterator, bounds keyRange, backward bool, do func(key []byte, meta itemMeta, value []byte) bool,
) error {
	// Items that have expired are gone, though they are still stored.
	now := r.store.clock.Now().UnixNano()
	before := tenantPrefix + len("i") + len(space) + len("\x00")
	began := stand(it)
	defer func() { r.store.thin(it, began, bounds, backward) }()
	first, next := it.First, it.Next
	if backward {
		first, next = it.Last, it.Prev
	}
	for ok := first(); ok; ok = next() {
		key := it.Key()[before:]
		v, err := it.ValueAndErr()
		if err != nil {
			return fault("side items", err)
		}
		meta, value, err := parseItem(&r.store.sealing, space, key, v)
		if err != nil {
			return corruption(err, "side item %s/%s of tenant %s", space, key, t)
		}
		if meta.live(now) && !do(key, meta, value) {
			return nil
		}
	}
	return nil
}

// Write applies side writes. See store.Store.
func (s *Store) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return s.writeSides(ctx, t, store.Append{Fences: fences, Side: side})
}

// WriteFreeing applies side writes that make room. See store.Store.
func (s *Store) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return s.writeSides(ctx, t, store.Append{Fences: fences, Side: side, Freeing: true})
}

// writeSides appends a unit of side writes.
func (s *Store) writeSides(ctx context.Context, t j17.Tenant, u store.Append) error {
	results, err := s.Append(ctx, t, []store.Append{u})
	if err != nil {
		return err
	}
	if results[0].Outcome == store.Conflict {
		return &results[0].Sides[0]
	}
	return nil
}

// fenced returns a side item that a fence is on, after what was staged so far. Nothing is written to it.
func (b *batch) fenced(t *tenant, space store.Space, key string) (*stagedItem, error) {
	b.key = appendItemKey(b.key[:0], t.nextNumber, space, key)
	if item := b.kept.get(b.key); item != nil {
		return item, nil
	}
	item, err := b.item(t, space, key)
	if err == nil {
		item.keep = true
	}
	return item, err
}

// forget keeps nothing of an item that is written without a look at it.
func (b *batch) forget(key []byte) {
	if item := b.items[string(key)]; item != nil {
		item.keep = false
	}
	b.kept.forget(key)
}

// item returns a side item after what was staged so far.
func (b *batch) item(t *tenant, space store.Space, key string) (*stagedItem, error) {
	b.key = appendItemKey(b.key[:0], t.nextNumber, space, key)
	if item := b.items[string(b.key)]; item != nil {
		return item, nil
	}
	if item := b.kept.get(b.key); item != nil {
		b.items[string(b.key)] = item // it may be changed
		return item, nil
	}
	item := &stagedItem{}
	v, err := b.find(b.key)
	if err != nil {
		return nil, ofItem(space, key, fault("a side item", err))
	}
	if v != nil {
		var value []byte
		if item.itemMeta, value, err = parseItemRecord(v); err != nil {
			return nil, ofItem(space, key, corruption(err, "side item %s/%s of tenant %s", space, key, t.name))
		}
		if len(value) <= maxKeptValue && !item.sealed {
			item.value = bytes.Clone(value)
		}
	}
	b.items[string(b.key)] = item
	return item, nil
}

// ofItem says of damage which side item it is of.
func ofItem(space store.Space, key string, err error) error {
	if damage, is := errors.AsType[*store.CorruptionError](err); is {
		damage.Item = store.ItemName{Space: space, Key: key}
	}
	return err
}

// expectNone says of an item that it was not there before the batch, so that nobody looks for it.
func (b *batch) expectNone(t *tenant, space store.Space, key string) {
	b.key = appendItemKey(b.key[:0], t.nextNumber, space, key)
	if b.items[string(b.key)] == nil && b.kept.get(b.key) == nil {
		b.items[string(b.key)] = &stagedItem{}
	}
}

// loadEntries makes sure that the entries of an item, before the unit, are known.
func (b *batch) loadEntries(t *tenant, w *store.Side, item *stagedItem) error {
	if item.rev == 0 || item.value != nil {
		return nil
	}
	v, err := b.find(b.key)
	if err != nil {
		return ofItem(w.Space, w.Key, fault("the entries of a side item", err))
	}
	_, value, err := parseItemRecord(v)
	if err == nil {
		item.value = bytes.Clone(value)
		_, err = store.BehindEntries(value)
	}
	if err != nil {
		return ofItem(w.Space, w.Key, corruption(err, "side item %s/%s of tenant %s", w.Space, w.Key, t.name))
	}
	return nil
}

// stageEntries stages the entries that an item has after a write, in place of those before it.
func (b *batch) stageEntries(t *tenant, w *store.Side, item *stagedItem) {
	// What cannot be read has no entries: loadEntries has refused it, or it was written by somebody who knows of none.
	var had, has [][]byte
	if item.rev != 0 {
		had, _, _ = store.ReadEntries(item.value)
	}
	if w.Op == store.Put {
		has, _, _ = store.ReadEntries(w.Value)
	}
	b.stage(t)
	among := func(keys [][]byte, key []byte) bool {
		return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	for _, key := range had {
		if !among(has, key) {
			b.key2 = append(appendSpace(b.key2[:0], t.nextNumber, kindItem, w.Entries), key...)
			b.forget(b.key2)
			b.remove(b.key2)
		}
	}
	for _, key := range has {
		if !among(had, key) {
			t.next.rev++
			b.key2 = append(appendSpace(b.key2[:0], t.nextNumber, kindItem, w.Entries), key...)
			b.forget(b.key2)
			b.value = appendItemRecord(b.value[:0], itemMeta{rev: t.next.rev}, nil)
			must(b.writes.Set(b.key2, b.value, nil))
		}
	}
}

// stageSide stages one side write, whose condition holds. ids are the positions of the unit's events.
func (b *batch) stageSide(t *tenant, w *store.Side, item *stagedItem, ids []j17.StreamID) {
	if w.Plain {
		b.stagePlain(t, w)
		return
	}
	if w.Entries != "" {
		b.stageEntries(t, w, item)
	}
	switch w.Op {
	case store.Put:
		value := w.Value
		if len(w.Stamps) > 0 {
			value = nil
			for _, n := range w.Stamps {
				value = store.AppendStamp(value, ids[n])
			}
			value = append(value, w.Value...)
		}
		key := w.Key
		if w.StampKey {
			key, item = store.StampedKey(ids[w.Stamps[0]], w.Key), &stagedItem{}
			b.items[string(appendItemKey(nil, t.nextNumber, w.Space, key))] = item
		}
		b.stageItem(t, w.Space, key, item, sideTimes(w), value)
	case store.Delete:
		b.stageRemoval(t, w, item)
	case store.Add:
		added, _ := strconv.ParseInt(string(w.Value), 10, 64)
		if n := number(item, b.now) + added; n > 0 {
			b.stageItem(t, w.Space, w.Key, item, sideTimes(w), strconv.AppendInt(nil, n, 10))
		} else {
			b.stageRemoval(t, w, item)
		}
	case store.Raise:
		if less(item, w.Value, b.now) {
			b.stageItem(t, w.Space, w.Key, item, sideTimes(w), w.Value)
		}
	}
}

// stagePlain stages a write that does not depend on what was there.
func (b *batch) stagePlain(t *tenant, w *store.Side) {
	b.stage(t)
	key := appendItemKey(b.key[:0], t.nextNumber, w.Space, w.Key)
	b.forget(key)
	if w.Op == store.Delete {
		b.key = key
		b.remove(key)
		return
	}
	t.next.rev++
	b.put(key, b.store.sealing.record(b.value[:0], w.Space, w.Key, itemMeta{rev: t.next.rev}, w.Value))
}

// Clear removes plain items. See store.Store.
func (s *Store) Clear(ctx context.Context, t j17.Tenant, space store.Space, keys store.Range) error {
	if err := store.ValidTenant(t); err != nil {
		return err
	}
	if strings.IndexByte(string(space), 0) >= 0 {
		return nil
	}
	return s.queue.Do(ctx, queue.Freeing, func(b *batch) error {
		s.mu.Lock()
		number := s.numberLocked(t)
		s.mu.Unlock()
		lower, upper := itemBounds(number, space, keys)
		if number != 0 && bytes.Compare(lower, upper) < 0 {
			must(b.writes.DeleteRange(lower, upper, nil))
		}
		return nil
	})
}

// Empty removes all items of some spaces together with side writes. See store.Store.
func (s *Store) Empty(ctx context.Context, t j17.Tenant, spaces []store.Space, side []store.Side, fences ...store.Fence) error {
	if err := store.ValidTenant(t); err != nil {
		return err
	}
	u := store.Append{Fences: fences, Side: side, Freeing: true}
	if err := u.Validate(); err != nil {
		return err
	}
	for i := range side {
		if slices.Contains(spaces, side[i].Space) {
			return fmt.Errorf("%w: an item is written to the space '%s', which is emptied", store.ErrInvalid, side[i].Space)
		}
	}
	var r store.Result
	err := s.queue.Do(ctx, queue.Freeing, func(b *batch) error {
		of := b.tenant(t)
		if err := b.stageUnit(of, &u, &r); err != nil || r.Outcome != store.Committed || !of.listed {
			return err
		}
		for _, space := range spaces {
			all := appendSpace(nil, of.nextNumber, kindItem, space)
			must(b.writes.DeleteRange(all, after(all), nil))
		}
		return nil
	})
	if err == nil && r.Outcome == store.Conflict {
		return &r.Sides[0]
	}
	return err
}

// itemBounds returns the bounds of the items of a space whose keys are in a range.
func itemBounds(tenant uint32, space store.Space, keys store.Range) (lower, upper []byte) {
	all := appendSpace(nil, tenant, kindItem, space)
	lower, upper = append(slices.Clip(all), keys.From...), after(all)
	if keys.To != "" {
		upper = append(slices.Clip(all), keys.To...)
	}
	return lower, upper
}

// stageRemoval stages the removal of an item, if it is there.
func (b *batch) stageRemoval(t *tenant, w *store.Side, item *stagedItem) {
	if item.rev != 0 {
		b.stage(t)
		b.removeItem(t.nextNumber, w.Space, w.Key, item.itemMeta)
		item.itemMeta, item.value = itemMeta{}, nil
	}
}

// checkSums puts the items into r that the unit's additions would bring beyond their bounds.
func (b *batch) checkSums(t *tenant, u *store.Append, r *store.Result) error {
	// What the unit adds to each item, all additions together.
	var sums map[*stagedItem]int64
	for i := range u.Side {
		w := &u.Side[i]
		if w.Op != store.Add {
			continue
		}
		item, err := b.item(t, w.Space, w.Key)
		if err != nil {
			return err
		}
		if sums == nil {
			sums = map[*stagedItem]int64{}
		}
		added, _ := strconv.ParseInt(string(w.Value), 10, 64)
		sums[item] += added
	}
	if sums == nil {
		return nil
	}

	// An item that only gets less is not too full, whatever it has.
	for i := range u.Side {
		w := &u.Side[i]
		if w.Op != store.Add || w.Most == 0 {
			continue
		}
		item, err := b.item(t, w.Space, w.Key)
		if err != nil {
			return err
		}
		if sum := sums[item]; sum > 0 && number(item, b.now)+sum > w.Most {
			r.Sides = append(r.Sides, store.SideConflict{Space: w.Space, Key: w.Key, Rev: item.present(b.now), Full: true})
			sums[item] = 0 // told once
		}
	}
	return nil
}

// number returns the number that an item is, 0 where it is absent or none.
func number(item *stagedItem, now int64) int64 {
	n, err := strconv.ParseInt(string(item.value), 10, 63)
	if err != nil || !item.live(now) {
		return 0
	}
	return n
}

// less reports whether an item is absent, no number, or a smaller one than a valid one.
func less(item *stagedItem, number []byte, now int64) bool {
	want, _ := strconv.ParseUint(string(number), 10, 63)
	have, err := strconv.ParseUint(string(item.value), 10, 63)
	return !item.live(now) || err != nil || have < want
}

// itemTimes are the times that an item gets, in Unix nanoseconds, 0 for none. claimed is that of store.Side.
type itemTimes struct{ expires, due, claimed int64 }

func sideTimes(w *store.Side) itemTimes {
	return itemTimes{nanos(w.Expires), nanos(w.Due), nanos(w.Claimed)}
}

// stageItem stages the new content of an item, and its entries in the orders of due times and expiry.
func (b *batch) stageItem(t *tenant, space store.Space, key string, item *stagedItem, times itemTimes, value []byte) {
	b.stage(t)
	old := item.itemMeta
	t.next.rev++
	item.itemMeta = itemMeta{rev: t.next.rev, expires: times.expires, due: times.due}
	if item.value = value; value == nil {
		item.value = []byte{} // it is known
	}
	b.put(appendItemKey(b.key[:0], t.nextNumber, space, key), b.store.sealing.record(b.value[:0], space, key, item.itemMeta, value))
	b.replaceExpiry(t.nextNumber, old.expires, times.expires)
	if old.due != 0 && old.due != times.due {
		b.key2 = appendDueKey(b.key2[:0], t.nextNumber, space, old.due, key)
		b.remove(b.key2)
	}
	if times.due != 0 {
		b.due = append(b.due, dueWork{t, space, times.due})
		b.key2 = appendDueKey(b.key2[:0], t.nextNumber, space, times.due, key)
		must(b.writes.Set(b.key2, claimMark(times.claimed), nil))
	}
}

// removeItem stages the removal of an item.
func (b *batch) removeItem(tenant uint32, space store.Space, key string, old itemMeta) {
	b.key = appendItemKey(b.key[:0], tenant, space, key)
	b.remove(b.key)
	b.replaceExpiry(tenant, old.expires, 0)
	if old.due != 0 {
		b.key2 = appendDueKey(b.key2[:0], tenant, space, old.due, key)
		b.remove(b.key2)
	}
}

// sweepLoop removes what has expired. Reads do not see it anyway.
func (s *Store) sweepLoop() {
	for s.clock.Wait(s.life, s.clock.Now().Add(sweepEvery)) == nil {
		s.disk.descriptors.fill()
		if s.guard.check() != nil {
			continue
		}
		s.sweep(s.life)
	}
}

// sweep removes everything that has expired by now. What cannot be removed of one tenant does not keep it from the others.
func (s *Store) sweep(ctx context.Context) {
	// It fails only when the store is closed.
	names, _ := s.Tenants(ctx)
	for _, name := range names {
		var from []byte
		for more := true; more; {
			var err error
			if from, err = s.sweepTenant(ctx, name, from); err != nil {
				if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
					return
				}
				s.logger.ErrorContext(ctx, "expired items could not be removed", slog.String("tenant", string(name)), slog.Any("error", err))
				break
			}
			more = from != nil
		}
	}
}

// sweepTenant removes some of what has expired, from an entry in the order of expiry on, nil for the first. It returns the entry to go on from, nil
// when there is no more.
func (s *Store) sweepTenant(ctx context.Context, name j17.Tenant, from []byte) (next []byte, err error) {
	found, err := s.expired(name, from)
	if err != nil || !found {
		return nil, err
	}
	err = s.queue.Do(ctx, queue.Freeing, func(b *batch) error {
		next, err = b.removeExpired(b.tenant(name), from)
		return err
	})
	return next, err
}

// expired reports whether something of a tenant has expired, from an entry in the order of expiry on.
func (s *Store) expired(name j17.Tenant, from []byte) (found bool, err error) {
	r, err := s.read(name)
	if err != nil {
		return false, err
	}
	defer r.close()
	bounds := expiredBefore(r.tenant, from, s.clock.Now().UnixNano())
	it, err := r.iterate(bounds.lower, bounds.upper)
	if err != nil {
		return false, err
	}
	defer closeIter(it, &err, "the order of expiry")
	found = it.First()
	s.thin(it, footing{}, bounds, false)
	return found, nil
}

// expiredBefore returns where the order of expiry has what has expired by now, from an entry on unless that is another tenant's.
func expiredBefore(tenant uint32, from []byte, now int64) keyRange {
	lower := appendPrefix(nil, tenant, kindExpiry)
	upper := appendTime(slices.Clip(lower), now+1)
	if bytes.HasPrefix(from, lower) {
		lower = from
	}
	return keyRange{lower, upper}
}

// hasAny reports whether there is a key in [lower, upper).
func hasAny(from pebble.Reader, lower, upper []byte) (found bool, err error) {
	it, err := newIter(from, lower, upper)
	if err != nil {
		return false, err
	}
	defer closeIter(it, &err, "an index")
	return it.First(), nil
}

// removeExpired removes some of what has expired, from an entry on, and returns the entry to go on from, nil when there is no more. So those
// that were just removed are not stepped over again and again.
func (b *batch) removeExpired(t *tenant, from []byte) (next []byte, err error) {
	prefix := appendPrefix(nil, t.nextNumber, kindExpiry)
	bounds := expiredBefore(t.nextNumber, from, b.now)
	it, err := newIter(b.store.db, bounds.lower, bounds.upper)
	if err != nil {
		return nil, err
	}
	defer closeIter(it, &err, "the order of expiry")
	n := 0
	for it.First(); it.Valid(); it.Next() {
		if n++; n > sweepLimit {
			return bytes.Clone(it.Key()), nil
		}
		if err := b.removeEntry(t, it.Key()[len(prefix):]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// removeEntry stages the removal of what an expiry entry, without its prefix, refers to, and of the entry.
func (b *batch) removeEntry(t *tenant, entry []byte) error {
	if len(entry) <= timeBytes {
		return corruption(errFormat, "the order of expiry of tenant %s", t.name)
	}

	// The entry says when, and what.
	expires := int64(binary.BigEndian.Uint64(entry))
	kind, rest := entry[timeBytes], entry[timeBytes+1:]
	b.stage(t)
	switch kind {
	case kindItem:
		space, key, ok := strings.Cut(string(rest), "\x00")
		if !ok {
			return corruption(errFormat, "the order of expiry of tenant %s", t.name)
		}
		item, err := b.item(t, store.Space(space), key)
		if err != nil {
			return err
		}
		if item.rev == 0 || item.expires != expires {
			// The entry is not that of an item, so that it alone goes. What it belonged to cannot be told any more.
			b.store.logger.Error("an entry in the order of expiry has no item and is removed",
				slog.String("tenant", string(t.name)), slog.String("space", space))
			b.remove(append(appendTime(appendPrefix(nil, t.nextNumber, kindExpiry), expires), entry[timeBytes:]...))
			return nil
		}
		b.removeItem(t.nextNumber, store.Space(space), key, item.itemMeta)
	case kindCommand:
		b.key = append(appendPrefix(b.key[:0], t.nextNumber, kindCommand), rest...)
		b.remove(b.key)
		b.replaceExpiry(t.nextNumber, expires, 0)
	default:
		return corruption(errFormat, "the order of expiry of tenant %s", t.name)
	}
	return nil
}
