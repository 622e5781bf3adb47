package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17/internal/base/clock"
	"j17/internal/base/work/worktest"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// faults injects an error into every operation that match accepts, while it is on.
type faults struct {
	on    atomic.Bool
	hits  atomic.Int64
	err   error
	match func(errorfs.Op) bool
	// hit, if not nil, gets a message when an error is injected and nobody has taken the last one.
	hit chan struct{}
}

func (f *faults) String() string { return "faults" }

func (f *faults) MaybeError(op errorfs.Op) error {
	if !f.on.Load() || !f.match(op) {
		return nil
	}
	f.hits.Add(1)
	select {
	case f.hit <- struct{}{}:
	default:
	}
	return f.err
}

func writesTo(suffix string) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, suffix)
	}
}

// TestWriteErrors lets writes fail from some operation on. Whoever was told nothing, or nothing certain, may find the
// unit or not; all others must be right, in the running store and after it was opened again.
func TestWriteErrors(t *testing.T) {
	t.Parallel()
	onlyKind := func(kind errorfs.OpKind, suffix string) func(errorfs.Op) bool {
		return func(op errorfs.Op) bool { return op.Kind == kind && strings.HasSuffix(op.Path, suffix) }
	}
	anyWrite := func(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite }
	cases := map[string]func(errorfs.Op) bool{
		"log writes":   writesTo(".log"),
		"log syncs":    onlyKind(errorfs.OpFileSyncData, ".log"),
		"new logs":     onlyKind(errorfs.OpCreate, ".log"),
		"tables":       writesTo(".sst"),
		"table syncs":  onlyKind(errorfs.OpFileSyncData, ".sst"),
		"folder syncs": onlyKind(errorfs.OpFileSync, "data"),
		"manifest":     func(op errorfs.Op) bool { return anyWrite(op) && strings.Contains(op.Path, "MANIFEST") },
		"everything":   anyWrite,
	}
	for name, match := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, skip := range []int64{0, 1, 27} {
				testWriteErrors(t, match, skip)
			}
		})
	}
}

func testWriteErrors(t *testing.T, match func(errorfs.Op) bool, skip int64) {
	t.Helper()
	base := vfs.NewCrashableMem()
	var seen atomic.Int64
	f := &faults{err: syscall.EIO, match: func(op errorfs.Op) bool { return match(op) && seen.Add(1) > skip }}
	s := open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Logger: quiet()})
	w := newWorkload(3000)
	for range 20 {
		if err := w.write(t, s); err != nil {
			t.Fatalf("append before the fault: %v", err)
		}
	}
	f.on.Store(true)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 40 {
				if err := w.write(t, s); err != nil {
					if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrFailed) {
						t.Errorf("append: %v", err)
					}
					return
				}
			}
		})
	}
	// A rewrite needs all kinds of files.
	erasing := storetest.Erase(t.Context(), s, tenant, unitKeys(1)[0], []store.Rewritten{
		{Version: 1, Type: "was_changed", Data: []byte(`{"unit":1,"padding":""}`), Metadata: []byte(`{}`)},
	})
	wg.Wait()
	if f.hits.Load() == 0 {
		if skip == 0 || erasing != nil {
			t.Fatalf("no error was injected, and the rewrite ended with %v", erasing)
		}
		closeStore(t, s)
		return
	}
	if err := w.write(t, s); !errors.Is(err, store.ErrFailed) {
		t.Errorf("append after the fault: %v", err)
	}
	if st := s.Status(); st.Writable || !strings.Contains(st.Reason, "restart") {
		t.Errorf("status %+v", st)
	}
	// Nothing is visible that is not certain.
	acked := w.acknowledged()
	if units := w.stored(t, s); fmt.Sprint(units) != fmt.Sprint(acked) {
		t.Errorf("the store shows %d units, %d were acknowledged", len(units), len(acked))
	}
	rng := rand.New(rand.NewPCG(uint64(skip), 1))
	clone := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	w.checkKept(t, clone, acked)
	// The folder is free for another process although this one could not close it in order.
	w.checkKept(t, base, acked)
}

// TestOpenErrors lets the disk fail from each operation of an opening on. It must end with an error, and do no harm.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for name, units := range map[string]int{"new folder": 0, "full folder": 30} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := vfs.NewCrashableMem()
			w := newWorkload(10)
			if units > 0 {
				s := open(t, pebble.Options{Dir: "data", FS: base})
				for range units {
					if err := w.write(t, s); err != nil {
						t.Fatal(err)
					}
				}
				closeStore(t, s)
			}
			step := int64(1)
			if worktest.RaceDetector {
				step = 3
			}
			for skip := int64(0); !openWithFault(t, w, base.CrashClone(vfs.CrashCloneCfg{}), skip); skip += step {
			}
		})
	}
}

// openWithFault opens the store on a disk that fails after some operations, and reports whether those were enough.
func openWithFault(t *testing.T, w *workload, base *vfs.MemFS, skip int64) bool {
	t.Helper()
	var seen atomic.Int64
	f := &faults{
		err: syscall.EIO, match: func(op errorfs.Op) bool { return op.Kind != errorfs.OpLock && seen.Add(1) > skip },
	}
	f.on.Store(true)
	s, err := pebble.Open(pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Logger: quiet()})
	clone := base.CrashClone(vfs.CrashCloneCfg{})
	f.on.Store(false)
	if err == nil {
		closeStore(t, s)
	}
	w.checkKept(t, clone, w.acknowledged())
	// What the attempt has left behind does not disturb another one on the same disk.
	w.checkKept(t, base, w.acknowledged())
	return f.hits.Load() == 0
}

// TestReadErrors lets reads fail: the calls that need them fail, and nothing else happens.
func TestReadErrors(t *testing.T) {
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
	f := &faults{err: syscall.EIO, match: func(op errorfs.Op) bool {
		return (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen) && strings.HasSuffix(op.Path, ".sst")
	}}
	// A second opening finds tables and an empty cache.
	s = open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Logger: quiet()})
	defer closeStore(t, s)
	f.on.Store(true)
	ctx := t.Context()
	_, headsErr := s.Heads(ctx, tenant, unitKeys(1))
	_, getErr := s.Get(ctx, tenant, space, "1")
	_, scanErr := s.Scan(ctx, tenant, space, store.Range{}, 10)
	_, streamsErr := s.Streams(ctx, tenant, "order", "", 10)
	var streamErr error
	for _, err := range s.ReadStream(ctx, tenant, unitKeys(1)[0], 1, 0) {
		streamErr = err
	}
	for name, err := range map[string]error{
		"heads": headsErr, "get": getErr, "scan": scanErr, "streams": streamsErr, "stream": streamErr,
		"dump": dump(t, s), "append": w.write(t, s),
		"rewrite": storetest.Erase(ctx, s, tenant, unitKeys(1)[0], []store.Rewritten{
			{Version: 1, Type: "t", Data: []byte(`1`), Metadata: []byte(`{}`)},
		}),
	} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v, want the error of the disk", name, err)
		}
	}
	f.on.Store(false)
	if err := w.write(t, s); err != nil {
		t.Errorf("append after the fault: %v", err)
	}
	acked := w.acknowledged()
	if units := w.stored(t, s); fmt.Sprint(units) != fmt.Sprint(acked) {
		t.Errorf("the store shows %d units, %d were acknowledged", len(units), len(acked))
	}
}

// TestLowSpace lets other programs fill the volume and free it again.
func TestLowSpace(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	const floor = 1 << 20
	free := func(bytes uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
	free(10 * floor)
	s := open(t, pebble.Options{Dir: "data", FS: fs, Logger: quiet(), MinFreeBytes: floor})
	defer closeStore(t, s)
	w := newWorkload(10)
	for range 3 {
		if err := w.write(t, s); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), "spare", []store.Append{{Events: events(key("a"), `1`)}}); err != nil {
			t.Fatal(err)
		}
		free(floor - 1)
		if err := w.write(t, s); !errors.Is(err, store.ErrFull) {
			t.Fatalf("append: %v, want ErrFull", err)
		}
		if err := s.Write(t.Context(), tenant, []store.Side{
			{Op: store.Put, Space: space, Key: "new"},
		}); !errors.Is(err, store.ErrFull) {
			t.Fatalf("write: %v, want ErrFull", err)
		}
		if err := s.Barrier(t.Context()); err != nil {
			t.Fatalf("barrier: %v", err)
		}
		if _, err := s.Load(t.Context(), "new"); !errors.Is(err, store.ErrFull) {
			t.Fatalf("load: %v, want ErrFull", err)
		}
		if st := s.Status(); st.Writable || !st.Readable || st.Reason == "" || st.FreeBytes != floor-1 ||
			s.DiskBytes() == 0 {
			t.Fatalf("status %+v", st)
		}
		if units := w.stored(t, s); fmt.Sprint(units) != fmt.Sprint(w.acknowledged()) {
			t.Fatalf("reads are wrong: %v", units)
		}
		// Removing makes room.
		if err := s.DropTenant(t.Context(), "spare"); err != nil {
			t.Fatal(err)
		}
		free(floor)
		if st := s.Status(); !st.Writable {
			t.Fatalf("status %+v", st)
		}
	}
	if err := w.write(t, s); err != nil {
		t.Fatal(err)
	}
}

// TestDeletingMakesRoom deletes on a volume that another program has filled to the last byte: the ballast is given up
// for it, and it goes on until little of that is left.
func TestDeletingMakesRoom(t *testing.T) {
	t.Parallel()
	base := vfs.NewMem()
	const floor = 1 << 20
	free := func(bytes uint64) { base.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
	free(2 * floor)
	f := fullDisk(func(errorfs.Op) bool {
		_, err := base.Stat("data/ballast")
		return err == nil
	})
	s := open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Logger: quiet(), MinFreeBytes: floor})
	defer closeStore(t, s)
	var side []store.Side
	for i := range 3 {
		side = append(side, store.Side{Op: store.Put, Space: space, Key: fmt.Sprint(i)})
	}
	if err := s.Write(t.Context(), tenant, side); err != nil {
		t.Fatal(err)
	}
	free(0)
	f.on.Store(true)
	remove := func(key string) error {
		return s.Write(t.Context(), tenant, []store.Side{{Op: store.Delete, Space: space, Key: key}})
	}
	note := func(freeing bool) error {
		_, err := s.Append(t.Context(), tenant, []store.Append{{
			Freeing: freeing, Side: []store.Side{{Op: store.Put, Space: space, Key: "note"}},
		}})
		return err
	}
	if err := remove("0"); err != nil {
		t.Fatalf("delete on a full volume: %v", err)
	}
	if f.hits.Load() == 0 {
		t.Fatal("the write has not met the full volume")
	}
	free(floor / 16)
	if err := errors.Join(remove("1"), note(true)); err != nil {
		t.Fatalf("delete with some of the ballast left: %v", err)
	}
	if err := note(false); !errors.Is(err, store.ErrFull) {
		t.Fatalf("a write that makes no room: %v, want ErrFull", err)
	}
	free(floor/16 - 1)
	if err := errors.Join(remove("2"), note(true)); !errors.Is(err, store.ErrFull) {
		t.Fatalf("delete with the reserve used up: %v, want ErrFull", err)
	}
	if err := s.DropTenant(t.Context(), tenant); err != nil {
		t.Fatalf("drop: %v", err)
	}
	f.on.Store(false)
	free(2 * floor)
	if err := note(false); err != nil {
		t.Fatal(err)
	}
}

// fullDisk is a volume without space.
func fullDisk(match func(errorfs.Op) bool) *faults {
	return &faults{err: syscall.ENOSPC, hit: make(chan struct{}, 1), match: func(op errorfs.Op) bool {
		return (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate) && match(op)
	}}
}

// TestDiskFull runs into a full volume in the middle of a write. Nobody may wait for it, and when there is space again
// the store must go on by itself.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]func(errorfs.Op) bool{
		"log":      writesTo(".log"),
		"manifest": func(op errorfs.Op) bool { return strings.Contains(op.Path, "MANIFEST") },
		"tables":   writesTo(".sst"),
		"all":      func(errorfs.Op) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := vfs.NewCrashableMem()
			f := fullDisk(match)
			c := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			s := open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Clock: c, Logger: quiet()})
			w := newWorkload(2000)
			for range 3 {
				fillUp(t, s, w, f, c)
			}
			acked := w.acknowledged()
			clone := base.CrashClone(vfs.CrashCloneCfg{})
			units := w.stored(t, s)
			for n := range acked {
				if !units[n] {
					t.Errorf("unit %d was acknowledged and is lost", n)
				}
			}
			closeStore(t, s)
			w.checkKept(t, clone, acked)
		})
	}
}

// goesOn lets time pass until units are written again: what is on its way may find no space a second time.
func goesOn(t *testing.T, s *pebble.Store, w *workload, c *clock.Manual) {
	t.Helper()
	for {
		c.Advance(time.Minute)
		err := w.write(t, s)
		if err == nil && s.Status().Writable {
			return
		}
		if err != nil && !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("append when there is space again: %v", err)
		}
		runtime.Gosched()
	}
}

// fillUp writes until the volume is full, looks what the store does, and makes room again.
func fillUp(t *testing.T, s *pebble.Store, w *workload, f *faults, c *clock.Manual) {
	t.Helper()
	goesOn(t, s, w, c)
	select {
	case <-f.hit:
	default:
	}
	f.on.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	erased := make(chan error, 1)
	go func() {
		erased <- storetest.Erase(ctx, s, tenant, unitKeys(1)[0], []store.Rewritten{
			{Version: 1, Type: "was_changed", Data: []byte(`{"unit":1,"padding":""}`), Metadata: []byte(`{}`)},
		})
	}()
	<-f.hit
	// Who has found no space is about to say so, and has to have done that before time passes: he waits for a second
	// from then on.
	for s.Status().Writable {
		runtime.Gosched()
	}
	// From now on the store knows that there is no space. One call may still be on its way.
	err := w.write(t, s)
	if err != nil && !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("append on a full volume: %v, want ErrFull", err)
	}
	for n := range w.acknowledged() {
		if _, err := s.Get(t.Context(), tenant, space, fmt.Sprint(n)); err != nil {
			t.Fatalf("get on a full volume: %v", err)
		}
	}
	f.on.Store(false)
	goesOn(t, s, w, c)
	cancel()
	if err := <-erased; err != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrFull) &&
		!errors.Is(err, context.Canceled) {
		t.Fatalf("rewrite: %v", err)
	}
}

// TestBallast gives up the ballast file when the volume is full, so that what was begun can end.
func TestBallast(t *testing.T) {
	t.Parallel()
	base := vfs.NewMem()
	const floor = 1 << 20
	free := func(bytes uint64) { base.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
	ballast := func() bool {
		_, err := base.Stat("data/ballast")
		return err == nil
	}
	free(2 * floor)
	f := fullDisk(func(op errorfs.Op) bool { return ballast() })
	s := open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Logger: quiet(), MinFreeBytes: floor})
	defer closeStore(t, s)
	if !ballast() {
		t.Fatal("there is no ballast file")
	}
	w := newWorkload(10)
	f.on.Store(true)
	// The write meets the full volume, and what it is told depends on who is faster.
	if err := w.write(t, s); err != nil && !errors.Is(err, store.ErrUnknown) {
		t.Fatal(err)
	}
	if ballast() || f.hits.Load() == 0 {
		t.Fatal("the ballast was not given up")
	}
	for _, bytes := range []uint64{0, floor - 1, floor + floor/4 - 1} {
		free(bytes)
		if err := w.write(t, s); !errors.Is(err, store.ErrFull) {
			t.Fatalf("append with %d bytes free: %v, want ErrFull", bytes, err)
		}
	}
	f.on.Store(false)
	free(2 * floor)
	if err := w.write(t, s); err != nil {
		t.Fatal(err)
	}
	if !ballast() {
		t.Fatal("the ballast file is not there again")
	}
}

// TestOpenOnFullDisk needs the space of the ballast file to open the store at all.
func TestOpenOnFullDisk(t *testing.T) {
	t.Parallel()
	base := vfs.NewMem()
	base.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 1 << 30})
	w := newWorkload(10)
	s := open(t, pebble.Options{Dir: "data", FS: base})
	if err := w.write(t, s); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	base.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100, TotalBytes: 1 << 30})
	f := fullDisk(func(op errorfs.Op) bool {
		_, err := base.Stat("data/ballast")
		return err == nil
	})
	f.on.Store(true)
	s = open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(base, f), Logger: quiet()})
	defer closeStore(t, s)
	if err := w.write(t, s); !errors.Is(err, store.ErrFull) {
		t.Fatalf("append: %v, want ErrFull", err)
	}
	if units := w.stored(t, s); len(units) != 1 {
		t.Fatalf("units %v", units)
	}
}

// TestSmallVolume makes a store where there is no room for one, and opens one whose volume has become full.
func TestSmallVolume(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	free := func(mib uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: mib << 20, TotalBytes: 6 << 30}) }
	for room, cache := range map[uint64]int64{354: 0, 424: 512 << 20} {
		// logs have more room where memory tables are larger
		free(room)
		s, err := pebble.Open(pebble.Options{Dir: "data", FS: fs, CacheBytes: cache})
		if err == nil {
			closeStore(t, s)
			t.Fatal("a store was made on a volume that has no room for it")
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("has %d MiB", room)) ||
			!strings.Contains(err.Error(), fmt.Sprintf("needs %d", room+2)) {
			t.Errorf("error %q does not say what is needed", err)
		}
	}
	free(356)
	s := open(t, pebble.Options{Dir: "data", FS: fs})
	w := newWorkload(10)
	if err := w.write(t, s); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	// The ballast is given up before the first write of an opening can meet the full volume.
	free(0)
	f := fullDisk(func(errorfs.Op) bool {
		_, err := fs.Stat("data/ballast")
		return err == nil
	})
	f.on.Store(true)
	s = open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(fs, f), Logger: quiet()})
	defer closeStore(t, s)
	if f.hits.Load() > 0 {
		t.Error("opening has met the full volume although there was ballast")
	}
	if err := w.write(t, s); !errors.Is(err, store.ErrFull) {
		t.Errorf("append: %v, want ErrFull", err)
	}
}

// TestQuota uses up a quota, which is as good as a full volume.
func TestQuota(t *testing.T) {
	t.Parallel()
	f := &faults{err: syscall.EDQUOT, match: writesTo(".log")}
	c := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s := open(t, pebble.Options{Dir: "data", FS: errorfs.Wrap(vfs.NewMem(), f), Clock: c, Logger: quiet()})
	defer closeStore(t, s)
	w := newWorkload(10)
	if err := w.write(t, s); err != nil {
		t.Fatal(err)
	}
	f.on.Store(true)
	if err := w.write(t, s); !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrFull) {
		t.Fatalf("append: %v, want ErrUnknown or ErrFull", err)
	}
	f.on.Store(false)
	c.Advance(time.Minute)
	for err := s.Barrier(t.Context()); err != nil; err = s.Barrier(t.Context()) {
		if !errors.Is(err, store.ErrFull) {
			t.Fatalf("barrier: %v", err)
		}
		c.Advance(time.Minute)
	}
	if err := w.write(t, s); err != nil {
		t.Errorf("append with room again: %v", err)
	}
}
