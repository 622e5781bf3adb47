//go:build !race

package attention_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/work/worktest"
	"j17/internal/custody/attention"
	"j17/internal/storage/store"
)

// BenchmarkOverview has a hundred people ask for the overview of an environment with all kinds of consumers, once each:
// of a service that knows nothing yet, which finds out once for all, and of one that has found out in the last two
// seconds. One of them may take 2 ms of a processor; processor-ns/ask is what it takes.
func BenchmarkOverview(b *testing.B) {
	const askers = 100
	h := newHouse(b)
	h.answers.Store(http.StatusOK)
	h.deployed(indexed())
	for n := range 100 {
		h.must("order/"+id(n)+"/was_made", `{"total":1}`)
		h.must("job/"+id(n)+"/was_timed", `{"n":1}`)
	}
	h.settle()
	var unit store.Append
	for n := range 5000 {
		unit.Events = append(unit.Events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: id(n)}, Type: "was_made", Data: []byte(`{"total":1}`),
			Metadata: []byte(`{}`),
		})
	}
	if _, err := h.store.Append(b.Context(), h.tenant, []store.Append{unit}); err != nil {
		b.Fatal(err)
	}
	h.stop()
	<-h.ended
	ask := func(b *testing.B, s *attention.Service) {
		b.Helper()
		var all sync.WaitGroup
		for range askers {
			all.Go(func() {
				if o, err := s.Overview(b.Context(), h.tenant); err != nil || len(o.Consumers) == 0 || o.Events < 5000 {
					b.Error(o, err)
				}
			})
		}
		all.Wait()
	}
	for name, of := range map[string]func() *attention.Service{
		"found out": func() *attention.Service { return attention.New(b.Context(), h.options) },
		"shown":     func() *attention.Service { return h.Service },
	} {
		b.Run(name, func(b *testing.B) {
			began := worktest.ProcessorTime(b)
			for b.Loop() {
				ask(b, of())
			}
			b.ReportMetric(float64(worktest.Since(b, began)/time.Nanosecond)/float64(b.N*askers), "processor-ns/ask")
		})
	}
}
