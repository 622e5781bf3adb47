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

// listScheduled is GET scheduled.
func (h *scheduleHandlers) listScheduled(c *call, w http.ResponseWriter) error {
	of := schedule.Statuses()
	if status, ok := c.query["status"]; ok {
		of = []schedule.Status{schedule.Status(status)}
	}
	return h.scheduledPage(c, w, of)
}

// listDeadLetters is GET scheduled/dead_letters.
func (h *scheduleHandlers) listDeadLetters(c *call, w http.ResponseWriter) error {
	return h.scheduledPage(c, w, []schedule.Status{schedule.DeadLetter})
}

// scheduledPage answers with a page of the scheduled events with some statuses.
func (h *scheduleHandlers) scheduledPage(c *call, w http.ResponseWriter, of []schedule.Status) error {
	l := c.listing()
	rows, next, err := h.schedule.List(c.request.Context(), c.tenant, of, l.offset, l.limit)
	return page(c, w, "scheduled", rows, next, err)
}

// cancelScheduled is DELETE scheduled/{scheduled_id}.
func (h *scheduleHandlers) cancelScheduled(c *call, w http.ResponseWriter) error {
	return h.changeScheduled(c, w, "scheduled.cancel", h.schedule.Cancel)
}

// retryScheduled is POST scheduled/{scheduled_id}/retry.
func (h *scheduleHandlers) retryScheduled(c *call, w http.ResponseWriter) error {
	return h.changeScheduled(c, w, "scheduled.retry", h.schedule.Retry)
}

// changeScheduled changes a scheduled event and keeps who did.
func (*scheduleHandlers) changeScheduled(c *call, w http.ResponseWriter, action string, change func(context.Context, j17.Tenant, string) (wire.Scheduled, error)) error {
	changed, err := change(c.request.Context(), c.tenant, c.request.PathValue("scheduled_id"))
	if err != nil {
		return err
	}
	record := control.Record{Action: action, Instance: c.instance, Environment: c.env, Target: changed.ScheduledID}
	c.record(record)
	return c.answer(w, http.StatusOK, wire.ScheduledEvent{Scheduled: changed})
}
