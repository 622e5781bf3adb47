package pebble_test

import (
	"fmt"
	"testing"
	"time"

	"j17"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// benchEvents is how many events a large environment of the benchmarks has. One of a hundred belongs to an aggregate of
// its own.
const benchEvents = 1_000_000

// loadBench loads events, most of which are the only ones of their streams, and an aggregate of a hundredth of them:
// all have an actor, and those of the aggregate a target of their own.
func loadBench(b *testing.B, s *pebble.Store, tn j17.Tenant, n int) {
	b.Helper()
	l, err := s.Load(b.Context(), tn)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Discard()
	data, actor := payload()
	target := append(actor[:len(actor)-1:len(actor)-1], `,"target":{"type":"user","id":"b0000000-0000-4000-a000-000000000002"}}`...)
	var raw []byte
	at := j17.StreamID{Ms: 1_700_000_000_000}
	for i := range n {
		// Ids are scattered, as they are when they are drawn at random.
		key, metadata := j17.Key{Type: "order", ID: fmt.Sprintf("%08x-0000-4000-a000-%012d", uint32(i)*2654435761, i)},
			actor
		if i%100 == 0 {
			key.ID, metadata = "80000000-0000-4000-a000-000000000000", target
		}
		at.Ms += int64(i % 2)
		at.Seq = uint32(1 - i%2)
		var layout j17.Layout
		raw, layout = j17.AppendEvent(raw[:0], at, key, "was_placed", data, metadata, 1_700_000_000)
		e := j17.Event{
			StreamID: at, Key: key, Type: "was_placed", Timestamp: 1_700_000_000, Raw: raw, Data: layout.DataOf(raw),
			Metadata: layout.MetadataOf(raw),
		}
		if _, err := l.Event(store.LoadedEvent{Event: &e}); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLoad fills an environment with a million events of some 340 bytes.
func BenchmarkLoad(b *testing.B) {
	s := openBench(b)
	before := cpuTime(b)
	for n := 0; b.Loop(); n++ {
		loadBench(b, s, j17.Tenant(fmt.Sprint("bench/", n)), benchEvents)
	}
	b.ReportMetric(float64(b.N)*benchEvents/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((cpuTime(b)-before).Seconds()*1e6/float64(b.N)/benchEvents, "cpu-µs/event")
}

// BenchmarkReadAll reads a million events in their order.
func BenchmarkReadAll(b *testing.B) {
	s := openBench(b)
	loadBench(b, s, benchTenant, benchEvents)
	for _, how := range []string{"feed", "archive"} {
		b.Run("of="+how, func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				n := 0
				if how == "feed" {
					for _, err := range s.ReadChanges(b.Context(), benchTenant, j17.StreamID{}, benchEvents) {
						if n++; err != nil {
							b.Fatal(err)
						}
					}
				} else {
					a, err := s.Archive(b.Context(), benchTenant)
					if err != nil {
						b.Fatal(err)
					}
					for _, err := range a.Changes(b.Context(), j17.StreamID{}) {
						if n++; err != nil {
							b.Fatal(err)
						}
					}
					a.Close()
				}
				if n != benchEvents {
					b.Fatalf("%d events", n)
				}
			}
			b.ReportMetric(float64(b.N)*benchEvents/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric((cpuTime(b)-before).Seconds()*1e6/float64(b.N)/benchEvents, "cpu-µs/event")
		})
	}
}

// BenchmarkErase rewrites the ten thousand events of an aggregate among a million, and waits until what they were is
// gone from the disk.
func BenchmarkErase(b *testing.B) {
	s := openBench(b)
	loadBench(b, s, benchTenant, benchEvents)
	key := j17.Key{Type: "order", ID: "80000000-0000-4000-a000-000000000000"}
	var rewritten []store.Rewritten
	for v := range benchEvents / 100 {
		rewritten = append(rewritten, store.Rewritten{
			Version: uint64(v) + 1, Type: "was_erased", Data: []byte(`{"tombstone":"x"}`), Metadata: []byte(`{}`),
		})
	}
	var purging time.Duration
	for b.Loop() {
		if _, err := s.Rewrite(b.Context(), benchTenant, store.Rewrite{
			Streams: []store.RewrittenStream{{Key: key, Events: rewritten}},
		}); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if _, err := s.Purge(b.Context(), benchTenant, []j17.Key{key}, nil, nil); err != nil {
			b.Fatal(err)
		}
		purging += time.Since(begun)
	}
	b.ReportMetric(float64(purging.Milliseconds())/float64(b.N), "purge-ms")
}
