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
	if err != nil {
		return err
	}
	shapes := make([]wire.Saga, len(found))
	for i, g := range found {
		shapes[i] = sagaShape(g)
	}
	return list(c, w, "sagas", l, shapes)
}

// getSaga is GET sagas/{saga}.
func (h *sagaHandlers) getSaga(c *call, w http.ResponseWriter) error {
	g, err := h.sagas.Get(c.request.Context(), c.tenant, c.request.PathValue("saga"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, sagaDetail(g))
}

// retrySaga is POST sagas/{saga}/retry.
func (h *sagaHandlers) retrySaga(c *call, w http.ResponseWriter) error {
	g, err := h.sagas.Retry(c.request.Context(), c.tenant, c.request.PathValue("saga"))
	if err != nil {
		return err
	}
	rec := control.Record{Action: "saga.retry", Instance: c.instance, Environment: c.env, Target: g.ID, Details: map[string]string{"type": g.Type}}
	c.record(rec)
	return c.answer(w, http.StatusOK, sagaDetail(g))
}

// sagaShape is a saga as lists show it.
func sagaShape(g *saga.Saga) wire.Saga {
	shape := wire.Saga{
		SagaID: g.ID, Type: g.Type, Status: string(g.Status), SpecVersion: g.Version,
		Trigger: wire.SagaTrigger(g.Trigger), Steps: make([]wire.SagaStep, len(g.Steps)),
	}
	if step := g.CurrentStep(); step != "" {
		shape.CurrentStep = &step
	}
	if g.StartedAt != 0 {
		shape.StartedAt = &g.StartedAt
	}
	for i, s := range g.Steps {
		shape.Steps[i] = wire.SagaStep{Name: s.Name, Status: string(s.Status), WaitingSince: s.WaitingSince, CompletedAt: s.CompletedAt}
	}
	if e := g.Error; e != nil {
		shape.Error = &wire.SagaError{Step: e.Step, Code: e.Code, Requirement: e.Requirement, Message: e.Sentence()}
	}
	return shape
}

// sagaDetail is a saga with its timeline.
func sagaDetail(g *saga.Saga) wire.SagaDetail {
	shape := wire.SagaDetail{Saga: sagaShape(g), Timeline: make([]wire.SagaEntry, len(g.Timeline))}
	for i, e := range g.Timeline {
		shape.Timeline[i] = wire.SagaEntry{At: e.At, What: string(e.What), Step: e.Step, StreamID: e.StreamID, Error: e.Error}
	}
	return shape
}
