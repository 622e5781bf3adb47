package pebble

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

const (
	// longestPause is how far the clock may have moved while nobody looked: while the store was closed, or the machine
	// asleep.
	longestPause = 400 * 24 * time.Hour
	// steadyTime is how long a clock that has jumped by no more than that must go on evenly until it is believed:
	// whoever keeps clocks in step has put a wrong one right by then.
	steadyTime = 10 * time.Minute
	// acceptName is the file by which the operator confirms the clock.
	acceptName = "accept-clock"
)

// clockGuard keeps a clock that has jumped ahead away from what is stored: a single event that is stored while the
// clock shows another year holds the time of its environment there until that year.
//
// The clock is looked at with every batch and once in sweepEvery. A step of more than the bound is not believed, until
// the clock is back, has gone on evenly for steadyTime, or the operator has confirmed it. After the store was closed,
// and when it has gone on evenly, the bound is longestPause.
type clockGuard struct {
	clock  clock.Clock
	logger *slog.Logger
	disk   *disk
	// bound is the longest step that is believed; 0 believes any.
	bound time.Duration

	mu sync.Mutex
	// seen is the latest time that was believed, 0 if there is none.
	seen time.Time
	// looked tells whether the clock was believed since the store was opened.
	looked bool
	// refused, if not nil, is why the clock is not believed. It showed the time last when it was looked at, and has
	// gone on evenly since steady.
	refused      error
	last, steady time.Time
}

// check looks at the clock and returns why it is not believed, or nil.
func (g *clockGuard) check() error {
	if g.bound == 0 {
		return nil
	}
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	bound := g.bound
	if !g.looked || g.even(now) {
		bound = max(bound, longestPause)
	}
	switch {
	case g.seen.IsZero() || now.Sub(g.seen) <= bound:
		g.believe(now)
	case g.confirmed():
		g.logger.Warn("the clock was confirmed and is believed", slog.Time("now", now), slog.Time("before", g.seen))
		g.believe(now)
	default:
		if g.refused == nil {
			g.logger.Error("the clock has jumped ahead, writes are refused", slog.Time("now", now), slog.Time("before", g.seen))
		}
		g.refused = fmt.Errorf("%w: it shows %s, and the latest time before was %s. Set it right; if it is right, create the file %s",
			store.ErrClock, now.Format(time.RFC3339), g.seen.Format(time.RFC3339),
			g.disk.PathJoin(g.disk.dir, acceptName))
	}
	return g.refused
}

// latest returns the latest time that the clock has shown, also before the store was opened.
func (g *clockGuard) latest() time.Time {
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.seen) {
		return g.seen
	}
	return now
}

// even notes what the clock shows and reports whether it has gone on evenly for steadyTime since it jumped. It needs
// mu.
func (g *clockGuard) even(now time.Time) bool {
	if step := now.Sub(g.last); g.refused == nil || step < 0 || step > 2*sweepEvery {
		g.steady = now
	}
	g.last = now
	return g.refused != nil && now.Sub(g.steady) >= steadyTime
}

// believe takes now for the time. It needs mu.
func (g *clockGuard) believe(now time.Time) {
	if g.refused != nil {
		g.logger.Info("the clock is believed again, writes are accepted", slog.Time("now", now))
	}
	if !g.looked && !g.seen.IsZero() && now.Sub(g.seen) > g.bound {
		g.logger.Warn("the store was last in use long ago, or the clock is wrong", slog.Time("now", now), slog.Time("last_use", g.seen))
	}
	g.looked, g.refused = true, nil
	if now.After(g.seen) {
		g.seen = now
		g.disk.marks.see(now.UnixMilli())
	}
}

// confirmed reports whether the operator has confirmed the clock, for this once. It needs mu.
func (g *clockGuard) confirmed() bool {
	path := g.disk.PathJoin(g.disk.dir, acceptName)
	if _, err := g.disk.Stat(path); err != nil {
		return false
	}
	return g.disk.FS.Remove(path) == nil
}
