package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
)

func specDiffCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what changes between two specs, and whether stored events survive it",
		Long: `Show what changes between two specs, and what of it events that were stored under the old one may not survive. A deploy of NEW
over OLD is refused for the same reasons, unless it is forced.

Exit code 0: NEW is compatible, 3: it is not, or one of the two is not valid.`,
		Example:           "  j17 spec diff deployed.json spec.json",
		Args:              exactly("OLD", "NEW"),
		ValidArgsFunction: jsonFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "-" && args[1] == "-" {
				return usageError{fmt.Errorf("only one of OLD and NEW can be standard input")}
			}

			old, _, err := e.compile(args[0])
			if err != nil {
				return err
			}
			next, source, err := e.compile(args[1])
			if err != nil {
				return err
			}

			// What changes, and what of it is refused.
			changes, found := compare.Changes(old, next), compare.Compatibility(old, next)
			refused, _ := diag.Count(found)
			if asJSON {
				err = e.printJSON(specDifference{
					append([]compare.Change{}, changes...), refused == 0, append([]diag.Diagnostic{}, found...),
				})
			} else {
				err = printDiff(e, args[1], source, changes, found, old.Hash == next.Hash)
			}
			if err == nil && refused > 0 {
				err = silent{j17.Errorf(j17.CodeIncompatibleSpec, "The new spec is not compatible")}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type specDifference struct {
	Changes    []compare.Change  `json:"changes"`
	Compatible bool              `json:"compatible"`
	Findings   []diag.Diagnostic `json:"findings"`
}

func printDiff(e *env, name string, source []byte, changes []compare.Change, found []diag.Diagnostic, same bool) error {
	// Each change on a line.
	var b strings.Builder
	for _, c := range changes {
		sign := "~"
		switch c.Kind {
		case compare.Added:
			sign = "+"
		case compare.Removed:
			sign = "-"
		case compare.Changed:
		}
		fmt.Fprintf(&b, "%s %s", sign, c.What)
		if c.Name != "" {
			fmt.Fprintf(&b, " %s", c.Name)
		}
		if len(c.Keys) > 0 {
			fmt.Fprintf(&b, ": %s", strings.Join(c.Keys, ", "))
		}
		b.WriteByte('\n')
	}

	// What it means for what is stored.
	refused, _ := diag.Count(found)
	switch {
	case same:
		b.WriteString("no change\n")
	case refused > 0:
		b.WriteString("not compatible: stored events may not survive this\n")
	case len(changes) == 0:
		b.WriteString("no change but in the order of definitions\n")
	default:
		b.WriteString("compatible\n")
	}

	if _, err := io.WriteString(e.out, b.String()); err != nil {
		return err
	}
	_, err := io.WriteString(e.err, diag.Render(name, source, found))
	return err
}
