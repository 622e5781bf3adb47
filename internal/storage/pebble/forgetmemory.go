package pebble

import (
	"context"
	"fmt"

	"j17/internal/storage/queue"
)

const (
	// overwrittenAtOnce is how many bytes are written at a time to overwrite memory: so many may be left at the end of
	// a memory table.
	overwrittenAtOnce = 64 << 10
	// overwrittenFirst is how many the first time: more than the engine lets a batch keep for the next one.
	overwrittenFirst = 1<<20 + 1
)

// Forget removes from memory what is not stored any more: blocks of tables, and what stood in the memory of memory
// tables and of the log, which are used again and again. It overwrites these with zeros that nobody reads: as many as
// all memory tables have bytes. What it frees others have to overwrite.
func (s *eraser) Forget(ctx context.Context) error {
	// Who looks for the key finds nothing: it is removed in the batch that writes it.
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

	// The cache has room for nothing, and then for as much as before.
	s.cache.Reserve(int(s.cache.MaxSize()))()
	return nil
}
