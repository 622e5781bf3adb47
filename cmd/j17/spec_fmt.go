package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

// errNotFormatted is the verdict of "spec fmt --check".
var errNotFormatted = errors.New("some files are not formatted")

func specFmtCommand(e *env) *cobra.Command {
	var check, write bool
	cmd := &cobra.Command{
		Use:   "fmt FILE...",
		Short: "Write specs in the usual form",
		Long: `Print specs, or any other JSON, in the usual form: two spaces a level, and an array or an object on one line where it fits
into 100 columns. Keys keep their order and numbers the way they are written. A FILE may be - for standard input.

Exit code 0: done, 1: with --check, some files are not formatted, 3: a file is no JSON.`,
		Example: "  j17 spec fmt --write spec.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("%s needs FILE", cmd.CommandPath())}
			}
			if check && write {
				return usageError{errors.New("--check and --write exclude each other: leave one out")}
			}
			return nil
		},
		ValidArgsFunction: jsonFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			// All files are checked, whatever the first ones are like.
			var broken, differs bool
			for _, name := range args {
				source, err := e.read(name)
				if err != nil {
					return err
				}
				formatted, found := spec.Format(source)
				same := bytes.Equal(source, formatted)
				switch {
				case len(found) > 0:
					broken = true
					e.note("%s", diag.Render(name, source, found))
				case check && !same:
					differs = true
					_, err = fmt.Fprintln(e.out, name)
				case check || write && same:
				case write && name != "-":
					err = replace(name, formatted, 0o644)
				default:
					_, err = e.out.Write(formatted)
				}
				if err != nil {
					return err
				}
			}

			switch {
			case broken:
				return silent{server.ErrInvalidSpec}
			case differs:
				return silent{errNotFormatted}
			default:
				return nil
			}
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "print the names of the files that are not in this form, and change nothing")
	cmd.Flags().BoolVar(&write, "write", false, "write the files instead of printing them")
	return cmd
}
