package engine

import (
	"container/list"
	"hash/maphash"
	"sync"

	"j17"
)

// stateKey names a state in the cache.
type stateKey struct {
	tenant j17.Tenant
	key    j17.Key
}

// cache holds folded states, bounded by what they are charged for; the least recently used go first. It never decides
// whether a state is current: whoever takes one compares its length and its handlers.
type cache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

const cacheShards = 16

type cacheShard struct {
	mu    sync.Mutex
	limit int64
	used  int64
	byKey map[stateKey]*list.Element // of *folded
	order list.List                  // most recently used first
}

func newCache(limit int64) *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].limit = limit / cacheShards
		c.shards[i].byKey = map[stateKey]*list.Element{}
	}
	return c
}

func (c *cache) hash(k stateKey) uint64 { return maphash.Comparable(c.seed, k) }

func (c *cache) shard(k stateKey) *cacheShard { return &c.shards[c.hash(k)%cacheShards] }

// get returns the state that is cached for k, nil when there is none.
func (c *cache) get(k stateKey) *folded {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	el := s.byKey[k]
	if el == nil {
		return nil
	}
	s.order.MoveToFront(el)
	f, _ := el.Value.(*folded)
	return f
}

// put keeps f, unless the cache has a longer state of the same handlers already or f alone would fill it.
func (c *cache) put(k stateKey, f *folded) {
	size := f.measure()
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if el := s.byKey[k]; el != nil {
		if old, _ := el.Value.(*folded); old.fingerprint == f.fingerprint && old.length > f.length {
			return
		}
		s.remove(el)
	}
	if size > s.limit/2 {
		return
	}
	f.cacheKey, f.size = k, size
	s.byKey[k] = s.order.PushFront(f)
	s.used += f.size
	for s.used > s.limit {
		s.remove(s.order.Back())
	}
}

func (s *cacheShard) remove(el *list.Element) {
	f, _ := s.order.Remove(el).(*folded)
	delete(s.byKey, f.cacheKey)
	s.used -= f.size
}

// size returns what the cached states are charged for and how many they are.
func (c *cache) size() (bytes int64, states int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		bytes += s.used
		states += len(s.byKey)
		s.mu.Unlock()
	}
	return bytes, states
}
