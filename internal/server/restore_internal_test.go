package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
)

// TestOneEnvironmentDoesNotHoldUpOthers lets one fail twice and another be gone.
func TestOneEnvironmentDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var tried, done []string
		failures, all := 2, 0
		h := &handover{
			worker: worker.New(clock.System{}, slog.New(slog.DiscardHandler)), logger: slog.New(slog.DiscardHandler),
		}
		h.hand = func(_ context.Context, instance string, _ j17.Environment) error {
			mu.Lock()
			defer mu.Unlock()
			tried = append(tried, instance)
			switch {
			case instance == "gone":
				return j17.Errorf(j17.CodeNotFound, "There is no such instance")
			case instance == "bad" && failures > 0:
				failures--
				return errors.New("cannot be read")
			}
			return nil
		}
		again := 0
		h.tried = func(e environment, more bool) {
			mu.Lock()
			defer mu.Unlock()
			if more {
				again++
				return
			}
			done = append(done, e.instance)
		}
		h.all = func() { all++ }
		h.run(t.Context(), []environment{{"bad", j17.Prod}, {"gone", j17.Prod}, {"good", j17.Prod}})
		slices.Sort(tried[:3])
		slices.Sort(done)
		if want := []string{"bad", "gone", "good", "bad", "bad"}; !slices.Equal(tried, want) {
			t.Errorf("tried %v, want %v", tried, want)
		}
		if want := []string{"bad", "gone", "good"}; !slices.Equal(done, want) || again != 2 || all != 1 {
			t.Errorf("%v are done with, %d attempts have to be repeated, told %d times that all were tried", done, again, all)
		}
	})
}

func TestHandingOverEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &handover{
			worker: worker.New(clock.System{}, slog.New(slog.DiscardHandler)), logger: slog.New(slog.DiscardHandler),
		}
		h.hand = func(context.Context, string, j17.Environment) error { return fmt.Errorf("never") }
		done := make(chan struct{})
		go func() { defer close(done); h.run(ctx, []environment{{"bad", j17.Prod}}) }()
		synctest.Wait()
		cancel()
		<-done
	})
}

// TestSlowEnvironmentsDoNotHoldUpOthers has one that never gets done.
func TestSlowEnvironmentsDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &handover{
			worker: worker.New(clock.System{}, slog.New(slog.DiscardHandler)), logger: slog.New(slog.DiscardHandler),
		}
		var done, running, most atomic.Int64
		h.hand = func(ctx context.Context, instance string, _ j17.Environment) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if instance == "slow" {
				<-ctx.Done()
				return ctx.Err()
			}
			done.Add(1)
			return nil
		}
		all := []environment{{"slow", j17.Prod}}
		for i := range 100 {
			all = append(all, environment{fmt.Sprint(i), j17.Prod})
		}
		ended := make(chan struct{})
		go func() { defer close(ended); h.run(ctx, all) }()
		synctest.Wait()
		if done.Load() != 100 || most.Load() > handoverWorkers {
			t.Errorf("%d of 100 were handed over, %d at a time", done.Load(), most.Load())
		}
		cancel()
		<-ended
	})
}

// TestAFaultOfOneEnvironment has one whose spec makes the program panic: it is tried again like others that fail, and
// holds up nobody.
func TestAFaultOfOneEnvironment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done, faults atomic.Int64
		h := &handover{
			worker: worker.New(clock.System{}, slog.New(slog.DiscardHandler)), logger: slog.New(slog.DiscardHandler),
		}
		h.hand = func(_ context.Context, instance string, _ j17.Environment) error {
			if instance == "faulty" && faults.Add(1) < 3 {
				panic("a fault")
			}
			done.Add(1)
			return nil
		}
		h.run(t.Context(), []environment{{"faulty", j17.Prod}, {"good", j17.Prod}})
		if done.Load() != 2 || faults.Load() != 3 {
			t.Errorf("%d of 2 are done with, after %d attempts with the one", done.Load(), faults.Load())
		}
	})
}

// TestAFaultOfWhoWaits lets the wait for what is built behind a deployment panic: that ends the request.
func TestAFaultOfWhoWaits(t *testing.T) {
	s := &Server{} // it has nothing to wait for, nor to ask
	s.building.Store(true)
	defer func() {
		if recover() == nil {
			t.Error("there was no panic")
		}
	}()
	s.built(t.Context(), "ins_1/prod")
}
