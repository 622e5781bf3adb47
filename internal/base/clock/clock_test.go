package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"j17/internal/base/clock"
)

func TestSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock.System
		begin := c.Now()
		if err := c.Wait(t.Context(), begin.Add(time.Hour)); err != nil || c.Now().Sub(begin) != time.Hour {
			t.Errorf("waited %v: %v", c.Now().Sub(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Wait(ctx, c.Now().Add(time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestEither: the time, the channel and the end of the context each end the wait.
func TestEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock.System
		begin := c.Now()
		signal := make(chan struct{})
		if clock.Either(t.Context(), c, begin.Add(time.Minute), signal) || c.Now().Sub(begin) != time.Minute {
			t.Errorf("waited %v without a signal", c.Now().Sub(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if clock.Either(ctx, c, begin.Add(time.Hour), signal) || c.Now().Sub(begin) != time.Minute+time.Second {
			t.Errorf("waited %v until the context had ended", c.Now().Sub(begin))
		}
		close(signal)
		if !clock.Either(t.Context(), c, begin.Add(time.Hour), signal) || c.Now().Sub(begin) > time.Hour/2 {
			t.Errorf("waited %v with a signal", c.Now().Sub(begin))
		}
	})
}

func TestMovable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewMovable(clock.System{})
		begin := c.Now()
		woken := make(chan time.Time, 1)
		go func() {
			_ = c.Wait(t.Context(), begin.Add(3*time.Hour))
			woken <- c.Now()
		}()
		synctest.Wait()
		c.Advance(time.Hour)
		synctest.Wait()
		select {
		case at := <-woken:
			t.Fatalf("woken at %v", at.Sub(begin))
		default:
		}
		if now := c.Advance(5 * time.Hour); now.Sub(begin) != 6*time.Hour {
			t.Errorf("moved to %v", now.Sub(begin))
		}
		if at := <-woken; at.Sub(begin) != 6*time.Hour {
			t.Errorf("woken at %v", at.Sub(begin))
		}
		if now := c.Advance(-time.Hour); now.Sub(begin) != 6*time.Hour {
			t.Error("the clock ran backward")
		}
		begin = c.Now()
		if err := c.Wait(t.Context(), begin.Add(time.Minute)); err != nil || c.Now().Sub(begin) != time.Minute {
			t.Errorf("waited %v: %v", c.Now().Sub(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Wait(ctx, c.Now().Add(time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestManual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Unix(1_700_000_000, 0).UTC()
		c := clock.NewManual(begin)
		done := make(chan error, 1)
		go func() { done <- c.Wait(t.Context(), begin.Add(time.Minute)) }()
		synctest.Wait()
		c.Advance(30 * time.Second)
		synctest.Wait()
		if len(done) != 0 {
			t.Fatal("woken too early")
		}
		c.Set(begin.Add(time.Minute))
		if err := <-done; err != nil || !c.Now().Equal(begin.Add(time.Minute)) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Wait(ctx, c.Now().Add(1)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
