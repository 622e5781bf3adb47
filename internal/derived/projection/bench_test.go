package projection_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/projection"
)

// tenSpec has a projection of ten sources.
func tenSpec() string {
	sources, all := `"a":"$key"`, `"$.a.n"`
	for i := range 9 {
		sources += fmt.Sprintf(`,"s%d":{"type":"b","id":"$.a.refs[%d]"}`, i, i)
		all += fmt.Sprintf(`,"$.s%d.n"`, i)
	}
	event := `{"events":{"was_made":{"schema":{},"handler":[{"merge":{"target":"","value":"$.data"}},{"increment":{"target":"n","by":1}}]}}}`
	return `{"agent_types":["user"],"aggregate_types":{"a":` + event + `,"b":` + event + `},
		"projections":{"ten":{"for_each":"a","sources":{` + sources + `},"select":{"all":[` + all + `]}}}}`
}

// BenchmarkRead computes values of ten sources, nothing of which is kept: for four clients from states that the engine
// has, and for one from a thousand events a source. A bar is on the 99th percentile.
func BenchmarkRead(b *testing.B) {
	for name, c := range map[string]struct {
		events, clients int
		cache           int64
	}{"warm": {1, 4, 0}, "cold": {1000, 1, 1}} {
		b.Run(name, func(b *testing.B) {
			f := &fixture{Fixture: enginetest.New(b, engine.Options{CacheBytes: c.cache})}
			f.DeploySource(b, tenSpec())
			f.Service = projection.New(projection.Options{
				Store: f.Store, Engine: f.Engine, Clock: f.Clock, CacheBytes: 1,
			})
			var refs string
			for i := range 9 {
				refs += `"` + id(100+i) + `",`
			}
			for i := range 10 {
				for range c.events {
					if i == 9 {
						f.make(b, "a", id(1), `{"refs":[`+refs[:len(refs)-1]+`]}`)
					} else {
						f.make(b, "b", id(100+i), `{"text":"some text"}`)
					}
				}
			}
			f.view(b, projection.Ask{Name: "ten", ID: id(1)})

			stopwatch := clock.System{}
			var mu sync.Mutex
			var took []time.Duration
			b.ResetTimer()
			var clients sync.WaitGroup
			for n := range c.clients {
				clients.Go(func() {
					var own []time.Duration
					for range b.N/c.clients + min(1, n) {
						start := stopwatch.Now()
						if _, err := f.Read(b.Context(), enginetest.Tenant, &projection.Ask{
							Name: "ten", ID: id(1), Synchronous: c.events > 1,
						}); err != nil {
							b.Error(err)
						}
						own = append(own, stopwatch.Now().Sub(start))
					}
					mu.Lock()
					took = append(took, own...)
					mu.Unlock()
				})
			}
			clients.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
