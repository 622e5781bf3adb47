package pebble

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
)

// TestNothingReturnsToWhatWasLeftBehind closes a store while Pebble is in the middle of a write that fails later: its
// folder may be gone by then. Pebble would end the process if it heard of that.
func TestNothingReturnsToWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	d := &disk{FS: vfs.NewMem(), clock: clock.System{}, onFault: func(error) { t.Error("a store that was left behind tells of a fault") }}
	d.phase.Store(running)
	returned := make(chan error, 1)
	go func() {
		returned <- d.attempt(false, false, func() error {
			d.failed.Store(true)
			d.phase.Store(closing)
			return errors.New("the folder is gone")
		})
	}()
	for !parked("TestNothingReturnsToWhatWasLeftBehind.func") {
		select {
		case err := <-returned:
			t.Fatalf("Pebble hears of it: %v", err)
		default:
			runtime.Gosched()
		}
	}
}

// TestNothingReturnsFromAFailedWrite leaves the store behind when the write has failed and before it is known what that
// means.
func TestNothingReturnsFromAFailedWrite(t *testing.T) {
	t.Parallel()
	fs := &removing{FS: vfs.NewMem()}
	d := &disk{
		FS: fs, clock: clock.System{}, logger: slog.New(slog.DiscardHandler), merging: newMerging(), ballast: true,
	}
	d.phase.Store(running)
	fs.hook = func() {
		d.failed.Store(true)
		d.phase.Store(closing)
	}
	returned := make(chan error, 1)
	go func() {
		returned <- d.attempt(false, false, func() error { return syscall.ENOSPC })
	}()
	for !parked("TestNothingReturnsFromAFailedWrite.func") {
		select {
		case err := <-returned:
			t.Fatalf("Pebble hears of it: %v", err)
		default:
			runtime.Gosched()
		}
	}
}

// removing is a file system that calls hook when a file is removed.
type removing struct {
	vfs.FS
	hook func()
}

func (fs *removing) Remove(name string) error {
	fs.hook()
	return fs.FS.Remove(name)
}

// parked tells whether a goroutine that the named function has begun stands still for ever.
func parked(name string) bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("pebble.park(")) && bytes.Contains(stack, []byte(name)) {
			return true
		}
	}
	return false
}
