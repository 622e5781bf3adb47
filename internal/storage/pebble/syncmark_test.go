package pebble_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
)

// cloneFolder copies the folder of a store.
func cloneFolder(t *testing.T, fs *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	clone := vfs.NewMem()
	if _, err := vfs.Clone(fs, clone, "data", "data"); err != nil {
		t.Fatal(err)
	}
	return clone
}

// filesOf lists the files of a folder whose names end in one of the suffixes and that are not empty.
func filesOf(t *testing.T, fs *vfs.MemFS, suffixes ...string) (names []string) {
	t.Helper()
	all, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		info, err := fs.Stat("data/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 0 && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			names = append(names, "data/"+name)
		}
	}
	return names
}

// harm does something to a file. It reports false where it makes no difference.
type harm func(t *testing.T, fs *vfs.MemFS, path string) bool

func harms() map[string]harm {
	cut := func(t *testing.T, fs *vfs.MemFS, path string, part int) bool {
		t.Helper()
		content, err := fs.UnsafeGetFileDataBuffer(path)
		if err != nil {
			t.Fatal(err)
		}
		rewrite(t, fs, path, slices.Clone(content[:len(content)/4*part]))
		return true
	}
	return map[string]harm{
		"removed": func(t *testing.T, fs *vfs.MemFS, path string) bool {
			t.Helper()
			return fs.Remove(path) == nil
		},
		"emptied":   func(t *testing.T, fs *vfs.MemFS, path string) bool { t.Helper(); return cut(t, fs, path, 0) },
		"shortened": func(t *testing.T, fs *vfs.MemFS, path string) bool { t.Helper(); return cut(t, fs, path, 3) },
		"flipped": func(t *testing.T, fs *vfs.MemFS, path string) bool {
			t.Helper()
			content, err := fs.UnsafeGetFileDataBuffer(path)
			if err != nil {
				t.Fatal(err)
			}
			content[len(content)-min(len(content), 20)] ^= 1
			return true
		},
	}
}

// rewrite gives a file another content.
func rewrite(t *testing.T, fs *vfs.MemFS, path string, content []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkNothingMissing opens a folder that was harmed: either that is refused, with what to do, or all that was
// acknowledged is there. It reports whether it was refused.
func checkNothingMissing(t *testing.T, fs *vfs.MemFS, w *workload) (refused bool) {
	t.Helper()
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: fs, Logger: quiet()})
	if err != nil {
		return true
	}
	defer closeStore(t, s)
	units := w.stored(t, s)
	for n := range w.acknowledged() {
		if !units[n] {
			t.Errorf("unit %d was acknowledged and is missing, and nobody says so", n)
			break
		}
	}
	return false
}

// eachWrite is a disk that tells before each of its writes and syncs.
type eachWrite func()

func (f eachWrite) String() string { return "each write" }

func (f eachWrite) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
		f()
	}
	return nil
}

// TestCrashAfterCleanStop drops an environment as the first thing after a clean stop and crashes at each write: what is
// missing then was not lost.
func TestCrashAfterCleanStop(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	s := open(t, pebble.Options{Dir: "data", FS: fs})
	w := newWorkload(10)
	for range 10 {
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)

	var mu sync.Mutex
	var crashes []*vfs.MemFS
	crash := eachWrite(func() {
		mu.Lock()
		defer mu.Unlock()
		crashes = append(crashes, fs.CrashClone(vfs.CrashCloneCfg{}))
	})
	s = open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(fs, crash)})
	tenants, err := s.Tenants(t.Context())
	if err != nil || len(tenants) == 0 {
		t.Fatal(tenants, err)
	}
	if err := s.DropTenant(t.Context(), tenants[0]); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	for n, crashed := range crashes {
		again, err := pebble.Open(pebble.Options{Dir: "data", FS: crashed, Logger: quiet()})
		if err != nil {
			t.Errorf("crash at write %d of %d: %v", n+1, len(crashes), err)
			continue
		}
		closeStore(t, again)
	}
}

// TestHarmAfterCrash harms the logs of a store that was not closed: what was acknowledged when the mark was written
// last is missed, the end of the log as well as what comes before.
func TestHarmAfterCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		w := newWorkload(100)
		s := open(t, pebble.Options{Dir: "data", FS: fs, Clock: clock.System{}})
		for range 50 {
			if err := w.write(t, s); err != nil {
				t.Fatal(err)
			}
		}
		rest(t, time.Second) // the mark has caught up
		synctest.Wait()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		closeStore(t, s)
		if checkNothingMissing(t, cloneFolder(t, crashed), w) {
			t.Fatal("the store does not open after a crash")
		}
		logs := filesOf(t, crashed, ".log")
		if len(logs) == 0 {
			t.Fatal("there is no log")
		}
		for name, harm := range harms() {
			for _, path := range logs {
				clone := cloneFolder(t, crashed)
				if !harm(t, clone, path) || !checkNothingMissing(t, clone, w) {
					t.Errorf("%s was %s, and nobody says so", path, name)
				}
				_, err := pebble.Open(pebble.Options{Dir: "data", FS: clone, Logger: quiet()})
				if err == nil || !strings.Contains(err.Error(), "backup") ||
					!strings.Contains(err.Error(), "data/mark") {
					t.Errorf("%s was %s: error %q does not say what to do", path, name, fmt.Sprint(err))
				}
				// Without the mark the operator has chosen to go on.
				if err := clone.Remove("data/mark"); err != nil {
					t.Fatal(err)
				}
				closeStore(t, open(t, pebble.Options{Dir: "data", FS: clone, Logger: quiet()}))
			}
		}
	})
}

// youngest returns the log that is written to.
func youngest(t *testing.T, fs *vfs.MemFS) string {
	t.Helper()
	return slices.Max(filesOf(t, fs, ".log"))
}
