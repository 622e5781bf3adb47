package engine_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"j17/internal/base/clock"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// newBench is an engine on a store in a folder, on the machine's own clock and disk.
func newBench(b *testing.B) *engine.Engine {
	b.Helper()
	s := testopen.OnDisk(b).Open(b, clock.System{})
	e := engine.New(engine.Options{Store: s, Clock: clock.System{}, Logger: slog.New(slog.DiscardHandler)})
	c, found := spec.Compile([]byte(enginetest.CounterSpec))
	if c == nil {
		b.Fatal(found)
	}
	e.Deploy(tenant, c, nil, head(b, s))
	return e
}

// head returns the fence that a server gives what it deploys.
func head(b *testing.B, s store.Store) store.Fence {
	b.Helper()
	f := store.Fence{Space: "spec.head", Key: "current"}
	if err := s.Write(b.Context(), tenant, []store.Side{
		{Op: store.Put, Space: f.Space, Key: f.Key, Value: []byte(`{"version":1}`)},
	}); err != nil {
		b.Fatal(err)
	}
	it, err := s.Get(b.Context(), tenant, f.Space, f.Key)
	if err != nil {
		b.Fatal(err)
	}
	f.Rev = it.Rev
	return f
}

// BenchmarkExecute measures schema-checked, synced writes by 64 writers: each event to an aggregate of its own, and all
// to one.
func BenchmarkExecute(b *testing.B) {
	for _, hot := range []bool{false, true} {
		b.Run(fmt.Sprintf("hot=%v", hot), func(b *testing.B) {
			e := newBench(b)
			c := enginetest.Command(b, "counter/global/was_counted", count(1))
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					own := *c
					if !hot {
						own.Writes = slices.Clone(c.Writes)
						own.Writes[0].ID = uuid.NewString()
					}
					if _, err := e.Execute(b.Context(), &own); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// fill writes n events of about 300 bytes to one aggregate, a thousand a batch.
func fill(b *testing.B, e *engine.Engine, n int) {
	b.Helper()
	event := `{"type":"was_named","data":{"name":"` + strings.Repeat("n", 60) + `"}},{"type":"was_counted","data":{"by":1}},`
	for done := 0; done < n; done += 1000 {
		body := `{"events":[` + strings.TrimSuffix(strings.Repeat(event, 500), ",") + `],` + meta + `}`
		if _, err := e.Execute(b.Context(), enginetest.Command(b, "counter/"+id, body)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoad measures reads of one aggregate of 10,000 events: from the cache, and replayed from the first event.
func BenchmarkLoad(b *testing.B) {
	e := newBench(b)
	fill(b, e, 10_000)
	for _, replay := range []bool{false, true} {
		b.Run(fmt.Sprintf("replay=%v", replay), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Load(b.Context(), tenant, "counter", id, engine.LoadOptions{
					Replay: replay,
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// placingSpec has an event whose handler sets an object, as that of bench/spec.json does.
const placingSpec = `{"agent_types": ["user"], "aggregate_types": {"order": {"events": {"was_placed": {"schema": {"type": "object"},
	"handler": [{"set": {"target": "", "value": "$.data"}}, {"set": {"target": "status", "value": "open"}}]}}}}}`

// BenchmarkLoadObjects measures replays of one aggregate of 10,000 events whose handler sets the object that each
// brings.
func BenchmarkLoadObjects(b *testing.B) {
	e := newBench(b)
	c, found := spec.Compile([]byte(placingSpec))
	if c == nil {
		b.Fatal(found)
	}
	e.Deploy(tenant, c, nil)
	const event = `{"type":"was_placed","data":{"customer_id":"550e8400-e29b-41d4-a716-446655440003","currency":"EUR","lines":[` +
		`{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1},{"sku":"BULB-E27","title":"Bulb, warm white","unit_price":4.35,"quantity":3}]}},`
	for range 10 {
		body := `{"events":[` + strings.TrimSuffix(strings.Repeat(event, 1000), ",") + `],` + meta + `}`
		if _, err := e.Execute(b.Context(), enginetest.Command(b, "order/"+id, body)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := e.Load(b.Context(), tenant, "order", id, engine.LoadOptions{Replay: true})
		if err != nil || s.Length != 10_000 {
			b.Fatal(s.Length, err)
		}
	}
}

// BenchmarkWriteThenRead measures a read that finds one new event.
func BenchmarkWriteThenRead(b *testing.B) {
	e := newBench(b)
	fill(b, e, 1000)
	c := enginetest.Command(b, "counter/"+id+"/was_counted", count(1))
	var n atomic.Uint64
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Execute(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		s, err := e.Load(b.Context(), tenant, "counter", id, engine.LoadOptions{})
		if err != nil || s.Length <= n.Swap(s.Length) {
			b.Fatal(s.Length, err)
		}
	}
}

// implyingSpec has an event that implies nothing, one that implies three events in aggregates of their own, and one
// that implies three in one that all share.
const implyingSpec = `{"agent_types": ["user"], "aggregate_types": {
  "order": {"events": {
    "was_noted": {"schema": {"type": "object"}, "handler": [{"set": {"target": "", "value": "$.data"}}]},
    "was_spread": {"schema": {"type": "object"}, "handler": [{"set": {"target": "", "value": "$.data"}}], "implications": [
      {"map": {"in": "$.data.ids", "as": "$id", "emit": {"aggregate_type": "entry", "id": "$id", "event_type": "was_added", "data": {"of": "$.key"}}}}]},
    "was_shared": {"schema": {"type": "object"}, "handler": [{"set": {"target": "", "value": "$.data"}}], "implications": [
      {"map": {"in": "$.data.ids", "as": "$id", "emit": {"aggregate_type": "entry", "id": "global", "event_type": "was_added", "data": {"of": "$.key", "id": "$id"}}}}]}
  }},
  "entry": {"events": {"was_added": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "n", "by": 1}}]}}}
}}`

// BenchmarkImply measures writes by 64 writers to aggregates of their own: plain ones, and ones that imply three
// events.
func BenchmarkImply(b *testing.B) {
	for _, event := range []string{"was_noted", "was_spread", "was_shared"} {
		b.Run(event, func(b *testing.B) {
			e := newBench(b)
			c, found := spec.Compile([]byte(implyingSpec))
			if c == nil {
				b.Fatal(found)
			}
			e.Deploy(tenant, c, nil)
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					body := `{"data":{"ids":["` + uuid.NewString() + `","` + uuid.NewString() + `","` +
						uuid.NewString() + `"]},` + meta + `}`
					if _, err := e.Execute(
						b.Context(), enginetest.Command(b, "order/"+uuid.NewString()+"/"+event, body),
					); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}

// BenchmarkTurns measures payments by 16 writers to one account: such as imply something that depends on the account's
// state, and such as imply the same without a look at it.
func BenchmarkTurns(b *testing.B) {
	for _, event := range []string{"was_told", "was_paid"} {
		b.Run(event, func(b *testing.B) {
			e := newBench(b)
			c, found := spec.Compile([]byte(accountSpec))
			if c == nil {
				b.Fatal(found)
			}
			e.Deploy(tenant, c, nil)
			if _, err := e.Execute(
				b.Context(), enginetest.Command(b, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`),
			); err != nil {
				b.Fatal(err)
			}
			pay := enginetest.Command(b, "account/"+id+"/"+event, paid())
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := e.Execute(b.Context(), pay); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
			b.ReportMetric(float64(e.Stats().Replanned)/float64(b.N), "replanned/op")
		})
	}
}

// decidingSpec has an event without a guard, and the same with one.
const decidingSpec = `{"agent_types": ["user"], "aggregate_types": {"account": {"events": {
	"was_noted": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}]},
	"was_paid": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}],
		"requires": [{"that": {"gte": ["@.balance", 0]}, "message": "There is nothing"}]}
}}}}`

// BenchmarkDecisions measures what guards and transactions cost. Plain writes go to aggregates of their own, guarded
// ones to a thousand whose states are warm, and transactions to three aggregates of their own, by 64 writers; the
// others are by 16 writers to one aggregate.
func BenchmarkDecisions(b *testing.B) {
	const warm = 1000
	account := func(n int) string { return fmt.Sprintf("account/00000000-0000-4000-8000-%012x", n) }
	body := `{"data":{"amount":1},` + meta + `}`
	own := func(int) string { return "account/" + uuid.NewString() + "/was_noted" }
	for _, bench := range []struct {
		name            string
		writers, writes int
		path            func(n int) string
	}{
		{"plain", 32, 1, own},
		{"guarded", 32, 1, func(n int) string { return account(n%warm) + "/was_paid" }},
		{"transaction", 32, 3, own},
		{"hot", 8, 1, func(int) string { return account(0) + "/was_noted" }},
		{"hot-guarded", 8, 1, func(int) string { return account(0) + "/was_paid" }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e := newBench(b)
			c, found := spec.Compile([]byte(decidingSpec))
			if c == nil {
				b.Fatal(found)
			}
			e.Deploy(tenant, c, nil)
			for n := range warm {
				if _, err := e.Execute(b.Context(), enginetest.Command(b, account(n)+"/was_noted", body)); err != nil {
					b.Fatal(err)
				}
			}
			var n atomic.Int64
			b.SetParallelism(bench.writers)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					cmd := enginetest.Command(b, bench.path(int(n.Add(1))), body)
					for len(cmd.Writes) < bench.writes {
						another := cmd.Writes[0]
						another.ID = uuid.NewString()
						cmd.Writes, cmd.Several = append(cmd.Writes, another), true
					}
					if _, err := e.Execute(b.Context(), cmd); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}
