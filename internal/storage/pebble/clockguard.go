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
	// longestPause is how far the clock may move without a check: while the store is closed, or the machine asleep.
	longestPause = 400 * 24 * time.Hour
	// steadyTime is how long a clock that has jumped by at most longestPause must run evenly until it is trusted: time
	// synchronisation has corrected a wrong clock by then.
	steadyTime = 10 * time.Minute
	// acceptName is the file by which the operator confirms the clock.
	acceptName = "accept-clock"
)

// clockGuard protects stored data from a clock that has jumped ahead: a single event stored while the clock shows a
// later year keeps the time of its environment there until that year.
//
// The clock is checked with every batch and once in sweepEvery. A step of more than the bound is not trusted until the
// clock is back, has run evenly for steadyTime, or the operator has confirmed it. After the store was closed, and when
// the clock has run evenly, the bound is longestPause.
type clockGuard struct {
	clock  clock.Clock
	logger *slog.Logger
	disk   *disk
	// bound is the longest trusted step; 0 trusts any.
	bound time.Duration

	mu sync.Mutex
	// seen is the latest trusted time, 0 if there is none.
	seen time.Time
	// looked reports whether the clock has been trusted since the store was opened.
	looked bool
	// refused, if not nil, is why the clock is not trusted. last is the time of the last check, steady the time since
	// which the clock has run evenly.
	refused      error
	last, steady time.Time
}

// check checks the clock and returns why it is not trusted, or nil.
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

// latest returns the latest trusted time, even from before the store was opened, or the clock's if that is later.
func (g *clockGuard) latest() time.Time {
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.seen) {
		return g.seen
	}
	return now
}

// even records the clock's time and reports whether the clock has run evenly for steadyTime since it jumped. The caller
// holds mu.
func (g *clockGuard) even(now time.Time) bool {
	if step := now.Sub(g.last); g.refused == nil || step < 0 || step > 2*sweepEvery {
		g.steady = now
	}
	g.last = now
	return g.refused != nil && now.Sub(g.steady) >= steadyTime
}

// believe accepts now as the time. The caller holds mu.
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

// confirmed reports whether the operator has confirmed the clock, and uses the confirmation up. The caller holds mu.
func (g *clockGuard) confirmed() bool {
	path := g.disk.PathJoin(g.disk.dir, acceptName)
	if _, err := g.disk.Stat(path); err != nil {
		return false
	}
	return g.disk.FS.Remove(path) == nil
}
