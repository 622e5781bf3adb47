package pebble_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, inMemory())
}

// inMemory returns what opens stores for the suite.
func inMemory() func(t *testing.T, env storetest.Env) store.Store {
	var mu sync.Mutex
	disks := map[string]*vfs.MemFS{}
	return func(t *testing.T, env storetest.Env) store.Store {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if env.Beside != nil {
			return beside{env.Beside}
		}
		if disks[env.Data] == nil {
			disks[env.Data] = vfs.NewMem()
		}
		return open(t, pebble.Options{Dir: "data", FS: disks[env.Data], Clock: env.Clock})
	}
}

// beside is a second store on the data of another one. A data folder has one engine, which both share and the first one
// closes.
type beside struct{ store.Store }

// Close leaves the engine to the first store.
func (beside) Close() error { return nil }

func TestBeside(t *testing.T) {
	t.Parallel()
	storetest.RunBeside(t, inMemory())
}

// open opens a store that the caller closes.
func open(tb testing.TB, o pebble.Options) *pebble.Store {
	tb.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := pebble.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
