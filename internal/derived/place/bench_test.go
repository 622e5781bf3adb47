package place_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/base/geo"
	"j17/internal/base/value"
	"j17/internal/base/work/worktest"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/place"
	"j17/internal/storage/store"
)

// fill stores events of aggregates 0 to n, of one event each.
func (h *house) fill(typ, event string, n int, data func(i int) string) {
	h.tb.Helper()
	const each = 5000
	past, err := h.Recorder(enginetest.Tenant)
	if err != nil {
		h.tb.Fatal(err)
	}
	metadata, err := value.ParseString(
		`{"actor":{"type":"user","id":"` + enginetest.User + `"},"timestamp":1600000000}`,
	)
	if err != nil {
		h.tb.Fatal(err)
	}
	for from := 0; from < n; from += each {
		u := &engine.Past{}
		binary.BigEndian.PutUint64(u.ID[:], uint64(from))
		copy(u.ID[8:], typ)
		for i := from; i < min(n, from+each); i++ {
			v, err := value.ParseString(data(i))
			if err != nil {
				h.tb.Fatal(err)
			}
			e, faults := past.Decider().Examine(h.tb.Context(), &command.FileEvent{
				AggregateType: typ, ID: id(i), Type: event, Data: v, Metadata: metadata,
			})
			if len(faults) > 0 {
				h.tb.Fatal(faults)
			}
			u.Events = append(u.Events, engine.PastEvent{Examined: e})
		}
		if _, err := past.Store(h.tb.Context(), u); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// field is 300 by 300 km.
func field(r *rand.Rand) geo.Point {
	const side = 300_000 / geo.EarthRadius * 180 / math.Pi
	lat := 48 + side*(r.Float64()-0.5)
	return geo.Point{Lat: lat, Lng: 11 + side*(r.Float64()-0.5)/math.Cos(lat*math.Pi/180)}
}

// ask lets four ask at a time and reports how long the slowest of a hundred take.
func (h *house) ask(b *testing.B, question func(r *rand.Rand) *place.Ask) {
	b.Helper()
	machine := clock.System{}
	var mu sync.Mutex
	var took []time.Duration
	var seeds, rows atomic.Uint64
	b.SetParallelism(2)
	before := worktest.ProcessorTime(b)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r := rand.New(rand.NewPCG(1, seeds.Add(1)))
		var own []time.Duration
		for pb.Next() {
			// A connection waits for its next request. Go would leave whoever never waits on a processor for 10 ms at a
			// time.
			runtime.Gosched()
			began := machine.Now()
			page, err := h.places.Page(b.Context(), enginetest.Tenant, question(r))
			if err != nil {
				b.Error(err)
				return
			}
			own = append(own, machine.Now().Sub(began))
			rows.Add(uint64(len(page.Rows)))
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, own...)
	})
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
	b.ReportMetric(float64(worktest.ProcessorTime(b)-before)/1e6/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(rows.Load())/float64(b.N), "rows/op")
}

// BenchmarkPlaces looks among 1,000,000 points and 100,000 areas of 20 vertices.
func BenchmarkPlaces(b *testing.B) {
	h := newHouse(b, shops)
	r := rand.New(rand.NewPCG(7, 7))
	h.fill("shop", "was_opened", 1_000_000, func(int) string { return at(field(r)) })
	h.fill("area", "was_drawn", 100_000, func(int) string {
		center, radius := field(r), 0.005+0.02*r.Float64()
		text := `{"name":"n","area":[`
		for i := range 20 {
			a := 2 * math.Pi * float64(i) / 20
			text += fmt.Sprintf(
				`%s{"lat":%g,"lng":%g}`, []string{"", ","}[min(i, 1)], center.Lat+radius*math.Sin(a),
				center.Lng+radius*math.Cos(a),
			)
		}
		return text + "]}"
	})
	near := func(radius float64, count int) func(r *rand.Rand) *place.Ask {
		return func(r *rand.Rand) *place.Ask {
			return &place.Ask{
				Type: "shop", Near: &place.Near{Center: field(r), Radius: radius}, Count: count, Bare: true,
			}
		}
	}
	b.Run("of=nearby-5km-100", func(b *testing.B) { h.ask(b, near(5000, 100)) })
	b.Run("of=nearby-5km-1000", func(b *testing.B) { h.ask(b, near(5000, 1000)) })
	b.Run("of=nearest-10", func(b *testing.B) { h.ask(b, near(math.Inf(1), 10)) })
	b.Run("of=containing", func(b *testing.B) {
		h.ask(b, func(r *rand.Rand) *place.Ask {
			return &place.Ask{Type: "area", Having: new(field(r)), Count: 100, Bare: true}
		})
	})
	b.Run("of=within-5km", func(b *testing.B) {
		h.ask(b, func(r *rand.Rand) *place.Ask {
			p := field(r)
			return &place.Ask{
				Type: "shop", In: geo.Box{
					South: p.Lat - 0.02, North: p.Lat + 0.02, West: p.Lng - 0.03, East: p.Lng + 0.03,
				}, Count: 100, Bare: true,
			}
		})
	})
	b.Run("of=within-all", func(b *testing.B) {
		h.ask(b, func(*rand.Rand) *place.Ask {
			return &place.Ask{
				Type: "shop", In: geo.Box{South: -90, North: 90, West: -180, East: 180}, Count: 100, Bare: true,
			}
		})
	})
	m := h.moment()
	defer m.Close()
	if n, err := m.Count("places", store.Range{}, 2_000_000); n != 1_100_000 || err != nil {
		b.Fatal(n, err)
	}
}

// BenchmarkWrites moves aggregates about, 64 writers at a time, with places and without.
func BenchmarkWrites(b *testing.B) {
	for name, event := range map[string]string{"of=plain": "was_named", "of=placed": "was_opened"} {
		b.Run(name, func(b *testing.B) {
			h := newHouse(b, shops)
			var n atomic.Uint64
			b.SetParallelism(32)
			b.ReportAllocs()
			before := worktest.ProcessorTime(b)
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(1, n.Add(1)))
				for pb.Next() {
					c := enginetest.Command(
						b, "shop/"+id(int(r.Uint32N(100_000)))+"/"+event, enginetest.Body(at(field(r))),
					)
					if _, err := h.Execute(b.Context(), c); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(worktest.ProcessorTime(b)-before)/1e3/float64(b.N), "cpu-µs/op")
		})
	}
}
