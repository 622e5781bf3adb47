package auth

import (
	"sync"
	"time"
)

// rateWindow is the time in which a limit counts requests.
const rateWindow = time.Minute

// maxTracked is the number of callers who are counted individually; beyond it, callers share budgets.
const maxTracked = 100_000

// RateLimit lets every caller send a number of requests in any minute: each counts for exactly a minute from when it
// was admitted. It keeps the times of those requests, so its memory is bounded by what the server can admit within a
// minute. It is safe for concurrent use.
type RateLimit struct {
	perMinute int
	overflow  *throttle

	mu      sync.Mutex
	callers map[string]*window
	// prune is the size at which callers without counted requests are next removed, and pruned when that was last done.
	prune  int
	pruned int64
}

// Budget is the remaining budget of a caller.
type Budget struct {
	// Limit is the number of requests a minute, Left how many more there may be at once.
	Limit, Left int
	// Wait is how long until there is room for the request; 0 means that it was admitted.
	Wait time.Duration
	// Full is how long until the whole limit is available again without further requests.
	Full time.Duration
}

// pruneInterval is the least time between two passes over all callers, which take milliseconds.
const pruneInterval = time.Second

// minPrune is the number of callers from which a pass is worthwhile.
const minPrune = 1024

// NewRateLimit returns a limit of perMinute requests for callers without a limit of their own; fewer than 1 count as 1.
func NewRateLimit(perMinute int) *RateLimit {
	perMinute = max(perMinute, 1)
	return &RateLimit{
		perMinute: perMinute, overflow: newThrottle(perMinute, rateWindow/time.Duration(perMinute)),
		callers: map[string]*window{}, prune: minPrune,
	}
}

// Untouched is the budget of a caller whose requests are not counted.
func (l *RateLimit) Untouched() Budget { return Budget{Limit: l.perMinute, Left: l.perMinute} }

// Look returns the budget of a caller under the limit's own number, and counts nothing.
func (l *RateLimit) Look(caller string, now time.Time) Budget {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.Untouched()
	if w := l.callers[caller]; w != nil {
		at := now.UnixNano()
		if w.forget(at); w.n > 0 {
			b.Left = max(0, l.perMinute-w.n)
			b.Full = time.Duration(w.at(w.n-1) + int64(rateWindow) - at)
		}
	}
	return b
}

// Take counts a request of a caller who may send perMinute of them; 0 means the limit's own number.
func (l *RateLimit) Take(caller string, perMinute int, now time.Time) Budget {
	if perMinute <= 0 {
		perMinute = l.perMinute
	}
	b := Budget{Limit: perMinute}
	at := now.UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.callers[caller]
	if w == nil {
		if !l.room(at) {
			b.Wait = l.overflow.take([]byte(caller), now)
			b.Full = rateWindow
			return b
		}
		w = &window{}
		l.callers[caller] = w
	}
	w.forget(at)
	if w.n < perMinute {
		w.add(at)
	} else {
		// The next request to expire that matters is not the oldest one if the limit has become smaller.
		b.Wait = time.Duration(w.at(w.n-perMinute) + int64(rateWindow) - at)
	}
	b.Left = max(0, perMinute-w.n)
	b.Full = time.Duration(w.at(w.n-1) + int64(rateWindow) - at)
	return b
}

// room makes room for one more caller, removing those without counted requests, and reports whether there is any.
func (l *RateLimit) room(at int64) bool {
	if len(l.callers) < l.prune {
		return true
	}
	if ago := time.Duration(at - l.pruned); len(l.callers) >= maxTracked && ago >= 0 && ago < pruneInterval {
		return false
	}
	l.pruned = at
	for caller, w := range l.callers {
		if w.forget(at); w.n == 0 {
			delete(l.callers, caller)
		}
	}
	l.prune = min(maxTracked, max(minPrune, 2*len(l.callers)))
	return len(l.callers) < l.prune
}

// window holds the times of the counted requests, in Unix nanoseconds and the oldest first, in a ring.
type window struct {
	ring  []int64
	first int
	n     int
}

// at returns the time of the i-th request.
func (w *window) at(i int) int64 { return w.ring[(w.first+i)%len(w.ring)] }

// forget drops the requests that no longer count. Those with later times, after a clock was set back, count as if they
// came now.
func (w *window) forget(now int64) {
	for i := w.n - 1; i >= 0 && w.at(i) > now; i-- {
		w.ring[(w.first+i)%len(w.ring)] = now
	}
	for w.n > 0 && w.at(0)+int64(rateWindow) <= now {
		w.first = (w.first + 1) % len(w.ring)
		w.n--
	}
}

// add keeps the time of a request, which is not before the last one.
func (w *window) add(now int64) {
	if w.n == len(w.ring) {
		wider := make([]int64, max(4, 2*len(w.ring)))
		for i := range w.n {
			wider[i] = w.at(i)
		}
		w.ring, w.first = wider, 0
	}
	w.ring[(w.first+w.n)%len(w.ring)] = now
	w.n++
}
