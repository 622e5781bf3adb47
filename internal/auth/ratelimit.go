package auth

import (
	"sync"
	"time"
)

// maxTracked is the number of callers whose budgets are kept apart at a time; who comes when there are so many shares a
// budget with others like them.
const maxTracked = 100_000

// RateLimit gives every caller so many requests a minute: all of them at once, then one whenever its share of the minute
// has passed. It is safe for concurrent use.
type RateLimit struct {
	perMinute int
	interval  time.Duration
	slack     time.Duration
	overflow  *throttle

	mu sync.Mutex
	// full holds when each budget is full again, in Unix nanoseconds. A budget that is full need not be kept.
	full map[string]int64
	// prune is the size at which full budgets are looked for next, and pruned when that was done last.
	prune  int
	pruned int64
}

// pruneInterval is the least time between two looks through all budgets, which take milliseconds.
const pruneInterval = time.Second

// minPrune is the number of budgets from which it is worth looking.
const minPrune = 1024

// NewRateLimit returns a limit of perMinute requests; fewer than 1 count as 1.
func NewRateLimit(perMinute int) *RateLimit {
	perMinute = max(perMinute, 1)
	interval := time.Minute / time.Duration(perMinute)
	return &RateLimit{
		perMinute: perMinute, interval: interval, slack: time.Duration(perMinute-1) * interval,
		overflow: newThrottle(perMinute, interval), full: map[string]int64{}, prune: minPrune,
	}
}

// PerMinute returns the number of requests a minute.
func (l *RateLimit) PerMinute() int { return l.perMinute }

// Take counts a request of a caller. It returns how many more there may be at once and, when this one is too many, how
// long until there is room for it.
func (l *RateLimit) Take(caller string, now time.Time) (left int, wait time.Duration) {
	at := now.UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[caller]
	if !known && !l.room(at) {
		return 0, l.overflow.take([]byte(caller), now)
	}
	full = max(full, at)
	if wait := time.Duration(full-at) - l.slack; wait > 0 {
		return 0, wait
	}
	full += int64(l.interval)
	l.full[caller] = full
	return int((l.slack + l.interval - time.Duration(full-at)) / l.interval), 0
}

// room makes sure that there is room for one more caller, forgetting those whose budgets are full.
func (l *RateLimit) room(at int64) bool {
	if len(l.full) < l.prune {
		return true
	}
	if len(l.full) >= maxTracked && time.Duration(at-l.pruned) < pruneInterval {
		return false
	}
	l.pruned = at
	for caller, full := range l.full {
		if full <= at {
			delete(l.full, caller)
		}
	}
	l.prune = min(maxTracked, max(minPrune, 2*len(l.full)))
	return len(l.full) < l.prune
}
