package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
	"j17/internal/storage/queue"
)

// disk is the file system that Pebble sees. It hides from Pebble the faults that would make it end the process, and
// tracks the free space.
//
//   - A write that finds no space waits until there is some. Table files are the exception: Pebble discards a table
//     that it cannot finish and starts again, which frees the space of the unfinished one.
//   - An operation that gets no file descriptor takes one of the reserve, or waits until there is one.
//   - Any other failed write stops all writes for good: from then on the files stay as they would after a crash, and
//     operations that change them block. Reads go on.
//   - Log files are handed out for reuse without their old content once they have been scrubbed.
//
// While the store opens, any failed write stops it: Pebble would retry some of them for ever. While it closes, errors
// are passed on to Pebble.
type disk struct {
	vfs.FS
	dir   string
	floor uint64
	// onDisk reports that FS is the operating system's, whose folders can be locked.
	onDisk bool
	// ballastBytes is the size of the ballast.
	ballastBytes uint64
	// logBytes is the space that a new store allocates for its logs before anything is written to them.
	logBytes uint64

	clock  clock.Clock
	logger *slog.Logger
	life   context.Context //nolint:containedctx // the life of the store, which no call's context can stand for

	// descriptors is the reserve of file descriptors.
	descriptors *descriptors
	marks       *marks
	// stalled reports that the engine accepts no writes until a table has been written.
	stalled atomic.Bool
	merging *merging

	// onFull is called when a write finds no space, onStarved when one waits for a file descriptor, onFault once, when
	// writes stop for good.
	onFull    func()
	onStarved func()
	onFault   func(error)

	phase  atomic.Int32
	failed atomic.Bool
	// short reports that writes are refused for lack of space.
	short atomic.Bool

	mu       sync.Mutex
	ballast  bool
	retry    time.Time
	free     uint64
	lock     io.Closer
	log      uint64
	scrubbed uint64
}

// The phases of a store's life.
const (
	opening int32 = iota
	running
	closing
)

const (
	// mostFloor and leastFloor bound the free space that is kept. The size of the ballast is leastFloor, which is the
	// most that logs can hold that go to tables when the store is opened.
	mostFloor  = 256 << 20
	leastFloor = 64 << 20
	// retryPause is the time between two attempts to write to a full volume.
	retryPause = time.Second
	// reserveShare is the share of the floor, one in so many, that even writes which make room may not use.
	reserveShare = 16

	ballastName = "ballast"
	logSuffix   = ".log"
	tableSuffix = ".sst"
	blobSuffix  = ".blob"

	manifestPrefix = "MANIFEST-"
)

var errInUse = errors.New("the lock is held")

// setFloor fixes the free space below which no writes are accepted, and the size of the ballast; 0 chooses them by the
// size of the volume. The ballast is a file that is removed when the volume runs full, so that writes under way can
// finish and the contents of the log can go to tables when the store is opened. table is the size of a memory table: a
// log is allocated with a tenth more, and there are two logs, one in use and one kept for reuse.
func (d *disk) setFloor(floor, table uint64) {
	if floor != 0 {
		d.floor, d.ballastBytes = floor, floor/4
		return
	}
	d.floor, d.ballastBytes, d.logBytes = mostFloor, leastFloor, 2*(table+table/10)
	if usage, err := d.GetDiskUsage(d.dir); err == nil {
		d.floor = min(mostFloor, max(leastFloor, usage.TotalBytes/20))
	}
}

// makeRoom removes the ballast if the volume is too full to open the store. It refuses to create a store whose first
// write would already be refused.
func (d *disk) makeRoom() error {
	usage, err := d.GetDiskUsage(d.dir)
	if err != nil {
		// Nothing is known about the volume.
		return nil
	}
	names, err := d.List(d.dir)
	if err != nil {
		return fmt.Errorf("list the data folder %s: %w", d.dir, err)
	}
	used := slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, manifestPrefix) })
	if need := d.floor + d.ballastBytes + d.logBytes; !used && usage.AvailBytes < need {
		return fmt.Errorf("the volume of %s has %d MiB of free space, and a new data folder needs %d: make room or choose another volume",
			d.dir, usage.AvailBytes>>20, (need+1<<20-1)>>20)
	}
	if usage.AvailBytes < d.ballastBytes {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ballast = d.ballast && d.FS.Remove(d.ballastPath()) != nil
	}
	return nil
}

func (d *disk) ballastPath() string { return d.PathJoin(d.dir, ballastName) }

// findBallast notes a ballast file that an earlier run has left.
func (d *disk) findBallast() {
	_, err := d.Stat(d.ballastPath())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ballast = err == nil
}

// check looks at the free space and returns whether writes must be refused.
func (d *disk) check() bool {
	usage, err := d.GetDiskUsage(d.dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.free = 0
		short := d.clock.Now().Before(d.retry)
		if d.short.Swap(short) != short {
			d.merging.look()
		}
		return short
	}
	d.free = usage.AvailBytes
	want := d.floor
	if !d.ballast {
		want += d.ballastBytes
	}
	switch {
	case usage.AvailBytes >= want:
		if !d.ballast {
			d.ballast = d.inflate()
		}
		d.setShort(false)
	case usage.AvailBytes < d.floor:
		d.setShort(true)
	}
	return d.short.Load()
}

// tight reports whether there is less free space than twice the floor.
func (d *disk) tight() bool {
	usage, err := d.GetDiskUsage(d.dir)
	return err == nil && usage.AvailBytes < 2*d.floor
}

// refuses reports whether calls of a need are refused while space is short. Calls that make room are refused only once
// the ballast is gone and little of the space that it held is left.
func (d *disk) refuses(n queue.Need) bool {
	if n != queue.Freeing {
		return n == queue.Ordinary
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.ballast && d.free < d.floor/reserveShare
}

func (d *disk) setShort(short bool) {
	if d.short.Swap(short) == short {
		return
	}
	d.merging.look()
	at := slog.Uint64("free_bytes", d.free)
	if short {
		d.logger.Error("disk space has run low, writes are refused", at, slog.Uint64("floor_bytes", d.floor))
	} else {
		d.logger.Info("disk space is sufficient again, writes are accepted", at)
	}
}

// inflate creates the ballast file.
func (d *disk) inflate() bool {
	f, err := d.create(d.ballastPath(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return false
	}
	err = f.Preallocate(0, int64(d.ballastBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return d.FS.Remove(d.ballastPath()) != nil
	}
	return true
}

// outOfSpace records that a write found no space. It returns true if it could free some.
func (d *disk) outOfSpace() bool {
	d.mu.Lock()
	released := d.ballast && d.FS.Remove(d.ballastPath()) == nil
	d.ballast = d.ballast && !released
	d.retry = d.clock.Now().Add(retryPause)
	d.free = 0
	d.setShort(true)
	d.mu.Unlock()
	if d.phase.Load() == running && !released {
		d.onFull()
	}
	return released
}

func (d *disk) freeBytes() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free
}

// used returns the size of all files in the data folder. Pebble's own figures are not available while it writes its
// manifest, which can block until there is space.
func (d *disk) used() uint64 {
	names, err := d.List(d.dir)
	if err != nil {
		return 0
	}
	var total int64
	for _, name := range names {
		if info, err := d.Stat(d.PathJoin(d.dir, name)); err == nil {
			total += info.Size()
		}
	}
	return uint64(max(total, 0))
}

// pause waits until another attempt to write is due. It returns an error when the store closes.
func (d *disk) pause() error {
	d.mu.Lock()
	retry := d.retry
	d.mu.Unlock()
	return d.clock.Wait(d.life, retry)
}

// attempt runs op, which changes files. table reports that op is on a table, which Pebble can do without, again that op
// may be repeated when it found no space or no descriptor.
func (d *disk) attempt(table, again bool, op func() error) error {
	for {
		if d.failed.Load() {
			park()
		}

		err := op()
		if err == nil {
			return nil
		}
		// A store that is abandoned sets failed before its phase is closing, so read the phase first.
		phase := d.phase.Load()
		if d.failed.Load() {
			// The write was under way when writes stopped, or when the store was closed without waiting for it.
			park()
		}

		// Try again at once if a reserve could be released: the ballast, or a file descriptor.
		full, starved := noSpace(err), noDescriptors(err)
		if (full && d.outOfSpace() && again) || (starved && again && d.descriptors.giveBack()) {
			continue
		}

		// While the store closes, Pebble gets the error. For a table without space it does in a running store too: it
		// goes on and retries the table.
		if phase == closing || (phase == running && full && table) {
			return err
		}

		// A running store waits until there is space, or a descriptor, again.
		if phase == running && again && (full || starved) {
			waiting := d.pause
			if starved {
				waiting = func() error { return d.starve(table) }
			}
			ended := waiting()
			if ended == nil {
				continue
			}
			if table {
				return err
			}
			err = ended
		}

		// Otherwise the store fails and this call never returns, unless the store has begun to close.
		d.fail(err)
		if !d.failed.Load() {
			return err
		}
	}
}

// noSpace reports whether a write found no room, on the volume or within a quota.
func noSpace(err error) bool { return vfs.IsNoSpaceError(err) || errors.Is(err, syscall.EDQUOT) }

// starve waits before another attempt to get a file descriptor. Callers that depend on a log, or on a table without
// which there is no room for writes in memory, get an error instead of waiting as well.
func (d *disk) starve(table bool) error {
	d.descriptors.starving.Add(1)
	defer d.descriptors.starving.Add(-1)
	if !table || d.stalled.Load() {
		d.onStarved()
	}
	return d.clock.Wait(d.life, d.clock.Now().Add(retryPause))
}

// fail stops all writes for good. While the store closes it does nothing, and the caller returns the error.
func (d *disk) fail(err error) {
	if d.phase.Load() != closing && !d.failed.Swap(true) {
		d.onFault(err)
	}
}

// park blocks for ever. A goroutine of Pebble that could not write ends here: the files must not change any more,
// and an error would make Pebble end the process.
func park() { select {} }

// unlock releases the folder of a store that cannot be closed in an orderly way.
func (d *disk) unlock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}

// scrub marks all log files that exist now: none of them will be reused, and removeScrubbed removes them.
func (d *disk) scrub() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scrubbed = d.log
}

// removeScrubbed removes the marked log files that are still there. Pebble must not need them any more.
func (d *disk) removeScrubbed() error {
	names, err := d.List(d.dir)
	if err != nil {
		return fmt.Errorf("list the data folder: %w", err)
	}
	d.mu.Lock()
	scrubbed := d.scrubbed
	d.mu.Unlock()
	for _, name := range names {
		if n, ok := logNumber(name); !ok || n > scrubbed {
			continue
		}
		if err := d.Remove(d.PathJoin(d.dir, name)); err != nil {
			if _, missing := d.Stat(d.PathJoin(d.dir, name)); missing == nil {
				return fmt.Errorf("remove an old log: %w", err)
			}
		}
	}
	return nil
}

func logNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, logSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// startLog records that a log file is created and returns the number of the last scrubbed log.
func (d *disk) startLog(path string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := logNumber(d.PathBase(path)); ok {
		d.log = max(d.log, n)
	}
	return d.scrubbed
}

func isTable(path string) bool {
	return strings.HasSuffix(path, tableSuffix) || strings.HasSuffix(path, blobSuffix)
}

// ownerOnly is the mode of the store's files: nobody else may read them, even in a copy whose folders are open to
// others.
const ownerOnly = 0o600

// closeToOthers removes the right of others to read files of the store.
func (d *disk) closeToOthers() {
	if !d.onDisk {
		return
	}
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it was merged into others
		case err != nil || info.Mode().Perm()&0o077 == 0:
			return err
		}
		return os.Chmod(path, ownerOnly) //nolint:gosec // nobody else can write to the folder
	})
	if err != nil {
		d.logger.Warn("files of the store could not be closed to others", slog.Any("error", err))
	}
}

// create creates a file that nobody else may read.
func (d *disk) create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if err == nil && d.onDisk {
		_ = os.Chmod(name, ownerOnly) // if it fails, the next start repairs it
	}
	return f, err
}

// Create creates a file.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	table := isTable(name)
	if table && d.phase.Load() == running && d.short.Load() {
		// A flush that found no space starts again at once, so wait; the error only means that the store closes.
		_ = d.pause()
	}
	d.startLog(name)
	f, err := d.open(table, func() (vfs.File, error) { return d.create(name, category) })
	if table && err == nil {
		return &unfinishedTable{File: f, standBack: d.standBackOf(category)}, nil
	}
	return d.marked(name, f), err
}

// marked makes the mark track a file if it is of a kind that marks list.
func (d *disk) marked(path string, f vfs.File) vfs.File {
	name := d.PathBase(path)
	if f == nil || !isMarked(name) {
		return f
	}
	return &trackedFile{File: f, marks: d.marks, written: markedFile{Name: name}}
}

// ReuseForWrite makes a new log out of an old one.
func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	scrubbed := d.startLog(newname)
	n, ok := logNumber(d.PathBase(oldname))
	if ok && (n <= scrubbed || d.marks.drop(d.PathBase(oldname)) != nil) {
		// removeScrubbed may have removed it already. A file that the mark still names stays until the next start.
		_ = d.Remove(oldname)
		return d.Create(newname, category)
	}
	f, err := d.open(false, func() (vfs.File, error) {
		f, err := d.FS.ReuseForWrite(oldname, newname, category)
		if _, gone := d.Stat(oldname); err != nil && gone != nil {
			// The file was renamed but could not be opened.
			return d.create(newname, category)
		}
		return f, err
	})
	return d.marked(newname, f), err
}

// OpenDir opens a folder for syncing.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	return d.open(false, func() (vfs.File, error) { return d.FS.OpenDir(name) })
}

// Open opens a file for reading. It fails if there is no descriptor and the reserve has none either.
func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	for {
		f, err := d.FS.Open(name, opts...)
		if err == nil || !noDescriptors(err) || !d.descriptors.giveBack() {
			return f, err
		}
	}
}

func (d *disk) open(table bool, op func() (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := d.attempt(table, true, func() (err error) {
		f, err = op()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d, table: table}, nil
}

// Link creates a hard link.
func (d *disk) Link(oldname, newname string) error {
	return d.attempt(isTable(newname), true, func() error { return d.FS.Link(oldname, newname) })
}

// Rename renames a file.
func (d *disk) Rename(oldname, newname string) error {
	return d.attempt(isTable(newname), true, func() error { return d.FS.Rename(oldname, newname) })
}

// Remove removes a file. Pebble does not depend on it. A file is removed only once the mark no longer names it.
func (d *disk) Remove(name string) error {
	if d.failed.Load() {
		park()
	}
	if err := d.marks.drop(d.PathBase(name)); err != nil {
		return fmt.Errorf("take the file off the mark: %w", err)
	}
	return d.FS.Remove(name)
}

// RemoveAll removes a folder. Pebble does not depend on it.
func (d *disk) RemoveAll(name string) error {
	if d.failed.Load() {
		park()
	}
	return d.FS.RemoveAll(name)
}

// Lock locks the data folder.
func (d *disk) Lock(name string) (io.Closer, error) {
	c, err := d.FS.Lock(name)
	if err != nil {
		if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held") {
			err = errInUse
		}
		return nil, err
	}
	// A lock file can be removed and then locks out nobody, so the folder itself is locked as well.
	if d.onDisk {
		held, err := hold(filepath.Dir(name))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c = closers{held, c}
	}

	// From here on nobody else changes the folder.
	if err := d.marks.open(); err != nil {
		return nil, errors.Join(err, d.marks.close(), c.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lock = &onceCloser{Closer: c}
	return d.lock, nil
}

// closers are closed as one.
type closers []io.Closer

// Close closes all of them.
func (all closers) Close() error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// onceCloser can be closed by Pebble and, where Pebble may not get to it, by the store.
type onceCloser struct {
	io.Closer
	once sync.Once
	err  error
}

// Close closes what it holds, the first time.
func (c *onceCloser) Close() error {
	c.once.Do(func() { c.err = c.Closer.Close() })
	return c.err
}

// Unwrap returns the file system below.
func (d *disk) Unwrap() vfs.FS { return d.FS }

// diskFile is a file or folder that is open for writing or syncing.
type diskFile struct {
	vfs.File
	disk  *disk
	table bool
}

// Write appends p.
func (f *diskFile) Write(p []byte) (int, error) {
	written := 0
	err := f.disk.attempt(f.table, true, func() error {
		n, err := f.File.Write(p[written:])
		written += n
		return err
	})
	return written, err
}

// Preallocate is an optimisation, so its errors are ignored: a write will meet them again.
func (f *diskFile) Preallocate(offset, length int64) error {
	_ = f.File.Preallocate(offset, length)
	return nil
}

// Sync makes the file durable. A failed one must not be repeated: the system may have dropped what it could not write.
func (f *diskFile) Sync() error { return f.disk.attempt(f.table, false, f.File.Sync) }

// SyncData makes the file's data durable.
func (f *diskFile) SyncData() error { return f.disk.attempt(f.table, false, f.File.SyncData) }

// SyncTo begins to make a part of the file durable.
func (f *diskFile) SyncTo(length int64) (full bool, err error) {
	err = f.disk.attempt(f.table, false, func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Close closes the file.
func (f *diskFile) Close() error { return f.disk.attempt(f.table, false, f.File.Close) }
