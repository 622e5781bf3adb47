package main

import (
	"encoding/json"
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
	return []string{s.ScheduledID, s.Status, at, event, s.ImpliedBy.Key + " " + s.ImpliedBy.EventType, strconv.Itoa(s.Attempts), fault}
}

func scheduledCancelCommand(e *env) *cobra.Command {
	var yes bool
	cmd := opsCommand(e,
		&cobra.Command{
			Use: "cancel ID", Short: "Cancel a scheduled event, or give one up that could not be written", Example: "  j17 scheduled cancel sch_4k7vx9tz2nqr8w3",
			Long: `Cancel a scheduled event that is pending, or give a dead letter up: it never comes then, and no retry brings it back. What is over cannot be
cancelled (exit code 4).`,
		},
		http.MethodDelete, func(id string) []string { return []string{"scheduled", id} }, func(raw json.RawMessage, asJSON bool) error { return printScheduled(e, raw, asJSON) },
	)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cancel := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := e.confirm(cmd.Context(), yes, "Cancel the scheduled event "+plain(args[0])+" for good?"); err != nil {
			return err
		}
		return cancel(cmd, args)
	}
	return cmd
}

func scheduledRetryCommand(e *env) *cobra.Command {
	return opsCommand(e,
		&cobra.Command{
			Use: "retry ID", Short: "Try a scheduled event again that was given up or refused", Example: "  j17 scheduled retry sch_4k7vx9tz2nqr8w3",
			Long: "Try a dead letter again, or an event that its aggregate has refused: at once, with no attempts counted. Others cannot be tried again (exit code 4).",
		},
		http.MethodPost, func(id string) []string { return []string{"scheduled", id, "retry"} }, func(raw json.RawMessage, asJSON bool) error { return printScheduled(e, raw, asJSON) },
	)
}

// printScheduled prints the answer that has a scheduled event.
func printScheduled(e *env, raw json.RawMessage, asJSON bool) error {
	if asJSON {
		return e.printAnswer(raw)
	}
	shown, err := decoded[wire.ScheduledEvent](raw)
	if err != nil {
		return err
	}
	return e.printTable(scheduledHeader(), [][]string{describeScheduled(shown.Scheduled)})
}
