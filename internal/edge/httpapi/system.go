package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// serverHandlers answer what a server is and how it is.
type serverHandlers struct {
	advance      func(context.Context, time.Duration) (time.Time, error)
	restoringAny func() bool
	sign         string
	store        Storage
}

// routes report what a server is and how it is.
func (h *serverHandlers) routes() []route {
	const all = dataSite | controlSite | internalSite
	return []route{
		{all, get, "/{$}", open, need{}, "", h.root, operation{
			id: "getServer", about: "Get the name and version of the server", query: anything(), gives: wire.Server{},
		}},
		{all, get, "/livez", free, need{}, "", h.live, operation{
			id: "getLiveness", about: "Check that the process is alive", query: anything(), headers: signHeader(),
		}},
		{all, get, "/readyz", free, need{}, "", h.ready, operation{
			id: "getReadiness", about: "Check that the server accepts writes, or serves reads", query: readiness(),
			headers: signHeader(), gives: wire.Readiness{},
		}},
	}
}

// devRoutes are those of development servers.
func (a *API) devRoutes() []route {
	if a.AdvanceClock == nil {
		return nil
	}
	return []route{{
		dataSite | controlSite, post, "/_dev/clock/advance", operator,
		need{control.RightManage, aServer},
		"", a.server.advanceClock,
		operation{
			id: "advanceClock", about: "Move the clock of a development server", body: wire.Advance{},
			gives: wire.Advanced{},
		},
	}}
}

// root is GET /: what this server is, and for a browser on the control host the way to the dashboard.
func (*serverHandlers) root(c *call, w http.ResponseWriter) error {
	if c.control && c.api.Dashboard != nil {
		w.Header().Add("Vary", "Accept")
		if strings.Contains(c.request.Header.Get("Accept"), "text/html") {
			return c.api.dashboard.leadWith(c, w, http.StatusSeeOther)
		}
	}
	b := append([]byte(`{"ok":true,"service":"j17","version":`), strconv.Quote(c.api.Version)...)
	return c.reply(w, http.StatusOK, append(b, '}'))
}

// live is GET /livez: the process answers.
func (h *serverHandlers) live(c *call, w http.ResponseWriter) error {
	if h.sign != "" {
		w.Header().Set(HeaderSign, h.sign)
	}
	return c.reply(w, http.StatusOK, []byte(`{"ok":true}`))
}

// ready is GET /readyz: the server takes writes, and with for=reads: it answers reads. It looks at nothing that costs
// time.
func (h *serverHandlers) ready(c *call, w http.ResponseWriter) error {
	purpose := c.query["for"]
	select {
	case <-c.api.draining:
		return j17.Errorf(j17.CodeUnavailable, "The server is shutting down")
	default:
	}
	s := h.store.Status()
	switch {
	case !s.Readable:
		return j17.Errorf(j17.CodeUnavailable, "The server answers no reads: %s", s.Reason)
	case h.restoringAny != nil && h.restoringAny():
		return j17.Errorf(j17.CodeUnavailable, "The server has just started and not all environments are ready yet")
	case c.api.lost.Load() && purpose != "reads":
		return errLost()
	case !s.Writable && purpose != "reads":
		return j17.Errorf(j17.CodeUnavailable, "The server takes no writes: %s", s.Reason)
	}
	if purpose != "reads" { // damaged data are not served, and the rest can be read
		if err := c.api.errDamaged(); err != nil {
			return err
		}
	}
	if h.sign != "" {
		w.Header().Set(HeaderSign, h.sign)
	}
	return c.done(w, http.StatusOK, wire.Readiness{Store: replication(s.Replication)}, nil)
}

// replication shows how what is stored is replicated, nil for a store on this machine's disk.
func replication(r *store.Replication) *wire.Replication {
	if r == nil {
		return nil
	}
	return &wire.Replication{Mode: string(r.Mode), Standbys: r.Standbys, LagBytes: r.LagBytes, Async: r.Async}
}

// maxAdvance bounds one move of a development server's clock.
const maxAdvance = 10 * 365 * 24 * time.Hour

func (h *serverHandlers) advanceClock(c *call, w http.ResponseWriter) error {
	var body wire.Advance
	if err := c.decode(w, &body); err != nil {
		return err
	}
	by, err := time.ParseDuration(body.By)
	if delay, ok := spec.ParseDelay(body.By); ok { // as a spec says it, where there are days too
		by, err = delay, nil
	}
	if err != nil || by < 0 || by > maxAdvance {
		return j17.Errorf(j17.CodeInvalidField, "'by' must be a duration such as \"90s\", \"25h\", \"1h30m\" or \"7d\"; the clock moves forward only, by ten years at most").At("by")
	}

	// What becomes due on the way takes as long as it takes.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	now, err := h.advance(c.request.Context(), by)
	return c.done(w, http.StatusOK, wire.Advanced{Now: now}, err)
}
