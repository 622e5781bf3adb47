package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/base/wire"
)

// count counts a request that an API key has let in. What only tries a write is a read.
func (c *call) count(need access) {
	if c.api.Usage != nil && c.principal.Kind == j17.APIKey {
		c.api.Usage.Request(c.tenant, need == read || c.triesOnly())
	}
}

// triesOnly reports whether the request asks for a dry run, before its parameters are read.
func (c *call) triesOnly() bool {
	if c.request.URL.RawQuery == "" {
		return false
	}
	dry := c.request.URL.Query().Get("dry_run")
	return dry == "true" || dry == "1"
}

// usageDays is GET /api/instances/{id}/usage: what each environment has used on each day, by default those of this month.
func (c *call) usageDays(w http.ResponseWriter) error {
	from, to := c.day("from"), c.day("to")
	if c.query["to"] == "" {
		to = c.api.Clock.Now().UTC()
	}
	if c.query["from"] == "" {
		from = time.Date(to.Year(), to.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	if to.Before(from) {
		return j17.Errorf(j17.CodeInvalidParameter, "'to' must not be before 'from'").At("to")
	}
	if c.api.Usage == nil {
		return c.answer(w, http.StatusOK, wire.Days{Days: []wire.Day{}})
	}
	days, err := c.api.Usage.Days(c.request.Context(), c.instance, from, to)
	if err != nil {
		return err
	}
	answer := wire.Days{Days: make([]wire.Day, len(days))}
	for i, d := range days {
		answer.Days[i] = wire.Day(d)
	}
	return c.answer(w, http.StatusOK, answer)
}
