package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func scheduledCommand(e *env) *cobra.Command {
	return group("scheduled", "Events that are to come later, and what became of them", scheduledListCommand(e), scheduledCancelCommand(e), scheduledRetryCommand(e))
}

func scheduledListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.Scheduled]{
		short: "List the scheduled events of an environment, the latest first", example: "  j17 scheduled list --status dead_letter",
		path: "scheduled", header: scheduledHeader(), describe: describeScheduled, limit: newestRows,
		filters: []rowFilter{withStatus("pending", "fired", "canceled", "refused", "dead_letter")},
	})
}

func scheduledHeader() []string {
	return []string{"id", "status", "at", "event", "scheduled by", "attempts", "error"}
}

func describeScheduled(s wire.Scheduled) []string {
	at, fault := s.FireAt, ""
	if t, err := time.Parse(time.RFC3339, at); err == nil {
		at = moment(t)
	}
	if s.LastError != nil {
		fault = *s.LastError
	}
	event := s.Emit.AggregateType + ":" + s.Emit.ID + " " + s.Emit.EventType
	return []string{
		s.ScheduledID, s.Status, at, event, s.ImpliedBy.Key + " " + s.ImpliedBy.EventType, strconv.Itoa(s.Attempts),
		fault,
	}
}

func scheduledCancelCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.ScheduledEvent]{
		use: "cancel ID", short: "Cancel a scheduled event, or give one up that could not be written", example: "  j17 scheduled cancel sch_4k7vx9tz2nqr8w3",
		long: `Cancel a scheduled event that is pending, or give a dead letter up: it then never comes, and no retry brings it back. One that is over cannot be
cancelled (exit code 4).`,
		method: http.MethodDelete, path: "scheduled/{}", confirm: "Cancel the scheduled event {} for good?", show: inOneRow(scheduledHeader, scheduledRow),
	})
}

func scheduledRetryCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.ScheduledEvent]{
		use: "retry ID", short: "Retry a scheduled event that was given up or refused", example: "  j17 scheduled retry sch_4k7vx9tz2nqr8w3",
		long:   "Try a dead letter again, or an event that its aggregate has refused: at once, with no attempts counted. Others cannot be tried again (exit code 4).",
		method: http.MethodPost, path: "scheduled/{}/retry", show: inOneRow(scheduledHeader, scheduledRow),
	})
}

func scheduledRow(shown wire.ScheduledEvent) []string { return describeScheduled(shown.Scheduled) }
