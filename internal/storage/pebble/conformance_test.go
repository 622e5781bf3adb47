//go:build !race

package pebble_test

import (
	"testing"

	"j17/internal/storage/storetest"
)

func TestConformanceLong(t *testing.T) {
	t.Parallel()
	storetest.RunLong(t, inMemory())
}
