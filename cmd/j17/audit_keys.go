package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func auditKeysCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "keys", Short: "List the verifier keys of an environment's log, newest first", Args: noArgs,
		Long: `List the verifier keys of the log of an environment, the newest first: what 'j17 audit verify --key' takes. It takes an API key, as 'j17 state get'
does, or else the login of an operator who may see the instance, such as an auditor or a privacy officer. Get the keys once, on a way that you trust, and keep them: a key that comes with the file that it is to prove proves little.`,
		Example: "  j17 audit keys --env prod",
	}
	r := remoteFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}
		var answer struct {
			Keys []json.RawMessage `json:"keys"`
		}
		if err := c.Audit(cmd.Context(), []string{"keys"}, nil, &answer); err != nil {
			return c.explained(cmd.Context(), err)
		}
		return printRows(e, answer.Keys, asJSON, []string{"key", "status", "created", "retired"},
			func(k wire.LogKey) []string {
				return []string{k.VKey, k.Status, when(k.CreatedAt), when(k.RetiredAt)}
			})
	}
	return cmd
}
