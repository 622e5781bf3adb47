package index_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/base/work/worktest"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// benchSpec has orders whose states are what their events say.
const benchSpec = `{"agent_types": ["user"], "aggregate_types": {"order": {"events": {
	"was_placed": {"schema": {}, "handler": [{"merge":{"target":"","value":"$.data"}}]}}}}}`

// yard is an engine on a disk, with an index of orders by status and time, by customer, and by price.
type yard struct {
	tb     testing.TB
	store  store.Store
	engine *engine.Engine
	feed   *feed.Subscriptions
	build  *build.Service
	index  *index.Service
	d      *index.Definition
	// stop ends what works in the background.
	stop func()
}

// benchRows is how many orders there are.
func benchRows(tb testing.TB) int {
	tb.Helper()
	if text := os.Getenv("J17_BENCH_ROWS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			tb.Fatal(err)
		}
		return n
	}
	return 20_000
}

func newYard(tb testing.TB) *yard {
	tb.Helper()
	st := testopen.OnDisk(tb).Open(tb, clock.System{})
	log := slog.New(slog.DiscardHandler)
	y := &yard{tb: tb, store: st, engine: engine.New(engine.Options{Store: st, Clock: clock.System{}, Logger: log})}
	y.engine.Deploy(prod, enginetest.Compiled(tb, benchSpec), nil)
	y.d = &index.Definition{ID: "orders", Type: "order", Rows: y.rows, Learn: y.learn}
	y.start()
	tb.Cleanup(func() { y.stop() })
	return y
}

// start begins what works in the background.
func (y *yard) start() {
	log := slog.New(slog.DiscardHandler)
	kit := worker.New(clock.System{}, log)
	y.feed = feed.New(feed.Options{Store: y.store, Clock: clock.System{}, Logger: log, Worker: kit})
	y.build = build.New(build.Options{Store: y.store, Clock: clock.System{}, Worker: kit, Logger: log})
	y.index = index.New(index.Options{
		Store: y.store, Feed: y.feed, Build: y.build, Clock: clock.System{}, Logger: log,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(y.tb.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = y.feed.Run(ctx) })
	running.Go(func() { _ = y.build.Run(ctx) })
	y.stop = func() {
		cancel()
		running.Wait()
	}
}

// rows computes orders as their definition does.
func (y *yard) rows(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) ([]index.Row, error) {
	m, err := y.engine.Moment(t, at)
	if err != nil {
		return nil, err
	}
	keys := make([]j17.Key, len(ids))
	for i, id := range ids {
		keys[i] = j17.Key{Type: "order", ID: id}
	}
	loaded, err := m.Load(ctx, keys, false)
	if err != nil {
		return nil, err
	}
	rows := make([]index.Row, len(ids))
	for i := range loaded {
		rows[i].ID = ids[i]
		if loaded[i].Version.Length == 0 {
			continue
		}
		s := loaded[i].Data
		rows[i].Entries = []index.Entry{
			index.NewEntry(0), index.NewEntry(1, s.Get("status"), s.Get("at")), index.NewEntry(2, s.Get("customer")),
			index.NewEntry(3, s.Get("price")),
		}
	}
	return rows, nil
}

// learn tells the engine of events, as definitions do.
func (y *yard) learn(ctx context.Context, t j17.Tenant, events []*j17.Event, rewrites uint64) error {
	m, err := y.engine.Moment(t, j17.StreamID{})
	if err != nil {
		return err
	}
	return m.Learn(ctx, events, rewrites)
}

func orderID(n int) string {
	return fmt.Sprintf("%08x-0000-7000-8000-%012x", uint32(n)*2654435761, n)
}

// order is an event of an order.
func order(n, version int) store.NewEvent {
	return store.NewEvent{
		Key: j17.Key{Type: "order", ID: orderID(n)}, Type: "was_placed",
		Metadata: []byte(`{"actor":{"type":"user","id":"` + enginetest.User + `"}}`),
		Data: fmt.Appendf(nil, `{"status":%q,"at":%d,"customer":"customer-%d","price":%d.%02d,"version":%d}`,
			[]string{"placed", "paid", "sent", "done", "void"}[(n+version)%5], 1_700_000_000+n*7, n%997, n%5000, n%100,
			version),
	}
}

// fill writes orders of five events each.
func (y *yard) fill(rows int) {
	y.tb.Helper()
	const each = 5
	const unit = 1000
	for first := 0; first < rows; first += unit {
		for version := range each {
			var u store.Append
			for n := first; n < min(first+unit, rows); n++ {
				u.Events = append(u.Events, order(n, version))
			}
			if _, err := y.store.Append(y.tb.Context(), prod, []store.Append{u}); err != nil {
				y.tb.Fatal(err)
			}
		}
	}
}

// built makes the index and waits for it.
func (y *yard) built() {
	y.tb.Helper()
	if _, err := y.index.Ensure(y.tb.Context(), prod, y.d); err != nil {
		y.tb.Fatal(err)
	}
	if status, err := y.index.Await(y.tb.Context(), prod, y.d.ID); err != nil || !status.Ready {
		y.tb.Fatalf("%+v, %v", status, err)
	}
}

// BenchmarkBuild builds an index of orders of five events, 20,000 or J17_BENCH_ROWS of them.
func BenchmarkBuild(b *testing.B) {
	y := newYard(b)
	rows := benchRows(b)
	y.fill(rows)
	y.built()
	before := memory()
	b.ResetTimer()
	most, began := uint64(0), worktest.ProcessorTime(b)
	for range b.N {
		if err := y.index.Rebuild(b.Context(), prod, y.d.ID); err != nil {
			b.Fatal(err)
		}
		if status, err := y.index.Await(b.Context(), prod, y.d.ID); err != nil || status.Rows != uint64(rows) {
			b.Fatalf("%+v, %v", status, err)
		}
		most = max(most, memory())
	}
	b.ReportMetric(float64(5*rows*b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(worktest.ProcessorTime(b)-began)/1e3/float64(5*rows*b.N), "cpu-µs/event")
	b.ReportMetric(float64(most-min(before, most))/(1<<20), "MB-more")
}

// memory is what the program has from the system.
func memory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased
}

// BenchmarkPage reads 50 rows of a status in the order of time.
func BenchmarkPage(b *testing.B) {
	y := newYard(b)
	rows := benchRows(b)
	y.fill(rows)
	y.built()
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		v, err := y.index.At(b.Context(), prod, y.d.ID, j17.StreamID{})
		if err != nil {
			b.Fatal(err)
		}
		from := index.Bound{Value: value.Int(int64(1_700_000_000 + rng.IntN(rows/2)*7))}
		r := index.All(1, 2).Equal(value.StringValue("paid")).Between(from, index.Bound{})
		hits, err := v.Scan(plenty(), index.Query{Lanes: [][]index.Range{{r}}}, "", 50)
		v.Close()
		if err != nil || len(hits) != 50 {
			b.Fatal(len(hits), err)
		}
	}
}

// BenchmarkCount counts a tenth of all rows.
func BenchmarkCount(b *testing.B) {
	y := newYard(b)
	rows := benchRows(b)
	y.fill(rows)
	y.built()
	v, err := y.index.At(b.Context(), prod, y.d.ID, j17.StreamID{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	r := index.All(1, 2).Equal(value.StringValue("paid")).Between(index.Bound{}, index.Bound{
		Value: value.Int(int64(1_700_000_000 + rows/2*7)), Exclusive: true,
	})
	b.ReportAllocs()
	b.ResetTimer()
	counted := uint64(0)
	for range b.N {
		n, err := v.Count(plenty(), index.Query{Lanes: [][]index.Range{{r}}})
		if err != nil {
			b.Fatal(err)
		}
		counted += n
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(counted), "ns/row")
}

// BenchmarkBehind writes events of orders while nobody follows them, and then waits until the index shows all.
func BenchmarkBehind(b *testing.B) {
	y := newYard(b)
	rows := benchRows(b)
	for first := 0; first < rows; first += 1000 {
		y.some(1000, func(n int) store.NewEvent { return order(first+n, 0) })
	}
	y.built()
	y.stop()
	rng := rand.New(rand.NewPCG(1, 1))
	for n := 0; n < b.N; n += 100 {
		y.some(min(100, b.N-n), func(int) store.NewEvent { return order(rng.IntN(rows), n) })
	}
	b.ResetTimer()
	began := worktest.ProcessorTime(b)
	y.start()
	if _, err := y.index.Ensure(b.Context(), prod, y.d); err != nil {
		b.Fatal(err)
	}
	y.shown()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(worktest.ProcessorTime(b)-began)/1e3/float64(b.N), "cpu-µs/event")
}

// some writes events in one unit.
func (y *yard) some(n int, each func(n int) store.NewEvent) {
	y.tb.Helper()
	var u store.Append
	for i := range n {
		u.Events = append(u.Events, each(i))
	}
	if _, err := y.store.Append(y.tb.Context(), prod, []store.Append{u}); err != nil {
		y.tb.Fatal(err)
	}
}

// shown waits until the index shows all that is there.
func (y *yard) shown() {
	y.tb.Helper()
	m, err := y.store.Moment(y.tb.Context(), prod)
	if err != nil {
		y.tb.Fatal(err)
	}
	end := m.Position()
	m.Close()
	for {
		if v, err := y.index.At(y.tb.Context(), prod, y.d.ID, end); err == nil {
			v.Close()
			return
		}
	}
}

// BenchmarkUpkeep writes events of orders and waits until the index shows them.
func BenchmarkUpkeep(b *testing.B) {
	y := newYard(b)
	rows := benchRows(b)
	y.fill(rows)
	y.built()
	rng := rand.New(rand.NewPCG(1, 1))
	b.ResetTimer()
	began := worktest.ProcessorTime(b)
	for n := 0; n < b.N; {
		var u store.Append
		for ; n < b.N && len(u.Events) < 100; n++ {
			u.Events = append(u.Events, order(rng.IntN(rows), n))
		}
		if _, err := y.store.Append(b.Context(), prod, []store.Append{u}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "written/s")
	y.shown()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(worktest.ProcessorTime(b)-began)/1e3/float64(b.N), "cpu-µs/event")
}

// BenchmarkFresh writes one event and asks for an index that shows it.
func BenchmarkFresh(b *testing.B) {
	y := newYard(b)
	rows := benchRows(b)
	y.fill(rows)
	y.built()
	var took time.Duration
	b.ResetTimer()
	for n := range b.N {
		r, err := y.store.Append(b.Context(), prod, []store.Append{{Events: []store.NewEvent{order(n%rows, n)}}})
		if err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		v, err := y.index.At(b.Context(), prod, y.d.ID, r[0].IDs[0])
		if err != nil {
			b.Fatal(err)
		}
		took += time.Since(begin)
		v.Close()
	}
	b.ReportMetric(float64(took.Microseconds())/float64(b.N), "us-wait")
}

// BenchmarkWords counts rows by a word that all of them have and the beginning of a word of their own, 20,000 or
// J17_BENCH_ROWS of them, and by such beginnings alone.
func BenchmarkWords(b *testing.B) {
	y := newYard(b)
	rows := benchRows(b)
	y.d = &index.Definition{
		ID: "titles", Type: "order",
		Rows: func(_ context.Context, _ j17.Tenant, _ j17.StreamID, ids []string) ([]index.Row, error) {
			made := make([]index.Row, len(ids))
			for i, id := range ids {
				words, _ := index.Words(1, "common p"+id[24:]+" q"+id[24:])
				made[i] = index.Row{ID: id, Entries: words}
			}
			return made, nil
		},
	}
	for first := 0; first < rows; first += 1000 {
		var u store.Append
		for n := first; n < min(first+1000, rows); n++ {
			u.Events = append(u.Events, order(n, 0))
		}
		if _, err := y.store.Append(b.Context(), prod, []store.Append{u}); err != nil {
			b.Fatal(err)
		}
	}
	y.built()
	v, err := y.index.At(b.Context(), prod, y.d.ID, j17.StreamID{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	for _, text := range []string{"common p", "p", "common"} {
		b.Run("of="+strings.ReplaceAll(text, " ", "+"), func(b *testing.B) {
			b.ReportAllocs()
			before, spent := worktest.ProcessorTime(b), int64(0)
			for range b.N {
				budget := plenty()
				if n, err := v.CountWords(budget, 1, strings.Fields(text)); err != nil || n != uint64(rows) {
					b.Fatal(n, err)
				}
				spent += budget.Spent()
			}
			took := float64(worktest.ProcessorTime(b) - before)
			b.ReportMetric(took/1e6/float64(b.N), "cpu-ms/op")
			b.ReportMetric(took/float64(spent), "cpu-ns/unit")
		})
	}
}
