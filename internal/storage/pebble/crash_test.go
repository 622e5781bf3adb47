package pebble_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// TestCrash takes the disk away at random moments while many write, with none, some or all of what was not synced,
// and looks what is left.
func TestCrash(t *testing.T) {
	t.Parallel()
	crashes(t, 1)
}

// crashes does so many rounds of TestCrash.
func crashes(t *testing.T, rounds int) {
	t.Helper()
	type crash struct {
		fs    *vfs.MemFS
		acked map[int]bool
		what  string
	}
	for round := range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", seed)
			fs := vfs.NewCrashableMem()
			s := open(t, pebble.Options{Dir: "data", FS: fs})
			w := newWorkload(4000)
			rng := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			var crashes []crash
			take := func(always bool) {
				mu.Lock()
				defer mu.Unlock()
				if !always && rng.IntN(40) != 0 {
					return
				}
				percent := []int{0, 50, 100}[rng.IntN(3)]
				acked := w.acknowledged()
				clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
				crashes = append(crashes, crash{clone, acked, fmt.Sprintf("%d units acknowledged, %d %% of the rest kept", len(acked), percent)})
			}
			take(true)
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					for range 60 {
						if err := w.write(t, s); err != nil {
							t.Errorf("append: %v", err)
							return
						}
						take(false)
					}
				})
			}
			wg.Wait()
			closeStore(t, s)
			take(true)
			for _, c := range crashes {
				t.Log(c.what)
				w.checkKept(t, c.fs, c.acked)
			}
		})
	}
}

// TestCrashDuringErasure crashes while events are rewritten, which flushes and compacts: what was erased and
// acknowledged must stay erased, and nothing else may be harmed.
func TestCrashDuringErasure(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	s := open(t, pebble.Options{Dir: "data", FS: fs})
	rng := rand.New(rand.NewPCG(1, 2))
	w := newWorkload(10)
	type crash struct {
		fs     *vfs.MemFS
		acked  map[int]bool
		erased int
	}
	var crashes []crash
	const secrets = 6
	for range secrets {
		if _, err := s.Append(t.Context(), "vault", []store.Append{
			{Events: events(key("secret"), `"secret"`)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for erased := range secrets {
		done := make(chan error, 1)
		go func() {
			done <- storetest.Erase(t.Context(), s, "vault", key("secret"), []store.Rewritten{
				{Version: uint64(erased + 1), Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)},
			})
		}()
		for running := true; running; {
			if err := w.write(t, s); err != nil {
				t.Fatal(err)
			}
			acked := w.acknowledged()
			crashes = append(crashes, crash{
				fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}), acked, erased,
			})
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			default:
			}
		}
	}
	closeStore(t, s)
	// Opening them all would take long.
	rng.Shuffle(len(crashes), func(i, j int) { crashes[i], crashes[j] = crashes[j], crashes[i] })
	for _, c := range crashes[:min(len(crashes), 12)] {
		checkErased(t, c.fs, c.erased)
		w.checkKept(t, c.fs, c.acked)
	}
}

// checkErased checks that the first n secrets are erased.
func checkErased(t *testing.T, fs vfs.FS, n int) {
	t.Helper()
	s := open(t, pebble.Options{Dir: "data", FS: fs})
	defer closeStore(t, s)
	for e, err := range s.ReadStream(t.Context(), "vault", key("secret"), 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		data := string(e.Data)
		if (int(e.Version) <= n && data != "null") || (int(e.Version) > n+1 && data != `"secret"`) {
			t.Errorf("version %d holds %s after %d were erased", e.Version, data, n)
		}
	}
}
