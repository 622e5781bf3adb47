package httpapi

import (
	"net/http"
	"slices"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/custody/attention"
	"j17/internal/plane/control"
)

// attentionHandlers tell what goes on in an environment, and what waits for a person.
type attentionHandlers struct {
	attention *attention.Service
	registry  *control.Registry
}

// routes tell what goes on.
func (h *attentionHandlers) routes() []route {
	read, inspect, operate := need{control.RightRead, instance}, need{control.RightInspect, instance},
		need{control.RightOperate, instance}
	return []route{
		{0, get, "overview", operator, read, "", h.getOverview, operation{
			id: "getOverview", about: "Get what goes on in an environment: rates, consumers, what is due, what runs", gives: wire.Overview{},
		}},
		{0, get, "attention", operator, inspect, "", h.listAttention, operation{
			id: "listAttention", about: "List all that waits for a person, by its cause, newest first", gives: wire.AttentionList{},
		}},
		{0, post, "attention/retry", operator, operate, "attention.retry", h.retryAttention, operation{
			id: "retryAttention", about: "Retry all that waits for one cause, or count it", body: wire.AttentionRetry{},
			gives: wire.AttentionRetried{}, accepted: wire.AttentionRetried{},
		}},
	}
}

// getOverview is GET overview, without the parts that the caller may not read at their own routes.
func (h *attentionHandlers) getOverview(c *call, w http.ResponseWriter) error {
	o, err := h.attention.Overview(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	if !h.may(c, control.RightInspect) {
		o.Schedule, o.Sagas, o.Backup, o.Disk = nil, nil, nil, nil
		o.Consumers = slices.DeleteFunc(slices.Clone(o.Consumers), func(x wire.Consumer) bool {
			return x.Kind == "listener" || x.Kind == "saga" || x.Kind == "schedule"
		})
	}
	if !h.may(c, control.RightAudit) {
		o.RootCheckpoint = nil
	}
	return c.answer(w, http.StatusOK, o)
}

// may reports whether the caller has a right in the instance. A node asks on behalf of an operator, whom it names;
// without a name it has the right itself.
func (h *attentionHandlers) may(c *call, right control.Right) bool {
	if c.principal.Kind == j17.Node && c.principal.ID == "" {
		return true
	}
	return h.registry.Operators.May(c.principal.ID, c.instance, right)
}

func (h *attentionHandlers) listAttention(c *call, w http.ResponseWriter) error {
	all, err := h.attention.Causes(c.request.Context(), c.tenant)
	return c.done(w, http.StatusOK, wire.AttentionList{Attention: all}, err)
}

// maxCause is longer than any cause.
const maxCause = 8 << 10

func (h *attentionHandlers) retryAttention(c *call, w http.ResponseWriter) error {
	var body wire.AttentionRetry
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.Cause == "" || len(body.Cause) > maxCause {
		return j17.Errorf(j17.CodeInvalidField, "'cause' must be that of one of the rows of GET attention").At("cause")
	}
	if body.DryRun {
		n, err := h.attention.Count(c.request.Context(), c.tenant, body.Kind, body.Cause)
		return c.done(w, http.StatusOK, wire.AttentionRetried{Count: n}, err)
	}
	n, err := h.attention.Retry(c.actorContext(), c.tenant, body.Kind, body.Cause)
	return c.done(w, http.StatusAccepted, wire.AttentionRetried{Count: n}, err)
}
