package feed_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/follow/feed"
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

// benchSet runs a set of workers whose handlers count what they get.
func benchSet(b *testing.B, st store.Store, counts func(*feed.Batch)) *feed.Subscriptions {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	s := feed.New(feed.Options{Store: st, Clock: clock.System{}, Logger: log, Worker: worker.New(clock.System{}, log)})
	s.Handle(feed.Kind{Name: "test", Batch: 1024, Do: func(_ context.Context, batch *feed.Batch) error {
		counts(batch)
		return nil
	}})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkCatchUp reads a feed from disk from its beginning.
func BenchmarkCatchUp(b *testing.B) {
	const events = 200_000
	data := testopen.OnDisk(b)
	st := data.Open(b, clock.System{})
	for i := 0; i < events; i += 10_000 {
		var units []store.Append
		for from := i; from < i+10_000; from += 5 {
			units = append(units, benchUnit(from, 5))
		}
		if _, err := st.Append(b.Context(), shop, units); err != nil {
			b.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	st = data.Open(b, clock.System{})
	var left atomic.Int64
	done := make(chan struct{}, 1)
	s := benchSet(b, st, func(batch *feed.Batch) {
		if left.Add(-int64(len(batch.Entries))) == 0 {
			done <- struct{}{}
		}
	})
	b.ReportAllocs()
	n, before := 0, processor()
	for b.Loop() {
		left.Store(events)
		if err := s.Subscribe(b.Context(), shop, "test", fmt.Sprint(n), feed.Beginning()); err != nil {
			b.Fatal(err)
		}
		<-done
		n++
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64((processor()-before).Nanoseconds())/1e3/float64(events*b.N), "cpu-µs/event")
}

// processor returns how much processor time the process has taken.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAppendFollowed measures appends by 16 writers of one event each, alone, and with a subscription that
// follows.
func BenchmarkAppendFollowed(b *testing.B) {
	for _, followed := range []bool{false, true} {
		b.Run(fmt.Sprintf("followed=%t", followed), func(b *testing.B) {
			st := testopen.OnDisk(b).Open(b, clock.System{})
			var handled atomic.Int64
			s := benchSet(b, st, func(batch *feed.Batch) { handled.Add(int64(len(batch.Entries))) })
			if followed {
				if err := s.Subscribe(b.Context(), shop, "test", "x", feed.Beginning()); err != nil {
					b.Fatal(err)
				}
			}
			var next atomic.Int64
			var writers sync.WaitGroup
			b.ResetTimer()
			for range 16 {
				writers.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						if _, err := st.Append(b.Context(), shop, []store.Append{benchUnit(int(i), 1)}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			writers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.StopTimer()
			if followed && handled.Load() < int64(b.N)/2 {
				b.Errorf("%d of %d events were handled meanwhile", handled.Load(), b.N)
			}
		})
	}
}
