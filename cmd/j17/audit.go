package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17/internal/base/wire"
)

func auditLogCommand(e *env) *cobra.Command {
	return group("audit", "Who has done what on a server, and whether data are what was stored", auditListCommand(e), auditExportCommand(e), auditKeysCommand(e), auditCheckpointCommand(e), auditProofCommand(e), auditVerifyCommand(e))
}

// auditFilter selects records of the audit log.
type auditFilter struct{ actor, action, target, outcome, from, to string }

func (a *auditFilter) flags(f *pflag.FlagSet) {
	f.StringVar(&a.actor, "actor", "", "only what `somebody` did: an id, an e-mail address, or operator, server, node, anonymous")
	f.StringVar(&a.action, "action", "", "only an `action` such as key.create, or key for all that begin with it")
	f.StringVar(&a.target, "target", "", "only what was done to something, by its `id`")
	f.StringVar(&a.outcome, "outcome", "", "only what was done, refused or failed")
	f.StringVar(&a.from, "from", "", "only from a `time` on: 2026-11-21 or 2026-11-21T08:00:00Z")
	f.StringVar(&a.to, "to", "", "only before a `time`")
}

// check reports what is wrong with the filter, as far as that can be known here.
func (a *auditFilter) check() error {
	err := oneOf("--outcome", a.outcome, "", "done", "refused", "failed")
	for flag, v := range map[string]string{"--from": a.from, "--to": a.to} {
		_, day := time.Parse(time.DateOnly, v)
		if _, moment := time.Parse(time.RFC3339, v); v != "" && day != nil && moment != nil {
			err = errors.Join(err, usageError{fmt.Errorf("%s %q is no time: give a day, such as 2026-11-21, or RFC 3339, such as 2026-11-21T08:00:00Z", flag, v)})
		}
	}
	return err
}

func (a *auditFilter) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{
		"actor": a.actor, "action": a.action, "target": a.target, "outcome": a.outcome, "from": a.from, "to": a.to,
	} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return q
}

// auditPath is where the log of an instance is, or that of all where no flag names one.
func (o *operating) auditPath(cmd *cobra.Command, r *remote, more ...string) ([]string, error) {
	path := []string{"audit"}
	if r.instance != "" {
		i, err := o.instance(cmd.Context(), r.instance)
		if err != nil {
			return nil, err
		}
		path = []string{"instances", i.ID, "audit"}
	}
	return append(path, more...), nil
}

func auditListCommand(e *env) *cobra.Command {
	var filter auditFilter
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List records of the audit log, newest first", Args: noArgs,
		Long:    "List records of the audit log, the newest first: of all instances that you may audit, or of one with --instance.",
		Example: "  j17 audit list --instance shop --action key --limit 20",
	}

	r := serverFlags(cmd)
	cmd.Flags().StringVar(&r.instance, "instance", "", "only what concerns an instance, by its `name`")
	filter.flags(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this `number` of records")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := filter.check(); err != nil {
			return err
		}
		if limit < 1 {
			return usageError{errors.New("--limit takes a whole number from 1 on")}
		}

		// Of the server, or of one instance where the flags name one.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.auditPath(cmd, r)
		if err != nil {
			return err
		}
		rows, err := o.rows(cmd.Context(), path, filter.query(), "records", limit)
		if err != nil {
			return err
		}
		return printRows(e, rows, asJSON, []string{"at", "action", "who", "environment", "target", "outcome"},
			func(a wire.Record) []string {
				outcome := a.Outcome
				if a.Code != "" {
					outcome += " (" + string(a.Code) + ")"
				}
				return []string{
					when(a.At), a.Action, cmp.Or(a.Actor.Email, a.Actor.ID, a.Actor.Kind), string(a.Environment),
					a.Target, outcome,
				}
			})
	}
	return cmd
}

func auditExportCommand(e *env) *cobra.Command {
	var filter auditFilter
	cmd := &cobra.Command{
		Use: "export", Short: "Print the audit log as lines of JSON, newest first", Args: noArgs,
		Example: "  j17 audit export --from 2026-11-01 --to 2026-12-01 > november.jsonl",
	}

	r := serverFlags(cmd)
	cmd.Flags().StringVar(&r.instance, "instance", "", "only what concerns an instance, by its `name`")
	filter.flags(cmd.Flags())

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := filter.check(); err != nil {
			return err
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.auditPath(cmd, r, "export")
		if err != nil {
			return err
		}
		body, _, err := o.Download(cmd.Context(), append([]string{"api"}, path...), filter.query())
		if err != nil {
			return o.explained(cmd.Context(), err)
		}
		_, err = io.Copy(e.out, body)
		return interrupted(cmd.Context(), errors.Join(err, body.Close()))
	}
	return cmd
}
