package schedule_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/follow/schedule"
	"j17/internal/storage/testopen"
)

// BenchmarkFire writes due events to a disk, a hundred for each aggregate, from the claim to the end of each schedule.
func BenchmarkFire(b *testing.B) {
	c := clock.NewManual(time.Unix(1_700_000_000, 0))
	st := testopen.OnDisk(b).Open(b, c)
	h := &house{tb: b, clock: c, store: st, most: 10_000_000}
	log := slog.New(slog.DiscardHandler)
	h.kit = worker.New(c, log)
	h.service = schedule.New(schedule.Options{
		Store: st, Clock: c, Logger: log, Worker: h.kit, MaxPerInstance: h.most,
		Execute: func(ctx context.Context, t j17.Tenant, commands []*engine.Command) []engine.Outcome {
			return h.engine.ExecuteInOrder(ctx, t, commands)
		},
	})
	h.engine = engine.New(engine.Options{Store: st, Clock: c, Logger: log}).Use(
		enginetest.Effects(h.service.Effects)...,
	)
	h.engine.Deploy(prod, h.compile(specText("integer")), nil)
	const each = 100
	for i := 0; i < b.N; i += each {
		if err := h.do(prod, "job/"+id(i), "was_greedy", `{}`); err != nil {
			b.Fatal(err)
		}
	}
	c.Advance(5 * time.Minute)
	b.ResetTimer()
	if err := h.service.Queues()[0].Settle(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if n := h.service.Stats().Fired; n < uint64(b.N) {
		b.Fatalf("%d of %d", n, b.N)
	}
	b.ReportMetric(float64(h.service.Stats().Fired)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkIdle is what a hundred thousand pending events cost while none is due: a look at the first of them.
func BenchmarkIdle(b *testing.B) {
	h := newHouse(b, 1_000_000)
	for i := range 1000 {
		if err := h.do(prod, "job/"+id(i), "was_greedy", `{}`); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := h.service.Queues()[0].Settle(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList reads the first page of a hundred thousand pending events.
func BenchmarkList(b *testing.B) {
	h := newHouse(b, 1_000_000)
	for i := range 1000 {
		if err := h.do(prod, "job/"+id(i), "was_greedy", `{}`); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if page, next, err := h.service.List(
			b.Context(), prod, schedule.Statuses(), 0, 100,
		); err != nil || next != 100 || len(page) != 100 {
			b.Fatal(err)
		}
	}
}

// BenchmarkCancel cancels a hundred thousand events by one.
func BenchmarkCancel(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		h := newHouse(b, 1_000_000)
		for i := range 1000 {
			data := make([]string, 100)
			for n := range data {
				data[n] = fmt.Sprintf(`{"n":%d}`, n)
			}
			if err := h.do(prod, "job/"+id(i), "was_shared", data...); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		if err := h.do(prod, "hall/global", "was_locked", `{}`); err != nil {
			b.Fatal(err)
		}
	}
}
