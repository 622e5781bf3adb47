package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/diag"
	"j17/internal/server"
)

func specCheckCommand(e *env) *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Have a server report everything that is wrong with a spec", Args: exactly("FILE"), ValidArgsFunction: jsonFiles,
		Long: `Have a server report everything that is wrong with a spec, as 'j17 spec validate' does here: what counts is the version of j17 that the server is.
Nothing is stored, and no events are read; 'j17 spec deploy --dry-run' tries a spec on them. A FILE may be - for standard input.

Exit code 0: the spec is valid, 3: it is not, or, with --strict, there is a warning.`,
		Example: "  j17 spec check spec.json --env staging",
	}
	r := opsFlags(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for errors")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		source, err := e.read(args[0])
		if err != nil {
			return err
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsAsk(cmd.Context(), nil, args[0], source, "spec", "check")
		if err != nil {
			return err
		}
		checked, err := decoded[wire.SpecChecked](raw)
		if err != nil {
			return err
		}

		// The findings have the form that those of 'spec validate' have.
		var found []diag.Diagnostic
		add := func(severity diag.Severity, from []j17.FieldError) {
			for _, f := range from {
				found = append(found, diag.Diagnostic{
					Severity: severity, Pointer: diag.Pointer(f.Pointer), Line: f.Line, Column: f.Column,
					Message: f.Message, Hint: f.Hint,
				})
			}
		}
		add(diag.Error, checked.Errors)
		add(diag.Warning, checked.Warnings)
		good := checked.Valid && (!strict || len(checked.Warnings) == 0)
		if asJSON {
			err = writeFindings(e, args[0], false, good, found)
		} else {
			e.show(args[0], source, found)
			switch {
			case good:
				_, err = fmt.Fprintf(e.out, "%s is valid for %s\n", fileName(args[0]), o.where())
			case checked.Valid:
				e.note("%s is valid but for %s, which --strict takes for errors\n", fileName(args[0]), j17.Count(len(found), "warning"))
			}
		}
		if err == nil && !good {
			err = silent{server.ErrInvalidSpec}
		}
		return err
	}
	return cmd
}

func specStatesCommand(e *env) *cobra.Command {
	var length uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use: "states FILE TYPE/ID", Short: "Compare the state of an aggregate under the deployed spec and under another one", Args: exactly("FILE", "TYPE/ID"),
		Long: `Compare the state that an aggregate has under the deployed spec with the one that it would have under the spec of a file, now or after so many events.
Nothing is stored. 'j17 spec deploy --dry-run' finds the aggregates whose states differ.

Exit code 3: the spec is not valid; 6: there is no such aggregate.`,
		Example: "  j17 spec states next.json order/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05 --length 7",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return jsonFiles(cmd, args, to)
			}
			return completeKeys(e, false)(cmd, args[1:], to)
		},
	}
	r := opsFlags(cmd)
	cmd.Flags().Uint64Var(&length, "length", 0, "the states after the first `n` events")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[1])
		if err != nil {
			return err
		}
		source, err := e.read(args[0])
		if err != nil {
			return err
		}
		query := url.Values{"key": {key.String()}}
		if cmd.Flags().Changed("length") {
			query.Set("length", strconv.FormatUint(length, 10))
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsAsk(cmd.Context(), query, args[0], source, "spec", "states")
		if err != nil {
			return err
		}
		return printAs(e, raw, asJSON, printStates)
	}
	return cmd
}

// printStates prints both states, and then where they differ.
func printStates(e *env, s wire.SpecStates) error {
	states := [][]string{}
	for _, of := range []struct {
		name  string
		state *wire.SpecState
	}{{"now", s.Now}, {"then", s.Then}} {
		if of.state == nil {
			states = append(states, []string{of.name, "", "none"})
			continue
		}
		states = append(states, []string{of.name, strconv.FormatUint(of.state.Length, 10), string(of.state.Data)})
	}
	if err := e.printTable([]string{"spec", "length", "state"}, states); err != nil {
		return err
	}
	if s.Error != "" {
		e.note("%s\n", s.Error)
	}
	switch {
	case s.Error == "" && len(s.Changes) == 0:
		e.note("Both are the same.\n")
	case s.More > 0:
		e.note("They differ in %d more places than these.\n", s.More)
	}
	changes := make([][]string, len(s.Changes))
	for i, c := range s.Changes {
		changes[i] = []string{c.Pointer, c.Change, brief(c.Before), brief(c.After)}
	}
	return e.printFurther([]string{"place", "change", "now", "then"}, changes)
}
