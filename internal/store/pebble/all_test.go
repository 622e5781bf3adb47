package pebble_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/clock"
	"j17/internal/store/pebble"
	"j17/internal/store/storetest"
)

// TestIdleTenantsCostNothing counts what looking for work and for changes over all tenants takes beside few and beside many
// tenants that have neither.
func TestIdleTenantsCostNothing(t *testing.T) {
	measure := func(n int) float64 {
		s := open(t, pebble.Options{Dir: "data", FS: vfs.NewMem(), Clock: clock.NewManual(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))})
		defer closeStore(t, s)
		return storetest.Idle(t, s, n)
	}
	// What Pebble does in the background counts as well.
	const others = 100
	if few, many := measure(3), measure(3000); many > few+others {
		t.Errorf("%.0f allocations beside 3 idle tenants, %.0f beside 3000", few, many)
	}
}
