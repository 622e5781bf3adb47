package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/spec"
)

func specHistoryCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "history", Short: "List the versions of the spec of an environment, newest first", Args: noArgs,
		Example: "  j17 spec history --env staging",
	}

	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Of which environment.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		env, err := o.environment(j17.Prod)
		if err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}

		rows, err := o.rows(
			cmd.Context(), []string{"instances", i.ID, "spec", "history"}, url.Values{"environment": {string(env)}},
			"versions", 0,
		)
		if err != nil {
			return err
		}
		return printRows(e, rows, asJSON, []string{"version", "deployed", "by", "how", "hash", "note"},
			func(d wire.Deployment) []string {
				how := d.How
				if d.From != nil {
					how += fmt.Sprintf(" of %s v%d", d.From.Environment, d.From.Version)
				}
				if d.Forced {
					how += ", forced"
				}
				by := cmp.Or(d.DeployedBy.Email, d.DeployedBy.ID, d.DeployedBy.Kind)
				return []string{
					strconv.Itoa(d.Version), when(d.DeployedAt), by, how, d.Hash[:min(12, len(d.Hash))], d.Note,
				}
			})
	}
	return cmd
}

func specShowCommand(e *env) *cobra.Command {
	var version uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "Print the deployed spec of an environment, or an earlier version", Args: noArgs,
		Long:    "Print the deployed spec of an environment, or an earlier version, in the form of 'j17 spec fmt'. --json adds how it came to be.",
		Example: "  j17 spec show --env staging --version 2 > old.json",
	}

	r := opsFlags(cmd)
	versionFlag(cmd, &version, "the current one")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Of which environment.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		env, err := o.environment(j17.Prod)
		if err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}

		path := []string{"instances", i.ID, "spec"}
		if version > 0 {
			path = append(path, "versions", strconv.FormatUint(version, 10))
		}
		var raw json.RawMessage
		if err := o.call(
			cmd.Context(), http.MethodGet, path, url.Values{"environment": {string(env)}}, nil, &raw,
		); err != nil {
			return err
		}

		if asJSON {
			return e.printAnswer(raw)
		}

		// It is stored as it was deployed, and shown in the usual form.
		var answer struct {
			Spec json.RawMessage `json:"spec"`
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			return err
		}
		text, found := spec.Format(answer.Spec)
		if len(found) > 0 {
			return errors.New("the server's answer has no spec")
		}
		_, err = e.out.Write(append(bytes.TrimRight(text, "\n"), '\n'))
		return err
	}
	return cmd
}
