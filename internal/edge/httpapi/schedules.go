package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/follow/schedule"
	"j17/internal/plane/control"
)

// scheduleHandlers administer scheduled events.
type scheduleHandlers struct {
	schedule *schedule.Service
}

// routes administer events that come later.
func (h *scheduleHandlers) routes() []route {
	inspect, operate := need{control.RightInspect, instance}, need{control.RightOperate, instance}
	return []route{
		{0, get, "scheduled", operator, inspect, "", h.listScheduled, operation{
			id: "listScheduled", about: "List the scheduled events and their outcomes, latest first",
			query: pagedScheduled(), gives: wire.ScheduledEvents{},
		}},
		{0, get, "scheduled/dead_letters", operator, inspect, "", h.listDeadLetters, operation{
			id: "listDeadLetters", about: "List the scheduled events that were given up", query: paged(),
			gives: wire.ScheduledEvents{},
		}},
		{0, get, "scheduled/dead", operator, inspect, "", h.listDeadLetters, operation{
			id: "listDead", about: "List the scheduled events that were given up, as dead_letters", query: paged(),
			gives: wire.ScheduledEvents{},
		}},
		{0, remove, "scheduled/{scheduled_id}", operator, operate, "scheduled.cancel", h.cancelScheduled, operation{
			id: "cancelScheduled", about: "Cancel a scheduled event", gives: wire.ScheduledEvent{},
		}},
		{
			0, post, "scheduled/{scheduled_id}/cancel", operator, operate, "scheduled.cancel", h.cancelScheduled,
			operation{
				id: "postCancelScheduled", about: "Cancel a scheduled event, as DELETE does", body: struct{}{},
				optional: true, gives: wire.ScheduledEvent{},
			},
		},
		{0, post, "scheduled/{scheduled_id}/retry", operator, operate, "scheduled.retry", h.retryScheduled, operation{
			id: "retryScheduled", about: "Retry a scheduled event that was given up or refused", body: struct{}{},
			optional: true, gives: wire.ScheduledEvent{},
		}},
	}
}

func (h *scheduleHandlers) listScheduled(c *call, w http.ResponseWriter) error {
	of := schedule.Statuses()
	if status, ok := c.query["status"]; ok {
		of = []schedule.Status{schedule.Status(status)}
	}
	return h.scheduledPage(c, w, of)
}

func (h *scheduleHandlers) listDeadLetters(c *call, w http.ResponseWriter) error {
	return h.scheduledPage(c, w, []schedule.Status{schedule.DeadLetter})
}

// scheduledPage answers with a page of the scheduled events with some statuses.
func (h *scheduleHandlers) scheduledPage(c *call, w http.ResponseWriter, of []schedule.Status) error {
	l := c.listing()
	rows, next, err := h.schedule.List(c.request.Context(), c.tenant, of, l.offset, l.limit)
	return page(c, w, "scheduled", rows, next, err)
}

func (h *scheduleHandlers) cancelScheduled(c *call, w http.ResponseWriter) error {
	return h.changeScheduled(c, w, "scheduled.cancel", h.schedule.Cancel)
}

func (h *scheduleHandlers) retryScheduled(c *call, w http.ResponseWriter) error {
	return h.changeScheduled(c, w, "scheduled.retry", h.schedule.Retry)
}

// changeScheduled changes a scheduled event and records the operator.
func (*scheduleHandlers) changeScheduled(
	c *call, w http.ResponseWriter, action string,
	change func(context.Context, j17.Tenant, string) (wire.Scheduled, error),
) error {
	changed, err := change(c.request.Context(), c.tenant, c.request.PathValue("scheduled_id"))
	if err != nil {
		return err
	}
	c.record(action, changed.ScheduledID, nil)
	return c.answer(w, http.StatusOK, wire.ScheduledEvent{Scheduled: changed})
}
