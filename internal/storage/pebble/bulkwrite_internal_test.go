package pebble

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// beginBulkWrite begins a bulk write whose buffers are small, so that it writes many files, and puts items into it.
func beginBulkWrite(t *testing.T, s *Store, items int, check func() error) (*bulkWrite, error) {
	t.Helper()
	begun, err := s.BulkWrite(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}
	p, ok := begun.(*bulkWrite)
	if !ok {
		t.Fatalf("a bulk write is a %T", begun)
	}
	p.items.budget = 4 << 10
	if check != nil {
		p.folder.check = check
	}
	for i := range items {
		if err := p.Put("things", fmt.Sprintf("%06d", i*7919%items), []byte("secret")); err != nil {
			return p, err
		}
	}
	return p, nil
}

// piled returns how many items there are, and what files are left.
func piled(t *testing.T, s *Store) (items int, left []string) {
	t.Helper()
	items, err := s.Count(t.Context(), "a/prod", "things", store.Range{}, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	left, _ = s.disk.List(s.disk.PathJoin("data", loadingName))
	return items, left
}

// TestBulkWriteWithoutRoom fails a bulk write at each file that it makes: nothing of it is seen, or left, and the next
// one is whole.
func TestBulkWriteWithoutRoom(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	if err := s.Write(t.Context(), "a/prod", []store.Side{{Op: store.Put, Space: "own", Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for n := 1; ; n++ {
		made := 0
		p, err := beginBulkWrite(t, s, 500, func() error {
			if made++; made == n {
				return store.ErrFull
			}
			return nil
		})
		if err == nil {
			err = p.Write(t.Context(), nil)
		}
		p.Discard()
		items, left := piled(t, s)
		if len(left) > 0 {
			t.Fatalf("%v is left", left)
		}
		if err == nil {
			if items != 500 {
				t.Fatalf("%d items of 500", items)
			}
			break
		}
		if failed++; !errors.Is(err, store.ErrFull) || items > 0 {
			t.Fatalf("without room for file %d: %v, and there are %d items", n, err, items)
		}
	}
	if failed < 5 {
		t.Errorf("it has made %d files only", failed)
	}
}

// TestBulkWritesLeaveRoom: while there is less free space than twice the floor, bulk writes are refused before they
// begin, while they are gathered and when they are to be taken in, and all others write as ever.
func TestBulkWritesLeaveRoom(t *testing.T) {
	t.Parallel()
	const floor = 1 << 20
	for _, left := range []int{0, 1, 3} { // how many hundred items there is room for
		fs := vfs.NewMem()
		free := func(bytes uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
		free(2 * floor)
		s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}, MinFreeBytes: floor})
		if err != nil {
			t.Fatal(err)
		}
		write := func(key string) {
			t.Helper()
			if err := s.Write(t.Context(), "a/prod", []store.Side{
				{Op: store.Put, Space: "own", Key: key},
			}); err != nil {
				t.Error(err)
			}
		}
		gather := func(left int) error {
			p, err := s.BulkWrite(t.Context(), "a/prod")
			if err != nil {
				return err
			}
			defer p.Discard()
			for i := range 300 {
				if i+1 == 100*left {
					free(2*floor - 1)
				}
				if err := p.Put("things", fmt.Sprintf("%06d", i), []byte("value")); err != nil {
					return err
				}
			}
			return p.Write(t.Context(), nil)
		}
		write("before")
		if left == 0 {
			free(2*floor - 1)
		}
		if err := gather(left); !errors.Is(err, store.ErrFull) {
			t.Errorf("with too little room after %d hundred items: %v", left, err)
		}
		write("meanwhile")
		if items, there := piled(t, s); items > 0 || len(there) > 0 {
			t.Errorf("%d items are there, and %v is left", items, there)
		}
		free(2 * floor)
		if err := gather(4); err != nil {
			t.Errorf("with room again: %v", err)
		}
		if items, _ := piled(t, s); items != 300 {
			t.Errorf("%d items are there", items)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPurgeEndsPiles erases while somebody gathers: when Purge returns no file has what was gathered before, and the
// bulk write says so.
func TestPurgeEndsPiles(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	key := j17.Key{Type: "order", ID: "1"}
	event := store.NewEvent{Key: key, Type: "was_made", Data: []byte("{}"), Metadata: []byte("{}")}
	if _, err := s.Append(t.Context(), "a/prod", []store.Append{{Events: []store.NewEvent{event}}}); err != nil {
		t.Fatal(err)
	}
	p, err := beginBulkWrite(t, s, 500, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, left := piled(t, s); len(left) != 1 {
		t.Fatalf("there is %v: the test shows nothing", left)
	}
	if _, err := s.Purge(t.Context(), "a/prod", []j17.Key{key}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if items, left := piled(t, s); items > 0 || len(left) > 0 {
		t.Errorf("%d items are there, and %v is left", items, left)
	}
	if err := p.Put("things", "x", nil); !errors.Is(err, store.ErrEnded) {
		t.Errorf("an item for an ended bulk write: %v", err)
	}
	if err := p.Write(t.Context(), nil); !errors.Is(err, store.ErrEnded) {
		t.Errorf("an ended bulk write is written: %v", err)
	}
}

// TestPurgeLeavesPilesOfOthers erases in one tenant while somebody gathers in another: what was gathered is written.
func TestPurgeLeavesPilesOfOthers(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	if err := s.Write(t.Context(), "a/prod", []store.Side{{Op: store.Put, Space: "own", Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	key := j17.Key{Type: "order", ID: "1"}
	event := store.NewEvent{Key: key, Type: "was_made", Data: []byte("{}"), Metadata: []byte("{}")}
	if _, err := s.Append(t.Context(), "b/prod", []store.Append{{Events: []store.NewEvent{event}}}); err != nil {
		t.Fatal(err)
	}
	p, err := beginBulkWrite(t, s, 500, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(t.Context(), "b/prod", []j17.Key{key}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if items, left := piled(t, s); items != 500 || len(left) > 0 {
		t.Errorf("%d items are there, and %v is left", items, left)
	}
}

// TestBulkWriteCutShort takes the power away at all times: what was acknowledged is there, and what was not leaves no
// files.
func TestBulkWriteCutShort(t *testing.T) {
	t.Parallel()
	for stop, whole := 1, false; !whole; stop += 4 {
		fs := vfs.NewCrashableMem()
		s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), "a/prod", []store.Side{{Op: store.Put, Space: "own", Key: "k"}}); err != nil {
			t.Fatal(err)
		}
		var crashed *vfs.MemFS
		made := 0
		p, err := beginBulkWrite(t, s, 300, func() error {
			if made++; made == stop {
				crashed = fs.CrashClone(vfs.CrashCloneCfg{})
			}
			return nil
		})
		if err = errors.Join(err, p.Write(t.Context(), []store.Side{
			{Op: store.Put, Space: "own", Key: "done"},
		})); err != nil {
			t.Fatal(err)
		}
		if whole = crashed == nil; whole {
			crashed = fs.CrashClone(vfs.CrashCloneCfg{})
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		after, err := Open(Options{Dir: "data", FS: crashed, Clock: clock.System{}})
		if err != nil {
			t.Fatal(err)
		}
		items, left := piled(t, after)
		_, err = after.Get(t.Context(), "a/prod", "own", "done")
		if (err == nil) != whole || whole && items != 300 || !whole && items != 0 || len(left) > 0 {
			t.Errorf("after a crash at file %d there are %d items, %v and %v", stop, items, left, err)
		}
		if err := after.Close(); err != nil {
			t.Error(err)
		}
	}
}
