package httpapi

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"j17"
)

// attempts bounds how many refused attempts each operator adds to the audit log, which keeps its records: of what an operator
// is refused for the same reason, attemptsKept an hour are recorded one by one, and the next record tells how many were not.
type attempts struct {
	mu    sync.Mutex
	known map[attempt]*tally
}

// attempt is what is counted together.
type attempt struct {
	operator, action string
	code             j17.Code
}

// tally is how often an attempt was made since an hour began.
type tally struct {
	began   time.Time
	audited int
	silent  int
}

const (
	attemptsKept = 20
	attemptsTime = time.Hour
	// attemptsKnown bounds the memory; there are as many operators times actions times codes on a server that is not abused.
	attemptsKnown = 10_000
)

// admit reports whether an attempt is to be recorded, and if so how many were not since the last that was.
func (a *attempts) admit(what attempt, now time.Time) (silent int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || len(a.known) >= attemptsKnown && a.known[what] == nil {
		a.known = map[attempt]*tally{}
	}
	t := a.known[what]
	if t == nil {
		t = &tally{began: now}
		a.known[what] = t
	}
	if now.Sub(t.began) >= attemptsTime || now.Before(t.began) {
		t.began, t.audited = now, 0
	}
	if t.audited >= attemptsKept {
		t.silent++
		return 0, false
	}
	t.audited++
	silent, t.silent = t.silent, 0
	return silent, true
}

// withSilent adds to the details of a record how many like it were left out before it.
func withSilent(details map[string]string, silent int) map[string]string {
	if silent == 0 {
		return details
	}
	all := map[string]string{"not_recorded_before": strconv.Itoa(silent)}
	maps.Copy(all, details)
	return all
}
