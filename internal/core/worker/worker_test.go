package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/clock"
	"j17/internal/core/worker"
)

// logged is a log that several may write and one may read.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write adds to the log.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// count returns how many lines have a text.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), text)
}

func kit() (*worker.Kit, *logged) {
	var log logged
	return worker.New(clock.System{}, slog.New(slog.NewTextHandler(&log, nil))), &log
}

// pass lets time go by in a bubble.
func pass(tb testing.TB, d time.Duration) {
	tb.Helper()
	var c clock.System
	if err := c.Wait(tb.Context(), c.Now().Add(d)); err != nil {
		tb.Fatal(err)
	}
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		name string
		b    worker.Backoff
		want []int64 // in seconds
	}{
		{"the usual", worker.Backoff{}, []int64{1, 2, 4, 8, 16, 32, 60, 60}},
		{
			"listeners",
			worker.Backoff{First: 5 * time.Second, Factor: 5, Longest: time.Hour},
			[]int64{5, 25, 125, 625, 3125, 3600},
		},
		{"the same again", worker.Backoff{First: time.Minute, Factor: 1}, []int64{60, 60, 60}},
		{"a first beyond the usual cap", worker.Backoff{First: time.Hour}, []int64{3600, 3600}},
		{"a cap below the first", worker.Backoff{First: time.Hour, Longest: time.Minute}, []int64{60, 60}},
		{"no overflow", worker.Backoff{First: time.Hour, Factor: 1 << 60, Longest: 9e18}, []int64{3600, 9e9, 9e9}},
	} {
		for i, want := range c.want {
			if got := c.b.After(i + 1); got != time.Duration(want*1e9) {
				t.Errorf("%s: after %d failures %v, want %d seconds", c.name, i+1, got, want)
			}
		}
	}
	if got := (worker.Backoff{First: 1, Longest: 1<<63 - 1}).After(1 << 30); got != 1<<63-1 {
		t.Errorf("after a billion failures: %v", got)
	}
}

// TestEvery lets a loop succeed, fail, panic and recover, and looks at when its rounds were and what was said.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, log := kit()
		begin, ctx, stop := time.Now(), t.Context(), context.CancelFunc(nil)
		ctx, stop = context.WithCancel(ctx)
		var at []float64
		k.Every(ctx, worker.Loop{Name: "rounds", Every: time.Minute, Do: func(context.Context) error {
			at = append(at, time.Since(begin).Seconds())
			switch len(at) {
			case 2, 3:
				return errors.New("no luck")
			case 4:
				panic("poison")
			case 5:
				return errors.New("no luck")
			case 7:
				stop()
			}
			return nil
		}})
		want := []float64{0, 60, 61, 63, 67, 75, 135}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("rounds (-want +got):\n%s", diff)
		}
		// A row of failures is told when it begins, when the error is another one, and when it ends.
		for text, n := range map[string]int{
			"error=\"no luck\"": 2, "error=\"panic: poison\"": 1, "stack=": 1, "background work goes on": 1,
			"level=WARN": 3,
		} {
			if got := log.count(text); got != n {
				t.Errorf("%d lines with %s, want %d", got, text, n)
			}
		}
		if diff := cmp.Diff([]worker.Counts{{Name: "rounds", Done: 3, Failed: 4}}, k.Counts()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestWake checks loops that wait for a signal, and that a signal does not cut the pause after a failure short.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := kit()
		begin := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		wake, rounds := make(chan struct{}, 1), make(chan time.Duration, 9)
		var failing atomic.Bool
		loop := worker.Loop{
			Name: "woken", Wake: wake, Retry: worker.Backoff{First: 5 * time.Second, Factor: 1},
			Do: func(context.Context) error {
				rounds <- time.Since(begin)
				if failing.Load() {
					return errors.New("not now")
				}
				return nil
			},
		}
		var ended sync.WaitGroup
		ended.Go(func() { k.Every(ctx, loop) })
		synctest.Wait()
		if len(rounds) != 0 {
			t.Error("a round without a signal")
		}
		wake <- struct{}{}
		synctest.Wait()
		failing.Store(true)
		wake <- struct{}{}
		synctest.Wait()
		wake <- struct{}{} // while it rests after a failure
		synctest.Wait()
		if len(rounds) != 2 {
			t.Errorf("%d rounds, want 2", len(rounds))
		}
		failing.Store(false)
		pass(t, time.Hour)
		stop()
		ended.Wait()
		for _, want := range []time.Duration{0, 0, 5 * time.Second, 5 * time.Second} {
			if got := <-rounds; got != want {
				t.Errorf("a round at %v, want %v", got, want)
			}
		}

		// An eager loop is woken from such a pause too.
		ctx, stop = context.WithCancel(t.Context())
		begin, loop.Eager = time.Now(), true
		failing.Store(true)
		ended.Go(func() { k.Every(ctx, loop) })
		for range 3 {
			wake <- struct{}{}
			synctest.Wait()
		}
		failing.Store(false)
		stop()
		ended.Wait()
		for range 3 {
			if got := <-rounds; got != 0 {
				t.Errorf("a round at %v, want none but at once", got)
			}
		}

		// With an interval, a signal only comes before its end.
		ctx, stop = context.WithCancel(t.Context())
		defer stop()
		begin, loop.Every = time.Now(), time.Minute
		ended.Go(func() { k.Every(ctx, loop) })
		synctest.Wait()
		wake <- struct{}{}
		synctest.Wait()
		pass(t, 90*time.Second)
		stop()
		ended.Wait()
		for _, want := range []time.Duration{0, 0, time.Minute} {
			if got := <-rounds; got != want {
				t.Errorf("a round at %v, want %v", got, want)
			}
		}
	})
}

// TestFinal checks that the last round is done when the context has ended, and not with that one.
func TestFinal(t *testing.T) {
	k, log := kit()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	rounds := 0
	k.Every(ctx, worker.Loop{Name: "last", Every: time.Hour, Final: true, Do: func(ctx context.Context) error {
		rounds++
		if ctx.Err() != nil {
			t.Error("the context of the last round has ended")
		}
		return errors.New("too late")
	}})
	if rounds != 1 || log.count("too late") != 1 {
		t.Errorf("%d rounds, %d lines in the log", rounds, log.count("too late"))
	}
}

// TestJitter checks that pauses are spread, and how far.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := kit()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		last, rounds, seen := time.Now(), 0, map[time.Duration]bool{}
		k.Every(ctx, worker.Loop{Name: "spread", Every: time.Minute, Jitter: 0.25, Do: func(context.Context) error {
			pause := time.Since(last)
			last = time.Now()
			if rounds++; rounds == 1 {
				return nil
			}
			if seen[pause] = true; pause < 45*time.Second || pause > time.Minute {
				t.Errorf("a pause of %v", pause)
			}
			if rounds == 50 {
				stop()
			}
			return nil
		}})
		if len(seen) < 10 {
			t.Errorf("only %d different pauses", len(seen))
		}
	})
}
