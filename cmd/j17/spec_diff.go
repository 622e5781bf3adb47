package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/value"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

func specDiffCommand(e *env) *cobra.Command {
	var asJSON, propose, write bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what changes between two specs, and whether stored events survive it",
		Long: `Show what changes between two specs, and what of it events that were stored under the old one may not survive. A deploy of NEW
over OLD is refused for the same reasons, unless it is forced. Event types that are listed as tried are those of which the
stored events decide: a deploy brings each of them to the newest generation.

With --propose it prints what NEW lacks for events that are stored: where a schema has become narrower, the former one as an
older generation, with the steps to the new one that follow from the two; where an event type is gone, that it is retired.
What only a person can know is listed as to be decided. With --write it is put into NEW, which is formatted then.

Exit code 0: NEW is compatible, 3: it is not, or one of the two is not valid.`,
		Example:           "  j17 spec diff deployed.json spec.json\n  j17 spec diff deployed.json spec.json --propose --write",
		Args:              exactly("OLD", "NEW"),
		ValidArgsFunction: jsonFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case args[0] == "-" && args[1] == "-":
				return usageError{fmt.Errorf("only one of OLD and NEW can be standard input")}
			case write && !propose:
				return usageError{errors.New("--write writes what --propose proposes: add --propose")}
			case write && args[1] == "-":
				return usageError{errors.New("--write needs a file as NEW, not standard input")}
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
			d := compare.Specs(old, next, propose)
			if write && len(d.Proposals) > 0 {
				if next, source, err = e.writeProposals(args[1], source, next, d.Proposals); err != nil {
					return err
				}
				proposals := d.Proposals
				d = compare.Specs(old, next, false)
				d.Proposals = proposals
			}
			if asJSON {
				err = e.printJSON(d)
			} else {
				err = printDiff(e, args[1], source, d, old.Hash == next.Hash)
			}
			if err == nil && !d.Compatible {
				err = silent{j17.Errorf(j17.CodeIncompatibleSpec, "The new spec is not compatible")}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&propose, "propose", false, "print the generations and retired types that NEW lacks")
	cmd.Flags().BoolVar(&write, "write", false, "put what is proposed into NEW")
	return cmd
}

// writeProposals puts what is proposed into a spec file, or into the envelope that is in it, and returns what the file
// says then.
func (e *env) writeProposals(
	name string, source []byte, next *spec.Compiled, proposals []compare.Proposal,
) (*spec.Compiled, []byte, error) {
	root := compare.With(next.Root(), proposals)
	formatted := spec.FormatValue(root)
	compiled, found := lint.Compile(formatted)
	if compiled == nil {
		return nil, nil, e.invalidFile(name, formatted, found, server.ErrInvalidSpec.Error())
	}
	if whole, err := value.Parse(source); err == nil && !whole.Get("spec").IsMissing() {
		members := append([]value.Member{}, whole.Members()...)
		for i := range members {
			if members[i].Key == "spec" {
				members[i].Value = root
			}
		}
		formatted = spec.FormatValue(value.ObjectValue(members...))
	}
	return compiled, formatted, replace(name, formatted, 0o644)
}

func printDiff(e *env, name string, source []byte, d compare.Difference, same bool) error {
	// Each change on a line.
	var b strings.Builder
	for _, c := range d.Changes {
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
	switch {
	case same:
		b.WriteString("no change\n")
	case !d.Compatible:
		b.WriteString("not compatible: stored events may not survive this\n")
	case len(d.Tried) > 0:
		b.WriteString("compatible where stored events say so, which a deploy tries: " + strings.Join(d.Tried, ", ") + "\n")
	case len(d.Changes) == 0:
		b.WriteString("no change but in the order of definitions\n")
	default:
		b.WriteString("compatible\n")
	}
	writeProposed(&b, d.Proposals)

	if _, err := io.WriteString(e.out, b.String()); err != nil {
		return err
	}
	_, err := io.WriteString(e.err, diag.Render(name, source, d.Findings))
	return err
}

// writeProposed writes what is proposed and what is left to decide.
func writeProposed(b *strings.Builder, proposals []compare.Proposal) {
	for _, p := range proposals {
		what := fmt.Sprintf("generation %d", p.Generation)
		if p.Retires {
			what = "retired"
		}
		fmt.Fprintf(b, "\n%s, %s:\n%s", p.Type, what, spec.FormatValue(p.Definition))
		for _, d := range p.Decide {
			fmt.Fprintf(b, "decide: %s (%s)\n", d.Message, d.Pointer)
		}
	}
}
