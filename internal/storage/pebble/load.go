package pebble

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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
	// The memory of a load: the size of each of the two buffers of its sorters.
	eventBudget = 20 << 20
	feedBudget  = 6 << 20
	tagBudget   = 4 << 20
	itemBudget  = 4 << 20
)

// lastLoadable is the greatest time of a position, in Unix milliseconds, that a load accepts: one year before positions
// need another digit, in 2286.
const lastLoadable = 9_999_999_999_999 - 365*24*60*60*1000

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
	// derives reports that some items have due times, expiries or entries, revised that some have revisions of their
	// own, commands that there are commands; derived reports that the records for derives were made.
	derives, revised, commands, derived bool

	// there, if takes is set, has what the tenant has, and the items that get another revision because of it. changed
	// are the changes since it was copied.
	there   *sorter
	takes   bool
	changed *changedKeys

	// The position of the last event or note, and the present run of consecutive events in the feed.
	last j17.StreamID
	run  tagRun
	// The state of the tenant.
	any      bool
	lastTime int64
	count    uint64
	// rev is the greatest revision so far. Loaded items get revisions after given, which is 0 before the first one.
	rev, given uint64

	// Scratch space.
	key, value, own, canonical []byte
	told                       toldTags
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
		l.rev = t.next.Rev
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
		return fmt.Errorf("%w: %w", store.ErrBusy, err)
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
	if err := l.event(&e); err != nil {
		return leaf, l.fail(&store.LoadError{Line: e.Line, Position: e.StreamID, Key: e.Key, Err: err})
	}
	leaf = sha256.Sum256(l.value[leafAt(e.Kept, l.own):])
	if err := l.fail(l.addEvent(&e, &leaf)); err != nil || e.Kept == nil {
		return leaf, err
	}
	return [hashBytes]byte(e.Kept), nil
}

// event checks an event by itself and makes its record.
func (l *loading) event(e *store.LoadedEvent) error {
	// Its place in the feed.
	if err := l.place(e.StreamID); err != nil {
		return err
	}

	// Its parts, as a write would check them.
	l.canonical = append(strconv.AppendInt(append(l.canonical[:0], `"timestamp":`...), e.Timestamp, 10), '}')
	metadata, found := bytes.CutSuffix(e.Metadata, l.canonical)
	if !found {
		return errors.New("its metadata do not end with its timestamp")
	}
	l.canonical = append(append(l.canonical[:0], bytes.TrimSuffix(metadata, []byte(","))...), '}')
	n := len(l.canonical)
	one := store.NewEvent{Key: e.Key, Type: e.Type, Data: e.Data, Metadata: l.canonical, Tags: e.Tags}
	if err := one.Validate(); err != nil {
		return err
	}
	if e.Kept != nil && len(e.Kept) != hashBytes {
		return fmt.Errorf("the leaf that it keeps has %d bytes", len(e.Kept))
	}

	// Its bytes are those that a write would make.
	l.own = l.own[:0]
	if e.Kept == nil {
		l.own = record.AppendTags(l.own, e.Tags)
	}
	l.value = appendEventRecord(
		l.value[:0], e.StreamID, e.Key, e.Type, e.Data, l.canonical[:n], e.Timestamp, e.Kept, l.own,
	)
	if !bytes.HasSuffix(l.value, e.Raw) || len(l.value) != leafAt(e.Kept, l.own)+1+len(e.Raw) {
		return errors.New("its bytes are not in canonical form")
	}
	return nil
}

// leafAt returns where the input of the leaf hash begins in a record.
func leafAt(kept, own []byte) int { return leafOffset(len(own)) + len(kept) }

// place checks a position.
func (l *loading) place(at j17.StreamID) error {
	if at.Compare(l.last) <= 0 {
		return fmt.Errorf("it does not come after the position before it, %s", l.last)
	}
	if at.Ms > lastLoadable {
		return fmt.Errorf("the position %s leaves no room for events to come", at)
	}
	return nil
}

// The first byte of a record that is sorted by stream is its kind. The leaf hash of an event's bytes follows.
const (
	sortedEvent   = 'e'
	sortedChained = 'c' // an event whose chain is known
	sortedNote    = 'n'
)

// addEvent adds an event whose record is l.value. leaf is the leaf hash of its bytes.
func (l *loading) addEvent(e *store.LoadedEvent, leaf *[hashBytes]byte) error {
	// Add the tags, in the runs of the feed.
	if l.run.n > 0 && (l.run.n == maxRun || l.last.Next() != e.StreamID) {
		if err := l.endRun(); err != nil {
			return err
		}
	}
	l.run.n++
	if e.Kept == nil {
		for _, id := range l.told.of(l.canonical) {
			l.run.mark(id)
		}
		for _, tag := range e.Tags {
			if !record.FromMetadata(tag) {
				l.run.mark(idOfTag([]byte(tag)))
			}
		}
	}

	// The state.
	if l.last = e.StreamID; !l.any || e.Timestamp > l.lastTime {
		l.any, l.lastTime = true, e.Timestamp
	}
	l.count++

	// The record goes to its stream.
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

// endRun adds the tags of a run of events that ends at l.last.
func (l *loading) endRun() (err error) {
	l.run.each(l.last, l.number, func(key, value []byte) {
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
	if err := l.place(n.Position); err != nil {
		return l.fail(fmt.Errorf("the note at %s cannot be loaded: %w", n.Position, err))
	}
	if len(n.Streams) == 0 || len(n.Streams) > store.MaxUnitEvents {
		return l.fail(fmt.Errorf("the note at %s cannot be loaded: it names %d streams", n.Position, len(n.Streams)))
	}
	if err := l.endRun(); err != nil {
		return l.fail(err)
	}
	for i := range n.Streams {
		g := &n.Streams[i]
		if err := store.ValidKey(g.Key); err != nil || g.Number == 0 {
			return l.fail(fmt.Errorf("the note at %s cannot be loaded: the generation %d of %s is none: %w", n.Position, g.Number, g.Key, err))
		}
		l.key = record.AppendPosition(append(appendStream(l.key[:0], g.Key), 0), n.Position)
		if err := l.events.add(l.key, binary.AppendUvarint([]byte{sortedNote}, g.Number)); err != nil {
			return l.fail(err)
		}
	}
	l.last = n.Position
	l.key = record.AppendPosition(l.key[:0], n.Position)
	return l.fail(l.feed.add(l.key, record.AppendNote(l.value[:0], &n)))
}

// Item adds a side item. See store.Load.
func (l *loading) Item(i store.ArchivedItem) error {
	if l.err != nil {
		return l.err
	}
	side := store.Side{
		Op: store.Put, Space: i.Space, Key: i.Key, Value: i.Value, Expires: i.Expires, Due: i.Due, Entries: i.Entries,
	}
	if err := (&store.Append{Side: []store.Side{side}}).Validate(); err != nil {
		return l.fail(fmt.Errorf("the side item %s/%s cannot be loaded: %w", i.Space, i.Key, err))
	}
	if i.Rev == 0 {
		i.Rev = l.nextRev()
	} else {
		l.revised, l.rev = true, max(l.rev, i.Rev)
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

// Withdraw removes an item again. See store.Load.
func (l *loading) Withdraw(n store.ItemName) error {
	if l.err != nil {
		return l.err
	}
	side := store.Side{Op: store.Delete, Space: n.Space, Key: n.Key}
	if err := (&store.Append{Side: []store.Side{side}}).Validate(); err != nil {
		return l.fail(fmt.Errorf("the side item %s/%s cannot be withdrawn: %w", n.Space, n.Key, err))
	}
	l.key = appendItemKey(l.key[:0], l.number, n.Space, n.Key)
	return l.fail(l.items.add(l.key))
}

// Command adds the result of a command. See store.Load.
func (l *loading) Command(c store.ArchivedCommand) error {
	if l.err != nil {
		return l.err
	}
	one := store.Append{Command: &c.Command}
	err := one.Validate()
	if err == nil && (len(c.Lengths) > store.MaxUnitEvents || c.First.IsZero() != (len(c.Lengths) == 0)) {
		err = errors.New("its result contradicts itself")
	}
	if err != nil {
		return l.fail(fmt.Errorf("the command %x cannot be loaded: %w", c.ID, err))
	}
	r := store.Result{Timestamp: c.Timestamp, Lengths: c.Lengths}
	if len(c.Lengths) > 0 {
		r.IDs = []j17.StreamID{c.First}
	}
	expires := unit.Nanos(c.Expires)
	l.commands = true
	l.key = appendCommandKey(l.key[:0], l.number, c.ID)
	if err := l.others.add(l.key, record.AppendCommand(l.value[:0], expires, &r, c.Memo)); err != nil || expires == 0 {
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
		return // nothing changes the folder any longer
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

	// Write the tables, outside the store, with what the tenant has. If the store is closed meanwhile, that is noticed
	// at the end.
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

// list gives the tenant the number of the load, which includes the side items that it had.
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

	// The directory and the state, which finish writes.
	t.next.Number = l.number
	t.next.Last, t.next.LastTime, t.next.Events, t.next.Rev = l.last, l.lastTime, l.count, max(t.next.Rev, l.rev)
	t.listed = true
	b.units.Touch(t)
	b.list(t.name, t.next.Number)
	b.remove(appendPendingKey(nil, l.number))
	return nil
}

// toldTags returns the tags that come from metadata. It caches some, since many events have the same actor and target.
type toldTags struct{ known map[string][]tagID }

// maxToldMetadata bounds the number of cached metadata, maxToldBytes their size.
const maxToldMetadata, maxToldBytes = 4096, 512

// of returns the tags that come from metadata without a timestamp.
func (c *toldTags) of(metadata []byte) []tagID {
	if ids, ok := c.known[string(metadata)]; ok {
		return ids
	}
	tags := j17.MetadataTags(metadata)
	ids := make([]tagID, len(tags))
	for i, tag := range tags {
		ids[i] = idOfTag([]byte(tag))
	}
	if len(metadata) <= maxToldBytes {
		if c.known == nil || len(c.known) >= maxToldMetadata {
			c.known = map[string][]tagID{}
		}
		c.known[string(slices.Clone(metadata))] = ids
	}
	return ids
}
