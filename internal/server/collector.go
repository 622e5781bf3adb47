package server

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"j17/internal/core/worker"
)

const (
	// gcPercent lets the heap grow to twice its live size before the garbage collector runs. The store's caches are
	// part of the heap, so a larger value would make them take several times their documented size; see "Memory" in
	// docs/operations.md.
	gcPercent = 100
	// busyRoom is how much the heap of a busy server may grow before the collector runs, however small its live size.
	// Full caches are larger, so this does not add to the documented memory.
	busyRoom = 128 << 20
	// leastLive is the smallest live size assumed: with a smaller one, a few large requests could multiply the live
	// size before the next look, and the collector would wait for a multiple of that.
	leastLive = 24 << 20
	// busyBytes is the least that a busy server allocates between two looks.
	busyBytes = 24 << 20
	// lookEvery is the time between two looks.
	lookEvery = time.Second
)

// collector sets when the garbage collector runs: on a busy server whose caches are not full yet, later than by
// default. It would otherwise collect the same small heap many times a second.
type collector struct {
	// usage returns how much of the heap is in use and how much was ever allocated, in bytes.
	usage func() (live, allocated uint64)
	// set sets by how much the heap may grow, in percent of its live size.
	set func(percent int)

	percent   int
	allocated uint64
}

func newCollector() *collector {
	c := &collector{usage: heapUsage, set: func(percent int) { debug.SetGCPercent(percent) }, percent: gcPercent}
	_, c.allocated = c.usage() // allocations of the start do not count
	return c
}

// look adjusts the percentage to the allocations since the last look.
func (c *collector) look() {
	live, allocated := c.usage()
	busy := allocated-c.allocated >= busyBytes
	c.allocated = allocated

	percent := gcPercent
	if busy && live < busyRoom {
		percent = int(busyRoom * 100 / max(live, leastLive))
	}
	// Setting it stops all threads for a moment, so small differences are ignored.
	if differs := max(percent, c.percent) - min(percent, c.percent); differs > c.percent/4 ||
		percent == gcPercent && differs > 0 {
		c.percent = percent
		c.set(percent)
	}
}

// run looks at intervals until the context ends, and then restores the default percentage.
func (c *collector) run(ctx context.Context, kit *worker.Kit) {
	kit.Every(ctx, worker.Loop{Name: "collector", Every: lookEvery, Do: func(context.Context) error {
		c.look()
		return nil
	}})
	c.set(gcPercent)
}

// heapUsage reads the heap statistics of the runtime.
func heapUsage() (live, allocated uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	number := func(s metrics.Sample) uint64 {
		if s.Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return s.Value.Uint64()
	}
	return number(samples[0]), number(samples[1])
}
