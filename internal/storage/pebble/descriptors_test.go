//go:build !race

package pebble_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// limitedFS has a limit on the number of open files, as a process has.
type limitedFS struct {
	vfs.FS
	limit, open, refused atomic.Int64
}

func (f *limitedFS) take(op func() (vfs.File, error)) (vfs.File, error) {
	if f.open.Add(1) > f.limit.Load() {
		f.open.Add(-1)
		f.refused.Add(1)
		return nil, syscall.EMFILE
	}
	file, err := op()
	if err != nil {
		f.open.Add(-1)
		return nil, err
	}
	return &limitedFile{File: file, fs: f}, nil
}

func (f *limitedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.take(func() (vfs.File, error) { return f.FS.Create(name, c) })
}

func (f *limitedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.take(func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

func (f *limitedFS) OpenDir(name string) (vfs.File, error) {
	return f.take(func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// ReuseForWrite renames before it opens, as that of the operating system does.
func (f *limitedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return f.take(func() (vfs.File, error) { return f.OpenReadWrite(newname, c) })
}

type limitedFile struct {
	vfs.File
	fs *limitedFS
}

func (f *limitedFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

// writeMuch writes enough to need several logs and tables, unless it is told before that it is enough.
func writeMuch(t *testing.T, s store.Store, w *workload, enough func() bool) (refused int) {
	t.Helper()
	for range 70 {
		if enough() {
			break
		}
		switch err := w.write(t, s); {
		case err == nil:
		case errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrUnknown):
			refused++
		default:
			t.Fatalf("append: %v, want nil, ErrBusy or ErrUnknown", err)
		}
	}
	return refused
}

// TestDescriptorsRunOut lets others take all descriptors that the process may have: first so that the reserve of the
// store is enough, then so that it is not. The store must go on, or refuse in a way that is worth another try, and go
// on by itself when there are descriptors again.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := vfs.NewMem()
		fs := &limitedFS{FS: base}
		fs.limit.Store(1000)
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.System{}, Logger: quiet()})
		w := newWorkload(100_000)
		never := func() bool { return false }
		if writeMuch(t, s, w, never) > 0 {
			t.Fatal("writes were refused before the limit")
		}
		// The reserve is for one new log, and the tables that are written then. What still writes others is waited for:
		// the limit could be met while it has files open for a moment only.
		synctest.Wait()
		fs.limit.Store(fs.open.Load())
		if n := writeMuch(t, s, w, func() bool { return fs.refused.Load() > 0 }); n > 0 || fs.refused.Load() == 0 {
			t.Errorf("%d writes were refused although there was a reserve; the limit was met %d times", n, fs.refused.Load())
		}
		// Not even the reserve is left.
		fs.limit.Store(0)
		if n := writeMuch(t, s, w, never); n == 0 {
			t.Error("no write was refused without descriptors")
		}
		if st := s.Status(); !st.Readable {
			t.Errorf("status %+v", st)
		}
		fs.limit.Store(1000)
		rest(t, time.Minute) // whoever waits for a descriptor tries again
		if err := s.Barrier(t.Context()); err != nil {
			t.Fatalf("barrier: %v", err)
		}
		if n := writeMuch(t, s, w, never); n > 0 {
			t.Errorf("%d writes were refused although there were descriptors again", n)
		}
		units := w.stored(t, s)
		for n := range w.acknowledged() {
			if !units[n] {
				t.Errorf("unit %d was acknowledged and is lost", n)
			}
		}
		closeStore(t, s)
		if n := fs.open.Load(); n != 0 {
			t.Errorf("%d files are still open", n)
		}
		w.checkKept(t, base, w.acknowledged())
	})
}

// TestReadsWithoutDescriptors reads tables that cannot be opened: that is worth another try and no damage.
func TestReadsWithoutDescriptors(t *testing.T) {
	t.Parallel()
	base := vfs.NewMem()
	w := newWorkload(100)
	s := open(t, pebble.Options{Dir: "data", FS: base})
	for range 200 {
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	f := &faults{err: syscall.EMFILE, match: func(op errorfs.Op) bool {
		return (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen) && strings.HasSuffix(op.Path, ".sst")
	}}
	s = open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Logger: quiet()})
	defer closeStore(t, s)
	f.on.Store(true)
	_, scanErr := s.Scan(t.Context(), tenant, space, store.Range{}, 10)
	_, getErr := s.Get(t.Context(), tenant, space, "1")
	var streamErr, feedErr error
	for _, err := range s.ReadStream(t.Context(), tenant, key("all"), 1, 0) {
		streamErr = err
	}
	for _, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 10) {
		feedErr = err
	}
	for name, err := range map[string]error{
		"scan": scanErr, "get": getErr, "stream": streamErr, "feed": feedErr, "dump": dump(t, s),
	} {
		var corruption *store.CorruptionError
		if !errors.Is(err, store.ErrBusy) || errors.As(err, &corruption) {
			t.Errorf("%s: %v, want ErrBusy", name, err)
		}
	}
	f.on.Store(false)
	if units := w.stored(t, s); len(units) != 200 {
		t.Errorf("%d units", len(units))
	}
}

// TestDescriptors divides the limit of a process between the store and all others.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	for limit, want := range map[uint64]int{0: 1032, 96: 48, 256: 128, 1024: 512, 2064: 1032, 65536: 1032} {
		if got := pebble.Descriptors(limit); got != want {
			t.Errorf("%d of %d, want %d", got, limit, want)
		}
	}
}
