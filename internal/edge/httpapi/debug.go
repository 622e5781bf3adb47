package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
)

// debugHandlers help to look for faults of a spec and of its code.
type debugHandlers struct {
	deploy   *deploy.Service
	engine   *engine.Engine
	registry *control.Registry
}

// routes help to look for faults.
func (h *debugHandlers) routes() []route {
	inspect, operate := need{control.RightInspect, instance}, need{control.RightOperate, instance}
	return []route{
		{0, get, "debug", operator, inspect, "", h.getDebug, operation{
			id: "getDebug", about: "Get the trace settings", gives: wire.DebugState{},
		}},
		{0, post, "debug", operator, operate, "debug.set", h.setDebug, operation{
			id: "setDebug", about: "Trace custom code for a limited time", body: wire.Debugging{},
			gives: wire.DebugState{},
		}},
		{0, get, "implications/failed", operator, inspect, "", h.listFailedImplications, operation{
			id: "listFailedImplications", about: "List the writes that were refused because of implied events", query: paged(),
			gives: rows{"implications", decider.ImplicationFailure{}},
		}},
	}
}

func (h *debugHandlers) getDebug(c *call, w http.ResponseWriter) error {
	until, err := h.deploy.Tracing(c.instance, c.env)
	return c.done(w, http.StatusOK, wire.DebugState{Debug: wire.Debug{WASMTrace: !until.IsZero(), Until: until}}, err)
}

func (h *debugHandlers) setDebug(c *call, w http.ResponseWriter) error {
	var body wire.Debugging
	if err := c.decode(w, &body); err != nil {
		return err
	}
	most := int(deploy.MaxTrace / time.Minute)
	length := deploy.MaxTrace
	if m := body.Minutes; m != nil {
		if *m < 1 || *m > most {
			return j17.Errorf(j17.CodeInvalidField, "'minutes' must be a whole number from 1 to %d", most).At("minutes")
		}
		length = time.Duration(*m) * time.Minute
	}
	record := control.Record{
		Action: "debug.set", Instance: c.instance, Environment: c.env, Target: "wasm_trace",
		Details: map[string]string{"on": "true"},
	}
	if !body.WASMTrace {
		length, record.Details["on"] = 0, "false"
	}
	// The audit log names the person who makes event data appear in the log before any appear.
	if err := h.registry.Audit.Add(c.actorContext(), record); err != nil {
		return err
	}
	until, err := h.deploy.Trace(c.request.Context(), c.instance, c.env, length)
	return c.done(w, http.StatusOK, wire.DebugState{Debug: wire.Debug{WASMTrace: !until.IsZero(), Until: until}}, err)
}

// listFailedImplications lists the latest writes that were rejected because of what they implied.
func (h *debugHandlers) listFailedImplications(c *call, w http.ResponseWriter) error {
	l := c.listing()
	failed, _, err := h.engine.ImplicationFailures(c.request.Context(), c.tenant, l.offset, l.limit+1)
	return list(c, w, "implications", l, failed, err)
}
