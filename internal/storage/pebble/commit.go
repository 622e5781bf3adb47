package pebble

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

const (
	// maxBatchBytes is the size at which a batch takes no more units. The last one may exceed it.
	maxBatchBytes = 4 << 20
	// reapAt is the number of former views that are closed together. Closing the oldest one makes Pebble look for
	// work, which is too dear for every batch.
	reapAt = 64
	// keptScratch is the number of things that a batch keeps room for, keptBytes the size of a value: after a large batch
	// the next ones are as cheap as before.
	keptScratch = 1024
	// keptHalf is the number of items in half of those that are kept between batches, some 300 bytes each.
	keptHalf  = 4096
	keptBytes = 1 << 20
)

// call is one call that waits for the committer.
type call = queue.Call[*batch]

// admit returns why a call is not worth queueing: space is short, and the call would wait for it.
func (s *Store) admit(need queue.Need) error {
	if s.disk.short.Load() && s.disk.check() && s.disk.refuses(need) {
		return store.ErrFull
	}
	return nil
}

// Barrier waits until all writes before it are decided. See store.Store.
func (s *Store) Barrier(ctx context.Context) error {
	// The committer takes a call when the batch before it is durable, published and answered.
	return s.queue.Do(ctx, queue.Always, func(*batch) error { return nil })
}

// commitLoop is the committer. It ends when the store closes and all calls are answered.
func (s *Store) commitLoop() {
	defer close(s.committed)
	b := &batch{store: s}
	b.init()
	var calls []*call
	for s.queue.Wait() {
		calls = s.queue.Take(calls[:0])
		if !s.commitAll(b, calls) {
			calls = nil
		}
	}
}

// commitAll executes and answers calls. It reports false when the calls were answered by somebody else, who then
// also has the slice.
func (s *Store) commitAll(b *batch, calls []*call) bool {
	// What is known before anything is tried: a full disk, a clock that cannot be believed, descriptors that run out.
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

		// They are durable now.
		for _, c := range calls[:complete] {
			c.Finish()
		}
		calls = calls[complete:]
	}
	return true
}

// write makes the batch durable and visible. It reports whether the calls are still to be answered.
func (s *Store) write(b *batch) (ours bool, err error) {
	b.finish()
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

	// What it leaves in memory, unless those have their answer who wrote it: it is theirs.
	if b.settled = ours && !b.operated; b.settled {
		b.kept.add(b.items)
	}
	if ours {
		b.keepRecent()
	}
	b.staged.clear()
	s.publish(b)
	return ours, nil
}

// publish makes a durable batch visible to all readers.
func (s *Store) publish(b *batch) {
	fresh := &view{snapshot: s.db.NewSnapshot()}
	s.mu.Lock()
	fresh.number = s.view.number + 1
	s.retired = append(s.retired, s.view)
	s.view = fresh
	if b.rewritten {
		s.rewrites.Add(1)
	}
	for _, h := range b.changed {
		s.heads.put(h.key, h.Head)
	}
	for _, t := range b.tenants {
		t.number, t.events, t.touched = t.nextNumber, t.next.events, fresh.number
		if t.next.last != t.last {
			s.changes.note(t, t.next.change, len(s.tenants))
		}
		s.leaves.add(t)
		t.move(t.next.last)
	}
	if b.built != nil {
		b.built.building = 0
	}
	for _, w := range b.due {
		s.noteDue(w)
	}
	for _, t := range b.dropped {
		t.nextNumber, t.next, t.listed, t.number, t.events, t.change, t.leaves, t.touched = 0, tenantState{}, false, 0, 0, 0, tenantLeaves{}, fresh.number
		b.forgetRecent(t)
		s.filterBytes -= t.tagFilter.Swap(nil).size() + t.streamFilter.Swap(nil).size()
		t.move(t.next.last)
	}
	s.mu.Unlock()
	if len(s.retired) >= reapAt {
		s.reap()
	}
}

// move sets the position of the last durable event and wakes those who wait for another one. It needs Store.mu.
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
func (s *Store) reap() {
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
	// The youngest first: only closing the oldest one of all makes Pebble look for work.
	for _, v := range slices.Backward(idle) {
		if err := v.snapshot.Close(); err != nil {
			s.disk.fail(fmt.Errorf("release a snapshot: %w", err))
			return
		}
	}
}

// batch is what the committer writes at once, and the state after it.
type batch struct {
	store  *Store
	writes *pebble.Batch
	// now is the time of the batch in Unix nanoseconds.
	now int64
	ms  int64

	heads    map[string]*stagedHead
	changed  []*stagedHead
	slab     []stagedHead
	tenants  []*tenant
	dropped  []*tenant
	items    map[string]*stagedItem
	commands map[commandKey]*stagedCommand
	due      []dueWork
	// rewritten tells that events were rewritten.
	rewritten bool
	// kept are items that the next batch probably asks for. settled tells that they are as they are stored: all that has changed items since
	// they were kept are units, which were written.
	kept    keptItems
	settled bool
	// operated tells that there is something other than units in it.
	operated bool
	// built, if not nil, is a tenant of which all older events are indexed from then on.
	built *tenant

	// staged are the events of its units.
	staged stagedEvents
	// recent are the tenants of whose latest events tags are kept, the one with the first condition first.
	recent []*tenant

	// lookup, if not nil, finds heads on disk.
	lookup *pebble.Iterator

	// Results that are handed out; never reused.
	ids     []j17.StreamID
	lengths []uint64

	// run and tags are the events that have no entry in the feed and in the index of tags yet: those of a tenant, up to a position.
	run    feedRun
	tags   tagRun
	runOf  *tenant
	runEnd j17.StreamID

	// Scratch space.
	wanted []wantedHead
	key    []byte
	key2   []byte
	value  []byte
	own    []byte
	unit   []*stagedHead
	sides  []*stagedItem
	assign []stagedAssignment
}

// stagedHead is the head of a stream after what was staged so far.
type stagedHead struct {
	// key is the one under which it is stored.
	key string
	store.Head
	changed bool
	// fresh tells that the tenant did not have the stream, which is filtered in filters.
	fresh    bool
	tenant   *tenant
	filtered filtered
}

// stagedItem is a side item after what was staged so far. value is its value where it was staged, asked for, or is not longer than
// maxKeptValue; nil where it is not known.
type stagedItem struct {
	itemMeta
	value []byte
	// keep tells that the item is worth keeping: fences are on the same items over and over, and who has entries mostly gets others soon.
	keep bool
}

// keptItems are side items as the last batch has left them: nobody but the committer changes items. It has two halves: when the young one
// is full, it becomes the old one, whose items are forgotten unless they were used since. That only happens between batches.
type keptItems struct{ young, old map[string]*stagedItem }

// get returns an item, nil if it is not kept.
func (k *keptItems) get(key []byte) *stagedItem {
	if item := k.young[string(key)]; item != nil {
		return item
	}
	item := k.old[string(key)]
	if item != nil {
		k.young[string(key)] = item
	}
	return item
}

// add takes what a batch has looked up or changed, and keeps what is worth it and not large. Values are copied: those that were written
// belong to whoever has written them.
func (k *keptItems) add(items map[string]*stagedItem) {
	for key, item := range items {
		if !item.keep || len(item.value) > maxKeptValue {
			delete(k.young, key)
			delete(k.old, key)
			continue
		}
		item.value = bytes.Clone(item.value)
		k.young[key] = item
	}
	if len(k.young) >= keptHalf {
		k.young, k.old = map[string]*stagedItem{}, k.young
	}
}

// forget lets go of an item.
func (k *keptItems) forget(key []byte) {
	delete(k.young, string(key))
	delete(k.old, string(key))
}

func (k *keptItems) clear() {
	if k.young == nil || len(k.young)+len(k.old) > 0 {
		k.young, k.old = map[string]*stagedItem{}, nil
	}
}

type commandKey struct {
	tenant uint32
	id     store.CommandID
}

// stagedCommand is a command that was looked up or staged. result is nil when there is none; one that has expired
// is there until it is swept.
type stagedCommand struct {
	result  *store.Result
	memo    []byte
	expires int64
}

func (b *batch) init() {
	b.heads = make(map[string]*stagedHead)
	b.items = make(map[string]*stagedItem)
	b.kept.clear()
	b.commands = make(map[commandKey]*stagedCommand)
}

// reset makes the batch an empty one of the present moment.
func (b *batch) reset() {
	b.endLookup()
	b.staged.clear()
	if b.writes != nil {
		// A batch holds memory only; closing one cannot fail in a way that matters.
		_ = b.writes.Close()
	}
	b.writes = b.store.db.NewBatch()
	now := b.store.clock.Now()
	b.now, b.ms, b.rewritten, b.built = now.UnixNano(), now.UnixMilli(), false, nil
	b.tags.clear() // of a run that a failure has cut short
	b.run.n, b.runOf = 0, nil
	b.heads, b.commands = emptied(b.heads), emptied(b.commands)
	if !b.settled {
		b.kept.clear()
	}
	b.items, b.settled, b.operated = emptied(b.items), false, false
	for _, t := range b.tenants {
		t.staged, t.added, t.noted = false, nil, j17.StreamID{}
	}
	b.changed, b.tenants, b.dropped, b.slab, b.due = b.changed[:0], b.tenants[:0], b.dropped[:0], b.slab[:0], b.due[:0]
	if cap(b.due) > keptScratch {
		b.due = nil
	}
	if cap(b.changed) > keptScratch {
		b.changed, b.slab, b.unit, b.sides = nil, nil, nil, nil
	}
	if cap(b.value) > keptBytes {
		b.value, b.key2 = nil, nil
	}
	// What was handed out is not used again, but probably as much is needed as the last time.
	b.ids = make([]j17.StreamID, 0, min(cap(b.ids), keptScratch))
	b.lengths = make([]uint64, 0, min(cap(b.lengths), keptScratch))
}

// emptied returns an empty map: m, unless clearing that would take long, which goes by the most that it ever held.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > keptScratch {
		return make(map[K]V)
	}
	clear(m)
	return m
}

func (b *batch) empty() bool { return b.writes.Empty() && len(b.tenants) == 0 }

// fill stages calls until the batch is full, and returns how many of them are complete.
func (b *batch) fill(calls []*call, full, unbelieved error) int {
	if full == nil && unbelieved == nil {
		b.lookUp(calls)
	}
	for i, c := range calls {
		switch {
		case unbelieved != nil && c.Need() != queue.Always:
			c.Fail(unbelieved)
		case full != nil && b.store.disk.refuses(c.Need()):
			c.Fail(full)
		case c.Op() != nil:
			b.operated = true
			err := c.Op()(b)
			if err != nil {
				b.reset()
			}
			c.Fail(err)
		case !b.stageUnits(c):
			return i
		}
	}
	return len(calls)
}

// stageUnits stages the units of a call. It reports false when the batch was full before the last one.
func (b *batch) stageUnits(c *call) bool {
	t := b.tenant(c.Tenant)
	return c.Stage(
		func() bool { return b.writes.Len() >= maxBatchBytes },
		func(u *store.Append, r *store.Result) error { return b.stageUnit(t, u, r) },
	)
}

// stage marks the tenant as changed by this batch, and lists it when it is new.
func (b *batch) stage(t *tenant) {
	if t.staged {
		return
	}
	t.staged = true
	b.tenants = append(b.tenants, t)
	if !t.listed {
		t.listed = true
		b.list(t.name, t.nextNumber)
	}
}

// list puts a tenant into the directory.
func (b *batch) list(name j17.Tenant, number uint32) {
	b.put(appendTenantKey(b.key[:0], name), appendNumber(b.value[:0], number))
	b.putNextNumber()
}

// putNextNumber stores that all numbers given out so far are in use.
func (b *batch) putNextNumber() {
	b.put(appendPrefix(b.key[:0], storeNumber, kindNext), appendNumber(b.value[:0], b.store.nextNumber))
}

// finish stages what is written once a batch.
func (b *batch) finish() {
	b.endRun()
	// In the order of their keys: the engine finds the place of the next one from that of the last.
	slices.SortFunc(b.changed, func(x, y *stagedHead) int { return strings.Compare(x.key, y.key) })
	for _, h := range b.changed {
		if h.fresh {
			h.tenant.streamFilter.Load().add(h.tenant.nextNumber, h.filtered)
		}
		b.put(append(b.key[:0], h.key...), appendHeadRecord(b.value[:0], &h.Head))
	}
	for _, t := range b.tenants {
		// Only the committer moves t.last.
		if t.next.last != t.last {
			b.store.nextChange++
			t.next.change = b.store.nextChange
		}
		b.put(appendPrefix(b.key[:0], t.nextNumber, kindState), appendStateRecord(b.value[:0], &t.next))
	}
}

// put stages a write. key and value may be b.key and b.value, which then keep their memory.
func (b *batch) put(key, value []byte) {
	b.key, b.value = key, value
	must(b.writes.Set(key, value, nil))
}

func (b *batch) remove(key []byte) { must(b.writes.Delete(key, nil)) }

// must takes the errors of a batch that has no index: there are none.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
