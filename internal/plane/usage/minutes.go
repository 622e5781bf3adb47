package usage

import (
	"sync"
	"time"

	"j17"
)

// Minutes is how many full minutes Rates tells of.
const Minutes = 60

// minutes counts events by the minute in which they were written: those of the present minute and of the sixty before
// it. They are kept in memory only.
type minutes struct {
	mu sync.Mutex
	// now is the present minute since 1970, of counts the ones behind it, each at its number modulo their number.
	now    int64
	counts [Minutes + 1]int64
}

// minuteOf is the minute of a moment, counted since 1970.
func minuteOf(at time.Time) int64 { return at.Unix() / 60 }

// add counts events. Those of a clock that was set back by more than an hour count nowhere.
func (m *minutes) add(at time.Time, events int64) {
	minute := minuteOf(at)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pass(minute)
	if minute > m.now-int64(len(m.counts)) && minute >= 0 {
		m.counts[minute%int64(len(m.counts))] += events
	}
}

// pass makes room for the minutes up to one. It needs mu.
func (m *minutes) pass(minute int64) {
	if minute-m.now >= int64(len(m.counts)) {
		m.counts = [Minutes + 1]int64{}
		m.now = minute
	}
	for m.now < minute {
		m.now++
		m.counts[m.now%int64(len(m.counts))] = 0
	}
}

// last returns the counts of the sixty full minutes before the present one, the oldest first.
func (m *minutes) last(at time.Time) []int64 {
	minute := minuteOf(at)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pass(minute)
	out := make([]int64, Minutes)
	for i := range out {
		if of := minute - Minutes + int64(i); of >= 0 && of <= m.now && of > m.now-int64(len(m.counts)) {
			out[i] = m.counts[of%int64(len(m.counts))]
		}
	}
	return out
}

// Rates returns how many events were written to an environment in each of the last sixty full minutes, the last one
// last, since the program began.
func (m *Meter) Rates(t j17.Tenant) []int64 {
	m.mu.RLock()
	c := m.counters[t]
	m.mu.RUnlock()
	if c == nil {
		return make([]int64, Minutes)
	}
	return c.minutes.last(m.clock.Now())
}
