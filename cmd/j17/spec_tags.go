package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func specTagsCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "tags", Short: "List the tags that the deployed spec declares, and how far older events have them", Args: noArgs,
		Long: `List the tags that event types of the deployed spec declare, with the aggregate types whose events have them. One that a deployment has
added or changed is "building" until all older events have it, with the progress in events; requests for it are answered with index_not_ready
until then. The tags actor and target, which are always there, are not listed.`,
		Example: "  j17 spec tags --env staging",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "tags")
		if err != nil {
			return err
		}
		var all wire.Tags
		if err := o.call(cmd.Context(), http.MethodGet, path, nil, nil, &all); err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(all.Tags)
		}
		cells := make([][]string, len(all.Tags))
		for i, t := range all.Tags {
			status := t.Status
			if t.Build != nil {
				status += fmt.Sprintf(" %d/%d", t.Build.Done, t.Build.Total)
			}
			cells[i] = []string{t.Name, strings.Join(t.AggregateTypes, ", "), status}
		}
		return e.printTable([]string{"name", "events of", "status"}, cells)
	}
	return cmd
}
