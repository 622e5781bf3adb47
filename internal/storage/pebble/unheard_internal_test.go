package pebble

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// fullVolume is one on which no log can be written while it is full. Time passes as the test says.
type fullVolume struct {
	full  atomic.Bool
	clock *clock.Manual
}

// open opens a store on the volume, which gets full at an operation of the file system for which full holds.
func (v *fullVolume) open(t *testing.T, full func(op errorfs.Op) bool) *Store {
	t.Helper()
	v.clock = clock.NewManual(time.Unix(1_700_000_000, 0))
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full(op) {
			v.full.Store(true)
		}
		if v.full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, logSuffix) {
			return syscall.ENOSPC
		}
		return nil
	}))
	s, err := Open(Options{Dir: "data", FS: fs, Clock: v.clock, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// passing lets time pass while something is done, so that what has found no space is tried again.
func (v *fullVolume) passing(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		select {
		case <-done:
			return
		default:
			v.clock.Advance(time.Minute)
			runtime.Gosched()
		}
	}
}

// TestWritesOfUnknownOutcome lets the volume be full while a unit is written. Whoever wrote it hears that its outcome
// is unknown, and uses his memory for something else before the write goes on: what is remembered of the unit is what
// was written.
func TestWritesOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	const of = j17.Tenant("a/prod")
	var v fullVolume
	s := v.open(t, func(errorfs.Op) bool { return false })
	write := func(value []byte, was string) error {
		return s.Write(t.Context(), of, []store.Side{{Op: store.Put, Space: "notes", Key: "k", Value: value}},
			store.Fence{Space: "notes", Key: "k", ByValue: true, Value: was})
	}
	if err := write([]byte("one"), ""); err != nil {
		t.Fatal(err)
	}
	v.full.Store(true)
	value := []byte("two")
	if err := write(value, "one"); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write without space: %v, want ErrUnknown", err)
	}
	copy(value, "abc")
	v.full.Store(false)
	v.passing(func() {
		err := store.ErrFull
		for errors.Is(err, store.ErrFull) {
			err = write([]byte("three"), "two")
		}
		if err != nil {
			t.Errorf("a write behind it: %v", err)
		}
	})
}

// TestLoadDiscardedWithoutSpace discards a load while the volume is full, so that the committer does not hear of it:
// when there is space again the tenant is as free for others as if it had.
func TestLoadDiscardedWithoutSpace(t *testing.T) {
	t.Parallel()
	const of = j17.Tenant("a/prod")
	var v fullVolume
	s := v.open(t, func(errorfs.Op) bool { return false })
	write := func() error {
		return s.Write(t.Context(), of, []store.Side{{Op: store.Put, Space: "notes", Key: "k", Value: []byte("v")}})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	l := beginLoad(t, s)
	l.folder.check = func() error {
		if l.changed != nil {
			return store.ErrFull
		}
		return nil
	}
	if err := fillLoad(l, 100); err != nil {
		t.Fatal(err)
	}
	if err := l.Commit(t.Context()); !errors.Is(err, store.ErrFull) || l.changed == nil {
		t.Fatalf("a commit without space: %v", err)
	}
	v.full.Store(true)
	if err := write(); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a write without space: %v, want ErrUnknown", err)
	}
	v.passing(l.Discard)
	v.full.Store(false)
	v.passing(func() {
		err := store.ErrFull
		for errors.Is(err, store.ErrFull) {
			err = write()
		}
		if err != nil {
			t.Error(err)
		}
	})

	p, err := s.BulkWrite(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Put("rows", "1", []byte("row")), p.Write(t.Context(), nil)); err != nil {
		t.Errorf("items that are written behind it: %v", err)
	}
}
