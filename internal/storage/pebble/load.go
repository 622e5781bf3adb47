package pebble

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// A load is written under a tenant number of its own, into tables outside the store, which ingests them all at once.
// The number is listed as pending until the tenant gets it: an unfinished load is removed, at the latest when the store
// is opened the next time.

const (
	// loadingName is the folder of the files of loads. Opening the store empties it.
	loadingName = "loading"
	// The memory of a load: the size in bytes of each of the two buffers of its sorters.
	eventBudget = 20 << 20
	feedBudget  = 6 << 20
	tagBudget   = 4 << 20
	itemBudget  = 4 << 20
)

// loading is a store.Load.
type loading struct {
	store  *bulk
	name   j17.Tenant
	number uint32
	folder *workFolder
	// err, if not nil, is why the load has failed, or errLoadEnded.
	err error

	// events are sorted by stream, and feed has notes and references to events, sorted by position. tags and items are
	// in the order of storage, and so are others: commands, and the due times, expiries and entries of items. A record
	// of items without a value is that of a withdrawn item.
	events, feed, tags, items, others *sorter
	// derives reports that some items have due times, expiries or entries, commands that there are commands; derived
	// reports that the records for derives were made.
	derives, commands, derived bool

	// there, if takes is set, has what the tenant already has, and the loaded items that get another revision because
	// of it. changed are the changes since that was copied.
	there   *sorter
	takes   bool
	changed *changedKeys

	// state is that of the tenant, run the present run of consecutive events in the feed.
	state unit.Load
	run   tagRun

	// Scratch space.
	key, value, own []byte
	told            unit.LoadedTags
}

// errLoadEnded is the error of calls after the end of a load.
var errLoadEnded = errors.New("the load has ended")

// bulk is the part of the store for archives, loads and bulk writes.
type bulk struct {
	*core

	feeds     *feeds
	committer *committer
	// archives and bulkWrites are the open ones, guarded by mu. bulkWritesMade counts all bulk writes.
	archives       map[*archive]bool
	bulkWrites     map[*bulkWrite]bool
	bulkWritesMade atomic.Uint64
}

// Load begins to fill a tenant. See store.Store.
func (s *bulk) Load(ctx context.Context, name j17.Tenant) (store.Load, error) {
	if err := store.ValidTenant(name); err != nil {
		return nil, err
	}

	// Allocate a tenant number.
	l := &loading{store: s, name: name}
	err := s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		t := b.tenant(name)
		if err := withoutEvents(t); err != nil {
			return err
		}
		l.state.Rev = t.next.Rev
		l.number = b.allocate()
		b.putNextNumber()
		b.put(appendPendingKey(b.key[:0], l.number), nil)
		return nil
	})
	if err != nil {
		return nil, err
	}

	// Create a folder.
	l.folder = &workFolder{
		fs: s.disk.FS, path: s.disk.PathJoin(s.disk.dir, loadingName, strconv.Itoa(int(l.number))), check: s.roomToLoad,
	}
	l.events, l.feed, l.tags = newSorter(l.folder, eventBudget), newSorter(l.folder, feedBudget),
		newSorter(l.folder, tagBudget)
	l.items, l.others, l.there = newSorter(l.folder, itemBudget), newSorter(l.folder, itemBudget),
		newSorter(l.folder, itemBudget)
	if err := s.disk.MkdirAll(l.folder.path, 0o700); err != nil {
		l.Discard()
		return nil, loadFault(fmt.Errorf("make a folder for a load: %w", err))
	}
	return l, nil
}

// roomToLoad returns an error if there is no space for another file of a load.
func (s *core) roomToLoad() error {
	if err := s.queue.Refusal(); err != nil {
		return err
	}
	if s.disk.check() {
		return store.ErrFull
	}
	return nil
}

// withoutEvents returns an error if a tenant cannot be loaded.
func withoutEvents(t *tenant) error {
	if t.next.Events > 0 || !t.next.Last.IsZero() {
		return fmt.Errorf("tenant %s: %w", t.name, store.ErrNotEmpty)
	}
	return nil
}

// loadFault turns errors of the file system into those that the store documents.
func loadFault(err error) error {
	switch {
	case err == nil:
		return nil
	case noSpace(err):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case noDescriptors(err):
		return fmt.Errorf("%w: %w", &store.LackError{Of: store.OfDescriptors}, err)
	default:
		return err
	}
}

// fail records an error, after which nothing can be added.
func (l *loading) fail(err error) error {
	if err != nil && l.err == nil {
		l.err = loadFault(err)
	}
	return l.err
}

// Event adds an event. See store.Load.
func (l *loading) Event(e store.LoadedEvent) (leaf [hashBytes]byte, err error) {
	if l.err != nil {
		return leaf, l.err
	}
	metadata, err := l.event(&e)
	if err != nil {
		return leaf, l.fail(&store.LoadError{Line: e.Line, Position: e.StreamID, Key: e.Key, Err: err})
	}
	leaf = sha256.Sum256(l.value[leafAt(e.Kept, l.own):])
	if err := l.fail(l.addEvent(&e, metadata, &leaf)); err != nil || e.Kept == nil {
		return leaf, err
	}
	return [hashBytes]byte(e.Kept), nil
}

// event checks an event by itself and makes its record. It returns its metadata without the timestamp.
func (l *loading) event(e *store.LoadedEvent) (metadata []byte, err error) {
	if metadata, err = l.state.Event(e); err != nil {
		return nil, err
	}

	// Its bytes must be those that a write would make.
	l.own = l.own[:0]
	if e.Kept == nil {
		l.own = record.AppendTags(l.own, e.Tags)
	}
	l.value = appendEventRecord(l.value[:0], e.StreamID, e.Key, e.Type, e.Data, metadata, e.Timestamp, e.Kept, l.own)
	if !bytes.HasSuffix(l.value, e.Raw) || len(l.value) != leafAt(e.Kept, l.own)+1+len(e.Raw) {
		return nil, unit.ErrLoadedBytes
	}
	return metadata, nil
}

// leafAt returns where the input of the leaf hash begins in a record.
func leafAt(kept, own []byte) int { return leafOffset(len(own)) + len(kept) }

// The first byte of a record that is sorted by stream is its kind. The leaf hash of an event's bytes follows.
const (
	sortedEvent   = 'e'
	sortedChained = 'c' // an event whose chain is known
	sortedNote    = 'n'
)

// addEvent adds an event whose record is l.value. leaf is the leaf hash of its bytes.
func (l *loading) addEvent(e *store.LoadedEvent, metadata []byte, leaf *[hashBytes]byte) error {
	// Add the tags, in the runs of the feed.
	if l.run.n > 0 && (l.run.n == maxRun || l.state.Last.Next() != e.StreamID) {
		if err := l.endRun(); err != nil {
			return err
		}
	}
	l.run.n++
	if e.Kept == nil {
		for _, id := range l.told.Of(metadata) {
			l.run.mark(tagID(id))
		}
		for _, tag := range e.Tags {
			if !record.FromMetadata(tag) {
				l.run.mark(idOfTag([]byte(tag)))
			}
		}
	}
	l.state.Add(e)

	// Add the record, which is sorted by stream.
	l.key = record.AppendPosition(append(appendStream(l.key[:0], e.Key), 0), e.StreamID)
	var header [1 + 2*binary.MaxVarintLen64 + 2*hashBytes]byte
	about := append(append(header[:0], sortedEvent), leaf[:]...)
	if e.Chain != nil {
		about[0] = sortedChained
		about = append(about, e.Chain[:]...)
	}
	about = binary.AppendUvarint(binary.AppendVarint(about, int64(e.Line)), e.Version)
	return l.events.add(l.key, about, l.value)
}

// endRun adds the tags of a run of events that ends at the last one.
func (l *loading) endRun() (err error) {
	l.run.each(l.state.Last, l.number, func(key, value []byte) {
		if err == nil {
			err = l.tags.add(key, value)
		}
	})
	return err
}

// Note adds a note. See store.Load.
func (l *loading) Note(n store.Note) error {
	if l.err != nil {
		return l.err
	}
	if err := l.endRun(); err != nil {
		return l.fail(err)
	}
	if err := l.state.Note(&n); err != nil {
		return l.fail(err)
	}
	for i := range n.Streams {
		g := &n.Streams[i]
		l.key = record.AppendPosition(append(appendStream(l.key[:0], g.Key), 0), n.Position)
		if err := l.events.add(l.key, binary.AppendUvarint([]byte{sortedNote}, g.Number)); err != nil {
			return l.fail(err)
		}
	}
	l.key = record.AppendPosition(l.key[:0], n.Position)
	return l.fail(l.feed.add(l.key, record.AppendNote(l.value[:0], &n)))
}

// Item adds a side item. See store.Load.
func (l *loading) Item(i store.ArchivedItem) error {
	if l.err != nil {
		return l.err
	}
	if err := l.state.Item(&i); err != nil {
		return l.fail(err)
	}
	l.derives = l.derives || i.Entries != "" || !i.Expires.IsZero() || !i.Due.IsZero()
	l.key = appendItemKey(l.key[:0], l.number, i.Space, i.Key)
	l.own = append(append(l.own[:0], i.Entries...), 0)
	l.value = l.store.itemRecord(
		l.value[:0], i.Space, i.Key,
		itemMeta{Meta: unit.Meta{Rev: i.Rev, Expires: unit.Nanos(i.Expires), Due: unit.Nanos(i.Due)}}, i.Value,
	)
	return l.fail(l.items.add(l.key, l.own, l.value))
}

// Withdraw removes an item that was added. See store.Load.
func (l *loading) Withdraw(n store.ItemName, _ store.Space) error {
	if l.err != nil {
		return l.err
	}
	if err := l.state.Withdraw(n); err != nil {
		return l.fail(err)
	}
	l.key = appendItemKey(l.key[:0], l.number, n.Space, n.Key)
	return l.fail(l.items.add(l.key))
}

// Command adds the result of a command. See store.Load.
func (l *loading) Command(c store.ArchivedCommand) error {
	if l.err != nil {
		return l.err
	}
	result, err := l.state.Command(&c)
	if err != nil {
		return l.fail(err)
	}
	expires := unit.Nanos(c.Expires)
	l.commands = true
	l.key = appendCommandKey(l.key[:0], l.number, c.ID)
	if err := l.others.add(l.key, result); err != nil || expires == 0 {
		return l.fail(err)
	}
	return l.fail(l.others.add(appendExpiryKey(nil, l.number, expires, l.key)))
}

// Discard removes what was added. See store.Load.
func (l *loading) Discard() {
	if errors.Is(l.err, errLoadEnded) {
		return
	}
	l.err = errLoadEnded
	l.clear()
	if l.changed != nil {
		l.changed.over.Store(true) // even if the committer never runs the call below
	}

	// If the removal fails, the next start does it.
	_ = l.store.queue.Do(l.store.life, queue.Always, func(b *batch) error {
		if b.tenant(l.name).next.Number == l.number {
			return nil // Commit does not know that it was committed
		}
		b.removeAll(l.number)
		b.remove(appendPendingKey(nil, l.number))
		return nil
	})
}

func (l *loading) sorters() []*sorter {
	return []*sorter{l.events, l.feed, l.tags, l.items, l.others, l.there}
}

// clear removes the files.
func (l *loading) clear() {
	for _, s := range l.sorters() {
		s.writing.Wait()
		s.filling, s.spare = nil, nil
	}
	if l.store.disk.failed.Load() {
		return // after a fault nothing changes the folder
	}
	_ = l.store.disk.FS.RemoveAll(l.folder.path) // a start removes what is left
}

// Commit makes the whole load visible. See store.Load.
func (l *loading) Commit(ctx context.Context, fences ...store.Fence) error {
	if l.err != nil {
		return l.err
	}
	if err := (&store.Append{Fences: fences}).Validate(); err != nil {
		return err
	}
	if err := l.commit(ctx, fences); err != nil {
		return l.fail(err)
	}
	l.err = errLoadEnded
	l.clear()
	return nil
}

func (l *loading) commit(ctx context.Context, fences []store.Fence) error {
	// Settle what is still in memory.
	err := l.endRun()
	for _, s := range l.sorters() {
		if s == l.feed {
			continue // the references to the events are not known yet
		}
		err = errors.Join(err, s.settle())
	}
	if err != nil {
		return err
	}

	// Write the tables, outside the store, with what the tenant has. The end notices if the store is closed meanwhile.
	if err := l.follow(ctx); err != nil {
		return err
	}
	tables, ofItems, err := l.tables(ctx)
	for copies := 1; err == nil; copies++ {
		var again bool
		if again, err = l.followAgain(ctx, copies == mostCopies); err != nil || !again {
			break
		}
		ofItems, err = l.itemsAnew(ctx)
	}
	if err != nil {
		return err
	}
	tables = append(tables, ofItems...)
	if err := l.roomFor(ctx); err != nil {
		return err
	}
	if len(tables) > 0 {
		// A canceled caller must not remove tables that the engine is ingesting: that would be a disk fault.
		whole := context.WithoutCancel(ctx)
		if err := l.store.inBackground(whole, func() error { return l.store.db.Ingest(whole, tables) }); err != nil {
			return fmt.Errorf("take the tables of a load in: %w", err)
		}
	}

	// Make them the tenant's.
	return l.store.queue.Do(ctx, queue.Ordinary, func(b *batch) error { return l.list(b, fences) })
}

// roomFor returns an error if the load can no longer be committed. It is called before its tables are ingested.
func (l *loading) roomFor(ctx context.Context) error {
	if err := l.store.roomToLoad(); err != nil {
		return err
	}
	return ctx.Err()
}

// list gives the tenant the number of the load, whose data include the side items that the tenant had.
func (l *loading) list(b *batch, fences []store.Fence) error {
	t := b.tenant(l.name)
	if err := withoutEvents(t); err != nil {
		return err
	}
	var r store.Result
	if err := b.units.Check(t, &store.Append{Fences: fences}, &r); err != nil {
		return err
	}
	if len(r.Sides) > 0 {
		return &r.Sides[0]
	}
	if err := l.catchUp(b, t); err != nil {
		return err
	}
	if t.listed {
		b.removeAll(t.next.Number)
	}
	works, err := loadDue(l.store.db, t, l.number)
	if err != nil {
		return err
	}
	b.due = append(b.due, works...)
	l.unfollow()

	// List the tenant, and change its state, which finish writes.
	t.next.Number = l.number
	t.next.Last, t.next.LastTime, t.next.Events = l.state.Last, l.state.LastTime, l.state.Events
	t.next.Rev = max(t.next.Rev, l.state.Rev)
	t.listed = true
	b.units.Touch(t)
	b.list(t.name, t.next.Number)
	b.remove(appendPendingKey(nil, l.number))
	return nil
}
