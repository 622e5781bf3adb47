package pebble

import "testing"

// Memory tables, and the level that they are merged into, are as large as the cache allows.
func TestMemoryTablesFollowTheCache(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cache, table, base int64 }{
		{DefaultCacheBytes, 16 << 20, 64 << 20},
		{320 << 20, 32 << 20, 128 << 20},
		{512 << 20, 48 << 20, 192 << 20},
		{8 << 30, 48 << 20, 192 << 20},
	} {
		s := &Store{core: &core{disk: &disk{}, events: newEvents()}}
		opts := s.engineOptions(Options{CacheBytes: c.cache})
		if int64(opts.MemTableSize) != c.table || opts.LBaseMaxBytes != c.base {
			t.Errorf("with %d MiB: tables of %d and a level of %d bytes, not %d and %d", c.cache>>20, opts.MemTableSize, opts.LBaseMaxBytes, c.table, c.base)
		}
	}
}

// Pebble merges no table early for the removals it has: see compactor.
func TestRemovalsAloneMergeNothing(t *testing.T) {
	t.Parallel()
	s := &Store{core: &core{disk: &disk{}, events: newEvents()}}
	if n := s.engineOptions(Options{}).Experimental.TombstoneDenseCompactionThreshold; n > 0 {
		t.Errorf("tables of which %v are removals are merged", n)
	}
}
