package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

func specCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spec",
		Short: "Work with spec files",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		specValidateCommand(e), specFmtCommand(e), specDiffCommand(e), specNewCommand(e), specTypesCommand(e),
		specGenerationsCommand(e),
	)
	cmd.AddCommand(
		specDeployCommand(e), specPromoteCommand(e), specRollbackCommand(e), specHistoryCommand(e), specShowCommand(e),
		specTagsCommand(e), specCheckCommand(e), specStatesCommand(e),
	)
	return cmd
}

func specValidateCommand(e *env) *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use: "validate FILE...", SuggestFor: []string{"lint", "verify"},
		Short: "Check specs and report everything that is wrong with them",
		Long: `Check specs as a deploy would and report all findings at once, each with its place. A FILE may be - for standard input. With --json
there is one line for each file.

Exit code 0: the specs are valid, 3: one is not, or, with --strict, there is a warning.`,
		Example: "  j17 spec validate spec.json\n  j17 spec validate --strict specs/*.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("FILE")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: jsonFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			// All files are checked, whatever the first ones are like.
			good := true
			for _, name := range args {
				valid, err := validateSpec(e, name, len(args) > 1, strict, asJSON)
				if err != nil {
					return err
				}
				good = good && valid
			}
			if !good {
				return silent{server.ErrInvalidSpec}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for errors")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// validateSpec reports what is wrong with a spec, and whether it passes; several reports that it is one of several.
func validateSpec(e *env, name string, several, strict, asJSON bool) (bool, error) {
	// A file that cannot be a spec at all is a finding without a place.
	source, err := e.read(name)
	if none, ok := errors.AsType[notASpec](err); ok && asJSON {
		return false, writeFindings(e, name, several, false, []diag.Diagnostic{
			{Severity: diag.Error, Message: none.Error()},
		})
	}
	if err != nil {
		return false, err
	}

	var compiled *spec.Compiled
	envelope, found := spec.Unwrap(source)
	if len(found) == 0 {
		compiled, found = lint.Compile(envelope.Spec)
	}
	valid := compiled != nil && (len(found) == 0 || !strict)
	if asJSON {
		return valid, writeFindings(e, name, several, valid, found)
	}
	if compiled != nil && !valid {
		e.show(name, source, found)
		e.note("%s is valid but for %s, which --strict takes for errors\n", fileName(name), j17.Count(len(found), "warning"))
		return false, nil
	}
	return valid, renderFindings(e, name, source, compiled, found)
}

// writeFindings prints findings as JSON, with the name of the file where there are several.
func writeFindings(e *env, name string, several, valid bool, found []diag.Diagnostic) error {
	out := struct {
		File     string            `json:"file,omitempty"`
		Valid    bool              `json:"valid"`
		Findings []diag.Diagnostic `json:"findings"`
	}{Valid: valid, Findings: append([]diag.Diagnostic{}, found...)}
	if several {
		out.File = name
	}
	return json.NewEncoder(e.out).Encode(out)
}

func renderFindings(e *env, name string, source []byte, compiled *spec.Compiled, found []diag.Diagnostic) error {
	e.show(name, source, found)
	if compiled == nil {
		return nil
	}
	events := 0
	for _, t := range compiled.Types {
		events += len(t.Events)
	}
	_, err := fmt.Fprintf(
		e.out, "%s is valid: %s, %s\n", name, j17.Count(len(compiled.Types), "aggregate type"),
		j17.Count(events, "event type"),
	)
	return err
}
