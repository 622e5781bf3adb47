package pebble

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/store"
)

// moment is a reader that others hold. See store.Moment.
type moment struct {
	reader
	name     j17.Tenant
	position j17.StreamID
	once     sync.Once
	// kept is an iterator that nobody uses just now: one serves many looks, since it has found its way to the blocks
	// that it is asked for again. Who looks meanwhile makes another one.
	kept atomic.Pointer[pebble.Iterator]
	// asked is set with the first item that was read by itself: an iterator pays from the second one on.
	asked atomic.Bool
}

// Moment shows a tenant as it is now. See store.Store.
func (s *sides) Moment(_ context.Context, t j17.Tenant) (store.Moment, error) {
	m, err := s.moment(t)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (s *sides) moment(t j17.Tenant) (*moment, error) {
	if err := store.ValidTenant(t); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.acquireLocked()
	if err != nil {
		return nil, err
	}
	m := &moment{reader: s.readerLocked(v, t), name: t}
	if m.tenant != 0 {
		m.position = s.tenants[t].last
	}
	return m, nil
}

// ReadTogether reads several things. See store.Store.
func (s *sides) ReadTogether(_ context.Context, t j17.Tenant, what store.Wanted) (found store.Found, err error) {
	m, err := s.moment(t)
	if err != nil {
		return store.Found{}, err
	}
	defer m.Close()
	found = store.Found{
		Position: m.position, Items: make([]store.Item, len(what.Items)),
		Pages: make([]store.FoundPage, len(what.Pages)),
	}
	for i, name := range what.Items {
		found.Items[i], err = m.get(t, name.Space, name.Key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Found{}, err
		}
	}
	if found.Heads, err = m.Heads(what.Heads); err != nil {
		return store.Found{}, err
	}
	for i := range what.Pages {
		if found.Pages[i], err = m.page(t, &what.Pages[i]); err != nil {
			return store.Found{}, err
		}
	}
	return found, nil
}

// page returns a page of side items as of the reader's view.
func (r reader) page(t j17.Tenant, p *store.Page) (found store.FoundPage, err error) {
	if p.Limit <= 0 {
		return found, nil
	}
	size := 0
	err = r.eachItem(t, p.Space, p.Keys, func(key []byte, meta itemMeta, value []byte) bool {
		found.Items = append(found.Items, meta.item(string(key), value))
		size += len(key) + len(value)
		found.More = len(found.Items) == p.Limit || size >= store.PageBytes
		return !found.More
	})
	return found, err
}

// Position is that of the last entry of the feed.
func (m *moment) Position() j17.StreamID { return m.position }

// Heads returns the heads of streams. Those that are in memory are taken from there as long as the moment is the
// present one.
func (m *moment) Heads(keys []j17.Key) ([]store.Head, error) {
	heads := make([]store.Head, len(keys))
	if m.tenant == 0 {
		return heads, nil
	}
	var missing []int
	var headKey []byte
	m.store.mu.Lock()
	current := m.store.view == m.view
	for i, key := range keys {
		known := false
		if current {
			headKey = appendHeadKey(headKey[:0], m.tenant, key)
			heads[i], known = m.store.heads.get(headKey)
		}
		if !known {
			missing = append(missing, i)
		}
	}
	m.store.mu.Unlock()
	for _, i := range missing {
		if !canExist(keys[i]) {
			continue
		}
		var err error
		if heads[i], err = m.load(keys[i]); err != nil {
			return nil, err
		}
	}
	return heads, nil
}

// Get returns one side item.
func (m *moment) Get(space store.Space, key string) (item store.Item, err error) {
	if strings.IndexByte(string(space), 0) >= 0 {
		return store.Item{}, store.ErrNotFound
	}
	if !m.asked.Swap(true) && m.kept.Load() == nil {
		return m.get(m.name, space, key)
	}
	all := appendItemKey(nil, m.tenant, space, key)
	it, err := m.within(all, append(slices.Clip(all), 0))
	if err != nil {
		return store.Item{}, err
	}
	defer m.keep(it, &err)
	if !it.SeekPrefixGE(all) {
		if err := it.Error(); err != nil {
			return store.Item{}, fault("a side item", err)
		}
		return store.Item{}, store.ErrNotFound
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return store.Item{}, fault("a side item", err)
	}
	return m.stored(m.name, space, key, v)
}

// Scan returns side items in order of their keys.
func (m *moment) Scan(space store.Space, keys store.Range, limit int) ([]store.Item, error) {
	return m.scan(m.name, space, keys, limit)
}

// Count returns how many side items there are.
func (m *moment) Count(space store.Space, keys store.Range, limit int) (int, error) {
	return m.count(m.name, space, keys, limit)
}

// Each passes side items in order of their keys.
func (m *moment) Each(space store.Space, keys store.Range, do func(key, value []byte) bool) (err error) {
	if strings.IndexByte(string(space), 0) >= 0 {
		return nil
	}
	lower, upper := itemBounds(m.tenant, space, keys)
	if bytes.Compare(lower, upper) >= 0 {
		return nil
	}
	it, err := m.within(lower, upper)
	if err != nil {
		return err
	}
	defer m.keep(it, &err)
	return m.passItems(
		m.name, space, it, keyRange{lower, upper}, keys.Backward,
		func(key []byte, _ itemMeta, value []byte) bool { return do(key, value) },
	)
}

// within returns an iterator over the keys in [lower, upper), which is kept afterwards.
func (m *moment) within(lower, upper []byte) (*pebble.Iterator, error) {
	it := m.kept.Swap(nil)
	if it == nil {
		return m.iterate(lower, upper)
	}
	it.SetBounds(lower, upper)
	return it, nil
}

// keep keeps an iterator, or closes it and adds its error, if any, to err.
func (m *moment) keep(it *pebble.Iterator, err *error) {
	if it.Error() != nil || !m.kept.CompareAndSwap(nil, it) {
		closeIter(it, err, "side items")
	}
}

// Close lets go of the view. Further calls do nothing.
func (m *moment) Close() {
	m.once.Do(func() {
		if it := m.kept.Swap(nil); it != nil {
			_ = it.Close() // what it could not read was told
		}
		m.close()
	})
}
