package work_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"j17/internal/work"
)

// TestParts does parts of a piece of work, some of which panic: all of them are done, and whoever waits panics then.
func TestParts(t *testing.T) {
	t.Parallel()
	do := func(faults int) (done int64, thrown any) {
		var parts work.Parts
		var n atomic.Int64
		defer func() { done, thrown = n.Load(), recover() }()
		for i := range 10 {
			parts.Go(func() {
				n.Add(1)
				if i < faults {
					panic("a fault")
				}
			})
		}
		parts.Wait()
		return 0, nil
	}
	for _, faults := range []int{0, 1, 3} {
		done, thrown := do(faults)
		err, _ := thrown.(error)
		if told := err != nil && strings.Contains(err.Error(), "a fault") && strings.Contains(err.Error(), "parts_test.go"); done != 10 || told != (faults > 0) {
			t.Errorf("%d faults: %d parts are done, and whoever waits has %v", faults, done, thrown)
		}
	}
}
