package pebble

import (
	"context"
	"fmt"

	"j17/internal/storage/queue"
)

const (
	// overwrittenAtOnce is how many bytes are written at a time to overwrite memory: up to that many may be left at the
	// end of a memory table.
	overwrittenAtOnce = 64 << 10
	// overwrittenFirst is how many the first time: more than the largest batch memory that the engine reuses.
	overwrittenFirst = 1<<20 + 1
)

// Forget removes from memory what is no longer stored: blocks of tables, and the content of the memory of memory tables
// and of the log, which the engine reuses. It overwrites these by writing as many zeros as all memory tables have
// bytes. It does not overwrite the memory that it frees.
func (s *eraser) Forget(ctx context.Context) error {
	// No reader finds the key: it is removed in the batch that writes it.
	tables := s.db.Metrics().MemTable
	key, zeros := appendPrefix(nil, storeNumber, kindScratch), make([]byte, overwrittenFirst)
	for written := uint64(0); written <= tables.Size+tables.ZombieSize; written += uint64(len(zeros)) {
		if written > 0 {
			zeros = zeros[:overwrittenAtOnce]
		}
		err := s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
			b.key, b.value = nil, nil
			must(b.writes.Set(key, zeros, nil))
			b.remove(key)
			return nil
		})
		if err != nil {
			return fmt.Errorf("overwrite memory: %w", err)
		}
	}
	if err := s.inBackground(ctx, s.db.Flush); err != nil {
		return fmt.Errorf("overwrite memory: %w", err)
	}

	// Reserve all of the cache, which empties it, and release it again.
	s.cache.Reserve(int(s.cache.MaxSize()))()
	return nil
}
