package pebble_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"j17"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

func openBench(b *testing.B) *pebble.Store {
	b.Helper()
	s, err := pebble.Open(pebble.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// cpuTime is what the process has used of the processors, which says more than the clock on a machine with neighbours.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const benchTenant j17.Tenant = "bench/prod"

// payload makes canonical bytes of about 300.
func payload() (data, metadata []byte) {
	data = []byte(`{"text":"` + strings.Repeat("x", 60) + `","amount":12.5,"sku":"ABC-1"}`)
	metadata = []byte(`{"actor":{"type":"user","id":"a0000000-0000-4000-a000-000000000001"}}`)
	return data, metadata
}

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name             string
		clients, streams int
		events           int
		fences           []store.Fence
	}{
		{"clients=1/events=1/streams=distinct", 1, 0, 1, nil},
		{"clients=64/events=1/streams=distinct", 64, 0, 1, nil},
		{"clients=64/events=1/streams=distinct/fenced", 64, 0, 1, []store.Fence{{Space: "specs", Key: "head", Rev: 1}}},
		{"clients=64/events=1/streams=one", 64, 1, 1, nil},
		{"clients=64/events=3/streams=distinct", 64, 0, 3, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := openBench(b)
			data, metadata := payload()
			tags := j17.MetadataTags(metadata)
			if err := s.Write(b.Context(), benchTenant, []store.Side{
				{Op: store.Put, Space: "specs", Key: "head", Value: make([]byte, 200)},
			}); err != nil {
				b.Fatal(err)
			}
			var next atomic.Int64
			b.ReportAllocs()
			before := cpuTime(b)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range c.clients {
				wg.Go(func() {
					for {
						n := next.Add(1)
						if n > int64(b.N) {
							return
						}
						unit := store.Append{
							Timestamp: 1_700_000_000, Fences: c.fences, Events: make([]store.NewEvent, c.events),
						}
						for i := range unit.Events {
							id := fmt.Sprintf("a0000000-0000-4000-a000-%012d", n*int64(c.events)+int64(i))
							if c.streams == 1 {
								id = "global"
							}
							unit.Events[i] = store.NewEvent{
								Key: j17.Key{Type: "order", ID: id}, Type: "was_placed", Data: data, Metadata: metadata,
								Tags: tags,
							}
						}
						if r, err := s.Append(b.Context(), benchTenant, []store.Append{unit}); err != nil ||
							r[0].Outcome != store.Committed {
							b.Error(r, err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "units/s")
			b.ReportMetric((cpuTime(b)-before).Seconds()*1e6/float64(b.N), "cpu-µs/unit")
		})
	}
}

// fillBench writes one stream of n events, and as many others with one event each.
func fillBench(b *testing.B, s *pebble.Store, n int) {
	b.Helper()
	data, metadata := payload()
	var units []store.Append
	for i := range n {
		one := store.NewEvent{
			Key: j17.Key{Type: "order", ID: "long"}, Type: "was_placed", Data: data, Metadata: metadata,
		}
		two := one
		two.Key.ID = fmt.Sprintf("a0000000-0000-4000-a000-%012d", i)
		units = append(units, store.Append{Timestamp: 1_700_000_000, Events: []store.NewEvent{one, two}})
	}
	if _, err := s.Append(b.Context(), benchTenant, units); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkReadStream(b *testing.B) {
	dir := b.TempDir()
	const length = 10_000
	s := open(b, pebble.Options{Dir: dir})
	fillBench(b, s, length)
	for _, where := range []string{"memory", "tables"} {
		b.Run(fmt.Sprintf("events=%d/from=%s", length, where), func(b *testing.B) {
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				n := 0
				for e, err := range s.ReadStream(b.Context(), benchTenant, j17.Key{Type: "order", ID: "long"}, 1, 0) {
					if err != nil {
						b.Fatal(err)
					}
					bytes = len(e.Raw)
					n++
				}
				if n != length {
					b.Fatalf("%d events", n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/length, "ns/event")
			b.ReportMetric(float64(bytes), "bytes/event")
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		if where == "memory" {
			s = open(b, pebble.Options{Dir: dir})
		}
	}
}

func BenchmarkReadFeed(b *testing.B) {
	s := openBench(b)
	const length = 10_000
	fillBench(b, s, length/2)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.ReadFeed(b.Context(), benchTenant, j17.StreamID{}, length) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != length {
			b.Fatalf("%d events", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/length, "ns/event")
}

func BenchmarkHeads(b *testing.B) {
	s := openBench(b)
	const streams = 10_000
	fillBench(b, s, streams)
	for _, c := range []struct {
		name   string
		typ    string
		length uint64
	}{{"cached", "order", 1}, {"absent", "nothing", 0}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			keys := make([]j17.Key, 1)
			ids := make([]string, streams)
			for i := range ids {
				ids[i] = fmt.Sprintf("a0000000-0000-4000-a000-%012d", i*7919%streams)
			}
			for n := 0; b.Loop(); n++ {
				keys[0] = j17.Key{Type: c.typ, ID: ids[n%streams]}
				if heads, err := s.Heads(b.Context(), benchTenant, keys); err != nil || heads[0].Length != c.length {
					b.Fatal(heads, err)
				}
			}
		})
	}
}

// BenchmarkFinishDue claims items that are due one after the other and finishes them, as a queue does in the long run:
// an operation is one item.
func BenchmarkFinishDue(b *testing.B) {
	const space store.Space = "bench"
	s := openBench(b)
	begin := time.Now().Add(-24 * time.Hour)
	var side []store.Side
	for i := range b.N {
		side = append(side, store.Side{
			Op: store.Put, Space: space, Key: strconv.Itoa(i), Due: begin.Add(time.Duration(i)),
		})
		if len(side) == 1000 || i == b.N-1 {
			if err := s.Write(b.Context(), benchTenant, side); err != nil {
				b.Fatal(err)
			}
			side = side[:0]
		}
	}
	b.ResetTimer()
	for done := 0; done < b.N; {
		items, err := s.ClaimDue(b.Context(), benchTenant, store.Claim{Space: space, Limit: 100, Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		side = side[:0]
		for _, it := range items {
			side = append(side, store.Side{Op: store.Delete, Space: space, Key: it.Key, Cond: store.IfRev, Rev: it.Rev})
		}
		if err := s.Write(b.Context(), benchTenant, side); err != nil {
			b.Fatal(err)
		}
		done += len(items)
	}
}
