package pebble

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// TestMergesStandBack lets one goroutine merge tables while another has deferred that: it waits until that is over, or
// until it must not be put off.
func TestMergesStandBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		category vfs.DiskWriteCategory
		// before is what happens beforehand, ends what ends the wait; nil where it does not wait at all.
		before, ends func(d *disk, done func())
	}{
		"until it is done": {mergeCategory, nil, func(_ *disk, done func()) { done(); done() }},
		"until writes wait": {
			mergeCategory, nil, func(d *disk, _ func()) { d.listen().WriteStallBegin(pebble.WriteStallBeginInfo{}) },
		},
		"until there is no room":      {mergeCategory, nil, func(d *disk, _ func()) { d.setShort(true) }},
		"until the top level is deep": {mergeCategory, nil, func(d *disk, _ func()) { deep(d, mostSublevels+1) }},
		"where it is less deep": {
			mergeCategory, func(d *disk, _ func()) { deep(d, mostSublevels) }, func(_ *disk, done func()) { done() },
		},
		"where it is deep":             {mergeCategory, func(d *disk, _ func()) { deep(d, mostSublevels+1) }, nil},
		"where nobody has deferred it": {mergeCategory, func(_ *disk, done func()) { done() }, nil},
		"where space is short":         {mergeCategory, func(d *disk, _ func()) { d.setShort(true) }, nil},
		"while the store opens":        {mergeCategory, func(d *disk, _ func()) { d.phase.Store(opening) }, nil},
		"while it closes":              {mergeCategory, func(d *disk, _ func()) { d.phase.Store(closing) }, nil},
		"where nothing is merged":      {"pebble-memtable-flush", nil, nil},
		"where it is not known what":   {vfs.WriteCategoryUnspecified, nil, nil},
		"until the store is closed":    {mergeCategory, nil, func(d *disk, _ func()) { endLife(d) }},
		"where there was one already": {
			mergeCategory, func(d *disk, _ func()) { (&Store{core: &core{disk: d}}).DeferCompaction()() },
			func(_ *disk, done func()) { done() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &disk{
					FS: vfs.NewMem(), dir: "data", clock: clock.System{}, logger: slog.New(slog.DiscardHandler),
					merging: newMerging(), life: &lifetime{done: make(chan struct{})},
					onFault: func(err error) { t.Error(err) },
				}
				d.phase.Store(running)
				d.merging.sublevels = func() int { return 0 }
				done := (&Store{core: &core{disk: d}}).DeferCompaction()
				if test.before != nil {
					test.before(d, done)
				}
				wait := d.standBackOf(test.category)
				if wait == nil {
					wait = func() {}
				}
				over := false
				go func() {
					wait()
					over = true
				}()
				synctest.Wait()
				if over != (test.ends == nil) {
					t.Errorf("it has ended is %t", over)
				}
				if test.ends != nil {
					test.ends(d, done)
					synctest.Wait()
				}
				if !over {
					t.Error("it waits on")
				}
				done()
			})
		})
	}
}

// deep makes the top level so deep, and tells of a memory table that was written.
func deep(d *disk, sublevels int) {
	d.merging.sublevels = func() int { return sublevels }
	d.listen().FlushEnd(pebble.FlushInfo{})
}

// endLife ends the life of a store.
func endLife(d *disk) {
	if l, is := d.life.(*lifetime); is {
		close(l.done)
	}
}

// listen returns what is told of the engine's work.
func (d *disk) listen() *pebble.EventListener {
	return newEvents().listener(d.logger, clock.System{}, d)
}

// categorized notes as what tables are written.
type categorized struct {
	vfs.FS
	mu   sync.Mutex
	seen []vfs.DiskWriteCategory
}

func (f *categorized) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if isTable(name) {
		f.mu.Lock()
		f.seen = append(f.seen, c)
		f.mu.Unlock()
	}
	return f.FS.Create(name, c)
}

func (f *categorized) categories() []vfs.DiskWriteCategory {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// TestMergesAreKnown merges what a store holds: Pebble says of these tables that they are merged, and of those of
// memory that they are not.
func TestMergesAreKnown(t *testing.T) {
	t.Parallel()
	fs := &categorized{FS: vfs.NewMem()}
	s, err := Open(Options{Dir: "data", FS: fs, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for n := range 2 { // of the same keys, so that they are not just moved
		err := s.Write(t.Context(), "t", []store.Side{
			{Op: store.Put, Space: "a", Key: "k", Value: []byte(strconv.Itoa(n))},
		})
		if err = errors.Join(err, s.db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	flushed := fs.categories()
	if len(flushed) < 2 || slices.Contains(flushed, mergeCategory) {
		t.Errorf("memory tables are written as %q", flushed)
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	if merged := fs.categories()[len(flushed):]; !slices.Contains(merged, mergeCategory) {
		t.Errorf("merged tables are written as %q", merged)
	}
}
