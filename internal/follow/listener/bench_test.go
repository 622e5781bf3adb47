package listener_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/follow/feed"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// BenchmarkDeliveries measures deliveries to an endpoint on this machine that answers at once, over a store on disk.
func BenchmarkDeliveries(b *testing.B) {
	var got atomic.Int64
	all := make(chan struct{})
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if got.Add(1) == int64(b.N) {
			close(all)
		}
	}))
	b.Cleanup(endpoint.Close)
	c := compiled(b, `{"hook": {"url": "`+endpoint.URL+`", "events": ["order.*"]}}`)
	st := testopen.OnDisk(b).Open(b, clock.System{})
	log := slog.New(slog.DiscardHandler)
	kit := worker.New(clock.System{}, log)
	ctx, cancel := context.WithCancel(b.Context())
	subscriptions := feed.New(feed.Options{Store: st, Clock: clock.System{}, Logger: log, Worker: kit})
	s := listener.New(ctx, listener.Options{
		Store: st, Feed: subscriptions, Worker: kit, Clock: clock.System{}, Logger: log,
		Send:     outbound.New(outbound.Options{Clock: clock.System{}, Private: true}).Send,
		Spec:     func(j17.Tenant) *spec.Compiled { return c },
		Name:     func(j17.Tenant) (string, j17.Environment) { return "shop", j17.Prod },
		Disabled: func(context.Context, j17.Tenant, string, string) error { return nil },
	})
	if err := s.Adopted(ctx, shop); err != nil {
		b.Fatal(err)
	}

	// The events are there before the clock of the benchmark runs.
	for n := 0; n < b.N; {
		u := store.Append{Timestamp: time.Now().Unix()}
		for ; n < b.N && len(u.Events) < 1000; n++ {
			u.Events = append(u.Events, store.NewEvent{
				Key: j17.Key{Type: "order", ID: fmt.Sprint(n)}, Type: "was_placed",
				Data:     fmt.Appendf(nil, `{"n":%d}`, n),
				Metadata: []byte(`{"actor":{"type":"user","id":"u1"},"correlation_id":"c1"}`),
			})
		}
		if _, err := st.Append(ctx, shop, []store.Append{u}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	ended := make(chan error, 2)
	go func() { ended <- subscriptions.Run(ctx) }()
	go func() { ended <- s.Run(ctx) }()
	<-all
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}
