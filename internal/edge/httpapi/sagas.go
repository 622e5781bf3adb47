package httpapi

import (
	"cmp"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/follow/saga"
	"j17/internal/plane/control"
)

// sagaHandlers administer sagas.
type sagaHandlers struct {
	sagas *saga.Service
}

// listSagas is GET sagas: those of the environment that the path or the host names, or of the instance's environment that is asked
// for.
func (h *sagaHandlers) listSagas(c *call, w http.ResponseWriter) error {
	l := c.listing()
	t := j17.TenantOf(c.instance, cmp.Or(j17.Environment(c.query["environment"]), c.env))
	f := saga.Filter{Status: saga.Status(c.query["status"]), Type: c.query["type"]}
	found, err := h.sagas.List(c.request.Context(), t, f, l.offset, l.limit+1)
	rows := make([]wire.Saga, len(found))
	for i, g := range found {
		rows[i] = g.Wire()
	}
	return list(c, w, "sagas", l, rows, err)
}

// getSaga is GET sagas/{saga}.
func (h *sagaHandlers) getSaga(c *call, w http.ResponseWriter) error {
	g, err := h.sagas.Get(c.request.Context(), c.tenant, c.request.PathValue("saga"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, g.Detail())
}

// retrySaga is POST sagas/{saga}/retry.
func (h *sagaHandlers) retrySaga(c *call, w http.ResponseWriter) error {
	g, err := h.sagas.Retry(c.request.Context(), c.tenant, c.request.PathValue("saga"))
	if err != nil {
		return err
	}
	rec := control.Record{Action: "saga.retry", Instance: c.instance, Environment: c.env, Target: g.ID, Details: map[string]string{"type": g.Type}}
	c.record(rec)
	return c.answer(w, http.StatusOK, g.Detail())
}
