package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
	"j17/internal/follow/outbound"
)

func listenersCommand(e *env) *cobra.Command {
	return group("listener", "The listeners of an environment", listenerListCommand(e), listenerPauseCommand(e),
		listenerResumeCommand(e), listenerRotateCommand(e), listenerReplayCommand(e),
		listenerTriggerCommand(e), listenerDeliveriesCommand(e))
}

func listenerListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.Listener]{
		short: "List the listeners of an environment with their progress; --json has their secrets", note: "Their secrets are in --json.", example: "  j17 listener list --env staging",
		path: "listeners", header: listenerHeader(), describe: describeListener,
	})
}

func listenerHeader() []string { return []string{"name", "status", "lag", "events", "url"} }

func describeListener(l wire.Listener) []string {
	return []string{l.Name, l.Status, strconv.Itoa(l.Lag), strings.Join(l.Events, ", "), l.URL}
}

func listenerPauseCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.ListenerChanged]{
		use: "pause NAME", short: "Pause a listener until it is resumed", example: "  j17 listener pause accounting --env prod",
		method: http.MethodPost, path: "listeners/{}/pause", show: inOneRow(listenerHeader, changedListener),
	})
}

func listenerResumeCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.ListenerChanged]{
		use: "resume NAME", short: "Resume a listener that was paused or disabled, where it stopped", example: "  j17 listener resume accounting --env prod",
		method: http.MethodPost, path: "listeners/{}/resume", show: inOneRow(listenerHeader, changedListener),
	})
}

func listenerRotateCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.ListenerChanged]{
		use: "rotate-secret NAME", short: "Rotate the secret of a listener, and print the new one", example: "  j17 listener rotate-secret accounting --env prod",
		long:   "Give a listener a new secret, and print it. For a day messages are signed with the previous one as well.",
		method: http.MethodPost, path: "listeners/{}/rotate_secret",
		show: onOneLine(func(m wire.ListenerChanged) string { return m.Listener.Secret }),
	})
}

func changedListener(m wire.ListenerChanged) []string { return describeListener(m.Listener) }

func listenerReplayCommand(e *env) *cobra.Command {
	var ask wire.ListenerReplay
	var asJSON bool
	cmd := &cobra.Command{
		Use: "replay NAME", Short: "Replay events to a listener", Args: exactly("NAME"),
		Long:    "Replay events to a listener, in their order, as new deliveries. With --dry-run the command only counts them.",
		Example: "  j17 listener replay accounting --after 0 --dry-run\n  j17 listener replay accounting --after 1706789012345-0 --only failed",
	}
	r := opsFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&ask.After, "after", "", "from behind an event on, by its `stream_id`; 0 for the first one")
	f.StringVar(&ask.Until, "until", "", "up to an event, by its `stream_id`")
	f.StringVar(&ask.Only, "only", "", "failed for those that it was not told")
	f.BoolVar(&ask.DryRun, "dry-run", false, "tell how many there are, and send nothing")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if ask.After == "" {
			return usageError{errors.New("--after says behind which event to begin: the stream_id of one, or 0 for all there are")}
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		o.scratch = ask.DryRun // nothing is changed
		raw, err := o.opsCall(cmd.Context(), http.MethodPost, ask, "listeners", args[0], "replay")
		if err != nil {
			return err
		}
		return showAnswer(e, raw, asJSON, func(m wire.ListenerReplayed) string {
			if m.DryRun {
				return j17.Count(uint64(max(m.Count, 0)), "event") + " would be told again"
			}
			return j17.Count(uint64(max(m.Count, 0)), "event") + " to be told again"
		})
	}
	return cmd
}

func listenerTriggerCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "trigger NAME", Short: "Send a test event to a listener",
		Long: `Send a listener a test event of the first of its patterns, signed like any other, and show what it answers. Nothing is stored,
and it is sent once.`,
		Example: "  j17 listener trigger accounting --env staging", Args: exactly("NAME"),
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "listeners", args[0], "trigger")
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.Call(
			cmd.Context(), client.Request{Method: http.MethodPost, Path: append([]string{"api"}, path...)}, &raw,
		); err != nil {
			return err
		}
		var answer wire.Triggered
		if err := json.Unmarshal(raw, &answer); err != nil {
			return err
		}

		// The endpoint's answer is shown whether it accepted the event or not.
		try := answer.Try
		if asJSON {
			err = e.printJSON(raw)
		} else if try.Status != nil {
			_, err = fmt.Fprintln(
				e.out, printable(fmt.Sprintf("%d after %.1f ms  %s", *try.Status, try.Millis, try.Response)),
			)
		}
		if err == nil && !answer.Delivered {
			reason := "the endpoint did not take it"
			if try.Error != nil {
				reason = *try.Error
			}
			if reason == outbound.ErrAddress.Error() {
				reason += ". 'j17 dev --allow-private-listeners' allows them; 'j17 serve' never does"
			}
			err = fmt.Errorf("the sample was not taken: %s", reason)
		}
		return err
	}
	return cmd
}
