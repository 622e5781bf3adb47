package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func eventsShowCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show STREAM_ID", SuggestFor: []string{"get"}, ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Show one event, which version of its aggregate it made, and its neighbours there", Args: exactly("STREAM_ID"),
		Long: `Show one event of an environment: the event, the version of its aggregate that it made, and the stream ids of the events before and behind it in
that aggregate. It takes the login of an operator with the right read.

Exit code 6: there is no event with this stream_id.`,
		Example: "  j17 events show 1706789012345-0",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsRead(cmd.Context(), nil, "events", args[0])
		if err != nil {
			return err
		}
		return printAs(e, raw, asJSON, printEventShown)
	}
	return cmd
}

// printEventShown prints where an event stands, and then what it has.
func printEventShown(e *env, shown wire.EventShown) error {
	var ev struct {
		StreamID string          `json:"stream_id"`
		Key      string          `json:"key"`
		Type     string          `json:"type"`
		Data     json.RawMessage `json:"data"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(shown.Event, &ev); err != nil {
		return fmt.Errorf("the server sent an event that cannot be read: %w", err)
	}
	neighbour := func(at *string) string {
		if at == nil {
			return ""
		}
		return *at
	}
	return e.printTable([]string{"what", "is"}, [][]string{
		{"stream id", ev.StreamID},
		{"aggregate", ev.Key},
		{"type", ev.Type},
		{"version", strconv.FormatUint(shown.Length, 10)},
		{"previous", neighbour(shown.Previous)},
		{"next", neighbour(shown.Next)},
		{"data", string(ev.Data)},
		{"metadata", string(ev.Metadata)},
	})
}
