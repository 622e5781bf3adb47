package server_test

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"testing"

	"j17/internal/base/clock"
	"j17/internal/server"
)

// TestANewServerIsSmall makes a data folder, which takes a password hash of 19 MiB: no memory of it is held when the
// server is ready, though nothing else makes the garbage collector run.
func TestANewServerIsSmall(t *testing.T) {
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := inUse()
	dev, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: clock.System{},
		Logger: slog.New(slog.DiscardHandler),
	}, SpecFile: specFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	if grown := int64(inUse()) - int64(before); grown > 16<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
