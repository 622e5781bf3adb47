//go:build !race

package tick_test

import (
	"testing"

	"pgregory.net/rapid"
)

// TestRandomHandlers holds compiled handlers against the reference, on states and events at random.
func TestRandomHandlers(t *testing.T) {
	for range 10 {
		rapid.Check(t, checkRandomHandlers)
	}
}

// TestRandomUpcasts holds steps of upcasts against the reference, on data at random.
func TestRandomUpcasts(t *testing.T) {
	for range 10 {
		rapid.Check(t, checkRandomUpcasts)
	}
}
