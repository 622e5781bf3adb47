package httpapi

import (
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/follow/trace"
	"j17/internal/plane/control"
)

// traceHandlers show what has caused events, and what they have caused.
type traceHandlers struct {
	trace    *trace.Service
	registry *control.Registry
}

// adminRoutes are those of the administration of an environment.
func (h *traceHandlers) adminRoutes() []route {
	return []route{
		{0, get, "trace/{position}", operator, need{control.RightRead, instance}, "", h.getTrace, operation{
			id: "getTrace", about: "Get the graph of causes that an event belongs to", gives: wire.Trace{},
		}},
	}
}

// getTrace is GET trace/{position}.
func (h *traceHandlers) getTrace(c *call, w http.ResponseWriter) error {
	at, err := j17.ParseStreamID(c.request.PathValue("position"))
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "There is no event with this stream_id. GET events lists those that there are.")
	}

	// A node asks on behalf of an operator, whom it names; without a name it has the right itself.
	inspects := c.principal.Kind == j17.Node && c.principal.ID == "" ||
		h.registry.Operators.May(c.principal.ID, c.instance, control.RightInspect)
	graph, err := h.trace.Graph(c.request.Context(), c.tenant, at, inspects)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, graph)
}
