package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/follow/schedule"
	"j17/internal/plane/control"
)

// listScheduled is GET scheduled.
func (c *call) listScheduled(w http.ResponseWriter) error {
	of := schedule.Statuses()
	if status, ok := c.query["status"]; ok {
		of = []schedule.Status{schedule.Status(status)}
	}
	return c.scheduledPage(w, of)
}

// listDeadLetters is GET scheduled/dead_letters.
func (c *call) listDeadLetters(w http.ResponseWriter) error {
	return c.scheduledPage(w, []schedule.Status{schedule.DeadLetter})
}

// scheduledPage answers with a page of the scheduled events with some statuses.
func (c *call) scheduledPage(w http.ResponseWriter, of []schedule.Status) error {
	l := c.listing()
	page, next, err := c.api.Schedule.List(c.request.Context(), c.tenant, of, l.offset, l.limit)
	if err != nil {
		return err
	}
	out := wire.ScheduledEvents{Scheduled: page}
	if page == nil {
		out.Scheduled = []wire.Scheduled{}
	}
	if next > 0 {
		out.Next = &next
	}
	return c.answer(w, http.StatusOK, out)
}

// cancelScheduled is DELETE scheduled/{scheduled_id}.
func (c *call) cancelScheduled(w http.ResponseWriter) error {
	return c.changeScheduled(w, "scheduled.cancel", c.api.Schedule.Cancel)
}

// retryScheduled is POST scheduled/{scheduled_id}/retry.
func (c *call) retryScheduled(w http.ResponseWriter) error {
	return c.changeScheduled(w, "scheduled.retry", c.api.Schedule.Retry)
}

// changeScheduled changes a scheduled event and keeps who did.
func (c *call) changeScheduled(w http.ResponseWriter, action string, change func(context.Context, j17.Tenant, string) (wire.Scheduled, error)) error {
	changed, err := change(c.request.Context(), c.tenant, c.request.PathValue("scheduled_id"))
	if err != nil {
		return err
	}
	record := control.Record{Action: action, Instance: c.instance, Environment: c.env, Target: changed.ScheduledID}
	if err := c.api.Registry.Audit.Add(context.WithoutCancel(c.actorContext()), record); err != nil {
		c.notAudited(record.Action, err)
	}
	return c.answer(w, http.StatusOK, wire.ScheduledEvent{Scheduled: changed})
}
