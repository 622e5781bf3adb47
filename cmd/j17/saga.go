package main

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

// newestRows is how many rows are shown of lists that grow with the events.
const newestRows = 100

func sagasCommand(e *env) *cobra.Command {
	return group("saga", "Workflows of several steps, and how far they are", sagaListCommand(e), sagaShowCommand(e), sagaRetryCommand(e))
}

func sagaListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.Saga]{
		short: "List the sagas of an environment, newest first", example: "  j17 saga list --status failed --env staging",
		path: "sagas", header: sagaHeader(), describe: describeSaga, limit: newestRows,
		filters: []rowFilter{
			withStatus("queued", "running", "completed", "failed", "dead_lettered"),
			{name: "type", usage: "only those of this `name` in the spec"},
		},
	})
}

func sagaHeader() []string { return []string{"id", "type", "status", "step", "started", "trigger"} }

func describeSaga(g wire.Saga) []string {
	step, started := "", ""
	if g.CurrentStep != nil {
		step = *g.CurrentStep
	} else if g.Error != nil {
		step = g.Error.Step
	}
	if g.StartedAt != nil {
		started = ofUnix(*g.StartedAt)
	}
	return []string{g.SagaID, g.Type, g.Status, step, started, g.Trigger.Key + " " + g.Trigger.EventType}
}

// ofUnix turns Unix seconds of the server into a time for people, 0 into "".
func ofUnix(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	return moment(time.Unix(seconds, 0))
}

func sagaShowCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.SagaDetail]{
		use: "show ID", short: "Show a saga, with its steps and its history", example: "  j17 saga show sag_4k7vx9tz2nqr8w3",
		method: http.MethodGet, path: "sagas/{}", show: printSaga,
	})
}

func sagaRetryCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.SagaDetail]{
		use: "retry ID", short: "Retry a saga that has failed or was given up", example: "  j17 saga retry sag_4k7vx9tz2nqr8w3",
		long: `Retry a saga: one that has failed from the step that failed, without repeating what was undone, and one that was given up from the event that
was refused. Any other saga is left as it is (exit code 4).`,
		method: http.MethodPost, path: "sagas/{}/retry", show: printSaga,
	})
}

// printSaga prints a saga with its steps.
func printSaga(e *env, g wire.SagaDetail) error {
	if err := e.printTable(sagaHeader(), [][]string{describeSaga(g.Saga)}); err != nil {
		return err
	}
	if g.Error != nil {
		if _, err := fmt.Fprintf(e.out, "%s: %s\n", plain(g.Error.Step), plain(g.Error.Message)); err != nil {
			return err
		}
	}

	// How far each step is, and how that has come.
	steps := make([][]string, len(g.Steps))
	for i, s := range g.Steps {
		steps[i] = []string{s.Name, s.Status, ofUnix(cmp.Or(s.CompletedAt, s.WaitingSince))}
	}
	timeline := make([][]string, len(g.Timeline))
	for i, entry := range g.Timeline {
		timeline[i] = []string{ofUnix(entry.At), entry.What, entry.Step, entry.StreamID, entry.Error}
	}
	if err := e.printFurther([]string{"step", "status", "since"}, steps); err != nil {
		return err
	}
	return e.printFurther([]string{"at", "what", "step", "event", "error"}, timeline)
}
