//go:build !race

package pebble_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/clock"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// TestIdleTenantsCostNothing counts what looking for work and for changes over all tenants takes beside few and beside
// many tenants that have neither.
func TestIdleTenantsCostNothing(t *testing.T) {
	measure := func(n int) float64 {
		s := open(t, pebble.Options{
			Dir: "data", FS: vfs.NewMem(), Clock: clock.NewManual(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)),
		})
		defer closeStore(t, s)
		return storetest.Idle(t, s, n)
	}
	// What Pebble does in the background counts as well.
	const others = 100
	if few, many := measure(3), measure(3000); many > few+others {
		t.Errorf("%.0f allocations beside 3 idle tenants, %.0f beside 3000", few, many)
	}
}

// TestBurstIsForgotten writes large units and compares what a small one costs before and after them.
func TestBurstIsForgotten(t *testing.T) {
	s := open(t, pebble.Options{Dir: "data", FS: vfs.NewMem(), Clock: clock.NewManual(frozenTime())})
	defer closeStore(t, s)
	n := 0
	cost := func() uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const rounds = 200
		for range rounds {
			n++
			if _, err := s.Append(t.Context(), tenant, []store.Append{
				{Events: events(key(fmt.Sprint(n)), `1`)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / rounds
	}
	cost()
	before := cost()
	for _, same := range []bool{true, false} {
		var list []store.NewEvent
		for i := range store.MaxUnitEvents {
			id := "burst"
			if !same {
				id = fmt.Sprint("burst", i)
			}
			list = append(list, events(key(id), `1`)...)
		}
		if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: list}}); err != nil {
			t.Fatal(err)
		}
		cost()
		// What the engine makes in the background, such as another table in memory, counts in one of them only.
		if after := min(cost(), cost(), cost()); after > 4*before+64<<10 {
			t.Errorf("a write allocates %d bytes before, and %d after %d events of one stream %v", before, after, len(list), same)
		}
	}
}
