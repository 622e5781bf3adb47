package wasm

import (
	"log/slog"
	"strings"
	"testing"

	"j17/internal/code/wasm/instrument"
)

// TestAPanicEndsARefill lets the making of an instance panic, in the background: it is logged, and the next one can be
// made.
func TestAPanicEndsARefill(t *testing.T) {
	var logged strings.Builder
	// It has nothing to make one of.
	m := &Module{
		parsed: &instrument.Module{},
		rt:     &Runtime{pool: newPool(1), logger: slog.New(slog.NewTextHandler(&logged, nil))},
	}
	for n := range 2 {
		m.refill(t.Context())
		m.active.Wait()
		if m.refilling {
			t.Fatal("an instance is still being made")
		}
		if got := strings.Count(logged.String(), `work="starting a WebAssembly module ahead"`); got != n+1 {
			t.Errorf("%d of %d panics were logged:\n%s", got, n+1, logged.String())
		}
	}
}
