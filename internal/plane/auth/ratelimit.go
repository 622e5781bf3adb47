package auth

import (
	"sync"
	"time"
)

// rateWindow is the time that a limit counts requests in.
const rateWindow = time.Minute

// maxTracked is the number of callers who are counted apart at a time; who comes when there are so many shares a budget
// with others like them.
const maxTracked = 100_000

// RateLimit lets every caller send so many requests in any minute: each one counts for exactly a minute from when it
// was let in. It keeps the times of those requests, so its memory is bounded by what the server can let in within a
// minute. It is safe for concurrent use.
type RateLimit struct {
	perMinute int
	overflow  *throttle

	mu      sync.Mutex
	callers map[string]*window
	// prune is the size at which callers that no request counts for are looked for next, and pruned when that was done
	// last.
	prune  int
	pruned int64
}

// Budget is what a caller has left.
type Budget struct {
	// Limit is the number of requests a minute, Left how many more there may be at once.
	Limit, Left int
	// Wait is how long until there is room for the request; 0 means that it was let in.
	Wait time.Duration
	// Full is how long until the whole limit is there again, if nothing more comes.
	Full time.Duration
}

// pruneInterval is the least time between two looks through all callers, which take milliseconds.
const pruneInterval = time.Second

// minPrune is the number of callers from which it is worth looking.
const minPrune = 1024

// NewRateLimit returns a limit of perMinute requests for those who have no other; fewer than 1 count as 1.
func NewRateLimit(perMinute int) *RateLimit {
	perMinute = max(perMinute, 1)
	return &RateLimit{
		perMinute: perMinute, overflow: newThrottle(perMinute, rateWindow/time.Duration(perMinute)),
		callers: map[string]*window{}, prune: minPrune,
	}
}

// Untouched is the budget of a caller whose requests are not counted.
func (l *RateLimit) Untouched() Budget { return Budget{Limit: l.perMinute, Left: l.perMinute} }

// Look tells what a caller has left of the limit's own number, and counts nothing.
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
		// The request that has to be forgotten first is not the oldest one when the limit has become smaller.
		b.Wait = time.Duration(w.at(w.n-perMinute) + int64(rateWindow) - at)
	}
	b.Left = max(0, perMinute-w.n)
	b.Full = time.Duration(w.at(w.n-1) + int64(rateWindow) - at)
	return b
}

// room makes sure that there is room for one more caller, forgetting those that no request counts for.
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

// window holds the times of the requests that count, in Unix nanoseconds and the oldest first, in a ring.
type window struct {
	ring  []int64
	first int
	n     int
}

// at returns the time of the i-th request.
func (w *window) at(i int) int64 { return w.ring[(w.first+i)%len(w.ring)] }

// forget drops the requests that count no longer. Those that seem to come later, after a clock was set back, count as
// if they came now.
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
