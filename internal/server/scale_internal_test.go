package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/plane/deploy"
)

// planned is the spec of each environment: one event schedules 34 others, another one starts a saga that waits for an
// answer for a day.
func planned(listeners string) []byte {
	later := strings.Repeat(`{"schedule": {"delay": "2h", "emit": {"aggregate_type": "job", "id": "$.key", "event_type": "was_done", "data": {"n": 1}}}},`, scheduledEach)
	return []byte(`{"agent_types": ["user"], "aggregate_types": {
		"job": {"events": {"was_planned": {"schema": {}, "handler": [], "implications": [` + strings.TrimSuffix(later, ",") + `]}, "was_done": {"schema": {}, "handler": []}}},
		"trip": {"events": {"was_asked": {"schema": {}, "handler": []}, "was_left": {"schema": {}, "handler": []}, "was_answered": {"schema": {}, "handler": []}}}},
		"modules": {"sagas": {"trip": {"trigger": {"aggregate_type": "trip", "event_type": "was_asked"}, "steps": [
			{"name": "ask", "emit": {"aggregate_type": "trip", "id": "$.key", "event_type": "was_left", "data": {}},
				"await": {"aggregate_type": "trip", "event_types": ["was_answered"]}, "timeout_ms": 86400000}]}}}` + listeners + `}`)
}

const (
	// scheduledEach and sagasEach are how many scheduled events and waiting sagas there are in one environment.
	scheduledEach = 34
	sagasEach     = 4
)

// BenchmarkScale fills a server with 300 environments, or as many as J17_ENVIRONMENTS says, each with 34 scheduled
// events, most with four sagas that wait and every third with a listener, and reports what that takes while nothing
// happens: memory beyond that of the environments, and processor time. Then all events come at once. 30,000
// environments make a million scheduled events, 100,000 sagas and 10,000 listeners, and take long: give it
// -benchtime=1x -timeout=1h.
func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		environments, err := strconv.Atoi(os.Getenv("J17_ENVIRONMENTS"))
		if err != nil {
			environments = 300
		}
		(&scale{B: b, environments: environments}).run()
	}
}

type scale struct {
	*testing.B

	environments int
	server       *Server
	clock        *clock.Movable
	tenants      []j17.Tenant
}

func (s *scale) run() {
	dir := s.TempDir()
	s.clock = clock.NewMovable(clock.System{})
	s.open(dir)

	// The environments, a third of them with a listener.
	plain, told := planned(""), planned(`, "listeners": {"hook": {"url": "https://example.com/hook", "events": ["trip.was_answered"]}}`)
	s.tenants = make([]j17.Tenant, s.environments/3*3)
	s.each(s.environments/3, func(ctx context.Context, n int) error {
		in, err := s.server.registry.Instances.Create(ctx, fmt.Sprintf("shop-%d", n))
		for i, env := range j17.Environments() {
			source := plain
			if env == j17.Prod {
				source = told
			}
			if err == nil {
				_, err = s.server.deploy.Deploy(ctx, deploy.Request{Instance: in.ID, Environment: env, Source: source})
			}
			s.tenants[3*n+i] = j17.TenantOf(in.ID, env)
		}
		return err
	})
	before := heap()
	s.ReportMetric(float64(before)/float64(len(s.tenants)), "B/environment")

	// What is pending, and what waits.
	end := s.work()
	s.each(len(s.tenants), func(ctx context.Context, n int) error {
		if err := s.write(ctx, s.tenants[n], "job", "was_planned", 1); err != nil || n*6/5 >= len(s.tenants) {
			return err
		}
		return s.write(ctx, s.tenants[n], "trip", "was_asked", sagasEach)
	})
	asked := uint64((len(s.tenants)*5 + 5) / 6 * sagasEach)
	s.until("sagas wait", func() bool { return s.server.sagas.Stats().Events >= asked })
	created := s.server.schedule.Stats().Created
	s.Logf("%d environments, %d scheduled events, %d sagas, %d listeners", len(s.tenants), created, s.server.sagas.Stats().Events, len(s.tenants)/3)
	s.ReportMetric(float64(int64(heap())-int64(before))/(1<<20), "MB-waiting")
	s.idle("idle-%CPU")

	// The same after a restart.
	end()
	began := clock.System{}.Now()
	s.open(dir)
	s.ReportMetric(clock.System{}.Now().Sub(began).Seconds(), "s-restart")
	end = s.work()
	s.ReportMetric(float64(heap())/(1<<20), "MB-restarted")
	s.idle("restarted-idle-%CPU")

	// All of it comes at once.
	var most atomic.Uint64
	s.clock.Advance(2 * time.Hour)
	began = clock.System{}.Now()
	s.until("events have come", func() bool {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), m.HeapInuse))
		return s.server.schedule.Stats().Fired >= created
	})
	s.ReportMetric(float64(created)/clock.System{}.Now().Sub(began).Seconds(), "fired/s")
	s.ReportMetric(float64(most.Load())/(1<<20), "MB-firing")
	end()
}

// open opens the server and what is deployed to it.
func (s *scale) open(dir string) {
	s.Helper()
	s.server = newServer(Options{
		Dir: dir, Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Clock: s.clock,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err := s.server.start(s.Context(), nil); err != nil {
		s.Fatal(err)
	}
	s.server.restore(s.Context())
	s.until("environments are restored", func() bool { return s.server.restoration.left() == 0 })
}

// work begins all work in the background and returns what ends it and closes the server.
func (s *scale) work() (end func()) {
	ctx, cancel := context.WithCancel(s.Context())
	g, ctx := errgroup.WithContext(ctx)
	v := s.server
	for _, run := range []func(context.Context) error{
		v.engine.Run, v.sagas.Run, v.schedule.Run, v.feed.Run, v.builds.Run, v.indexes.Run, v.listeners.Run,
		v.usage.Run,
	} {
		g.Go(func() error { return run(ctx) })
	}
	return func() {
		cancel()
		if err := g.Wait(); err != nil {
			s.Error(err)
		}
		if err := v.Close(); err != nil {
			s.Error(err)
		}
	}
}

// each calls do with all numbers up to many, some at a time.
func (s *scale) each(many int, do func(ctx context.Context, n int) error) {
	s.Helper()
	g, ctx := errgroup.WithContext(s.Context())
	const atOnce = 64
	g.SetLimit(atOnce)
	for n := range many {
		g.Go(func() error { return do(ctx, n) })
	}
	if err := g.Wait(); err != nil {
		s.Fatal(err)
	}
}

// write writes a number of events of a type to an aggregate.
func (s *scale) write(ctx context.Context, t j17.Tenant, aggregate, event string, many int) error {
	const id = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	c := command.Command{
		Writes: []command.Write{{Type: aggregate, ID: id, Batch: many > 1}}, Actor: j17.Agent{Type: "user", ID: id},
	}
	for range many {
		c.Writes[0].Events = append(c.Writes[0].Events, command.Event{Type: event, Data: value.ObjectValue()})
	}
	_, err := s.server.engine.Execute(ctx, &engine.Command{Tenant: t, Command: c})
	return err
}

// until waits for something, and gives up after a long time.
func (s *scale) until(what string, is func() bool) {
	s.Helper()
	real := clock.System{}
	for limit := real.Now().Add(time.Hour); !is(); {
		if real.Now().After(limit) {
			s.Fatalf("not all %s: %+v %+v", what, s.server.sagas.Stats(), s.server.schedule.Stats())
		}
		if err := real.Wait(s.Context(), real.Now().Add(100*time.Millisecond)); err != nil {
			s.Fatal(err)
		}
	}
}

// idle reports the processor time of ten seconds in which nothing happens, in percent of one processor.
func (s *scale) idle(unit string) {
	s.Helper()
	real := clock.System{}
	const watched = 10 * time.Second
	if err := real.Wait(s.Context(), real.Now().Add(watched)); err != nil { // what has just happened is over then
		s.Fatal(err)
	}
	before := processor()
	if err := real.Wait(s.Context(), real.Now().Add(watched)); err != nil {
		s.Fatal(err)
	}
	s.ReportMetric(100*(processor()-before).Seconds()/watched.Seconds(), unit)
}

// processor is the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap is the memory that is in use, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
