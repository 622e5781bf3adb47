package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"j17"
	"j17/internal/auth"
)

// limit counts the request against the limit of its address and, where it came with an API key, against that of the key.
// The headers tell about the narrower of the two that decided.
func (c *call) limit(w http.ResponseWriter) error {
	if l := c.api.Addresses; l != nil {
		if err := charge(w, l, "ip", c.clientAddress().String(), c.api.Clock.Now()); err != nil {
			return err
		}
	}
	if l := c.api.Keys; l != nil && c.principal.Kind == j17.APIKey {
		return charge(w, l, "api-key", c.principal.ID, c.api.Clock.Now())
	}
	return nil
}

func charge(w http.ResponseWriter, l *auth.RateLimit, scope, who string, now time.Time) error {
	left, wait := l.Take(who, now)
	h := w.Header()
	h[headerRateLimit] = []string{strconv.Itoa(l.PerMinute())}
	h[headerRateRemaining] = []string{strconv.Itoa(left)}
	h[headerRateScope] = []string{scope}
	if wait == 0 {
		return nil
	}
	seconds := int64((wait + time.Second - 1) / time.Second)
	e := j17.Errorf(j17.CodeRateLimited, "Too many requests: the limit is %d a minute per %s. Try again in %d seconds.", l.PerMinute(), scope, seconds)
	e.Details = auth.RetryAfter{Seconds: seconds}
	return e
}
