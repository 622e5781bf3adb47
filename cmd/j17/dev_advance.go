package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

func devAdvanceCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "advance DURATION", Short: "Move the clock of a running development server forward",
		Long: `Move the clock of a running 'j17 dev' forward, as by 90s, 1h30m, 25h or 7d. What becomes due on the way is done in its order, before the command
ends: scheduled events are written, sagas go on, deliveries are tried again. The server is that of the data folder.`,
		Example: "  j17 dev advance 25h\n  j17 dev advance 7d --data j17-data-orders", Args: exactly("DURATION"),
	}
	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		err = o.change(cmd.Context(), true, func() error {
			return o.Call(cmd.Context(), client.Request{
				Method: http.MethodPost, Path: []string{"_dev", "clock", "advance"}, Body: wire.Advance{By: args[0]},
			}, &raw)
		})
		refused, ok := errors.AsType[*j17.Error](err)
		switch {
		case ok && refused.Code == j17.CodeNotFound:
			return fmt.Errorf("the clock of %s cannot be moved: it is no development server, which 'j17 dev' is", o.connection.url.value)
		case ok && refused.Code == j17.CodeInvalidField:
			return usageError{errors.New(strings.Replace(refused.Message, "'by'", "DURATION", 1))}
		case err != nil:
			return err
		}
		return showAnswer(e, raw, asJSON, func(a wire.Advanced) string { return "It is " + moment(a.Now) + " now." })
	}
	return cmd
}
