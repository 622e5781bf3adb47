package pebble

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// fillLoad adds some of everything, more than fits in one buffer.
func fillLoad(l store.Load, events int) error {
	for i := range events {
		at, key := j17.StreamID{Ms: int64(i) + 1}, j17.Key{Type: "order", ID: fmt.Sprint(i % 97)}
		data := fmt.Appendf(nil, `{"n":%d}`, i*7919)
		raw, layout := j17.AppendEvent(nil, at, key, "was_made", data, []byte(`{}`), 1)
		e := j17.Event{
			StreamID: at, Key: key, Type: "was_made", Timestamp: 1, Raw: raw, Data: layout.DataOf(raw),
			Metadata: layout.MetadataOf(raw),
		}
		_, err := l.Event(store.LoadedEvent{Event: &e, Tags: []string{fmt.Sprint("tag", i%5)}})
		item := store.ArchivedItem{
			Space: "notes", Item: store.Item{Key: fmt.Sprint(i), Value: store.AppendEntries(nil, fmt.Sprint(i))},
			Entries: "entries",
		}
		if err = errors.Join(err, l.Item(item)); err != nil {
			return err
		}
	}
	return nil
}

// beginLoad begins a load whose buffers are small, so that it writes many files.
func beginLoad(t *testing.T, s *Store) *loading {
	t.Helper()
	begun, err := s.Load(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}
	l, ok := begun.(*loading)
	if !ok {
		t.Fatalf("a load is a %T", begun)
	}
	for _, sorter := range l.sorters() {
		sorter.budget = 4 << 10
	}
	return l
}

// TestLoadWithoutRoom fails a load at each file that it makes: nothing of it is seen, or left, and the next one is
// whole.
func TestLoadWithoutRoom(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	failed := 0
	for n := 0; ; n++ {
		l, made := beginLoad(t, s), 0
		l.folder.check = func() error {
			if made++; made == n {
				return store.ErrFull
			}
			return nil
		}
		err := fillLoad(l, 500)
		if err == nil {
			err = l.Commit(t.Context())
		}
		l.Discard()
		names, listed := s.Tenants(t.Context())
		if listed != nil {
			t.Fatal(listed)
		}
		if n > 0 && err == nil {
			break // it makes fewer files
		}
		if n == 0 {
			if err != nil || len(names) != 1 {
				t.Fatalf("with room: %v, %v", err, names)
			}
			if err := s.DropTenant(t.Context(), "a/prod"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		failed++
		if !errors.Is(err, store.ErrFull) || len(names) > 0 {
			t.Fatalf("without room for file %d: %v, and there are %v", n, err, names)
		}
	}
	if left, err := s.disk.List(s.disk.PathJoin("data", loadingName)); err != nil || len(left) > 0 || failed < 20 {
		t.Errorf("after %d loads that failed %v is left, %v", failed, left, err)
	}
	n := 0
	for _, err := range s.ReadFeed(t.Context(), "a/prod", j17.StreamID{}, 1000) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 500 {
		t.Errorf("%d events of 500", n)
	}
}

// TestLoadOfUnknownOutcome lets the volume be full when a load becomes the tenant's: whoever commits it hears that its
// outcome is unknown, and discards it, and the write goes on when there is space. What was committed by then is left
// alone.
func TestLoadOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	var v fullVolume
	s := v.open(t, func(op errorfs.Op) bool { return op.Kind == errorfs.OpLink && isTable(op.Path) })
	l := beginLoad(t, s)
	if err := fillLoad(l, 100); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(t.Context()); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a commit without space: %v, want ErrUnknown", err)
	}
	v.full.Store(false)
	v.passing(l.Discard)

	extent, err := s.Extent(t.Context(), "a/prod")
	if err != nil || extent.Events != 100 {
		t.Fatalf("the tenant has %d events, %v", extent.Events, err)
	}
	n := 0
	for _, err := range s.ReadFeed(t.Context(), "a/prod", j17.StreamID{}, 1000) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 100 {
		t.Errorf("%d events are there", n)
	}
}

// TestLoadGivenUp ends the context of a load while the store takes its tables in, and discards it at once: nothing is
// left, however long that takes.
func TestLoadGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		clk := clock.System{}
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpLink && isTable(op.Path) {
				giveUp()
				return clk.Wait(t.Context(), clk.Now().Add(time.Second)) // all others get as far as they can meanwhile
			}
			return nil
		}))
		s, err := Open(Options{Dir: "data", FS: fs, Clock: clk})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		l := beginLoad(t, s)
		if err := errors.Join(fillLoad(l, 100), l.Commit(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("the commit ended with %v", err)
		}
		l.Discard()
		if err := clk.Wait(t.Context(), clk.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		lower, upper := allOf(l.number)
		if left, err := hasAny(s.db, lower, upper); err != nil || left {
			t.Errorf("what was loaded is left: %t, %v", left, err)
		}
	})
}

// TestLoadCutShort takes the power away at all times of a load: it is whole afterwards or not there at all, and nothing
// else is left of it.
func TestLoadCutShort(t *testing.T) {
	t.Parallel()
	whole, none := 0, 0
	for stop := 0; whole < 2; stop += 3 {
		fs := vfs.NewCrashableMem()
		s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), "a/prod", []store.Side{
			{Op: store.Put, Space: "own", Key: "k", Value: []byte("v")},
		}); err != nil {
			t.Fatal(err)
		}

		// A copy of what would be on disk, taken at one of the moments at which a file is made, and at last behind the
		// end.
		l := beginLoad(t, s)
		var crashed *vfs.MemFS
		made := 0
		l.folder.check = func() error {
			if made++; made == stop+1 {
				crashed = fs.CrashClone(vfs.CrashCloneCfg{})
			}
			return nil
		}
		if err := errors.Join(fillLoad(l, 300), l.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
		if crashed == nil {
			crashed = fs.CrashClone(vfs.CrashCloneCfg{})
			whole++
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		n := afterCrash(t, crashed)
		if n != 0 && n != 300 || whole > 0 && n != 300 {
			t.Fatalf("after a crash at file %d there are %d events", stop, n)
		}
		if n == 0 {
			none++
		}
	}
	if none < 5 {
		t.Errorf("only %d crashes were in the middle", none)
	}
}

// afterCrash opens what a crash has left and returns how many events there are.
func afterCrash(t *testing.T, fs *vfs.MemFS) (n int) {
	t.Helper()
	s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, err := range s.ReadFeed(t.Context(), "a/prod", j17.StreamID{}, 1000) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if item, err := s.Get(t.Context(), "a/prod", "own", "k"); err != nil || string(item.Value) != "v" {
		t.Errorf("what was there before is %+v, %v", item, err)
	}
	if items, err := s.Count(t.Context(), "a/prod", "entries", store.Range{}, 1000); err != nil || items != n {
		t.Errorf("%d entries of %d events, %v", items, n, err)
	}
	if _, err := fs.Stat("data/" + loadingName); err == nil {
		t.Error("files of the load are left")
	}
	beyond, err := hasAny(s.db, appendPrefix(nil, s.tenants["a/prod"].number+1, 0), []byte{0xff})
	if err != nil || beyond {
		t.Errorf("what was loaded is left: %v, %v", beyond, err)
	}
	return n
}
