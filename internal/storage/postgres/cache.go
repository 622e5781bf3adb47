package postgres

import (
	"sync"

	"j17"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// cache holds heads of streams and small side items that were read or written lately. They are valid as long as nothing
// else writes to the tenant: what is decided on them is committed only if the tenant's row has not changed since. The
// cache has a young and an old part: a full young part becomes the old one, whose entries are dropped unless they were
// used meanwhile.
type cache struct {
	mu         sync.Mutex
	young, old entries
}

// entries is one part of a cache.
type entries struct {
	heads map[headKey]store.Head
	items map[itemKey]unit.Item
	bytes int
}

type headKey struct {
	number, epoch uint32
	key           j17.Key
}

// headKey returns the key of a head of the tenant, as its lane knows it.
func (t *tenant) headKey(key j17.Key) headKey { return headKey{t.next.Number, t.epoch, key} }

type itemKey struct {
	number, epoch uint32
	space         store.Space
	key           string
}

// partBytes is about the memory of one part in bytes, entryBytes that of an entry without its key and value.
const (
	partBytes  = 32 << 20
	entryBytes = 200
)

func (c *cache) head(k headKey) (store.Head, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, is := c.young.heads[k]; is {
		return h, true
	}
	h, is := c.old.heads[k]
	if is {
		c.put(entryBytes+len(k.key.ID), func(young *entries) { young.heads[k] = h })
	}
	return h, is
}

func (c *cache) item(t *tenant, space store.Space, key string) (unit.Item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := itemKey{t.next.Number, t.epoch, space, key}
	if i, is := c.young.items[k]; is {
		return i, true
	}
	i, is := c.old.items[k]
	if is {
		c.put(entryBytes+len(key)+len(i.Value), func(young *entries) { young.items[k] = i })
	}
	return i, is
}

func (c *cache) putHead(k headKey, h store.Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(entryBytes+len(k.key.ID), func(young *entries) { young.heads[k] = h })
}

// putItem adds an item. The cache owns its key and value from then on.
func (c *cache) putItem(t *tenant, space store.Space, key string, i unit.Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := itemKey{t.next.Number, t.epoch, space, key}
	c.put(entryBytes+len(key)+len(i.Value), func(young *entries) { young.items[k] = i })
}

// forgetItem drops an item.
func (c *cache) forgetItem(t *tenant, space store.Space, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := itemKey{t.next.Number, t.epoch, space, key}
	delete(c.young.items, k)
	delete(c.old.items, k)
}

// put adds an entry of a size to the young part. It needs mu.
func (c *cache) put(size int, add func(*entries)) {
	if c.young.heads == nil || c.young.bytes+size > partBytes {
		c.old, c.young = c.young, entries{heads: map[headKey]store.Head{}, items: map[itemKey]unit.Item{}}
	}
	c.young.bytes += size
	add(&c.young)
}
