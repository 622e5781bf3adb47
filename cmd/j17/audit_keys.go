package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
	"j17/internal/edge/client"
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
		s, err := e.connection(r)
		if err != nil {
			return err
		}
		var answer struct {
			Keys []json.RawMessage `json:"keys"`
		}
		if s.key.value == "" && s.token.value != "" {
			err = keysForOperator(e, cmd, r, &answer)
		} else {
			err = keysForClient(cmd.Context(), e, r, &answer)
		}
		if err != nil {
			return err
		}
		return printRows(e, answer.Keys, asJSON, []string{"key", "status", "created", "retired"}, func(k wire.LogKey) []string {
			return []string{k.VKey, k.Status, when(k.CreatedAt), when(k.RetiredAt)}
		})
	}
	return cmd
}

// keysForClient asks with an API key.
func keysForClient(ctx context.Context, e *env, r *remote, into any) error {
	c, err := e.connect(r)
	if err != nil {
		return err
	}
	return interrupted(ctx, c.Call(ctx, client.Request{Path: []string{"_audit", "keys"}}, into))
}

// keysForOperator asks with the login of an operator.
func keysForOperator(e *env, cmd *cobra.Command, r *remote, into any) error {
	o, err := operate(e, cmd, r)
	if err != nil {
		return err
	}
	path, err := o.opsPath(cmd.Context(), "audit", "keys")
	if err != nil {
		return err
	}
	return o.call(cmd.Context(), http.MethodGet, path, nil, nil, into)
}
