package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func instancesCommand(e *env) *cobra.Command {
	return group(
		"instances", "The instances of a server", instancesListCommand(e), instancesCreateCommand(e),
		instancesShowCommand(e), instancesDeleteCommand(e),
	)
}

func instancesListCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the instances that you may see", Example: "  j17 instances list", Args: noArgs,
	}

	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		rows, err := o.rows(cmd.Context(), []string{"instances"}, nil, "instances", 0)
		if err != nil {
			return err
		}
		return printRows(e, rows, asJSON, []string{"name", "id", "plan", "created"}, func(i wire.Instance) []string {
			return []string{i.Name, i.ID, i.Plan, when(i.CreatedAt)}
		})
	}
	return cmd
}

func instancesCreateCommand(e *env) *cobra.Command {
	var plan string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an instance",
		Long: `Create an instance with the environments prod, staging and test. The name becomes a part of its host names: lower-case letters,
digits and hyphens.`,
		Example: "  j17 instances create shop --plan free", Args: exactly("NAME"),
	}

	r := serverFlags(cmd)
	cmd.Flags().StringVar(&plan, "plan", "", "`name` of its plan; the server has a default")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		body := wire.NewInstance{Name: args[0], Plan: plan}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodPost, []string{"instances"}, nil, body, &raw); err != nil {
			return err
		}
		return printInstance(e, raw, asJSON)
	}
	return cmd
}

func printInstance(e *env, raw json.RawMessage, asJSON bool) error {
	if asJSON {
		return e.printAnswer(raw)
	}
	var i wire.InstanceUse
	if err := json.Unmarshal(raw, &i); err != nil {
		return err
	}
	rows := [][]string{{"id", i.ID}, {"plan", i.Plan}, {"created", when(i.CreatedAt)}}
	if i.Node != "" {
		rows = append(rows, []string{"node", i.Node})
	}
	for _, env := range i.Environments {
		rows = append(rows, []string{string(env.Name), env.Host})
	}
	if i.Usage != nil {
		rows = append(rows, []string{"events in " + i.Usage.Period, amount(i.Usage.Events)}, []string{
			"bytes stored", amount(i.Usage.Storage),
		})
	}
	return e.printTable([]string{"name", i.Name}, rows)
}

// amount shows people how much of something was used, and how much there is.
func amount(a wire.Amount) string {
	used := strconv.FormatInt(a.Used, 10)
	if a.Limit == 0 {
		return used
	}
	return used + " of " + strconv.FormatInt(a.Limit, 10)
}

func instancesShowCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show [NAME|ID]", Short: "Show an instance, its plan and its usage", Example: "  j17 instances show shop",
		Args: atMost("NAME|ID"),
	}

	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.instance = strings.Join(args, "")
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodGet, []string{"instances", i.ID}, nil, nil, &raw); err != nil {
			return err
		}
		return printInstance(e, raw, asJSON)
	}
	return cmd
}

// atMost takes one argument or none.
func atMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return exactly(name)(cmd, args)
	}
}

func instancesDeleteCommand(e *env) *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use: "delete NAME|ID", Short: "Delete an instance with all its data, keys and specs",
		Long:    "Delete an instance with all its data, keys and specs, in all environments. There is no way back but a backup.",
		Example: "  j17 instances delete shop", Args: exactly("NAME|ID"),
	}

	r := serverFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		i, err := o.instance(cmd.Context(), args[0])
		if err != nil {
			return err
		}

		// A deletion has to be confirmed by typing the name: all data goes.
		if err := e.confirmName(cmd.Context(), yes, fmt.Sprintf("The instance %s (%s) of %s goes with all its events, for good.", plain(i.Name), i.ID, o.connection.url.value), i.Name); err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(
			cmd.Context(), http.MethodDelete, []string{"instances", i.ID}, nil, map[string]string{"confirm": i.Name},
			&raw,
		); err != nil {
			return err
		}

		e.reportChange("the instance %s is deleted", plain(i.Name))
		if asJSON {
			return e.printJSON(struct {
				ID      string `json:"id"`
				Name    string `json:"name"`
				Deleted bool   `json:"deleted"`
			}{i.ID, i.Name, true})
		}
		_, err = fmt.Fprintf(e.out, "The instance %s is deleted.\n", plain(i.Name))
		return err
	}
	return cmd
}
