package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17/internal/client"
	"j17/internal/wire"
)

func (e *env) listeners() *cobra.Command {
	return group("listener", "The listeners of an environment", e.listenerList(), e.listenerTrigger(), e.listenerDeliveries())
}

func (e *env) listenerList() *cobra.Command {
	return listCommand(e, listing[wire.Listener]{
		short: "List the listeners of an environment and how far they are", example: "  j17 listener list --env staging",
		path: "listeners", header: []string{"name", "status", "lag", "events", "url"},
		describe: func(l wire.Listener) []string {
			return []string{l.Name, l.Status, strconv.Itoa(l.Lag), strings.Join(l.Events, ", "), l.URL}
		},
	})
}

func (e *env) listenerTrigger() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "trigger NAME", Short: "Send a listener a made-up event",
		Long: `Send a listener a made-up event of the first of its patterns, signed like any other, and show what it answers. Nothing is stored,
and it is sent once.`,
		Example: "  j17 listener trigger accounting --env staging", Args: exactly("NAME"),
	}
	r := blobFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := e.operate(cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "listeners", args[0], "trigger")
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.Call(cmd.Context(), client.Request{Method: http.MethodPost, Path: append([]string{"api"}, path...)}, &raw); err != nil {
			return err
		}
		var answer wire.Triggered
		if err := json.Unmarshal(raw, &answer); err != nil {
			return err
		}

		// What it answered is shown whether it was the right thing or not.
		try := answer.Try
		if asJSON {
			err = e.printJSON(raw)
		} else if try.Status != nil {
			_, err = fmt.Fprintln(e.out, printable(fmt.Sprintf("%d after %.1f ms  %s", *try.Status, try.Millis, try.Response)))
		}
		if err == nil && !answer.Delivered {
			reason := "the endpoint did not take it"
			if try.Error != nil {
				reason = *try.Error
			}
			err = fmt.Errorf("the sample was not taken: %s", reason)
		}
		return err
	}
	return cmd
}
