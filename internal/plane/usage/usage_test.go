package usage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/worker"
	"j17/internal/plane/control"
	"j17/internal/plane/usage"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// fixture is a meter on a store that outlives it.
type fixture struct {
	*usage.Meter
	data     *testopen.Data
	clock    *clock.Manual
	raw      store.Store
	store    store.Events // counted
	registry *control.Registry
	app      control.Instance
	log      bytes.Buffer
	channels []usage.Channel
}

func start(tb testing.TB, channels ...usage.Channel) *fixture {
	tb.Helper()
	f := &fixture{
		data: testopen.NewData(tb), clock: clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)),
		channels: channels,
	}
	f.open(tb)
	var err error
	if f.app, err = f.registry.Instances.Add(tb.Context(), control.NewInstance{
		Name: "app", Plan: "small",
	}); err != nil {
		tb.Fatal(err)
	}
	return f
}

func (f *fixture) open(tb testing.TB) {
	tb.Helper()
	var err error
	f.raw = f.data.Open(tb, f.clock)
	if f.registry, err = control.Open(tb.Context(), control.Options{
		Store: f.raw, Clock: f.clock,
		Plans: []control.Plan{{Name: "small", EventsPerMonth: 100, StorageBytes: 1 << 30}},
	}); err != nil {
		tb.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(&f.log, nil))
	f.Meter = usage.New(usage.Options{
		Store: f.raw, Registry: f.registry, Clock: f.clock, Logger: logger, Worker: worker.New(f.clock, logger),
		Channels: f.channels,
	})
	f.store = f.Wrap(f.raw)
}

// restart opens everything again; what was not flushed is lost.
func (f *fixture) restart(tb testing.TB) {
	tb.Helper()
	if err := f.raw.Close(); err != nil {
		tb.Fatal(err)
	}
	f.open(tb)
}

func (f *fixture) tenant(env j17.Environment) j17.Tenant { return j17.TenantOf(f.app.ID, env) }

// write commits n events of 17 bytes in one unit.
func (f *fixture) write(tb testing.TB, env j17.Environment, n int) {
	tb.Helper()
	unit := store.Append{}
	for range n {
		unit.Events = append(unit.Events, store.NewEvent{
			Key: j17.Key{Type: "abc", ID: "d"}, Type: "made", Data: []byte(`[1,234]`), Metadata: []byte("{}"),
		})
	}
	results, err := f.store.Append(tb.Context(), f.tenant(env), []store.Append{unit})
	if err != nil || results[0].Outcome != store.Committed {
		tb.Fatal(results, err)
	}
}

func (f *fixture) flush(tb testing.TB) {
	tb.Helper()
	if err := f.Flush(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func (f *fixture) month(tb testing.TB) wire.Month {
	tb.Helper()
	m, err := f.Month(tb.Context(), f.app.ID)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestCounts(t *testing.T) {
	f := start(t)
	f.write(t, j17.Prod, 3)
	f.write(t, j17.Test, 2)
	for range 4 {
		f.Request(f.tenant(j17.Prod), true)
	}
	f.Request(f.tenant(j17.Prod), false)
	want := wire.Month{
		Period: "2026-11", Events: wire.Amount{Used: 5, Limit: 100, Percent: 5},
		Storage: wire.Amount{Used: 85, Limit: 1 << 30}, Reads: 4, Requests: 5,
	}
	for range 3 {
		if diff := cmp.Diff(want, f.month(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.flush(t)
		f.restart(t)
	}
	// What was not flushed is lost by a crash, and nothing is counted twice.
	f.write(t, j17.Prod, 1)
	f.restart(t)
	if diff := cmp.Diff(want, f.month(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Refused units, retried commands and the system's own items are no usage.
	dup := store.Append{Command: &store.Command{ID: store.CommandID{1}}, Events: []store.NewEvent{
		{Key: j17.Key{Type: "abc", ID: "d"}, Type: "made", Data: []byte("{}"), Metadata: []byte("{}")},
	}}
	for range 3 {
		if _, err := f.store.Append(t.Context(), f.tenant(j17.Prod), []store.Append{dup}); err != nil {
			t.Fatal(err)
		}
	}
	conflict := dup
	conflict.Command, conflict.Pre = nil, []store.Pre{{Key: j17.Key{Type: "abc", ID: "d"}, Length: 77}}
	if results, err := f.store.Append(t.Context(), f.tenant(j17.Prod), []store.Append{conflict}); err != nil ||
		results[0].Outcome != store.Conflict {
		t.Fatal(results, err)
	}
	if got := f.month(t).Events.Used; got != 6 {
		t.Errorf("%d events", got)
	}
}

func TestDays(t *testing.T) {
	f := start(t)
	f.write(t, j17.Prod, 1)
	f.flush(t)
	f.clock.Set(time.Date(2026, 11, 22, 0, 0, 1, 0, time.UTC))
	f.Request(f.tenant(j17.Staging), true)
	f.write(t, j17.Prod, 2)
	f.flush(t)
	f.clock.Set(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	f.write(t, j17.Prod, 4)
	days := func(from, to string) []usage.Day {
		t.Helper()
		a, _ := time.Parse(time.DateOnly, from)
		b, _ := time.Parse(time.DateOnly, to)
		got, err := f.Days(t.Context(), f.app.ID, a, b)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	all := []usage.Day{
		{Date: "2026-11-21", Environment: j17.Prod, Events: 1, StorageBytes: 17},
		{Date: "2026-11-22", Environment: j17.Prod, Events: 2, StorageBytes: 51},
		{Date: "2026-11-22", Environment: j17.Staging, Reads: 1, Requests: 1},
		{Date: "2026-12-01", Environment: j17.Prod, Events: 4, StorageBytes: 119},
	}
	for range 2 {
		if diff := cmp.Diff(all, days("2026-01-01", "2026-12-31")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(all[1:3], days("2026-11-22", "2026-11-30")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(all[3:], days("2026-12-01", "2026-12-01")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.flush(t)
		f.restart(t)
	}
	if m := f.month(t); m.Period != "2026-12" || m.Events.Used != 4 || m.Storage.Used != 119 {
		t.Errorf("December: %+v", m)
	}
	if _, err := f.Days(
		t.Context(), f.app.ID, time.Time{}, f.clock.Now(),
	); j17.CodeOf(err) != j17.CodeInvalidParameter {
		t.Errorf("all of history: %v", err)
	}
	if err := f.Forget(t.Context(), f.app.ID); err != nil {
		t.Fatal(err)
	}
	if got := days("2026-01-01", "2026-12-31"); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// failing is a store whose writes can be made to fail, or to succeed without an answer.
type failing struct {
	store.Store
	before, after error
}

// Write fails or loses its answer.
func (s *failing) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if s.before != nil {
		return s.before
	}
	return errors.Join(s.Store.Write(ctx, t, side, fences...), s.after)
}

func TestNothingIsCountedTwiceWhenWritesFail(t *testing.T) {
	f := start(t)
	broken := &failing{Store: f.raw}
	logger := slog.New(slog.DiscardHandler)
	m := usage.New(usage.Options{
		Store: broken, Registry: f.registry, Clock: f.clock, Logger: logger, Worker: worker.New(f.clock, logger),
	})
	f.Meter, f.store = m, m.Wrap(f.raw)
	f.write(t, j17.Prod, 3)
	for _, err := range []error{store.ErrFull, store.ErrUnknown} {
		broken.before = err
		if got := m.Flush(t.Context()); !errors.Is(got, err) {
			t.Errorf("Flush = %v", got)
		}
	}
	broken.before, broken.after = nil, store.ErrUnknown
	for range 2 {
		if got := m.Flush(t.Context()); !errors.Is(got, store.ErrUnknown) {
			t.Errorf("Flush = %v", got)
		}
	}
	broken.after = nil
	f.write(t, j17.Prod, 1)
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	if got := f.month(t).Events.Used; got != 4 {
		t.Errorf("%d events", got)
	}
}

func TestConcurrentCounts(t *testing.T) {
	f := start(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				f.Request(f.tenant(j17.Prod), i%2 == 0)
			}
		})
		wg.Go(func() {
			for range 20 {
				if err := f.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if m := f.month(t); m.Requests != 4000 || m.Reads != 2000 {
		t.Errorf("%+v", m)
	}
}

func TestRunStoresTheLastCounts(t *testing.T) {
	f := start(t)
	f.write(t, j17.Prod, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	if got := f.month(t).Events.Used; got != 1 {
		t.Errorf("%d events", got)
	}
}

func TestDeletedInstancesAreForgotten(t *testing.T) {
	f := start(t)
	f.write(t, j17.Prod, 1)
	if err := f.registry.Instances.Delete(t.Context(), f.app.ID, "app"); err != nil {
		t.Fatal(err)
	}
	f.flush(t)
	if items, err := f.raw.Scan(t.Context(), j17.System, "usage.totals", store.Range{}, 10); err != nil ||
		len(items) != 0 {
		t.Error(items, err)
	}
}

func BenchmarkRequest(b *testing.B) {
	f := start(b)
	tenant := f.tenant(j17.Prod)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f.Request(tenant, true)
		}
	})
}

// inbox is a channel that keeps what it gets, and can fail.
type inbox struct {
	mu     sync.Mutex
	err    error
	calls  int
	alerts []usage.Alert
}

func (b *inbox) channel(name string) usage.Channel {
	return usage.Channel{Name: name, Send: func(_ context.Context, a usage.Alert) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.calls++
		if b.err != nil {
			return b.err
		}
		b.alerts = append(b.alerts, a)
		return nil
	}}
}

func (b *inbox) take() []usage.Alert {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.alerts
	b.alerts = nil
	return got
}

// step lets the meter do what Run does each time.
func (f *fixture) step(tb testing.TB) {
	tb.Helper()
	f.flush(tb)
	if err := f.Deliver(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func TestAlerts(t *testing.T) {
	var one, two inbox
	f := start(t, one.channel("one"), two.channel("two"))
	expect := func(thresholds ...int64) {
		t.Helper()
		f.step(t)
		for name, b := range map[string]*inbox{"one": &one, "two": &two} {
			var got []int64
			for _, a := range b.take() {
				got = append(got, a.Threshold)
				if a.Instance != f.app.ID || a.Name != "app" || a.Plan != "small" || a.Metric != "events" ||
					a.Limit != 100 {
					t.Errorf("%+v", a)
				}
			}
			if diff := cmp.Diff(thresholds, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	f.write(t, j17.Prod, 49)
	expect()
	f.write(t, j17.Test, 1) // All environments count.
	expect(50)
	f.write(t, j17.Prod, 20)
	expect()
	f.restart(t)
	f.write(t, j17.Prod, 1)
	expect()
	f.write(t, j17.Prod, 200) // past two thresholds at once; and nothing is refused
	expect(100)
	f.write(t, j17.Prod, 1)
	expect()
	f.clock.Set(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	f.write(t, j17.Prod, 81)
	expect(80)
	if n := strings.Count(f.log.String(), "usage of a plan"); n != 3 {
		t.Errorf("%d lines in the log:\n%s", n, f.log.String())
	}
}

func TestAlertsAreDeliveredAgainUntilTheyArrive(t *testing.T) {
	good, bad := inbox{}, inbox{err: errors.New("no connection")}
	f := start(t, good.channel("good"), bad.channel("bad"))
	f.write(t, j17.Prod, 100)
	f.step(t)
	f.step(t) // not due yet
	if n := strings.Count(f.log.String(), "could not be delivered"); n != 1 {
		t.Errorf("%d attempts:\n%s", n, f.log.String())
	}
	f.restart(t)
	f.clock.Advance(time.Minute)
	f.step(t)
	bad.mu.Lock()
	bad.err = nil
	bad.mu.Unlock()
	f.clock.Advance(2 * time.Minute)
	f.step(t)
	f.clock.Advance(time.Hour)
	f.step(t)
	if a, b := good.take(), bad.take(); len(a) != 1 || len(b) != 1 || a[0] != b[0] {
		t.Errorf("delivered: %v, %v", a, b)
	}
}

func TestAlertsAreGivenUp(t *testing.T) {
	bad := inbox{err: errors.New("no connection")}
	f := start(t, bad.channel("bad"))
	f.write(t, j17.Prod, 100)
	for range 20 {
		f.step(t)
		f.clock.Advance(3 * time.Hour)
	}
	// The first failure is told, and the end.
	for text, n := range map[string]int{"could not be delivered by bad: no connection": 2, "an item was given up": 1, "attempts=8": 1} {
		if got := strings.Count(f.log.String(), text); got != n {
			t.Errorf("%d lines with %q, want %d:\n%s", got, text, n, f.log.String())
		}
	}
	if n := bad.calls; n != 8 {
		t.Errorf("%d attempts", n)
	}
}

func TestSummary(t *testing.T) {
	a := usage.Alert{
		Name: "app", Plan: "free", Period: "2026-11", Metric: "events", Threshold: 80, Used: 81, Limit: 100,
	}
	if got := a.Summary(); got != `Instance app has used 80 % of its plan "free": 81 of 100 events in 2026-11.` {
		t.Error(got)
	}
	a.Metric = "storage_bytes"
	if got := a.Summary(); !strings.Contains(got, "81 of 100 bytes of storage") {
		t.Error(got)
	}
	raw, err := json.Marshal(a)
	if err != nil || strings.Contains(string(raw), "waiting") {
		t.Error(string(raw), err)
	}
}

// TestAnotherPlanIsAnotherLimit checks that a larger plan raises alerts of its own in the same month.
func TestAnotherPlanIsAnotherLimit(t *testing.T) {
	var in inbox
	f := start(t, in.channel("in"))
	f.write(t, j17.Prod, 600)
	f.step(t)
	plan := "free" // 1000 events
	if _, err := f.registry.Instances.Change(t.Context(), f.app.ID, control.InstanceChange{Plan: &plan}); err != nil {
		t.Fatal(err)
	}
	f.write(t, j17.Prod, 1)
	f.step(t)
	got := in.take()
	if len(got) != 2 || got[0].Limit != 100 || got[0].Threshold != 100 || got[1].Limit != 1000 ||
		got[1].Threshold != 50 {
		t.Errorf("%+v", got)
	}
}

// TestTheClockGoesBack sets the clock back into the day and the month before: what these have counted stays, and is
// counted on with.
func TestTheClockGoesBack(t *testing.T) {
	f := start(t)
	before, after := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC), time.Date(2026, 12, 1, 0, 0, 1, 0, time.UTC)
	for n, at := range []time.Time{before, after, before, after} {
		f.clock.Set(at)
		f.write(t, j17.Prod, 1<<n)
		f.Request(f.tenant(j17.Prod), true)
		f.flush(t)
	}
	if m := f.month(t); m.Period != "2026-12" || m.Events.Used != 2+8 || m.Reads != 2 || m.Requests != 2 ||
		m.Storage.Used != 15*17 {
		t.Errorf("December: %+v", m)
	}
	f.clock.Set(before)
	f.restart(t)
	if m := f.month(t); m.Period != "2026-11" || m.Events.Used != 1+4 || m.Storage.Used != 15*17 {
		t.Errorf("November: %+v", m)
	}
	got, err := f.Days(t.Context(), f.app.ID, before, after)
	if err != nil {
		t.Fatal(err)
	}
	want := []usage.Day{
		{Date: "2026-11-30", Environment: j17.Prod, Events: 1 + 4, Reads: 2, Requests: 2},
		{Date: "2026-12-01", Environment: j17.Prod, Events: 2 + 8, Reads: 2, Requests: 2},
	}
	for i := range got {
		got[i].StorageBytes = 0 // that of a day is what it was when somebody counted last
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPercent: a part of a plan in percent is the whole number that has been reached.
func TestPercent(t *testing.T) {
	f := start(t)
	for used := range int64(101) {
		if got := f.month(t).Events; got.Used != used || got.Percent != used {
			t.Errorf("%d of 100 are %+v", used, got)
		}
		f.write(t, j17.Prod, 1)
	}
}
