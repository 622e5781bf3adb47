package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// bulkWriteBudget is the memory of a bulk write for one of the two buffers of its sorter.
const bulkWriteBudget = 16 << 20

// bulkWrite is a store.BulkWrite. Its items are sorted outside the store, in the folder of loads, and become tables
// that the committer ingests.
type bulkWrite struct {
	store  *bulk
	name   j17.Tenant
	number uint32
	// rev is the revision of all items.
	rev uint64

	// mu is held by each call, since Purge may end a bulk write that is in use.
	mu     sync.Mutex
	folder *workFolder
	items  *sorter
	// err, if not nil, is why the bulk write has failed or ended.
	err        error
	ended      bool
	key, value []byte
}

// BulkWrite begins to collect plain items. See store.BulkWrites.
func (s *bulk) BulkWrite(ctx context.Context, name j17.Tenant) (store.BulkWrite, error) {
	if err := store.ValidTenant(name); err != nil {
		return nil, err
	}
	if err := s.roomToGather(); err != nil {
		return nil, err
	}
	p := &bulkWrite{store: s, name: name}
	err := s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		t := b.tenant(name)
		if !t.listed {
			return fmt.Errorf("tenant %s: %w", name, store.ErrNotFound)
		}
		b.units.Touch(t)
		t.next.Rev++
		p.number, p.rev = t.next.Number, t.next.Rev
		return nil
	})
	if err != nil {
		return nil, err
	}
	path := s.disk.PathJoin(s.disk.dir, loadingName, "bulk-"+strconv.FormatUint(s.bulkWritesMade.Add(1), 10))
	p.folder = &workFolder{fs: s.disk.FS, path: path, check: s.roomToGather}
	p.items = newSorter(p.folder, bulkWriteBudget)
	if err := s.disk.MkdirAll(path, 0o700); err != nil {
		return nil, loadFault(fmt.Errorf("make a folder for items: %w", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bulkWrites == nil {
		s.bulkWrites = map[*bulkWrite]bool{}
	}
	s.bulkWrites[p] = true
	return p, nil
}

// roomToGather is roomToLoad for bulk writes. They fail well above the floor of free space, so that they do not fill
// the disk for other writers.
func (s *bulk) roomToGather() error {
	if err := s.roomToLoad(); err != nil {
		return err
	}
	if s.disk.tight() {
		return store.ErrFull
	}
	return nil
}

// Put adds an item. See store.BulkWrite.
func (p *bulkWrite) Put(space store.Space, key string, value []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if err := store.ValidItem(space, key); err != nil {
		return err
	}
	p.key = appendItemKey(p.key[:0], p.number, space, key)
	p.value = appendItemRecord(p.value[:0], itemMeta{Meta: unit.Meta{Rev: p.rev}}, value)
	p.err = loadFault(p.items.add(p.key, p.value))
	return p.err
}

// Write makes the items durable. See store.BulkWrite.
func (p *bulkWrite) Write(ctx context.Context, side []store.Side, fences ...store.Fence) error {
	u := &store.Append{Fences: fences, Side: side}
	if err := u.Validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	err := p.write(ctx, u)
	p.end(errBulkWriteEnded)
	return err
}

func (p *bulkWrite) write(ctx context.Context, u *store.Append) error {
	tables, err := p.tables(ctx)
	if err != nil {
		return loadFault(err)
	}
	if err := p.store.roomToGather(); err != nil {
		return err
	}
	return p.store.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		// Check all conditions before anything is written.
		t := b.tenant(p.name)
		if !t.listed || t.next.Number != p.number {
			return fmt.Errorf("tenant %s was removed: %w", p.name, store.ErrNotFound)
		}
		if slices.ContainsFunc(
			p.store.committer.following(), func(c *changedKeys) bool { return c.number == p.number },
		) {
			// The load would not notice the ingested items.
			return fmt.Errorf("tenant %s is being loaded: %w", p.name, store.ErrBusy)
		}
		var r store.Result
		if err := b.units.Check(t, u, &r); err != nil {
			return err
		}
		if len(r.Sides) > 0 {
			return &r.Sides[0]
		}

		// No reader sees the tables before the batch is published, and no other write can come in between.
		if len(tables) > 0 {
			if err := p.store.unlessFaulted(
				nil, func() error { return p.store.db.Ingest(context.WithoutCancel(ctx), tables) },
			); err != nil {
				return fmt.Errorf("take the tables of a bulk write in: %w", err)
			}
		}
		b.units.Touch(t) // the batch must be published even without side writes
		return b.units.Decide(t, u, &r)
	})
}

// tables writes the items into tables and returns their paths. Each table has items of one space only, so that it does
// not overlap keys between spaces.
func (p *bulkWrite) tables(ctx context.Context) ([]string, error) {
	if err := p.items.settle(); err != nil {
		return nil, err
	}
	var writers []*tableWriter
	var space []byte
	err := p.items.each(ctx, func(key, value []byte) error {
		if begin := key[:tenantPrefix+1+bytes.IndexByte(key[tenantPrefix+1:], 0)+1]; !bytes.Equal(begin, space) {
			space = append(space[:0], begin...)
			writers = append(writers, &tableWriter{folder: p.folder, form: p.store.tableForm})
		}
		return writers[len(writers)-1].set(key, value)
	})

	// The error of a writer is the cause of the error of set.
	var paths []string
	for _, w := range writers {
		if failed := w.close(); failed != nil {
			err = failed
		}
		paths = append(paths, w.paths...)
	}
	return paths, err
}

// Discard removes what was added. See store.BulkWrite.
func (p *bulkWrite) Discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(errBulkWriteEnded)
}

// errBulkWriteEnded is the error of calls after the end of a bulk write.
var errBulkWriteEnded = errors.New("the bulk write has ended")

// end ends the bulk write and removes its files, unless it has ended. Files that cannot be removed now are removed at
// the next start. The caller holds mu.
func (p *bulkWrite) end(reason error) {
	if p.ended {
		return
	}
	p.items.writing.Wait()
	p.err, p.ended = reason, true
	p.items.filling, p.items.spare = nil, nil
	p.store.mu.Lock()
	delete(p.store.bulkWrites, p)
	p.store.mu.Unlock()
	if !p.store.disk.failed.Load() {
		_ = p.store.disk.FS.RemoveAll(p.folder.path)
	}
}

// endBulkWrites ends the bulk writes of a tenant, "" for all tenants, since they may hold erased data.
func (s *bulk) endBulkWrites(of j17.Tenant, reason error) {
	s.mu.Lock()
	open := make([]*bulkWrite, 0, len(s.bulkWrites))
	for p := range s.bulkWrites {
		if of == "" || p.name == of {
			open = append(open, p)
		}
	}
	s.mu.Unlock()
	for _, p := range open {
		p.mu.Lock()
		p.end(reason)
		p.mu.Unlock()
	}
}
