package pebble

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// thinned is a store with items of which many are stale.
type thinned struct {
	*Store
	t *testing.T
}

func openThinned(t *testing.T) thinned {
	t.Helper()
	return openThinnedOn(t, vfs.NewMem(), 0)
}

func openThinnedOn(t *testing.T, fs vfs.FS, floor uint64) thinned {
	t.Helper()
	s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}, MinFreeBytes: floor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return thinned{s, t}
}

// write writes items of a space with an operation, and the memory table to disk.
func (s thinned) write(op store.SideOp, from, to int, value []byte) {
	s.t.Helper()
	const each = 1000
	for ; from < to; from += each {
		var side []store.Side
		for n := from; n < min(from+each, to); n++ {
			side = append(side, store.Side{Op: op, Space: "a", Key: fmt.Sprintf("k%06d", n), Value: value})
		}
		if err := s.Write(s.t.Context(), "t", side); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		s.t.Fatal(err)
	}
}

// scan returns how many stale keys the first item of a range costs, and waits for what that has set going.
func (s thinned) scan(keys store.Range, limit int) (stale int) {
	s.t.Helper()
	r, err := s.read("t")
	if err != nil {
		s.t.Fatal(err)
	}
	defer s.running.Wait()
	defer r.close()
	lower, upper := itemBounds(r.tenant, "a", keys)
	it, err := r.iterate(lower, upper)
	if err != nil {
		s.t.Fatal(err)
	}
	defer closeIter(it, &err, "side items")
	left := limit
	err = r.passItems("t", "a", it, keyRange{lower, upper}, keys.Backward, func([]byte, itemMeta, []byte) bool {
		left--
		return left > 0
	})
	if err != nil {
		s.t.Fatal(err)
	}
	at := stand(it)
	return at.all - at.own
}

func (s thinned) merges() uint64 {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.done
}

// TestScansThinOut removes the first items of a space, as of a queue: the first scan steps over them, the second one
// does not.
func TestScansThinOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		gone [2]int
		keys store.Range
	}{
		"forward":  {[2]int{0, 20_000}, store.Range{}},
		"backward": {[2]int{10_000, 30_000}, store.Range{Backward: true}},
		"the end":  {[2]int{10_000, 30_000}, store.Range{From: "k010000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openThinned(t)
			s.write(store.Put, 0, 30_000, nil)
			s.write(store.Delete, test.gone[0], test.gone[1], nil)
			if stale := s.scan(test.keys, 1); stale <= mostStale {
				t.Fatalf("the first scan met %d stale keys", stale)
			}
			if stale := s.scan(test.keys, 1); stale > 2 || s.merges() != 1 {
				t.Errorf("the second scan met %d stale keys after %d merges", stale, s.merges())
			}
			if n, err := s.Count(t.Context(), "t", "a", store.Range{}, 40_000); err != nil || n != 10_000 {
				t.Errorf("%d items are left: %v", n, err)
			}
		})
	}
}

// TestDueWorkThinsOut ends much work that was due: who looks for what is due next steps over what that has left behind,
// and whoever comes later does not.
func TestDueWorkThinsOut(t *testing.T) {
	t.Parallel()
	s := openThinned(t)
	now := s.clock.Now()
	write := func(op store.SideOp, from, to int) {
		t.Helper()
		side := make([]store.Side, 0, to-from)
		for n := from; n < to; n++ {
			w := store.Side{Op: op, Space: "a", Key: fmt.Sprintf("k%06d", n)}
			if op == store.Put {
				w.Due = now.Add(time.Duration(n) * time.Second)
			}
			side = append(side, w)
		}
		if err := s.Write(t.Context(), "t", side); err != nil {
			t.Fatal(err)
		}
	}
	const done = 10_000 // each leaves its entry, and that this is gone
	write(store.Put, 0, done+1)
	write(store.Delete, 0, done)
	next, err := s.NextDue(t.Context(), "a")
	if err != nil || !next.Equal(now.Add(done*time.Second)) {
		t.Errorf("the next one is due at %v: %v", next, err)
	}
	s.running.Wait()
	if n := s.merges(); n != 1 {
		t.Errorf("there were %d merges", n)
	}
	lower := appendSpace(nil, s.tenants["t"].number, kindDue, "a")
	it, err := newIter(s.db, lower, after(lower))
	if err != nil {
		t.Fatal(err)
	}
	defer closeIter(it, &err, "due work")
	if at := stand(it); !it.First() || stand(it).all-at.all > 2 {
		t.Errorf("%d stale entries are left", stand(it).all-at.all)
	}
}

// TestSparseRemovalsAreLeft scans items of which some are removed here and there: no merge is worth it.
func TestSparseRemovalsAreLeft(t *testing.T) {
	t.Parallel()
	s := openThinned(t)
	s.write(store.Put, 0, 60_000, nil)
	s.write(store.Delete, 0, 20_000, nil)
	if stale := s.scan(store.Range{}, 60_000); stale <= mostStale {
		t.Fatalf("the scan met %d stale keys", stale)
	}
	if n := s.merges(); n != 0 {
		t.Errorf("there were %d merges", n)
	}
	if stale := s.scan(store.Range{From: "k019000"}, 1); stale > mostStale || s.merges() != 0 {
		t.Errorf("a scan of %d stale keys had %d merges", stale, s.merges())
	}
}

// TestThinningIsSeldom has many items removed again and again: between two merges so much is written as they may take.
func TestThinningIsSeldom(t *testing.T) {
	t.Parallel()
	s := openThinned(t)
	again := func() uint64 {
		s.write(store.Put, 0, 10_000, nil)
		s.write(store.Delete, 0, 10_000, nil)
		s.scan(store.Range{}, 1)
		return s.merges()
	}
	if first, second := again(), again(); first != 1 || second != 1 {
		t.Fatalf("%d merges after the first, %d after the second time", first, second)
	}
	s.write(store.Put, 100_000, 100_000+thinEvery>>10, []byte(strings.Repeat("v", 1<<10)))
	if third := again(); third != 2 {
		t.Errorf("%d merges after more was written", third)
	}
}

// TestThinningLeavesRoom: where there is little space nobody has a range written once more by reading it. Where there
// is more again it is.
func TestThinningLeavesRoom(t *testing.T) {
	t.Parallel()
	const floor = 1 << 20
	fs := vfs.NewMem()
	free := func(bytes uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
	free(2 * floor)
	s := openThinnedOn(t, fs, floor)
	s.write(store.Put, 0, 20_000, nil)
	s.write(store.Delete, 0, 20_000, nil)
	for merges, bytes := range []uint64{2*floor - 1, 2 * floor} {
		free(bytes)
		if stale := s.scan(store.Range{}, 1); stale <= mostStale || s.merges() != uint64(merges) {
			t.Errorf("with %d free bytes a scan of %d stale keys had %d merges", bytes, stale, s.merges())
		}
	}
}

// TestThinningBesideClose: a scan that would have its range merged while the store is closed begins nothing that Close
// does not wait for. What Close does is done to stores that have no work of their own, over and over.
func TestThinningBesideClose(t *testing.T) {
	t.Parallel()
	open := openThinned(t)
	nothing := keyRange{[]byte{0xff}, []byte{0xff, 0}}
	it, err := newIter(open.db, nothing.lower, nothing.upper)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIter(it, &err, "nothing")
	for range 100_000 {
		s := &compactor{core: &core{
			db: open.db, disk: open.disk, life: open.life, queue: open.queue, logger: open.logger, view: &view{},
		}}
		left := false
		var both sync.WaitGroup
		s.turn.Lock() // who comes first has looked whether the store is open, and does not go on yet
		both.Go(func() { s.thin(it, footing{all: -2 * mostStale}, nothing, false) })
		both.Go(func() {
			s.mu.Lock()
			s.closed = true
			s.mu.Unlock()
			s.background.Wait()
			s.turn.Lock()
			defer s.turn.Unlock()
			left = s.busy
		})
		s.turn.Unlock()
		if both.Wait(); left {
			t.Fatal("a merge has begun behind the end")
		}
	}
}

// TestExpiryGoesOn has more expire than is removed at a time: no part steps over what those before it have removed.
func TestExpiryGoesOn(t *testing.T) {
	t.Parallel()
	s := openThinned(t)
	now := s.clock.Now()
	var side []store.Side
	for n := range 3*sweepLimit + 1 {
		side = append(side, store.Side{Op: store.Put, Space: "a", Key: fmt.Sprintf("k%06d", n), Expires: now})
	}
	if err := s.Write(t.Context(), "t", side); err != nil {
		t.Fatal(err)
	}
	var froms []string
	for from := []byte(nil); ; {
		var err error
		if from, err = s.sweepTenant(t.Context(), "t", from); err != nil {
			t.Fatal(err)
		}
		if from == nil {
			break
		}
		froms = append(froms, string(from[len(from)-len("k000000"):]))
		if len(froms) > 1 {
			continue
		}
		// What stands before that waits for the next time.
		if err := s.Write(t.Context(), "t", []store.Side{
			{Op: store.Put, Space: "a", Key: "early", Expires: now.Add(-time.Second)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(froms, " "); got != "k001000 k002000 k003000" {
		t.Errorf("it went on from %s", got)
	}
	lower := appendPrefix(nil, s.tenants["t"].number, kindExpiry)
	for sweep, want := range []bool{true, false} {
		if left, err := hasAny(s.db, lower, after(lower)); err != nil || left != want {
			t.Errorf("after %d more, entries are left is %t: %v", sweep, left, err)
		}
		if _, err := s.sweepTenant(t.Context(), "t", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLargeRangesAreMergedInParts cuts a range where tables end, so that no table is in two parts and no key in none.
func TestLargeRangesAreMergedInParts(t *testing.T) {
	t.Parallel()
	tables := []keyRange{
		{[]byte("b"), []byte("c")},
		{[]byte("e"), []byte("f")},
		{[]byte("g"), []byte("h")},
		{[]byte("k"), []byte("l")},
		{[]byte("n"), []byte("o")},
	}
	for want, r := range map[string][2]string{
		"a-f f\x00-l l\x00-z": {"a", "z"},
		"e-h h\x00-o":         {"e", "o"},
		"c-f f\x00-k":         {"c", "k"},
		"d-g":                 {"d", "g"},
		"p-q":                 {"p", "q"},
		"e-h":                 {"e", "h"},
		"e-h h\x00-i":         {"e", "i"},
	} {
		var got []string
		for _, part := range parted(keyRange{[]byte(r[0]), []byte(r[1])}, tables, 2) {
			got = append(got, string(part.lower)+"-"+string(part.upper))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%q is merged as %q, not %q", r, got, want)
		}
	}
}
