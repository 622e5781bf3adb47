package httpapi

import (
	"log/slog"
	"net/http"
	"strconv"
	"sync"
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

// limit counts the request against the limit of its address and, where it came with an API key, against that of the key.
// X-RateLimit headers tell about the narrower of the two that decided, the others about both. Platform admins are exempt: they
// are shown a limit that nothing was taken from.
func (c *call) limit(w http.ResponseWriter) error {
	if c.principal.Kind == j17.Operator && c.principal.Role == string(control.RolePlatformAdmin) {
		if l := c.api.Addresses; l != nil {
			return c.charge(w, scopeAddress, l.Untouched())
		}
		return nil
	}
	now := c.api.Clock.Now()
	if l := c.api.Addresses; l != nil {
		if err := c.charge(w, scopeAddress, l.Take(auth.Network(c.clientAddress()).String(), 0, now)); err != nil {
			return err
		}
	}
	if l := c.api.Keys; l != nil && c.principal.Kind == j17.APIKey {
		return c.charge(w, scopeKey, l.Take(c.principal.ID, c.api.Registry.Instances.PlanOf(c.instance).RequestsPerMinute, now))
	}
	return nil
}

// showLimit shows the limit of the address without counting.
func (c *call) showLimit(w http.ResponseWriter) {
	if l := c.api.Addresses; l != nil {
		_ = c.charge(w, scopeAddress, l.Look(auth.Network(c.clientAddress()).String(), c.api.Clock.Now()))
	}
}

// limitRefused counts a request that was refused before its turn for the limits came, and is refused either way.
func (c *call) limitRefused(w http.ResponseWriter, err error) {
	c.api.refusals.note(c, err)
	if l := c.api.Addresses; l != nil {
		_ = c.charge(w, scopeAddress, l.Take(auth.Network(c.clientAddress()).String(), 0, c.api.Clock.Now()))
	}
}

// refusals tells the log of requests that nobody honest sends often, such as those with wrong credentials: of the first with
// each code, and then at most once a second, with how many there were in between.
type refusals struct {
	mu     sync.Mutex
	byCode map[j17.Code]*refusal
}

// refusal is what is known of the refusals with one code.
type refusal struct {
	next   time.Time
	silent int
}

const refusalInterval = time.Second

func (r *refusals) note(c *call, err error) {
	now := c.api.Clock.Now()
	code := j17.CodeOf(err)
	r.mu.Lock()
	if r.byCode == nil {
		r.byCode = map[j17.Code]*refusal{}
	}
	of := r.byCode[code]
	if of == nil {
		of = &refusal{}
		r.byCode[code] = of
	}
	silent := of.silent
	if now.Before(of.next) {
		of.silent++
		r.mu.Unlock()
		return
	}
	of.silent, of.next = 0, now.Add(refusalInterval)
	r.mu.Unlock()
	if c.api.Observe != nil {
		return // Someone is shown every request.
	}
	c.api.Logger.LogAttrs(c.request.Context(), slog.LevelInfo, "request refused",
		slog.String("code", string(code)), slog.String("address", c.clientAddress().String()), slog.String("route", c.route),
		slog.String("instance_id", c.instance), slog.String("principal", c.principal.ID), slog.String("request_id", c.requestID), slog.Int("not_logged_before", silent))
}

// charge shows a budget and says whether the request was let in.
func (c *call) charge(w http.ResponseWriter, scope string, b auth.Budget) error {
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

// seconds rounds up, so that who waits for as long does not come too early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
