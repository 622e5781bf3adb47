package httpapi_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/tail"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// BenchmarkStreamLatency writes 5,000 events a second, to disk, and measures how long it takes until a client of
// server-sent events has each: from its commit on, and with the commit.
func BenchmarkStreamLatency(b *testing.B) {
	const perSecond, writers, everyMs = 5000, 64, 2
	f := newFixture(b, nil)
	s := testopen.OnDisk(b).Open(b, clock.System{})
	o := f.Options
	o.Store, o.Tail = s, tail.New(s, nil)
	f.API = httpapi.New(o)
	f.handler = f.Public()
	tenant := j17.TenantOf(f.instance.ID, j17.Prod)

	// A client.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: f.handler, ConnContext: httpapi.ConnContext}
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { _ = server.Close() })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	c := f.connect(b, conn, "/_events/stream")

	// The writers, and what tells them when.
	begin, due := time.Now(), make(chan int, perSecond)
	var wg sync.WaitGroup
	began, committed := make([]time.Duration, b.N), make([]time.Duration, b.N)
	for range writers {
		wg.Go(func() {
			for n := range due {
				began[n] = time.Since(begin)
				ev := store.NewEvent{
					Key: j17.Key{Type: "note", ID: fmt.Sprint("n", n%100)}, Type: "was_written", Metadata: []byte(`{"actor":{"type":"user","id":"global"}}`),
					Data: fmt.Appendf(nil, `{"n":%d,"s":"%s"}`, n, strings.Repeat("x", 150)),
				}
				if _, err := s.Append(b.Context(), tenant, []store.Append{{Events: []store.NewEvent{ev}}}); err != nil {
					b.Error(err)
				}
				committed[n] = time.Since(begin)
			}
		})
	}
	b.ResetTimer()
	go func() {
		defer close(due)
		t := time.NewTicker(everyMs * time.Millisecond)
		defer t.Stop()
		for n := 0; n < b.N; <-t.C {
			for target := int(time.Since(begin).Seconds()*perSecond) + 1; n < min(target, b.N); n++ {
				due <- n
			}
		}
	}()

	received := make([]time.Duration, b.N)
	for got := 0; got < b.N; {
		data, err := c.next()
		if err != nil {
			b.Fatal(err)
		}
		if data == "" {
			continue
		}
		_, after, _ := strings.Cut(data, `"n":`)
		number, _, _ := strings.Cut(after, ",")
		n, err := strconv.Atoi(number)
		if err != nil {
			b.Fatal(err)
		}
		received[n] = time.Since(begin)
		got++
	}
	b.StopTimer()
	wg.Wait()
	for unit, from := range map[string][]time.Duration{"p99-ms": committed, "with-commit-p99-ms": began} {
		took := make([]time.Duration, b.N)
		for n := range took {
			took[n] = received[n] - from[n]
		}
		slices.Sort(took)
		b.ReportMetric(max(0, float64(took[len(took)*99/100].Microseconds())/1000), unit)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
