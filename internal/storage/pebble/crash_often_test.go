//go:build !race

package pebble_test

import "testing"

// TestCrashOften is TestCrash with more rounds, which take long where the race detector watches.
func TestCrashOften(t *testing.T) {
	t.Parallel()
	crashes(t, 4)
}
