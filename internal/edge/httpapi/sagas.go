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

// routes administer sagas.
func (h *sagaHandlers) routes() []route {
	inspect, operate := need{control.RightInspect, instance}, need{control.RightOperate, instance}
	return []route{
		{0, get, "sagas", operator, inspect, "", h.listSagas, operation{
			id: "listSagas", about: "List the sagas, newest first", query: pagedSagas(),
			gives: rows{"sagas", wire.Saga{}},
		}},
		{0, get, "sagas/{saga}", operator, inspect, "", h.getSaga, operation{
			id: "getSaga", about: "Get a saga with its history", gives: wire.SagaDetail{},
		}},
		{0, post, "sagas/{saga}/retry", operator, operate, "saga.retry", h.retrySaga, operation{
			id: "retrySaga", about: "Retry a saga that has failed or was given up", gives: wire.SagaDetail{},
		}},
	}
}

// listSagas is GET sagas: those of the environment that the path or the host names, or of the instance's environment
// that is asked for.
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

func (h *sagaHandlers) getSaga(c *call, w http.ResponseWriter) error {
	g, err := h.sagas.Get(c.request.Context(), c.tenant, c.request.PathValue("saga"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, g.Detail())
}

func (h *sagaHandlers) retrySaga(c *call, w http.ResponseWriter) error {
	g, err := h.sagas.Retry(c.request.Context(), c.tenant, c.request.PathValue("saga"))
	if err != nil {
		return err
	}
	c.record("saga.retry", g.ID, map[string]string{"type": g.Type})
	return c.answer(w, http.StatusOK, g.Detail())
}
