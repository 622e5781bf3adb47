package wasm

import (
	"testing"

	"j17/internal/sandbox/wasm/instrument"
)

// TestAPanicEndsARefill lets the making of an instance panic, in the background: the next one can be made.
func TestAPanicEndsARefill(t *testing.T) {
	m := &Module{parsed: &instrument.Module{}, rt: &Runtime{pool: newPool(1)}} // it has nothing to make one of
	for range 2 {
		m.refill(t.Context())
		m.active.Wait()
		if m.refilling {
			t.Fatal("an instance is still being made")
		}
	}
}
