package pebble

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17/internal/clock"
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

// TestWhatTheMarkNamesStays uses a log anew, and removes one, while the mark cannot be written: a start after a crash finds what the mark names.
func TestWhatTheMarkNamesStays(t *testing.T) {
	t.Parallel()
	fs, unwritable := vfs.NewMem(), noMark(false)
	if err := fs.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func() *disk {
		t.Helper()
		d := &disk{FS: errorfs.Wrap(fs, &unwritable), dir: "data", clock: clock.System{}, logger: slog.New(slog.DiscardHandler)}
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
