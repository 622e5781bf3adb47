package pebble

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17/internal/base/clock"
)

// noMark is a disk on which the mark cannot be written while it is set.
type noMark bool

func (f *noMark) String() string { return "no mark" }

func (f *noMark) MaybeError(op errorfs.Op) error {
	if bool(*f) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, markName) {
		return errors.New("the mark cannot be written")
	}
	return nil
}

// TestWhatTheMarkNamesStays uses a log anew, and removes one, while the mark cannot be written: a start after a crash
// finds what the mark names.
func TestWhatTheMarkNamesStays(t *testing.T) {
	t.Parallel()
	fs, unwritable := vfs.NewMem(), noMark(false)
	if err := fs.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func() *disk {
		t.Helper()
		d := &disk{
			FS: errorfs.Wrap(fs, &unwritable), dir: "data", clock: clock.System{},
			logger: slog.New(slog.DiscardHandler),
		}
		d.marks = newMarks(d)
		if err := d.marks.open(); err != nil {
			t.Errorf("a start: %v", err)
		}
		return d
	}
	fill := func(f vfs.File, err error) {
		t.Helper()
		if err == nil {
			_, err = f.Write([]byte("acknowledged"))
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	files := func() int {
		t.Helper()
		names, err := fs.List("data")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}

	d := begin()
	fill(d.Create("data/000001.log", vfs.WriteCategoryUnspecified))
	fill(d.Create("data/000002.log", vfs.WriteCategoryUnspecified))
	unwritable = true
	fill(d.ReuseForWrite("data/000001.log", "data/000003.log", vfs.WriteCategoryUnspecified))
	for range 2 {
		if d.Remove("data/000002.log") == nil {
			t.Error("a log is removed that the mark names")
		}
	}
	unwritable = false
	begin()

	// They go as soon as the mark can be written again.
	for _, name := range []string{"data/000001.log", "data/000002.log"} {
		if err := d.Remove(name); err != nil {
			t.Error(err)
		}
	}
	begin()
	if n := files(); n != 2 { // the third log and the mark
		t.Errorf("%d files are left", n)
	}
}

// TestClosingWaitsForTheLastFlushToBegin lets background work fail while the disk keeps the log waiting that the last
// flush begins: whoever asked Pebble for the flush must have its answer before Pebble is closed.
func TestClosingWaitsForTheLastFlushToBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &slowLogs{FS: vfs.NewMem()}
		s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		fs.gate.Store(&gate)
		settled := make(chan bool, 1)
		go func() { settled <- s.settle(nil) }()
		synctest.Wait()
		s.events.fail()
		synctest.Wait()
		select {
		case <-settled:
			t.Error("the flush has not begun yet")
			settled <- true
		default:
		}
		close(gate)
		if !<-settled {
			t.Error("it was given up")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// slowLogs is a file system on which a log is created when the gate is open.
type slowLogs struct {
	vfs.FS
	gate atomic.Pointer[chan struct{}]
}

func (fs *slowLogs) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if gate := fs.gate.Load(); gate != nil && strings.HasSuffix(name, logSuffix) {
		<-*gate
	}
	return fs.FS.Create(name, category)
}

func (fs *slowLogs) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if gate := fs.gate.Load(); gate != nil && strings.HasSuffix(newname, logSuffix) {
		<-*gate
	}
	return fs.FS.ReuseForWrite(oldname, newname, category)
}
