package pebble

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// archive is a store.Archive. Readers get copies, page by page: between two pages the archive can be ended, however
// slow the reader is, or moved to a younger view in which its tenant is the same.
type archive struct {
	store    *bulk
	tenant   uint32
	name     j17.Tenant
	position j17.StreamID
	extent   store.Extent
	// shown is the number of the view that it shows, guarded by core.mu.
	shown uint64

	// rest, if not nil, is called between the parts of a read-ahead. See store.Archive.
	rest func(bytes int) error

	// over reports that the archive has ended.
	over atomic.Bool

	mu sync.Mutex
	// moment is what is read; next, if not nil, replaces it from the next page on.
	moment, next *moment
	// users counts the calls that are copying a page. The last one releases an archive that has ended.
	users int
	// reason is why the archive has ended, nil if it has not.
	reason error
}

// Archive returns an archive of a tenant as it is now. See store.Store.
func (s *bulk) Archive(_ context.Context, t j17.Tenant) (store.Archive, error) {
	if err := store.ValidTenant(t); err != nil {
		return nil, err
	}
	s.mu.Lock()
	v, err := s.acquireLocked()
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	m := &moment{reader: s.readerLocked(v, t), name: t}
	if m.tenant != 0 {
		m.position = s.tenants[t].last
	}
	a := &archive{store: s, tenant: m.tenant, name: t, position: m.position, shown: v.number, moment: m}
	if s.archives == nil {
		s.archives = map[*archive]bool{}
	}
	s.archives[a] = true
	s.mu.Unlock()

	if a.extent, err = m.extent(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// endArchives ensures that no archive shows a view before the given one, or for nil any view: archives whose tenants
// are the same in the present view are moved there, the others end.
func (s *bulk) endArchives(before *view, reason error) {
	type moved struct {
		*archive
		to *moment
	}
	var ended []*archive
	var others []moved
	s.mu.Lock()
	for a := range s.archives {
		if before != nil && a.shown >= before.number {
			continue
		}
		if t := s.tenants[a.name]; before != nil && (t == nil || t.touched <= a.shown) {
			if v, err := s.acquireLocked(); err == nil {
				a.shown = v.number
				others = append(others, moved{a, &moment{
					reader: reader{view: v, store: s.core, tenant: a.tenant}, name: a.name, position: a.position,
				}})
				continue
			}
		}
		ended = append(ended, a)
	}
	s.mu.Unlock()
	for _, a := range ended {
		a.end(reason)
	}
	for _, m := range others {
		m.move(m.to)
	}
}

// move makes the archive show a view from the next page on, unless it shows one that is as young already, since
// concurrent moves may come in another order than their views.
func (a *archive) move(to *moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cmp.Or(a.next, a.moment).number >= to.number {
		to.Close()
		return
	}
	if a.next != nil {
		a.next.Close()
	}
	a.next = to
	a.settle()
}

// settle releases moments that are no longer read, if no page is being copied. The caller holds a.mu.
func (a *archive) settle() {
	switch {
	case a.users > 0:
	case a.reason != nil:
		a.moment.Close()
		if a.next != nil {
			a.next.Close()
		}
	case a.next != nil:
		a.moment.Close()
		a.moment, a.next = a.next, nil
	}
}

// end ends the archive. Its view is released as soon as no page is being copied; end does not wait for that.
func (a *archive) end(reason error) {
	a.store.mu.Lock()
	delete(a.store.archives, a)
	a.store.mu.Unlock()
	a.over.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reason == nil {
		a.reason = reason
	}
	a.settle()
}

// Close releases the archive. Further calls do nothing.
func (a *archive) Close() { a.end(store.ErrClosed) }

// use runs a short read.
func (a *archive) use(do func(m *moment) error) error {
	a.mu.Lock()
	if a.reason != nil {
		defer a.mu.Unlock()
		return a.reason
	}
	a.users++
	m := a.moment
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.users--
		a.settle()
	}()
	return do(m)
}

// Position returns the position of the last entry of the feed.
func (a *archive) Position() j17.StreamID { return a.position }

// Extent returns how many events there are.
func (a *archive) Extent() store.Extent { return a.extent }

// Heads returns the heads of streams.
func (a *archive) Heads(keys []j17.Key) (heads []store.Head, err error) {
	err = a.use(func(m *moment) (err error) {
		heads, err = m.Heads(keys)
		return err
	})
	return heads, err
}

// Get returns one side item.
func (a *archive) Get(space store.Space, key string) (item store.Item, err error) {
	err = a.use(func(m *moment) (err error) {
		item, err = m.Get(space, key)
		return err
	})
	return item, err
}

// Scan returns side items in order of their keys.
func (a *archive) Scan(space store.Space, keys store.Range, limit int) (items []store.Item, err error) {
	err = a.use(func(m *moment) (err error) {
		items, err = m.Scan(space, keys, limit)
		return err
	})
	return items, err
}

// Count returns how many side items there are.
func (a *archive) Count(space store.Space, keys store.Range, limit int) (n int, err error) {
	err = a.use(func(m *moment) (err error) {
		n, err = m.Count(space, keys, limit)
		return err
	})
	return n, err
}

// Each passes side items in order of their keys.
func (a *archive) Each(space store.Space, keys store.Range, do func(key, value []byte) bool) error {
	lower, upper := itemBounds(a.tenant, space, keys)
	all := len(appendSpace(nil, a.tenant, kindItem, space))
	now := a.store.clock.Now().UnixNano()
	return a.pages(lower, upper, keys.Backward, func(key, value []byte) (bool, error) {
		meta, content, err := parseItem(&a.store.sealing, space, key[all:], value)
		if err != nil {
			return false, corruption(err, "side item %s/%s of tenant %s", space, key[all:], a.name)
		}
		return !meta.Live(now) || do(key[all:], content), nil
	})
}

// pages calls do for copies of the records with keys in [lower, upper), until it returns false.
func (a *archive) pages(lower, upper []byte, backward bool, do func(key, value []byte) (bool, error)) error {
	if a.tenant == 0 || bytes.Compare(lower, upper) >= 0 {
		return a.use(func(*moment) error { return nil })
	}
	var copied sortBuffer
	for more := true; more; {
		copied.data, copied.placed = copied.data[:0], copied.placed[:0]
		err := a.use(func(m *moment) (err error) {
			more, err = copied.fill(m.reader, lower, upper, backward)
			return err
		})
		if err != nil {
			return err
		}
		for i := range copied.placed {
			if a.over.Load() {
				return a.use(func(*moment) error { return nil })
			}
			r := &copied.placed[i]
			end := r.start + r.key
			if goOn, err := do(copied.keyOf(r), copied.data[end:end+r.value]); err != nil || !goOn {
				return err
			}
		}

		// The next page begins after the last key.
		if n := len(copied.placed); n > 0 && backward {
			upper = bytes.Clone(copied.keyOf(&copied.placed[n-1]))
		} else if n > 0 {
			lower = next(copied.keyOf(&copied.placed[n-1]))
		}
	}
	return nil
}

// fill copies a page of the records with keys in [lower, upper), and reports whether there may be more.
func (b *sortBuffer) fill(r reader, lower, upper []byte, backward bool) (more bool, err error) {
	it, err := r.iterate(lower, upper)
	if err != nil {
		return false, err
	}
	defer closeIter(it, &err, "an archive")
	first, step := it.First, it.Next
	if backward {
		first, step = it.Last, it.Prev
	}
	for ok := first(); ok; ok = step() {
		value, err := it.ValueAndErr()
		if err != nil {
			return false, fault("an archive", err)
		}
		key := it.Key()
		b.placed = append(b.placed, placedRecord{
			start: uint32(len(b.data)), key: uint32(len(key)), value: uint32(len(value)),
		})
		b.data = append(append(b.data, key...), value...)
		if b.bytes() >= pageBytes {
			return true, nil
		}
	}
	return false, nil
}

// Rest sets the function that is called between the parts of a read-ahead. See store.Archive.
func (a *archive) Rest(after func(bytes int) error) { a.rest = after }

// Changes yields the events and notes of the feed. See store.Archive.
func (a *archive) Changes(ctx context.Context, after j17.StreamID) iter.Seq2[store.Archived, error] {
	return func(yield func(store.Archived, error) bool) {
		if err := a.use(func(*moment) error { return nil }); err != nil || a.tenant == 0 {
			if err != nil {
				yield(store.Archived{}, err)
			}
			return
		}
		stopped := false
		var failed error
		p := feedPager(true)
		p.tenant = a.name
		p.use = func(do func(reader) error) error { return a.use(func(m *moment) error { return do(m.reader) }) }
		p.stale = func(*page) bool { return a.over.Load() }
		p.rest = a.rest
		err := a.store.feeds.eachPage(ctx, p, after, math.MaxInt, func(e store.Entry, record *eventRecord) bool {
			archived := store.Archived{Event: e.Event, Note: e.Note}
			if e.Event != nil {
				if archived.Tags, failed = record.ownTags(); failed != nil {
					failed = corruption(failed, "the tags of %s version %d of tenant %s", e.Event.Key, e.Event.Version, a.name)
					return false
				}
			}
			stopped = !yield(archived, nil)
			return !stopped
		})
		if err == nil {
			err = failed
		}
		if err != nil && !stopped {
			yield(store.Archived{}, err)
		}
	}
}

// Items yields all live side items. See store.Archive.
func (a *archive) Items(ctx context.Context, from store.ItemName) iter.Seq2[store.ArchivedItem, error] {
	prefix := appendPrefix(nil, a.tenant, kindItem)
	lower := prefix
	if from != (store.ItemName{}) {
		lower = next(appendItemKey(nil, a.tenant, from.Space, from.Key))
	}
	now := a.store.clock.Now().UnixNano()
	return store.Sequence(func(yield func(store.ArchivedItem) bool) error {
		n := uint64(0)
		return a.pages(lower, after(prefix), false, func(key, value []byte) (bool, error) {
			n++
			if err := a.store.interrupted(ctx, n); err != nil {
				return false, err
			}
			space, name, ok := cutSpace(key[len(prefix):])
			meta, content, err := parseItem(&a.store.sealing, space, name, value)
			if err == nil && !ok {
				err = errFormat
			}
			if err != nil {
				return false, corruption(err, "side item %s/%s of tenant %s", space, name, a.name)
			}
			item := store.Item{
				Key: name, Value: content, Rev: meta.Rev, Expires: fromNanos(meta.Expires), Due: fromNanos(meta.Due),
			}
			return !meta.Live(now) || yield(store.ArchivedItem{Space: space, Item: item}), nil
		})
	})
}

// Commands yields the results of all commands. See store.Archive.
func (a *archive) Commands(ctx context.Context) iter.Seq2[store.ArchivedCommand, error] {
	prefix := appendPrefix(nil, a.tenant, kindCommand)
	now := a.store.clock.Now().UnixNano()
	return store.Sequence(func(yield func(store.ArchivedCommand) bool) error {
		n := uint64(0)
		return a.pages(prefix, after(prefix), false, func(key, value []byte) (bool, error) {
			n++
			if err := a.store.interrupted(ctx, n); err != nil {
				return false, err
			}
			var c store.ArchivedCommand
			result, expires, err := record.ParseCommand(value)
			if err == nil && len(key) != len(prefix)+len(c.ID) {
				err = errFormat
			}
			if err != nil {
				return false, corruption(err, "command %x of tenant %s", key[len(prefix):], a.name)
			}
			if expired(expires, now) {
				return true, nil
			}
			c.Command = store.Command{
				ID: store.CommandID(key[len(prefix):]), Memo: result.Memo, Expires: fromNanos(expires),
			}
			c.Timestamp, c.Lengths = result.Timestamp, result.Lengths
			if len(result.IDs) > 0 {
				c.First = result.IDs[0]
			}
			return yield(c), nil
		})
	})
}

func cutSpace(key []byte) (store.Space, string, bool) {
	space, name, ok := strings.Cut(string(key), "\x00")
	return store.Space(space), name, ok && space != "" && name != ""
}
