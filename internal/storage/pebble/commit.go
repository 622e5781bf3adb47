package pebble

import (
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

const (
	// maxBatchBytes is the size from which on a batch takes no further units. The last one may exceed it.
	maxBatchBytes = 4 << 20
	// reapAt is the number of former views that are closed together. Closing the oldest one makes Pebble look for work,
	// which is too expensive for every batch.
	reapAt = 64
	// keptScratch bounds the elements for which a batch keeps memory, keptBytes the size of a value, so that batches
	// after a large one are as cheap as before it.
	keptScratch = 1024
	keptBytes   = 1 << 20
)

// call is one call that waits for the committer.
type call = queue.Call[*batch]

// admit returns an error for a call that is not worth queueing, because space is short and the call would wait for it.
func (s *committer) admit(need queue.Need) error {
	if s.disk.short.Load() && s.disk.check() && s.disk.refuses(need) {
		return store.ErrFull
	}
	return nil
}

// Barrier waits until all writes before it are decided. See store.Store.
func (s *appender) Barrier(ctx context.Context) error {
	// The committer takes a call when the batch before it is durable, published and answered.
	return s.queue.Do(ctx, queue.Always, func(*batch) error { return nil })
}

// committer does all writing: it takes the waiting calls, and makes them durable and visible in batches.
type committer struct {
	*core

	due *dueItems
	// committed is closed when it has ended.
	committed chan struct{}
	// nextNumber is the number of the next new tenant, nextChange that of the latest change of a feed.
	nextNumber uint32
	nextChange uint64
	// followed records the changes of tenants for loads.
	followed []*changedKeys
}

// commitLoop commits until the store closes and all calls are answered.
func (s *committer) commitLoop() {
	defer close(s.committed)
	b := newBatch(s)
	var calls []*call
	for s.queue.Wait() {
		calls = s.queue.Take(calls[:0])
		if !s.commitAll(b, calls) {
			calls = nil
		}
	}
}

// commitAll executes and answers calls. It returns false if the calls were answered elsewhere; the slice then belongs
// to that code.
func (s *committer) commitAll(b *batch, calls []*call) bool {
	// Check what is known before anything is tried: the free space, the clock and the file descriptors.
	var refusal error
	if s.disk.check() {
		refusal = store.ErrFull
	}
	unbelieved := s.guard.check()
	if s.disk.descriptors.wanting.Load() {
		s.disk.descriptors.fill()
	}

	// A batch takes as many calls as fit in it; the rest follow in the next one.
	for len(calls) > 0 {
		b.reset()
		complete := b.fill(calls, refusal, unbelieved)
		b.endLookup()
		if !b.empty() {
			b.finish()
			if err := s.queue.Begin(calls); err != nil {
				queue.Refuse(calls, err)
				return true
			}
			ours, err := s.write(b)
			if !ours {
				return false
			}
			if err != nil {
				queue.Refuse(calls, err)
				return true
			}
		}

		// These calls are durable now.
		for _, c := range calls[:complete] {
			c.Finish()
		}
		calls = calls[complete:]
	}
	return true
}

// write makes the batch durable and visible. It reports whether the calls are still to be answered.
func (s *committer) write(b *batch) (ours bool, err error) {
	s.noteChanges(b)
	s.logged.Add(uint64(b.writes.Len()))
	err = s.db.Apply(b.writes, pebble.Sync)
	ours = s.queue.End()
	if s.disk.failed.Load() {
		return ours, queue.Unknown(store.ErrFailed)
	}
	if err != nil {
		s.disk.fail(fmt.Errorf("apply a batch: %w", err))
		return ours, queue.Unknown(err)
	}

	// Keep its items in memory, unless their writers have been answered and may reuse the memory.
	b.settled = ours && !b.operated
	if ours {
		b.keepRecent()
	}
	b.units.Stored(b.settled)
	s.publish(b)
	return ours, nil
}

// publish makes a durable batch visible to all readers.
func (s *committer) publish(b *batch) {
	fresh := &view{snapshot: s.db.NewSnapshot()}
	s.mu.Lock()
	fresh.number = s.view.number + 1
	s.retired = append(s.retired, s.view)
	s.view = fresh
	if b.rewritten {
		s.rewrites.Add(1)
	}
	for i, h := range b.units.Changed() {
		s.heads.put(b.headKeys[i], h.Head)
	}
	for _, t := range b.units.Tenants() {
		t.number, t.events, t.touched = t.next.Number, t.next.Events, fresh.number
		if t.next.Last != t.last {
			s.changes.note(t, t.next.change, len(s.tenants))
		}
		s.leaves.Add(&t.leaves, t.added, t.next.Last, t.next.Events)
		t.move(t.next.Last)
	}
	if b.built != nil {
		b.built.building, b.built.linking = 0, 0
	}
	for _, w := range b.due {
		s.due.noteDue(w)
	}
	for _, t := range b.dropped {
		t.next, t.listed, t.number, t.events, t.change, t.touched = stateOf(t.name, 0), false, 0, 0, 0,
			fresh.number
		t.leaves.Forget()
		b.forgetRecent(t)
		s.filters.held -= t.tagFilter.Swap(nil).size() + t.streamFilter.Swap(nil).size()
		t.move(t.next.Last)
	}
	s.mu.Unlock()
	if len(s.retired) >= reapAt {
		s.reap()
	}
}

// move sets the position of the last durable event and wakes the waiting readers. The caller holds core.mu.
func (t *tenant) move(last j17.StreamID) {
	if t.last == last {
		return
	}
	t.last = last
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// reap closes the former views that have no readers. Only the committer calls it, or Close when the committer has
// ended.
func (s *committer) reap() {
	s.mu.Lock()
	var idle []*view
	busy := s.retired[:0]
	for _, v := range s.retired {
		if v.readers == 0 {
			idle = append(idle, v)
		} else {
			busy = append(busy, v)
		}
	}
	clear(s.retired[len(busy):])
	s.retired = busy
	s.mu.Unlock()
	// Close the youngest first: only closing the oldest one of all makes Pebble look for work.
	for _, v := range slices.Backward(idle) {
		if err := v.snapshot.Close(); err != nil {
			s.disk.fail(fmt.Errorf("release a snapshot: %w", err))
			return
		}
	}
}
