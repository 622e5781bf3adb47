package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

// sides is the store in the role of store.Sides, but for what is due.
type sides struct {
	*core
	*appender
}

// Get returns one side item. See store.Store.
func (s *sides) Get(_ context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
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
	if !meta.Live(r.store.clock.Now().UnixNano()) {
		return store.Item{}, store.ErrNotFound
	}
	return meta.item(key, value), nil
}

// GetEach passes side items that have some keys. See store.Store.
func (s *sides) GetEach(
	ctx context.Context, t j17.Tenant, space store.Space, keys []string, do func(i int, value []byte) error,
) error {
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
		if !meta.Live(now) {
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
		Key: key, Value: append([]byte(nil), value...), Rev: m.Rev, Expires: fromNanos(m.Expires),
		Due: fromNanos(m.Due),
	}
}

// Scan returns side items in order of their keys. See store.Store.
func (s *sides) Scan(
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
func (s *sides) Count(_ context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int) (int, error) {
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

// eachItem passes the live items of a space whose keys are in a range, in byte order of their keys, until do reports
// false. What it passes is valid until do returns.
func (r reader) eachItem(
	t j17.Tenant, space store.Space, keys store.Range, do func(key []byte, meta itemMeta, value []byte) bool,
) (err error) {
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
	t j17.Tenant, space store.Space, it *pebble.Iterator, bounds keyRange, backward bool,
	do func(key []byte, meta itemMeta, value []byte) bool,
) error {
	// Items that have expired are gone, though they are still stored.
	now := r.store.clock.Now().UnixNano()
	before := tenantPrefix + len("i") + len(space) + len("\x00")
	began := stand(it)
	defer func() { r.store.stale.thin(it, began, bounds, backward) }()
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
		if meta.Live(now) && !do(key, meta, value) {
			return nil
		}
	}
	return nil
}

// Write applies side writes. See store.Store.
func (s *sides) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return s.writeSides(ctx, t, store.Append{Fences: fences, Side: side})
}

// WriteFreeing applies side writes that make room. See store.Store.
func (s *sides) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return s.writeSides(ctx, t, store.Append{Fences: fences, Side: side, Freeing: true})
}

// writeSides appends a unit of side writes.
func (s *sides) writeSides(ctx context.Context, t j17.Tenant, u store.Append) error {
	results, err := s.Append(ctx, t, []store.Append{u})
	if err != nil {
		return err
	}
	if results[0].Outcome == store.Conflict {
		return &results[0].Sides[0]
	}
	return nil
}

// Clear removes plain items. See store.Store.
func (s *sides) Clear(ctx context.Context, t j17.Tenant, space store.Space, keys store.Range) error {
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
func (s *sides) Empty(
	ctx context.Context, t j17.Tenant, spaces []store.Space, side []store.Side, fences ...store.Fence,
) error {
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
		if err := b.units.Decide(of, &u, &r); err != nil || r.Outcome != store.Committed {
			return err
		}
		if !of.listed && len(b.units.Tenants()) == 0 {
			return nil // it holds nothing
		}
		for _, space := range spaces {
			all := appendSpace(nil, of.next.Number, kindItem, space)
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
