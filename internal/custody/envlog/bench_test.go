package envlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work/worktest"
	"j17/internal/core/worker"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// benchUnit returns a unit of n events of about 300 bytes, spread over streams.
func benchUnit(from, n int) store.Append {
	data := []byte(`{"text":"` + strings.Repeat("x", 60) + `","amount":12.5,"sku":"ABC-1"}`)
	metadata := []byte(`{"actor":{"type":"user","id":"a0000000-0000-4000-a000-000000000001"}}`)
	var u store.Append
	for i := from; i < from+n; i++ {
		key := j17.Key{Type: "order", ID: fmt.Sprintf("a0000000-0000-4000-a000-%012d", i*7919%3001)}
		u.Events = append(u.Events, store.NewEvent{Key: key, Type: "was_placed", Data: data, Metadata: metadata})
	}
	return u
}

func openBench(b *testing.B) (store.Store, *envlog.Service) {
	b.Helper()
	st := testopen.OnDisk(b).Open(b, clock.System{})
	return st, envlog.New(envlog.Options{
		Store: st, Clock: clock.System{}, Worker: worker.New(clock.System{}, slog.New(slog.DiscardHandler)),
		Origin: func(j17.Tenant) (string, error) { return "bench.example/prod", nil },
	})
}

// BenchmarkProof proves events in a log of 1,000,000, by their positions and in the present tree, and signs its head.
func BenchmarkProof(b *testing.B) {
	const events, unit = 1_000_000, 10_000
	st, s := openBench(b)
	for i := 0; i < events; i += unit {
		if _, err := st.Append(b.Context(), tenant, []store.Append{benchUnit(i, unit)}); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Upkeep(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
	var ids []j17.StreamID
	for e, err := range st.ReadFeed(b.Context(), tenant, j17.StreamID{}, events) {
		if err != nil {
			b.Fatal(err)
		}
		ids = append(ids, e.StreamID)
	}
	b.Run("inclusion", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.IncludeEvent(b.Context(), tenant, ids[rand.IntN(events)], nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("checkpoint", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Checkpoint(b.Context(), tenant); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWrites measures appends of units of 100 events by 4 writers, with and without the upkeep of the log.
func BenchmarkWrites(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("kept=%t", kept), func(b *testing.B) {
			st, s := openBench(b)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			if kept {
				go func() { done <- s.Run(ctx) }()
			} else {
				done <- nil
			}
			b.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					b.Error(err)
				}
			})

			const unit = 100
			var next atomic.Int64
			var writers sync.WaitGroup
			before := worktest.ProcessorTime(b)
			b.ResetTimer()
			for range 4 {
				writers.Go(func() {
					for {
						i := next.Add(unit)
						if i > int64(b.N) {
							return
						}
						if _, err := st.Append(b.Context(), tenant, []store.Append{
							benchUnit(int(i), unit),
						}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			writers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(worktest.ProcessorTime(b)-before)/1e3/float64(b.N), "cpu-µs/event")
		})
	}
}

// BenchmarkMade makes the log of events that are there already.
func BenchmarkMade(b *testing.B) {
	const events, unit = 200_000, 10_000
	st, _ := openBench(b)
	for i := 0; i < events; i += unit {
		if _, err := st.Append(b.Context(), tenant, []store.Append{benchUnit(i, unit)}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s := envlog.New(envlog.Options{
			Store: st, Clock: clock.System{}, Worker: worker.New(clock.System{}, slog.New(slog.DiscardHandler)),
		})
		if err := st.Clear(b.Context(), tenant, "envlog.head", store.Range{}); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Head(b.Context(), tenant); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
