package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17/internal/base/clock"
	"j17/internal/edge/client"
)

func projectionGetCommand(e *env) *cobra.Command {
	var at string
	var params []string
	var synchronous, asJSON bool
	cmd := &cobra.Command{
		Use:   "get NAME [ID]",
		Short: "Print what a projection yields, now or in the past",
		Long: `Print what a projection yields as JSON: with line breaks on a terminal, on one line elsewhere. A projection that is an array of
sources is asked for with parameters.

Exit code 6: there is no such projection, or no such aggregate.`,
		Example: `  j17 projection get receipt 7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05
  j17 projection get board --param team=red --param who=7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05
  j17 projection get receipt 7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05 --at 10m`,
		Args: func(cmd *cobra.Command, args []string) error {
			return exactly([]string{"NAME", "ID"}[:min(max(len(args), 1), 2)]...)(cmd, args)
		},
	}
	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&params, "param", nil, "a parameter of the projection, as `name=value`; can be repeated")
	f.StringVar(&at, "at", "", "the value at a `time`: 2026-01-31T12:00:00Z, 2026-01-31 (its beginning, UTC), 10m (so long ago), or Unix seconds")
	f.BoolVar(&synchronous, "synchronous", false, "compute the value from the first event of each source on")
	f.BoolVar(&asJSON, "json", false, "print one line with the metadata too")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := client.ProjectionOptions{Synchronous: synchronous, Params: map[string]string{}}
		for _, param := range params {
			name, v, ok := strings.Cut(param, "=")
			if _, again := o.Params[name]; !ok || name == "" || again {
				return usageError{fmt.Errorf("--param %q is no parameter: give name=value, each name once", param)}
			}
			o.Params[name] = v
		}
		if f.Changed("at") {
			seconds, err := parseTime(clock.System{}.Now(), "--at", at)
			if err != nil {
				return usageError{err}
			}
			o.At = strconv.FormatInt(seconds, 10)
		}
		id := ""
		if len(args) > 1 {
			if id = args[1]; id == "" {
				return usageError{errors.New("the ID must not be empty")}
			}
		}
		c, err := e.connect(r)
		if err != nil {
			return err
		}
		v, err := c.Projection(cmd.Context(), args[0], id, o)
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		return printState(e, client.State{Data: v.Data, Metadata: v.Metadata}, asJSON)
	}
	return cmd
}
