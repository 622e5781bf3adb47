package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
)

func checkpointsCommand(e *env) *cobra.Command {
	return group("checkpoint", "States of aggregates, and roots of the log of all events, that are kept as of a position",
		checkpointCreateCommand(e), checkpointListCommand(e), checkpointShowCommand(e), checkpointRestoreCommand(e),
		checkpointDeleteCommand(e), checkpointRootCommand(e))
}

// showAnswer prints an answer as JSON, or as a line for people.
func showAnswer[T any](e *env, raw json.RawMessage, asJSON bool, line func(T) string) error {
	return printAs(e, raw, asJSON, onOneLine(line))
}

// ofCheckpoint names what a checkpoint covers.
func ofCheckpoint(c *wire.Checkpoint) string {
	switch {
	case c.Key != "":
		return c.Key
	case c.AggregateType != "":
		return "type " + c.AggregateType
	default:
		return "environment"
	}
}

// statusOf says how far a checkpoint is.
func statusOf(c *wire.Checkpoint) string {
	if c.Progress != nil && c.Error == "" && c.Progress.Total > 0 {
		return fmt.Sprintf("%s, %d of %d", c.Status, c.Progress.Done, c.Progress.Total)
	}
	return c.Status
}

func nameOf(c *wire.Checkpoint) string {
	if c.Name == nil {
		return ""
	}
	return *c.Name
}

func checkpointCreateCommand(e *env) *cobra.Command {
	var name, key, typ string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create", Short: "Create a checkpoint of the present states of aggregates", Args: noArgs,
		Long: `Create a checkpoint of the states that all aggregates of an environment have at one moment, or those of one type, or one aggregate. Its hash
is the SHA-256 of what 'j17 data export --of aggregates' prints of them at that moment.

The command waits until the checkpoint is made, and interrupting it cancels that; with --detach the server goes on by itself, and
'j17 checkpoint show' says how far it is.`,
		Example: "  j17 checkpoint create --name before-migration --env prod\n  j17 checkpoint create --type order",
	}
	var detach bool
	r := opsFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "what to call it, a `text`")
	f.StringVar(&key, "key", "", "one aggregate only, by its `key`: type:id")
	f.StringVar(&typ, "type", "", "one aggregate `type` only")
	f.BoolVar(&detach, "detach", false, "do not wait until it is made")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// What is to be kept.
		if key != "" && typ != "" {
			return usageError{errors.New("--key and --type exclude each other: a checkpoint is of one aggregate, of one type or of all")}
		}
		ask := wire.NewCheckpoint{Wait: new(bool)}
		for _, given := range []struct {
			text string
			into **string
		}{{name, &ask.Name}, {key, &ask.Key}, {typ, &ask.AggregateType}} {
			if given.text != "" {
				*given.into = &given.text
			}
		}

		// Request it, and show it.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsCall(cmd.Context(), http.MethodPost, ask, "checkpoints")
		if err == nil && !detach {
			raw, err = o.awaitCheckpoint(cmd.Context(), raw)
		}
		if err != nil {
			return err
		}
		return showAnswer(e, raw, asJSON, func(m wire.CheckpointMade) string {
			c := &m.Checkpoint
			if c.Progress != nil {
				return fmt.Sprintf("%s  is being made at %s", c.ID, c.Position)
			}
			return fmt.Sprintf("%s  %s at %s, %s", c.ID, j17.Count(c.Aggregates, "aggregate"), c.Position, c.StateHash)
		})
	}
	return cmd
}

// awaitCheckpoint shows how far a checkpoint is until it is made, and cancels it where the command is interrupted.
func (o *operating) awaitCheckpoint(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	watch := watchBuild(o.env, "keeping states")
	for first := true; ; first = false {
		m, err := decoded[wire.CheckpointMade](raw)
		if err != nil {
			return nil, err
		}
		c := &m.Checkpoint
		if c.Error != "" {
			return nil, fmt.Errorf("the checkpoint %s could not be made: %s", c.ID, plain(c.Error))
		}
		if c.Progress == nil {
			watch.end()
			return raw, nil
		}
		if !first { // most are made at once
			err = watch.pause(ctx, c.Progress.Done, c.Progress.Total)
		}
		if err == nil {
			raw, err = o.opsCall(ctx, http.MethodGet, nil, "checkpoints", c.ID)
		}
		if ctx.Err() != nil {
			if _, failed := o.opsCall(
				context.WithoutCancel(ctx), http.MethodDelete, nil, "checkpoints", c.ID,
			); failed == nil {
				o.env.note("The checkpoint was cancelled.\n")
			}
			return nil, interrupted(ctx, ctx.Err())
		}
		if err != nil {
			return nil, err
		}
	}
}

func checkpointListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.Checkpoint]{
		short: "List the checkpoints of an environment, newest first", example: "  j17 checkpoint list --env staging",
		path: "checkpoints", header: []string{"id", "name", "of", "status", "aggregates", "position", "created"},
		describe: func(c wire.Checkpoint) []string {
			return []string{
				c.ID, nameOf(&c), ofCheckpoint(&c), statusOf(&c), strconv.FormatUint(c.Aggregates, 10), c.Position,
				when(c.CreatedAt),
			}
		},
	})
}

func checkpointShowCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.CheckpointMade]{
		use: "show ID", short: "Show a checkpoint", example: "  j17 checkpoint show chk_4k7vx9tz2nqr8w3",
		method: http.MethodGet, path: "checkpoints/{}",
		show: onOneLine(func(m wire.CheckpointMade) string {
			c := &m.Checkpoint
			if c.Progress != nil {
				return fmt.Sprintf(
					"%s  %s, %s at %s, %s", c.ID, ofCheckpoint(c), cmp.Or(c.Error, statusOf(c)), c.Position,
					when(c.CreatedAt),
				)
			}
			return fmt.Sprintf(
				"%s  %s, %s at %s, %s, %s", c.ID, ofCheckpoint(c), j17.Count(c.Aggregates, "aggregate"), c.Position,
				c.StateHash, when(c.CreatedAt),
			)
		}),
	})
}

func checkpointRestoreCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "restore ID", Short: "Make the states of a checkpoint the base of replays", Args: exactly("ID"),
		Long: `Make the states of a checkpoint the base of replays, after they were compared with its hash. States of aggregates do not change by it: they
only take fewer events to compute. It is refused (exit code 4) where handlers have changed or events were erased since.

Interrupting the command ends it; what is a base by then stays one, and another 'restore' makes the rest one too.`,
		Example: "  j17 checkpoint restore chk_4k7vx9tz2nqr8w3",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.restoreCheckpoint(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return showAnswer(e, raw, asJSON, func(m wire.CheckpointRestored) string {
			return fmt.Sprintf("%s  a base for replays: the states of %s", m.Checkpoint.ID, j17.Count(m.Restored, "aggregate"))
		})
	}
	return cmd
}

// restoreCheckpoint restores a checkpoint, and shows the progress on a terminal.
func (o *operating) restoreCheckpoint(ctx context.Context, id string) (raw json.RawMessage, err error) {
	working, stop := context.WithCancel(ctx)
	var restoring sync.WaitGroup
	restoring.Go(func() {
		defer stop()
		raw, err = o.opsCall(ctx, http.MethodPost, nil, "checkpoints", id, "restore")
	})
	if watch := watchBuild(o.env, "using states"); watch.bar != nil {
		defer watch.end()
		for now := (wire.CheckpointProgress{}); watch.pause(working, now.Done, now.Total) == nil; {
			shown, failed := o.opsCall(working, http.MethodGet, nil, "checkpoints", id)
			if failed != nil {
				break // the restoration reports the error
			}
			if m, failed := decoded[wire.CheckpointMade](shown); failed == nil && m.Checkpoint.Restoring != nil {
				now = *m.Checkpoint.Restoring
			}
		}
	}
	restoring.Wait()
	return raw, err
}

func checkpointDeleteCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.CheckpointMade]{
		use: "delete ID", short: "Delete a checkpoint, or cancel one that is being made", example: "  j17 checkpoint delete chk_4k7vx9tz2nqr8w3",
		method: http.MethodDelete, path: "checkpoints/{}",
		show: onOneLine(func(m wire.CheckpointMade) string { return m.Checkpoint.ID + "  deleted" }),
	})
}

func checkpointRootCommand(e *env) *cobra.Command {
	return group("root", "Roots of the log of all events, with which somebody can show later that nothing was changed",
		rootCreateCommand(e), rootListCommand(e), rootDeleteCommand(e), rootSettingsCommand(e))
}

// rootLine is a root checkpoint for people.
func rootLine(r *wire.RootCheckpoint) string {
	return fmt.Sprintf(
		"%s  %s up to %s, %s, %s", r.ID, j17.Count(r.Size, "event"), r.Position, j17.Count(r.Aggregates, "aggregate"),
		r.Root,
	)
}

func rootCreateCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "create", Short: "Record the root of the log of all events", Example: "  j17 checkpoint root create --env prod --json", Args: noArgs}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsCall(cmd.Context(), http.MethodPost, nil, "root-checkpoints")
		if err != nil {
			return err
		}
		return showAnswer(e, raw, asJSON, func(m wire.RootCheckpointMade) string { return rootLine(&m.RootCheckpoint) })
	}
	return cmd
}

func rootListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.RootCheckpoint]{
		short: "List the recorded roots, newest first", example: "  j17 checkpoint root list --env prod",
		path: "root-checkpoints", header: []string{"id", "reason", "events", "position", "root", "created"},
		describe: func(c wire.RootCheckpoint) []string {
			return []string{c.ID, c.Reason, strconv.FormatUint(c.Size, 10), c.Position, c.Root, when(c.CreatedAt)}
		},
	})
}

func rootDeleteCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.RootCheckpointMade]{
		use: "delete ID", short: "Delete a recorded root", example: "  j17 checkpoint root delete chk_4k7vx9tz2nqr8w3",
		method: http.MethodDelete, path: "root-checkpoints/{}",
		show: onOneLine(func(m wire.RootCheckpointMade) string { return m.RootCheckpoint.ID + "  deleted" }),
	})
}

func rootSettingsCommand(e *env) *cobra.Command {
	var asJSON, enabled bool
	var events, hours, keep uint64
	cmd := &cobra.Command{
		Use: "settings", Short: "Show or change when roots are recorded automatically", Args: noArgs,
		Long: `Show when roots of the log are recorded automatically, or change what the flags say: after so many events and after so many hours, if there
are new events; and how many of these roots are kept.`,
		Example: "  j17 checkpoint root settings --enabled --every-events 10000 --every-hours 6 --keep 100",
	}

	// The settings that can be given.
	r := opsFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&enabled, "enabled", false, "whether roots are noted by themselves; --enabled=false turns it off")
	f.Uint64Var(&events, "every-events", 0, "after how many events, a `number`")
	f.Uint64Var(&hours, "every-hours", 0, "after how many hours, a `number`")
	f.Uint64Var(&keep, "keep", 0, "how many are kept of those that were noted by themselves, a `number`")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Settings that were given are changed; without any, the present ones are read.
		method, body := http.MethodGet, any(nil)
		var change wire.RootCheckpointSettingsChange
		for name, take := range map[string]func(){
			"enabled": func() { change.Enabled = &enabled }, "every-events": func() { change.EveryEvents = &events },
			"every-hours": func() { change.EveryHours = &hours }, "keep": func() { change.Keep = &keep },
		} {
			if f.Changed(name) {
				take()
				method, body = http.MethodPut, &change
			}
		}

		// The present settings.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsCall(cmd.Context(), method, body, "root-checkpoint-settings")
		if err != nil {
			return err
		}
		return showAnswer(e, raw, asJSON, func(m wire.RootCheckpointSettingsShown) string {
			set := &m.Settings
			if !set.Enabled {
				return fmt.Sprintf(
					"off (every %s, every %s, keep %d)", j17.Count(set.EveryEvents, "event"),
					j17.Count(set.EveryHours, "hour"), set.Keep,
				)
			}
			return fmt.Sprintf(
				"every %s, every %s, keep %d", j17.Count(set.EveryEvents, "event"), j17.Count(set.EveryHours, "hour"),
				set.Keep,
			)
		})
	}
	return cmd
}
