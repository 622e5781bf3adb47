package usage

import (
	"sync"
	"time"

	"j17"
)

// Minutes is the number of full minutes that Rates reports.
const Minutes = 60

// minutes counts events by the minute in which they were written: the current minute and the sixty before it. They are
// kept in memory only.
type minutes struct {
	mu sync.Mutex
	// now is the current minute since 1970; counts is a ring in which each minute is at its number modulo the size.
	now    int64
	counts [Minutes + 1]int64
}

// minuteOf is the minute of a moment, counted since 1970.
func minuteOf(at time.Time) int64 { return at.Unix() / 60 }

// add counts events. Events more than an hour before the current minute, after a clock was set back, are not counted.
func (m *minutes) add(at time.Time, events int64) {
	minute := minuteOf(at)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pass(minute)
	if minute > m.now-int64(len(m.counts)) && minute >= 0 {
		m.counts[minute%int64(len(m.counts))] += events
	}
}

// pass advances to a minute. The caller holds mu.
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

// last returns the counts of the sixty full minutes before the current one, the oldest first.
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

// Rates returns how many events were written to an environment in each of the last sixty full minutes since the program
// began, the oldest first.
func (m *Meter) Rates(t j17.Tenant) []int64 {
	m.mu.RLock()
	c := m.counters[t]
	m.mu.RUnlock()
	if c == nil {
		return make([]int64, Minutes)
	}
	return c.minutes.last(m.clock.Now())
}
