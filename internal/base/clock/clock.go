// Package clock is the only package that asks the operating system for the time. Everything else takes a Clock,
// so that tests and the dev server can move it.
package clock

import (
	"context"
	"sync"
	"time"
)

// Clock tells the time and waits for it.
type Clock interface {
	// Now returns the current time in UTC.
	Now() time.Time
	// Wait blocks until the clock shows at least t, and returns early with the context's error.
	Wait(ctx context.Context, t time.Time) error
}

// System is the machine's clock.
type System struct{}

// Now returns the machine's time.
func (System) Now() time.Time { return time.Now().UTC() }

// Wait sleeps until t.
func (System) Wait(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until returns a context that also ends when a clock shows a time.
func Until(ctx context.Context, c Clock, t time.Time) (context.Context, context.CancelFunc) {
	limited, stop := context.WithCancel(ctx)
	go func() {
		if c.Wait(limited, t) == nil {
			stop()
		}
	}()
	return limited, stop
}

// Either waits until c shows t, or until a channel is closed or delivers, and reports whether it was the channel. If
// the context ends first, it returns as if c showed t.
func Either(ctx context.Context, c Clock, t time.Time, signal <-chan struct{}) bool {
	waiting, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = c.Wait(waiting, t) // an error is the end of the wait
	}()
	defer func() {
		stop()
		<-over
	}()
	select {
	case <-signal:
		return true
	case <-over:
		return false
	}
}

// Movable runs ahead of another clock by an offset that can be enlarged. Waiters notice at once.
type Movable struct {
	base Clock

	mu     sync.Mutex
	offset time.Duration
	moved  chan struct{}
}

// NewMovable returns a clock that shows base's time until it is moved.
func NewMovable(base Clock) *Movable {
	return &Movable{base: base, moved: make(chan struct{})}
}

// Now returns the base clock's time plus the offset.
func (m *Movable) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.base.Now().Add(m.offset)
}

// Advance moves the clock forward by d and returns the new time. It never moves backward.
func (m *Movable) Advance(d time.Duration) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d > 0 {
		m.offset += d
		close(m.moved)
		m.moved = make(chan struct{})
	}
	return m.base.Now().Add(m.offset)
}

// Wait blocks until the moved clock shows at least t.
func (m *Movable) Wait(ctx context.Context, t time.Time) error {
	for {
		m.mu.Lock()
		target, moved := t.Add(-m.offset), m.moved
		m.mu.Unlock()
		if !m.base.Now().Before(target) {
			return ctx.Err()
		}
		waiting, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- m.base.Wait(waiting, target) }()
		select {
		case err := <-done:
			stop()
			if err != nil {
				return err
			}
		case <-moved:
			stop()
			_ = <-done
		}
	}
}

// Manual is a clock for tests: it stands still until it is set.
type Manual struct {
	mu    sync.Mutex
	now   time.Time
	moved chan struct{}
}

// NewManual returns a clock that shows t.
func NewManual(t time.Time) *Manual { return &Manual{now: t.UTC(), moved: make(chan struct{})} }

// Now returns the time that was set last.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Set moves the clock to t, forward or backward.
func (m *Manual) Set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = t.UTC()
	close(m.moved)
	m.moved = make(chan struct{})
}

// Advance moves the clock forward by d.
func (m *Manual) Advance(d time.Duration) { m.Set(m.Now().Add(d)) }

// Wait blocks until the clock is set to t or later.
func (m *Manual) Wait(ctx context.Context, t time.Time) error {
	for {
		m.mu.Lock()
		now, moved := m.now, m.moved
		m.mu.Unlock()
		if !now.Before(t) {
			return ctx.Err()
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
