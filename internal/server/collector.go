package server

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"j17/internal/core/worker"
)

const (
	// gcPercent lets the heap grow to twice what is in use before the garbage collector runs. The caches of the store
	// are part of the heap, so that more would make several times their documented size of them; see "Memory" in
	// docs/operations.md.
	gcPercent = 100
	// busyRoom is how much the heap of a busy server may grow before the collector runs, however little is in use. Full
	// caches are larger, so that it does not add to what is documented.
	busyRoom = 128 << 20
	// leastLive is taken for what is in use where that is less: a few large requests would otherwise make it many times
	// more before the next look, and the collector would wait for many times that.
	leastLive = 24 << 20
	// busyBytes is how much a busy server allocates from one look to the next.
	busyBytes = 24 << 20
	// lookEvery is the time between two looks.
	lookEvery = time.Second
)

// collector says when the garbage collector runs: on a busy server whose caches are not full yet, later than it would
// by itself. It would otherwise go over the same little heap many times a second.
type collector struct {
	// usage returns how much of the heap is in use and how much was ever allocated, in bytes.
	usage func() (live, allocated uint64)
	// set sets by how much the heap may grow, in percent of what is in use.
	set func(percent int)

	percent   int
	allocated uint64
}

func newCollector() *collector {
	c := &collector{usage: heapUsage, set: func(percent int) { debug.SetGCPercent(percent) }, percent: gcPercent}
	_, c.allocated = c.usage() // what the start took says nothing
	return c
}

// look fits the percentage to what has happened since the last look.
func (c *collector) look() {
	live, allocated := c.usage()
	busy := allocated-c.allocated >= busyBytes
	c.allocated = allocated

	percent := gcPercent
	if busy && live < busyRoom {
		percent = int(busyRoom * 100 / max(live, leastLive))
	}
	// All threads stop for a moment when it is set: what hardly differs stays.
	if differs := max(percent, c.percent) - min(percent, c.percent); differs > c.percent/4 ||
		percent == gcPercent && differs > 0 {
		c.percent = percent
		c.set(percent)
	}
}

// run looks again and again, and leaves the collector as it is by itself.
func (c *collector) run(ctx context.Context, kit *worker.Kit) {
	kit.Every(ctx, worker.Loop{Name: "collector", Every: lookEvery, Do: func(context.Context) error {
		c.look()
		return nil
	}})
	c.set(gcPercent)
}

// heapUsage reads what the runtime knows of the heap.
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
