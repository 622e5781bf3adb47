package fold

import (
	"container/list"
	"hash/maphash"
	"sync"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"

	"j17"
)

// StateKey names a state in the cache.
type StateKey struct {
	Tenant j17.Tenant
	Key    j17.Key
}

// cache holds folded states, bounded by their charged size; the least recently used are dropped first. It never decides
// whether a state is current: its users compare length and handlers.
type cache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
	// passed are the keys of states that were offered and not kept.
	passed *work.Recent
}

const (
	cacheShards = 16
	// passedShare: one in passedShare of the states that could fit are remembered as not kept.
	passedShare = 4
)

type cacheShard struct {
	mu    sync.Mutex
	limit int64
	used  int64
	byKey map[StateKey]*list.Element // of *entry
	order list.List                  // most recently used first
}

func newCache(limit int64) *cache {
	c := &cache{seed: maphash.MakeSeed(), passed: work.NewRecent(limit / stateCharge / passedShare)}
	for i := range c.shards {
		c.shards[i].limit = limit / cacheShards
		c.shards[i].byKey = map[StateKey]*list.Element{}
	}
	return c
}

func (c *cache) hash(k StateKey) uint64 { return maphash.Comparable(c.seed, k) }

func (c *cache) shard(k StateKey) *cacheShard { return &c.shards[c.hash(k)%cacheShards] }

// entry is a state in the cache.
type entry struct {
	key   StateKey
	state *decider.State
	// size is the charged size of the state.
	size int64
}

// get returns the cached state of k, nil if there is none.
func (c *cache) get(k StateKey) *decider.State {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	el := s.byKey[k]
	if el == nil {
		return nil
	}
	s.order.MoveToFront(el)
	e, _ := el.Value.(*entry)
	return e.state
}

// put keeps f, unless the cache has a longer state of the same handlers already, or one of a later generation, or f
// alone would fill it.
func (c *cache) put(k StateKey, f *decider.State) {
	size := Measure(f)
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if el := s.byKey[k]; el != nil {
		old, _ := el.Value.(*entry)
		if is := old.state; is.Generation > f.Generation ||
			is.Generation == f.Generation && is.Fingerprint == f.Fingerprint && is.Length > f.Length {
			return
		}
		s.remove(el)
	}
	if size > s.limit/2 {
		return
	}
	s.byKey[k] = s.order.PushFront(&entry{k, f, size})
	s.used += size
	for s.used > s.limit {
		s.remove(s.order.Back())
	}
}

// offer is put for one of many states that took little work: it is kept from the second time on. A single read of
// everything thus evicts nothing, and leaves no million small objects for the garbage collector to scan.
func (c *cache) offer(k StateKey, f *decider.State) {
	if c.passed.Again(c.hash(k)) {
		c.put(k, f)
	}
}

func (s *cacheShard) remove(el *list.Element) {
	e, _ := s.order.Remove(el).(*entry)
	delete(s.byKey, e.key)
	s.used -= e.size
}

// size returns the charged size and the number of the cached states.
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

// stateCharge is the memory of a state apart from its data.
const stateCharge = 256

// Measure returns the memory that a state takes: its text, the memory that its strings keep alive, and its tree.
func Measure(f *decider.State) int64 {
	return stateCharge + 2*int64(len(f.JSON)) + int64(min(f.Loose, decider.CompactAbove*len(f.JSON))) + treeSize(f.Data)
}

// treeSize returns the memory of the nodes of a tree, without the text of strings and numbers.
func treeSize(v value.Value) int64 {
	const node, member, container = 24, 40, 64
	switch v.Kind() {
	case value.Array:
		n := int64(container)
		for _, elem := range v.Elems() {
			n += node + treeSize(elem)
		}
		return n
	case value.Object:
		const indexed, entry = 8, 40 // objects with more members than that have an index
		n := int64(container)
		for _, m := range v.Members() {
			n += member + treeSize(m.Value)
		}
		if v.Len() > indexed {
			n += entry * int64(v.Len())
		}
		return n
	case value.Missing, value.Null, value.Bool, value.Number, value.String:
	}
	return 0
}

// drop forgets a state.
func (c *cache) drop(k StateKey) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if el := s.byKey[k]; el != nil {
		s.remove(el)
	}
}
