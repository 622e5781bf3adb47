package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"j17"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
)

// The scopes of limits, as headers and messages name them.
const (
	scopeKey     = "api-key"
	scopeAddress = "ip"
)

// limit counts the request against the limit of its address and, where it came with an API key, against that of the
// key. The X-RateLimit headers are about the narrower of the two limits, the others about both. Platform admins are
// exempt: their headers show a limit that nothing is taken from.
func (g *guard) limit(c *call, w http.ResponseWriter) error {
	if c.principal.Kind == j17.Operator && c.principal.Role == string(control.RolePlatformAdmin) {
		if l := g.addresses; l != nil {
			return g.charge(c, w, scopeAddress, l.Untouched())
		}
		return nil
	}
	now := g.clock.Now()
	if l := g.addresses; l != nil {
		if err := g.charge(c, w, scopeAddress, l.Take(auth.Network(c.clientAddress()).String(), 0, now)); err != nil {
			return err
		}
	}
	if l := g.keys; l != nil && c.principal.Kind == j17.APIKey {
		return g.charge(
			c, w, scopeKey, l.Take(c.principal.ID, g.registry.Instances.PlanOf(c.instance).RequestsPerMinute, now),
		)
	}
	return nil
}

// showLimit shows the limit of the address without counting.
func (g *guard) showLimit(c *call, w http.ResponseWriter) {
	if l := g.addresses; l != nil {
		_ = g.charge(c, w, scopeAddress, l.Look(auth.Network(c.clientAddress()).String(), g.clock.Now()))
	}
}

// limitRefused counts a request that was refused before its limits were checked, and is refused either way.
func (g *guard) limitRefused(c *call, w http.ResponseWriter, err error) {
	g.refusals.note(c, err)
	if l := g.addresses; l != nil {
		_ = g.charge(c, w, scopeAddress, l.Take(auth.Network(c.clientAddress()).String(), 0, g.clock.Now()))
	}
}

// charge shows a budget and reports whether the request was let in.
func (*guard) charge(c *call, w http.ResponseWriter, scope string, b auth.Budget) error {
	h := w.Header()
	limit, left := strconv.Itoa(b.Limit), strconv.Itoa(b.Left)
	c.show(h, headerRateLimit, limit)
	c.show(h, headerRateRemaining, left)
	c.show(h, headerRateScope, scope)
	c.show(h, headerRatePolicy, joined(h[headerRatePolicy], `"`+scope+`";q=`+limit+`;w=60`))
	c.show(h, headerRate, joined(h[headerRate], `"`+scope+`";r=`+left+`;t=`+strconv.FormatInt(seconds(b.Full), 10)))
	if b.Wait == 0 {
		return nil
	}
	wait := seconds(b.Wait)
	e := j17.Errorf(j17.CodeRateLimited, "Too many requests: the limit is %s a minute per %s. Try again in %s.", limit, scope, j17.Count(wait, "second"))
	e.Details = auth.RetryAfter{Seconds: wait}
	return e
}

func joined(before []string, item string) string {
	if len(before) == 0 {
		return item
	}
	return before[0] + ", " + item
}

// seconds rounds up, so that a client that waits for as long does not come too early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
