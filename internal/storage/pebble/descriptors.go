package pebble

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
)

const (
	// maxOpenFiles is the number of files that the storage engine keeps open if the limit of the process allows it.
	maxOpenFiles = 1000
	// reserved is the number of descriptors that are held back for when the process has no more: enough for a new log,
	// and for the tables that flushing and compacting write at the same time.
	reserved = 16
	// ownDescriptors is how many descriptors a store needs besides those of the engine's files.
	ownDescriptors = reserved + 16
)

// Descriptors returns how many of the file descriptors that the process may have open belong to the store, the others
// being free for connections: at most 1032, and no more than half of them. limit is RLIMIT_NOFILE, 0 if there is none.
func Descriptors(limit uint64) int {
	if limit == 0 || limit >= 2*(maxOpenFiles+ownDescriptors) {
		return maxOpenFiles + ownDescriptors
	}
	return int(limit / 2)
}

// openFiles returns how many files the engine may keep open under a limit of the process.
func openFiles(limit uint64) int { return max(Descriptors(limit)-ownDescriptors, 1) }

// noDescriptors reports whether an operation failed because the process, or the machine, has too many files open. That
// passes, and says nothing about the disk.
func noDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// descriptors keeps some file descriptors in reserve, so that the store can go on when all others are used up.
type descriptors struct {
	fs     vfs.FS
	dir    string
	clock  clock.Clock
	logger *slog.Logger
	// starving is the number of operations that wait for a descriptor, wanting reports that the reserve is not
	// complete.
	starving atomic.Int64
	wanting  atomic.Bool

	mu   sync.Mutex
	held []vfs.File
	// next is when the reserve may be filled again.
	next time.Time
}

// giveBack releases one descriptor of the reserve for an operation that was refused one. It returns false if there is
// none left.
func (d *descriptors) giveBack() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanting.Swap(true) {
		d.logger.Warn("file descriptors have run out, the store uses those that it holds in reserve",
			slog.Uint64("limit", descriptorLimit()), slog.Int("reserve", len(d.held)))
	}
	d.next = d.clock.Now().Add(retryPause)
	n := len(d.held)
	if n == 0 {
		return false
	}
	// It is a folder that nothing was written to.
	_ = d.held[n-1].Close()
	d.held = d.held[:n-1]
	return true
}

// fill fills the reserve. If that fails it is tried again later.
func (d *descriptors) fill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if now.Before(d.next) {
		return
	}
	for len(d.held) < reserved {
		f, err := d.fs.OpenDir(d.dir)
		if err != nil {
			d.wanting.Store(true)
			d.next = now.Add(retryPause)
			return
		}
		d.held = append(d.held, f)
	}
	if d.wanting.Swap(false) {
		d.logger.Info("there are file descriptors again, the reserve is complete")
	}
}

// close releases the reserve.
func (d *descriptors) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.held {
		_ = f.Close()
	}
	d.held = nil
}
