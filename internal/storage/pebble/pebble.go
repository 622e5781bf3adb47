// Package pebble is the embedded event store: one folder, one process, no other software.
//
// One goroutine, the committer, does all writing. It takes the calls that have queued up, checks their preconditions,
// assigns positions, timestamps, versions and hashes, and writes one batch, which one fsync makes durable. While a
// batch is being written no other is begun, and readers use a snapshot taken after the last batch became durable, so
// nobody ever sees data that a crash could still lose.
//
// The decisions behind it are in docs/internals/storage.md.
package pebble

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/storage/leaves"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// Options specify where and how a store is opened.
type Options struct {
	// Dir is the data folder. It is created when it does not exist.
	Dir string
	// FS is the file system; nil means the operating system's.
	FS vfs.FS
	// Clock gives positions and expiry their time; nil means the machine's clock.
	Clock clock.Clock
	// Logger gets messages for the operator; nil means that nothing is logged.
	Logger *slog.Logger
	// MinFreeBytes is the free space of the volume below which writes are refused; 0 means a twentieth of the volume,
	// but at least 64 and at most 256 MiB.
	MinFreeBytes uint64
	// CacheBytes bounds the memory for stored data: recently read blocks and recent writes, which alone can take two
	// thirds of the minimum, or three eighths of 512 MiB, under load. 0 means DefaultCacheBytes. A store without load
	// uses almost none of it.
	CacheBytes int64
	// MaxClockJump is the longest forward step of the clock that is accepted while the store is open; 0 accepts any. A
	// longer one makes writes fail with ErrClock, as docs/operations.md describes.
	MaxClockJump time.Duration
	// Sealed are the spaces with values that must not be readable in a copy of the files; the function selects the
	// values, nil all of them. They are sealed with the key in KeyFile, which is created if it is missing.
	Sealed  map[store.Space]func(value []byte) bool
	KeyFile string
}

// DefaultCacheBytes is the memory for stored data if Options do not set it.
const DefaultCacheBytes = 96 << 20

const (
	// formatVersion is the version of keys and values. Version 1 has an entry in the feed for each event, versions 1
	// and 2 have no index of tags and no numbers of changes, version 3 has no correlation ids in that index: see
	// upgrade.
	formatVersion = 4
	// engineFormat is the version of Pebble's files. It is fixed, so that a newer library does not change a folder
	// that an older program must still be able to open.
	engineFormat = pebble.FormatTableFormatV6

	// leastMemTable and mostMemTable bound the size of a memory table, and memTables is how many of them there are at
	// most.
	leastMemTable, mostMemTable = 16 << 20, 48 << 20
	memTables                   = 4
	// blockBytes is a compromise: reads of single aggregates are fastest with blocks of 4 KiB, exports with 16 KiB.
	blockBytes = 8 << 10
	bloomBits  = 10
	// memTableShare is the part of the cache that one memory table may take, a tenth. Larger tables are merged less
	// often, and look-ups in them take longer.
	memTableShare = 10
	// topLevelThreshold is twice the number of flushed memory tables that the top level holds before they are merged
	// into the next one: the engine counts each twice. A merge rewrites everything below that it overlaps, so half as
	// many merges do half that work.
	topLevelThreshold = 8
	// dropDelay is the longest time until the disk space of a dropped tenant is reclaimed.
	dropDelay = 10 * time.Second
	// cachedHeads is the number of stream heads in memory, about 200 bytes each.
	cachedHeads = 1 << 16
)

// Store is the embedded event store. It implements store.Store. Each of its parts implements a few roles, or does
// background work.
type Store struct {
	*core
	*committer
	*appender
	*streams
	*feeds
	*sides
	*dueItems
	*directory
	*bulk
	*eraser
	*scrubber

	*sweeper
	*filters
	*tagBuilder
	*compactor
}

// core is shared by all parts of the store: the engine, and what the store keeps in memory about its data.
type core struct {
	db     *pebble.DB
	cache  *pebble.Cache
	disk   *disk
	clock  clock.Clock
	logger *slog.Logger
	life   *lifetime
	events *events
	queue  *queue.Writes[*batch]
	guard  *clockGuard
	// sealing does not change after the store was opened.
	sealing record.Sealing
	// background counts the goroutines of the store except the committer.
	background sync.WaitGroup
	// tableForm is the format of tables written outside the engine, readForm that of tables read without it.
	tableForm sstable.WriterOptions
	readForm  sstable.ReaderOptions

	// filters and stale are told by readers what takes them long.
	filters *filters
	stale   *compactor

	pages pages
	// rewrites counts how often events were rewritten. It grows when the new content becomes visible, before Rewrite
	// returns.
	rewrites atomic.Uint64
	// logged counts the bytes that were written to the log since the store was opened.
	logged atomic.Uint64
	// ending makes iterations end because the store closes.
	ending atomic.Bool

	mu      sync.Mutex
	closed  bool
	view    *view
	readers int
	// released, if not nil, is closed when a view has lost its last reader.
	released chan struct{}
	tenants  map[j17.Tenant]*tenant
	heads    headCache
	// retired are former views in order of age. Their readers are counted under mu; only the committer changes the
	// list.
	retired []*view
	changes changes
	leaves  *leaves.Latest
	// tagHints are used by reads by tags.
	tagHints tagHints
}

// newStore returns a store whose parts know each other.
func newStore(o *Options) *Store {
	c := &core{
		clock: o.Clock, logger: o.Logger, life: &lifetime{done: make(chan struct{})}, events: newEvents(),
		tenants: map[j17.Tenant]*tenant{}, heads: newHeadCache(),
		leaves: leaves.New(),
	}
	c.filters = &filters{core: c, streamSeed: maphash.MakeSeed()}
	c.stale = &compactor{core: c}
	due := &dueItems{core: c, due: map[store.Space]*dueOrder{}}
	committer := &committer{core: c, due: due, committed: make(chan struct{})}
	c.queue = queue.New[*batch](committer.admit)
	dir := &directory{core: c, committer: committer, due: due}
	appends, feeds := &appender{core: c}, &feeds{core: c}
	bulk := &bulk{core: c, feeds: feeds, committer: committer}
	return &Store{
		core: c, committer: committer, appender: appends, streams: &streams{core: c}, feeds: feeds,
		sides: &sides{core: c, appender: appends}, dueItems: due, directory: dir,
		bulk: bulk, eraser: &eraser{core: c, bulk: bulk}, scrubber: &scrubber{core: c},
		sweeper: &sweeper{core: c, directory: dir}, filters: c.filters, tagBuilder: &tagBuilder{core: c},
		compactor: c.stale,
	}
}

var _ store.Store = (*Store)(nil)

// tenant is what the store keeps in memory for a tenant.
type tenant struct {
	name j17.Tenant

	// Owned by the committer: the state with everything staged, whether the tenant is in the directory, whether the
	// present batch changes it, and the tags of its latest events if there are conditions on them.
	next   tenantState
	listed bool
	// added are the leaf hashes of the events that the present batch adds.
	added []leaves.Leaf

	// missed counts the new streams that were looked up on disk since a filter over streams was requested.
	missed uint64

	// recent and the filters over tags and streams are changed only by the committer and read by others.
	recent       atomic.Pointer[recentTags]
	tagFilter    atomic.Pointer[filter]
	streamFilter atomic.Pointer[filter]

	// Guarded by core.mu: the durable state. number is 0 while the tenant holds nothing. changed, if not nil, is
	// closed when the feed grows.
	number  uint32
	last    j17.StreamID
	events  uint64
	changed chan struct{}
	// building is the number under which the tenant's older events are being indexed, 0 if they are not.
	building uint32
	// linking is the same for a build of correlation ids alone.
	linking uint32
	// change is the number of the last change of the feed, 0 when there was none.
	change uint64
	leaves leaves.Kept
	// touched is the number of a view since which the tenant has not changed.
	touched uint64
}

// lifetime is a context that ends when the store closes.
type lifetime struct{ done chan struct{} }

func (l *lifetime) Deadline() (time.Time, bool) { return time.Time{}, false }
func (l *lifetime) Done() <-chan struct{}       { return l.done }
func (l *lifetime) Value(any) any               { return nil }

func (l *lifetime) Err() error {
	select {
	case <-l.done:
		return context.Canceled
	default:
		return nil
	}
}

// Open opens the store in a folder, or creates one. Only one process can have it open.
func Open(o Options) (*Store, error) {
	// Defaults.
	onDisk := o.FS == nil
	if onDisk {
		o.FS = vfs.Default
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			return nil, fmt.Errorf("find the data folder %s: %w", o.Dir, err)
		}
		o.Dir = dir
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}

	// The parts, each with its callbacks to the others.
	s := newStore(&o)
	s.disk = &disk{
		FS: o.FS, onDisk: onDisk, dir: o.Dir, clock: o.Clock, logger: o.Logger, life: s.life,
		merging: newMerging(), onFull: s.stalled, onStarved: s.starved, onFault: s.fail,
		descriptors: &descriptors{fs: o.FS, dir: o.Dir, clock: o.Clock, logger: o.Logger},
	}
	s.disk.marks = newMarks(s.disk)
	s.guard = &clockGuard{clock: o.Clock, logger: o.Logger, disk: s.disk, bound: o.MaxClockJump}

	// Load what the folder holds before anything runs.
	if err := s.open(o); err != nil {
		return nil, err
	}
	s.disk.check()
	go s.commitLoop()
	s.background.Go(s.sweepLoop)
	s.background.Go(s.markLoop)
	s.background.Go(func() { s.buildLoop(s.builds) })
	return s, nil
}

// fullNeeds is the most bytes that a start needs, to write what four memory tables have left in logs and to begin.
const fullNeeds = 512 << 20

func (s *Store) open(o Options) error {
	if err := s.disk.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("create the data folder %s: %w", o.Dir, err)
	}
	s.disk.setFloor(o.MinFreeBytes, memTable(o))
	s.disk.findBallast()
	if err := s.disk.makeRoom(); err != nil {
		return err
	}
	s.disk.descriptors.fill()
	err := s.unlessFaulted(nil, func() error { return s.openEngine(o) })
	switch {
	case errors.Is(err, errInUse):
		return fmt.Errorf("the data folder %s is in use by another j17 process: stop that one or choose another folder", o.Dir)
	case err != nil:
		// Pebble may have left goroutines behind that still want to write.
		s.disk.failed.Store(true)
		s.disk.descriptors.close()
		err = errors.Join(err, s.disk.marks.close())
		if noSpace(err) {
			err = fmt.Errorf("its volume is full, and what is in the logs cannot be put into tables: free %d MiB there and start again; nothing that was acknowledged is lost: %w", fullNeeds>>20, err)
		}
		return errors.Join(fmt.Errorf("open the data folder %s: %w", o.Dir, err), s.disk.unlock())
	}
	sealing, err := record.NewSealing(o.Sealed, keyfile.At(o.KeyFile))
	if err != nil {
		return errors.Join(err, s.closeEngine())
	}
	s.sealing = sealing
	if err := s.unlessFaulted(nil, s.load); err != nil {
		return errors.Join(fmt.Errorf("open the data folder %s: %w", o.Dir, err), s.closeEngine())
	}
	if seen := s.disk.marks.seen(); seen > 0 {
		s.guard.seen = time.UnixMilli(seen)
	}
	s.disk.closeToOthers()
	s.disk.phase.Store(running)
	s.view = &view{snapshot: s.db.NewSnapshot()}
	return nil
}

// unlessFaulted runs work that would never return after a fault. It also ends, with a nil error, when done is closed.
func (s *core) unlessFaulted(done <-chan struct{}, work func() error) error {
	result := make(chan error, 1)
	go func() { result <- work() }()
	select {
	case err := <-result:
		return err
	case <-s.queue.Faulted():
		return s.queue.Refusal()
	case <-done:
		return nil
	}
}

// openEngine opens Pebble, which panics on some errors of the disk.
func (s *Store) openEngine(o Options) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the storage engine has given up: %v", p)
		}
	}()
	options := s.engineOptions(o)
	s.cache = pebble.NewCache(o.CacheBytes)
	defer s.cache.Unref() // the engine has it for as long as it is open
	options.Cache = s.cache
	if s.db, err = pebble.Open(o.Dir, options); err != nil {
		return err
	}
	s.disk.merging.sublevels = func() int { return int(s.db.Metrics().Levels[0].Sublevels) }
	options.EnsureDefaults()
	s.tableForm = options.MakeWriterOptions(len(options.Levels)-1, engineFormat.MaxTableFormat())
	s.readForm = options.MakeReaderOptions()
	return nil
}

// memTable is the size of a memory table, in bytes.
func memTable(o Options) uint64 {
	return uint64(min(max(o.CacheBytes/memTableShare, leastMemTable), mostMemTable))
}

func (s *Store) engineOptions(o Options) *pebble.Options {
	// Where memory tables may be larger, so is the level that several of them are merged into.
	table := memTable(o)
	logger := &engineLogger{logger: o.Logger, fatal: s.disk.fail}
	opts := &pebble.Options{
		FS:                          s.disk,
		MaxOpenFiles:                openFiles(descriptorLimit()),
		MemTableSize:                table,
		MemTableStopWritesThreshold: memTables,
		FlushDelayDeleteRange:       dropDelay,
		L0CompactionThreshold:       topLevelThreshold,
		LBaseMaxBytes:               topLevelThreshold / 2 * int64(table),
		// Background work may take half of the processors when it falls behind.
		CompactionConcurrencyRange: func() (int, int) { return 1, max(1, runtime.NumCPU()/2) },
		FormatMajorVersion:         engineFormat,
		Logger:                     logger,
		EventListener:              s.events.listener(o.Logger, o.Clock, s.disk),
	}
	// Ranges of removed keys are merged when they slow down readers: see compactor.
	opts.Experimental.TombstoneDenseCompactionThreshold = -1
	for i := range opts.Levels {
		opts.Levels[i].BlockSize = blockBytes
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
		opts.Levels[i].FilterType = pebble.TableFilter
		opts.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	// Tables above the lowest level are soon written again, so compressing them is hardly worth its time.
	opts.Levels[len(opts.Levels)-1].Compression = func() *sstable.CompressionProfile {
		return sstable.FastestCompression
	}
	return opts
}

// load reads what the store must know before the first call, and finishes or undoes what the last run began.
func (s *Store) load() error {
	// The format says whether this program may read the folder at all.
	version, err := s.checkFormat()
	if err != nil {
		return err
	}

	next, err := s.getNumber(appendPrefix(nil, storeNumber, kindNext))
	if err != nil {
		return err
	}
	s.nextNumber = max(next, storeNumber+1)
	if err := s.loadTenants(); err != nil {
		return err
	}
	// Compare before the first write, which cancels the record of a clean stop.
	if err := s.disk.marks.checkTotals(s.totals()); err != nil {
		return err
	}

	// Left by the last run: a load that did not end, an older format.
	if err := s.dropPending(); err != nil {
		return fmt.Errorf("remove an unfinished load: %w", err)
	}
	if err := s.disk.RemoveAll(s.disk.PathJoin(s.disk.dir, loadingName)); err != nil {
		return fmt.Errorf("remove the files of an unfinished load: %w", err)
	}
	if version < formatVersion {
		if version != 0 {
			s.logger.Warn("the data folder is brought to a newer storage format: programs that know only the old one cannot open it from now on, and only a backup leads back",
				slog.Uint64("from", uint64(version)), slog.Int("to", formatVersion))
		}
		if err := s.upgrade(version); err != nil {
			return fmt.Errorf("bring the folder to format %d: %w", formatVersion, err)
		}
		// The log of a new folder was begun before the engine had its format: only later logs record how far they were
		// synced.
		if err := s.db.Flush(); err != nil {
			return fmt.Errorf("begin the log: %w", err)
		}
	}

	if err := s.sealOlder(); err != nil {
		return fmt.Errorf("seal older values: %w", err)
	}

	// Load what is answered from memory from now on, and what background work continues with.
	if err := s.loadChanges(); err != nil {
		return err
	}
	if s.builds, err = s.findBuilds(); err != nil {
		return err
	}
	return nil
}

// checkFormat returns the version of the folder, 0 for a new one, and refuses a newer one.
func (s *Store) checkFormat() (uint32, error) {
	version, err := s.getNumber(appendPrefix(nil, storeNumber, kindFormat))
	if err == nil && version > formatVersion {
		err = fmt.Errorf("it has the storage format %d, and this version of j17 knows only format %d: use a newer j17",
			version, formatVersion)
	}
	return version, err
}

// Figures returns none, since there is no database.
func (s *Store) Figures() store.Figures { return store.Figures{} }

// Status reports what the store accepts and how much space there is. See store.Store.
func (s *Store) Status() store.Status {
	st := store.Status{Readable: true, Writable: true}
	switch err := s.queue.Refusal(); {
	case err != nil:
		st.Writable, st.Reason = false, err.Error()
		if errors.Is(err, store.ErrClosed) {
			return store.Status{Reason: st.Reason}
		}
	case s.disk.check():
		st.Writable, st.Reason = false, store.ErrFull.Error()
	default:
		if err := s.guard.check(); err != nil {
			st.Writable, st.Reason = false, err.Error()
		}
	}
	st.FreeBytes = s.disk.freeBytes()
	return st
}

// DiskBytes returns the size of all files of the store.
func (s *Store) DiskBytes() uint64 { return s.disk.used() }

// fail stops all writes after a fault that leaves unknown what has become durable.
func (s *Store) fail(cause error) {
	s.logger.Error("a write to disk failed, no more writes are accepted", slog.Any("error", cause))
	s.queue.Shut(fmt.Errorf("%w: restart j17 when the fault is mended: %w", store.ErrFailed, cause))
	s.queue.Abandon(cause, s.queue.Refusal())
}

// stalled answers the calls that would have to wait until the volume has space again.
func (s *Store) stalled() {
	s.queue.Abandon(store.ErrFull, store.ErrFull)
}

// starved answers the calls that would have to wait until the process can open files again.
func (s *Store) starved() {
	lack := &store.LackError{Of: store.OfDescriptors}
	s.queue.Abandon(lack, lack)
}

// Close waits for running calls and releases the store. See store.Store. After a fault it does not wait: readers may go
// on, and the memory of the store stays in use.
func (s *Store) Close() error { return s.shutdown(nil) }

// Shutdown is Close, except that it stops waiting when ctx ends. See store.Store.
func (s *Store) Shutdown(ctx context.Context) error { return s.shutdown(ctx.Done()) }

func (s *Store) shutdown(end <-chan struct{}) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.ending.Store(true)
	s.queue.Shut(store.ErrClosed)
	close(s.life.done)
	s.background.Wait()
	s.endArchives(nil, store.ErrClosed)
	s.endBulkWrites("", store.ErrClosed)
	select {
	case <-s.committed:
	case <-s.queue.Faulted():
	}
	settled := s.settle(end)
	switch released := s.awaitRelease(s.queue.Faulted(), end, func() bool { return s.readers == 0 }); {
	case s.disk.failed.Load():
	case released && settled:
		s.reap()
	default:
		// A reader or Pebble still uses what closing would free. No file changes from here on.
		s.logger.Warn("the disk does not answer in time, and what waits for it is left behind")
		s.disk.failed.Store(true)
	}
	return s.closeEngine()
}

// closeEngine closes Pebble, or after a fault only the mark and the folder's lock.
func (s *Store) closeEngine() error {
	s.disk.phase.Store(closing)
	defer s.disk.descriptors.close()
	if s.disk.failed.Load() {
		// Goroutines of Pebble are parked in writes that must no longer happen, and hold its locks.
		return errors.Join(s.disk.marks.close(), s.disk.unlock())
	}
	var err error
	if s.view != nil {
		err = s.view.snapshot.Close()
	}
	err = errors.Join(err, s.db.Close())
	s.disk.marks.renew()
	return errors.Join(err, s.disk.marks.close())
}
