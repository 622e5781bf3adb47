package httpapi

import (
	"log/slog"
	"sync"
	"time"

	"j17"
)

// refusals logs requests of kinds that honest clients seldom send, such as those with wrong credentials: the first with
// each code, and then at most one a second, with the number of those in between.
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
		slog.String("code", string(code)), slog.String("address", c.clientAddress().String()),
		slog.String("route", c.route),
		slog.String("instance_id", c.instance), slog.String("principal", c.principal.ID),
		slog.String("request_id", c.requestID), slog.Int("not_logged_before", silent))
}
