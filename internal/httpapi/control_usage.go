package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/control"
	"j17/internal/usage"
)

// count counts a request that an API key has let in.
func (c *call) count(need access) {
	if c.api.Usage != nil && c.principal.Kind == j17.APIKey {
		c.api.Usage.Request(c.tenant, need == read)
	}
}

// getUsage is GET /api/instances/{id}/usage: what each environment has used on each day, by default those of this month.
func (c *call) getUsage(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	if err := c.needRight(id, control.RightView); err != nil {
		return err
	}
	c.instance = id
	return c.forwarded(w, "/internal/control/instances/"+id+"/usage", (*call).usageDays)
}

// usageDays answers with the days of the call's instance.
func (c *call) usageDays(w http.ResponseWriter) error {
	p, err := parameters(c.request, "from", "to")
	if err != nil {
		return err
	}
	from, err := timeParameter(p, "from")
	if err != nil {
		return err
	}
	to, err := timeParameter(p, "to")
	if err != nil {
		return err
	}
	now := c.api.Clock.Now().UTC()
	if _, given := p["to"]; !given {
		to = now
	}
	if _, given := p["from"]; !given {
		from = time.Date(to.Year(), to.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	if to.Before(from) {
		return j17.Errorf(j17.CodeInvalidParameter, "'to' must not be before 'from'").At("to")
	}
	if c.api.Usage == nil {
		return c.answer(w, http.StatusOK, nil, member{"days", []usage.Day{}})
	}
	days, err := c.api.Usage.Days(c.request.Context(), c.instance, from, to)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil, member{"days", days})
}
