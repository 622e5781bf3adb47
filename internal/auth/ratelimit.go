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
	overflow  *throttle

	mu sync.Mutex
	// full holds when each budget is full again, in Unix nanoseconds. A budget that is full need not be kept.
	full map[string]int64
	// prune is the size at which full budgets are looked for next, and pruned when that was done last.
	prune  int
	pruned int64
}

// Budget is what a caller has left.
type Budget struct {
	// Limit is the number of requests a minute, Left how many more there may be at once.
	Limit, Left int
	// Wait is how long until there is room for the request; 0 means that it was let in.
	Wait time.Duration
	// Full is how long until the whole limit is there again.
	Full time.Duration
}

// pruneInterval is the least time between two looks through all budgets, which take milliseconds.
const pruneInterval = time.Second

// minPrune is the number of budgets from which it is worth looking.
const minPrune = 1024

// NewRateLimit returns a limit of perMinute requests for those who have no other; fewer than 1 count as 1.
func NewRateLimit(perMinute int) *RateLimit {
	perMinute = max(perMinute, 1)
	return &RateLimit{perMinute: perMinute, overflow: newThrottle(perMinute, time.Minute/time.Duration(perMinute)), full: map[string]int64{}, prune: minPrune}
}

// Take counts a request of a caller who may send perMinute of them; 0 means the limit's own number.
func (l *RateLimit) Take(caller string, perMinute int, now time.Time) Budget {
	if perMinute <= 0 {
		perMinute = l.perMinute
	}
	interval := time.Minute / time.Duration(perMinute)
	slack := time.Duration(perMinute-1) * interval
	b := Budget{Limit: perMinute}
	at := now.UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[caller]
	if !known && !l.room(at) {
		b.Wait = l.overflow.take([]byte(caller), now)
		b.Full = time.Minute
		return b
	}
	full = max(full, at)
	if b.Wait = max(0, time.Duration(full-at)-slack); b.Wait == 0 {
		full += int64(interval)
		l.full[caller] = full
	}
	b.Full = time.Duration(full - at)
	b.Left = int((slack + interval - min(b.Full, slack+interval)) / interval)
	return b
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
