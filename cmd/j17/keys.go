package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
)

func keysCommand(e *env) *cobra.Command {
	return group("keys", "The API keys of an instance",
		keysListCommand(e), keysCreateCommand(e), keysRotateCommand(e), keysRevokeCommand(e),
		keysScheduleRevocationCommand(e))
}

func keysListCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the API keys of an instance, without their tokens",
		Long:    "List the API keys of an instance, without their tokens; with --env those of one environment.",
		Example: "  j17 keys list --env staging", Args: noArgs,
	}

	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	cmd.Flags().StringVar(&r.env, "env", "", "only those of an `environment`: prod, staging or test")
	statuses := withStatus("active", "scheduled", "revoked")
	status := statuses.text(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := statuses.check(*status); err != nil {
			return err
		}

		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		if _, err := o.connection.environment(); err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}

		// The server knows the states, this program the environments.
		q := url.Values{}
		if *status != "" {
			q.Set("status", *status)
		}
		raw, err := o.rows(cmd.Context(), []string{"instances", i.ID, "keys"}, q, "keys", 0)
		if err != nil {
			return err
		}
		if r.env != "" {
			rows, err := decodeRows[wire.Key](raw)
			if err != nil {
				return err
			}
			n := 0
			raw = slices.DeleteFunc(
				raw, func(json.RawMessage) bool { n++; return string(rows[n-1].Environment) != r.env },
			)
		}

		return printRows(e, raw, asJSON,
			[]string{"id", "name", "environment", "scope", "prefix", "status", "last used"}, func(k wire.Key) []string {
				if !k.RevokeAt.IsZero() && k.Status == "scheduled" {
					k.Status = "until " + when(k.RevokeAt)
				}
				used := ""
				if k.LastUsedAt != nil {
					used = when(*k.LastUsedAt)
				}
				return []string{k.ID, k.Name, string(k.Environment), string(k.Scope), k.Prefix, k.Status, used}
			})
	}
	return cmd
}

func keysCreateCommand(e *env) *cobra.Command {
	var scope string
	var save, asJSON bool
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an API key and show its token, this once",
		Long: `Create an API key for one environment. It may write as well as read, unless it has --scope read. The token is printed on standard output, once: the server keeps a hash of it only. With
--save it goes into the context as well, for the commands that read and write events.`,
		Example: "  j17 keys create backend --scope write --env staging\n  j17 keys create website --scope read --env staging\n  j17 keys create laptop --env staging --save", Args: exactly("NAME"),
	}

	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	environmentFlag(cmd, r)
	cmd.Flags().StringVar(&scope, "scope", "write", "what it may do: read or write")
	cmd.Flags().BoolVar(&save, "save", false, "keep it in the context")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := oneOf("--scope", scope, string(j17.ScopeRead), string(j17.ScopeWrite)); err != nil {
			return err
		}

		// Make sure that the key can be kept before there is one.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		if save && o.connection.chosen == nil {
			return usageError{errors.New("--save needs a context, and none is in use here: 'j17 login' makes one")}
		}
		env, err := o.environment(j17.Prod)
		if err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}
		if save && o.connection.chosen.Instance != "" && o.connection.chosen.Instance != i.Name {
			return usageError{fmt.Errorf("the context %s is for the instance %s: --save cannot keep a key of %s in it", o.connection.context.value, o.connection.chosen.Instance, i.Name)}
		}

		var raw json.RawMessage
		body := wire.NewKey{Name: args[0], Scope: j17.Scope(scope), Environment: env}
		if err := o.call(
			cmd.Context(), http.MethodPost, []string{"instances", i.ID, "keys"}, nil, body, &raw,
		); err != nil {
			return err
		}
		key, err := newKey(raw)
		if err != nil {
			return err
		}

		// The token is shown only once, so it is printed even if everything else fails.
		reportNewKey(e, &key, "")
		if save {
			o.connection.chosen.Instance = i.Name
			err = o.connection.keepKey(e, &key)
		}
		return errors.Join(err, printKey(e, &key, raw, asJSON))
	}
	return cmd
}

// newKey reads the answer that has a new key.
func newKey(raw json.RawMessage) (wire.MadeKey, error) {
	var key wire.MadeKey
	err := json.Unmarshal(raw, &key)
	if err == nil && key.Token == "" {
		err = errors.New("it has no token")
	}
	if err != nil {
		return key, fmt.Errorf("a key was made, but the server's answer cannot be read: %w. 'j17 keys list' shows the key, 'j17 keys revoke' revokes it", err)
	}
	return key, nil
}

// reportNewKey reports a new key before anything is done with it; replaced is the id of the key that it replaces, ""
// for none.
func reportNewKey(e *env, key *wire.MadeKey, replaced string) {
	what := "the key " + plain(key.ID) + " exists"
	if replaced != "" {
		what = fmt.Sprintf("the key %s is replaced by %s", plain(replaced), plain(key.ID))
	}
	e.reportChange("%s", what)
	e.hintUnprinted("Nobody has its token, which cannot be shown again: revoke it with 'j17 keys revoke %s' and create another one", plain(key.ID))
}

// keepKey stores a new key in the context, before any attempt to print it.
func (s *connection) keepKey(e *env, key *wire.MadeKey) error {
	s.chosen.keep(key.Environment, key.Token)
	if err := e.saveConfig(s.config); err != nil {
		return fmt.Errorf("the key %s exists, but the context %s does not have it: %w", plain(key.ID), s.context.value, err)
	}
	e.note("The context %s has the new key.\n", s.context.value)
	e.hintUnprinted("The context %s has the key", s.context.value)
	return nil
}

// printKey prints a new key: its token on standard output, what there is to know about it beside.
func printKey(e *env, key *wire.MadeKey, raw json.RawMessage, asJSON bool) error {
	if asJSON {
		return e.printAnswer(raw)
	}
	e.note("%s: %s key %q for %s. This is the only time that its token is shown.\n", plain(key.ID), plain(string(key.Scope)), key.Name, plain(string(key.Environment)))
	_, err := io.WriteString(e.out, plain(key.Token)+"\n")
	return err
}

func keysRotateCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rotate KEY_ID", Short: "Replace an API key: a new one is shown, the old one is revoked",
		Long: `Replace an API key by a new one with the same name, environment and scope. The old one is revoked in the same step. To have both for
a while, create another key and schedule the revocation of the old one.`,
		Example: "  j17 keys rotate key_4k7vx9tz2nqr8w3", Args: exactly("KEY_ID"),
	}

	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Whether the context has the old key can only be found out while that key is valid.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		kept, err := o.keeps(cmd.Context(), args[0])
		if err != nil {
			return err
		}

		var raw json.RawMessage
		if err := o.call(
			cmd.Context(), http.MethodPost, []string{"keys", args[0], "rotate"}, nil, nil, &raw,
		); err != nil {
			return err
		}
		key, err := newKey(raw)
		if err != nil {
			return err
		}

		// The token is shown only once, so it is printed even if everything else fails.
		reportNewKey(e, &key, args[0])
		if kept { // the old key in the context is no longer valid
			err = o.connection.keepKey(e, &key)
		}
		return errors.Join(err, printKey(e, &key, raw, asJSON))
	}
	return cmd
}

// keeps reports whether the context has the token of an API key.
func (o *operating) keeps(ctx context.Context, id string) (bool, error) {
	if o.connection.chosen == nil || len(o.connection.chosen.Keys) == 0 {
		return false, nil
	}
	var key wire.MadeKey
	if err := o.call(ctx, http.MethodGet, []string{"keys", id}, nil, nil, &key); err != nil {
		return false, err
	}
	return key.Prefix != "" && strings.HasPrefix(o.connection.chosen.Keys[key.Environment], key.Prefix), nil
}

func keysRevokeCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "revoke KEY_ID", Short: "Revoke an API key, with effect at once", Example: "  j17 keys revoke key_4k7vx9tz2nqr8w3", Args: exactly("KEY_ID"),
	}

	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return changeKey(e, cmd, r, http.MethodDelete, []string{"keys", args[0]}, nil, asJSON)
	}
	return cmd
}

func keysScheduleRevocationCommand(e *env) *cobra.Command {
	var at string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "schedule-revocation KEY_ID --at TIME", Short: "Schedule the revocation of an API key",
		Args:    exactly("KEY_ID"),
		Example: "  j17 keys schedule-revocation key_4k7vx9tz2nqr8w3 --at 2026-12-01T00:00:00Z\n  j17 keys schedule-revocation key_4k7vx9tz2nqr8w3 --at 48h",
	}

	r := serverFlags(cmd)
	cmd.Flags().StringVar(&at, "at", "", "`time` from which on it does not work: 2026-12-01T00:00:00Z, or from now, such as 48h; required")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var revokeAt time.Time
		if d, err := time.ParseDuration(at); err == nil {
			revokeAt = clock.System{}.Now().Add(d).UTC()
		} else if revokeAt, err = time.Parse(time.RFC3339, at); err != nil {
			return usageError{fmt.Errorf("--at %q is no time: give one such as 2026-12-01T00:00:00Z, or a time from now, such as 48h", at)}
		}
		body := map[string]string{"revoke_at": revokeAt.Format(time.RFC3339)}
		return changeKey(e, cmd, r, http.MethodPost, []string{"keys", args[0], "schedule_revocation"}, body, asJSON)
	}
	return cmd
}

func changeKey(e *env, cmd *cobra.Command, r *remote, method string, path []string, body any, asJSON bool) error {
	o, err := operate(e, cmd, r)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := o.call(cmd.Context(), method, path, nil, body, &raw); err != nil {
		return err
	}
	if asJSON {
		return e.printAnswer(raw)
	}
	var key wire.MadeKey
	if err := json.Unmarshal(raw, &key); err != nil {
		return err
	}
	what := "is revoked"
	if key.Status == "scheduled" {
		what = "works until " + when(key.RevokeAt)
	}
	_, err = fmt.Fprintf(e.out, "The key %s (%s) %s.\n", plain(key.ID), plain(key.Name), what)
	return err
}
