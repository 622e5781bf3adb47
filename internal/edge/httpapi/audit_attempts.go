package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/plane/control"
)

// attempts bounds how many refused attempts each operator adds to the audit log, which keeps its records: of an
// operator's refusals for the same reason, attemptsKept an hour are recorded one by one, and the next record has the
// number of those that were not.
type attempts struct {
	mu    sync.Mutex
	known map[attempt]*tally
}

// attempt is what attempts have in common that are counted together.
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
	// attemptsKnown bounds the memory; there are as many operators times actions times codes on a server that is not
	// abused.
	attemptsKnown = 10_000
)

// admit reports whether an attempt is to be recorded, and if so how many were left out since the last record.
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

// recordFailure adds an attempt to the audit log, unless it was malformed or one of many like it. If that fails too,
// there is nothing to add to the error itself.
func (g *guard) recordFailure(c *call, rec control.Record, err error) {
	rec.Code, rec.Outcome = j17.CodeOf(err), control.Refused
	rec.Target = g.registry.Faults.Redact(rec.Target) // which may be a token, pasted where its id belongs
	switch status := StatusOf(rec.Code); {
	case status >= http.StatusInternalServerError:
		rec.Outcome = control.Failed
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge,
		status == http.StatusTooManyRequests:
		return
	}
	if _, ok := g.registry.Instances.ByID(rec.Target); ok {
		rec.Instance = rec.Target
	} else if key, ok := g.registry.Keys.ByID(rec.Target); ok {
		rec.Instance, rec.Environment = key.Instance, key.Environment
	}
	silent, ok := g.attempts.admit(attempt{c.principal.ID, rec.Action, rec.Code}, g.clock.Now())
	if !ok {
		return
	}
	rec.Details = withSilent(rec.Details, silent)
	c.addRecord(rec)
}

// attempted records a failed attempt at an action in the audit log; "" is no action. The dry run of a deployment is no
// attempt.
func (g *guard) attempted(c *call, action string, err error) {
	if action == "" {
		return
	}
	if strings.HasPrefix(action, "spec.") && g.triesOnly(c) {
		return
	}
	rec := control.Record{Action: action, Target: c.request.PathValue("id")}
	if rec.Target == "" {
		rec.Target = cmp.Or(c.request.PathValue("name"), c.request.PathValue("scheduled_id"))
		rec.Instance, rec.Environment = c.instance, c.env
	}
	g.recordFailure(c, rec, err)
}
