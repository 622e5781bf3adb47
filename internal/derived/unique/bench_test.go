package unique_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// newDisk returns a house on a disk.
func newDisk(b *testing.B, src string) *house {
	b.Helper()
	h := &house{tb: b, Fixture: enginetest.NewOn(b, testopen.OnDisk(b), engine.Options{})}
	h.open()
	if err := h.deploy(src, false); err != nil {
		b.Fatal(err)
	}
	return h
}

// BenchmarkUnique measures synced writes by 64 writers, each to an aggregate of its own or all to one: events that take
// a unique value, and the same events where nothing is unique.
func BenchmarkUnique(b *testing.B) {
	for _, to := range []string{"distinct", "one"} {
		for _, of := range []string{"plain", "unique"} {
			b.Run("to="+to+"/of="+of, func(b *testing.B) {
				src := unlike
				if of == "plain" {
					src = plain
				}
				h := newDisk(b, src)
				var seq atomic.Int64
				b.SetParallelism(32)
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						n := int(seq.Add(1))
						who := n
						if to == "one" {
							who = 0
						}
						if err := h.post(who, "was_registered", fmt.Sprintf(`{"email":"a%d"}`, n)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkFilling measures the deployment of a set over a million events, each of which takes a value for an aggregate
// of its own.
func BenchmarkFilling(b *testing.B) {
	const long, batch = 1_000_000, 1000
	h := newDisk(b, plain)
	for n := 0; n < long; n += batch {
		unit := store.Append{Timestamp: h.Clock.Now().Unix()}
		for i := range batch {
			unit.Events = append(unit.Events, store.NewEvent{
				Key: j17.Key{Type: "user", ID: id(n + i)}, Type: "was_registered",
				Data:     fmt.Appendf(nil, `{"email":"a%d"}`, n+i),
				Metadata: []byte(`{"actor":{"type":"user","id":"global"}}`),
			})
		}
		if _, err := h.Store.Append(b.Context(), enginetest.Tenant, []store.Append{unit}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := h.deploy(unlike, false); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := h.deploy(plain, false); err != nil {
			b.Fatal(err)
		}
		h.settle()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N*long)/b.Elapsed().Seconds(), "events/s")
}
