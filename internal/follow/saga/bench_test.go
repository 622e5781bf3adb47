package saga_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/follow/saga"
	"j17/internal/storage/testopen"
)

// newDisk returns a house on the machine's disk.
func newDisk(b *testing.B, clk clock.Clock, most int) *house {
	b.Helper()
	h := &house{tb: b, time: clk, specs: &versions{}, most: most, disk: testopen.OnDisk(b).Open(b, clk)}
	h.work(h.disk)
	h.deploy(shop)
	return h
}

// BenchmarkSagas triggers a thousand sagas of three steps and an event at the end, of which a hundred may run at once,
// and waits until all have completed. An operation is all thousand.
func BenchmarkSagas(b *testing.B) {
	h := newDisk(b, clock.System{}, 0)
	const sagas = 1000
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	for i := 0; b.Loop(); i++ {
		for n := range sagas / 100 {
			trigger := fmt.Sprintf(`{"leg":%q,"n":3}`, id(i*sagas+n))
			batch := make([]string, 100)
			for j := range batch {
				batch[j] = trigger
			}
			h.post("trip/"+id(i*sagas+n)+"/was_requested", batch...)
		}
		for h.Stats().Completed < uint64((i+1)*sagas) {
			if err := h.time.Wait(ctx, h.time.Now().Add(time.Millisecond)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/1000sagas")
	stop()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

// BenchmarkSagasAtRest looks at the newest page of a list of twenty thousand sagas that wait, and reports the memory
// that they take. Their clock stands still, since they would stop to wait after a time and be undone.
func BenchmarkSagasAtRest(b *testing.B) {
	const sagas = 20_000
	h := newDisk(b, clock.NewManual(clock.System{}.Now()), sagas)
	before := memory()
	for n := range sagas / saga.DefaultPerWrite {
		batch := make([]string, saga.DefaultPerWrite)
		for j := range batch {
			batch[j] = fmt.Sprintf(`{"leg":%q,"desk":%q}`, id(n), id(n))
		}
		h.post("trip/"+id(n)+"/was_asked", batch...)
		if err := h.Settle(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	taken := float64(memory()-before) / sagas
	for b.Loop() {
		page, err := h.List(b.Context(), prod, saga.Filter{Status: saga.Running}, 0, 100)
		if err != nil || len(page) != 100 {
			b.Fatal(len(page), err)
		}
	}
	b.ReportMetric(taken, "B/saga")
}

// memory returns the bytes of the heap that are in use.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
