package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"j17/internal/server"
	"j17/internal/spec"
	"j17/internal/spec/diag"
)

func (e *env) spec() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spec",
		Short: "Work with spec files",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(e.specValidate(), e.specFmt(), e.specDiff(), e.specNew(), e.specTypes())
	cmd.AddCommand(e.specDeploy(), e.specPromote(), e.specRollback(), e.specHistory(), e.specShow())
	return cmd
}

// finding is a diagnostic in the output of --json.
type finding struct {
	Severity string `json:"severity"`
	Pointer  string `json:"pointer"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
}

func (e *env) specValidate() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a spec and report everything that is wrong with it",
		Long: `Check a spec as a deploy would and report all findings at once, each with its place. FILE may be - for standard input.

Exit code 0: the spec is valid, 3: it is not.`,
		Args:              exactly("FILE"),
		ValidArgsFunction: jsonFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			source, err := e.read(args[0])
			if err != nil {
				return err
			}
			var compiled *spec.Compiled
			envelope, found := spec.Unwrap(source)
			if len(found) == 0 {
				compiled, found = spec.Compile(envelope.Spec)
			}
			if asJSON {
				err = e.writeFindings(compiled != nil, found)
			} else {
				err = e.renderFindings(args[0], source, compiled, found)
			}
			if err == nil && compiled == nil {
				err = silent{server.ErrInvalidSpec}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (e *env) writeFindings(valid bool, found []diag.Diagnostic) error {
	out := struct {
		Valid    bool      `json:"valid"`
		Findings []finding `json:"findings"`
	}{valid, findingsOf(found)}
	return json.NewEncoder(e.out).Encode(out)
}

func findingsOf(found []diag.Diagnostic) []finding {
	out := make([]finding, 0, len(found))
	for _, d := range found {
		out = append(out, finding{d.Severity.String(), string(d.Pointer), d.Line, d.Column, d.Message, d.Hint})
	}
	return out
}

func (e *env) renderFindings(name string, source []byte, compiled *spec.Compiled, found []diag.Diagnostic) error {
	if len(found) > 0 {
		if _, err := io.WriteString(e.err, diag.Render(name, source, found)); err != nil {
			return err
		}
	}
	if compiled == nil {
		return nil
	}
	events := 0
	for _, t := range compiled.Types {
		events += len(t.Events)
	}
	_, err := fmt.Fprintf(e.out, "%s is valid: %s, %s\n", name, count(len(compiled.Types), "aggregate type"), count(events, "event type"))
	return err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
