package main

import (
	"errors"
	"fmt"
	"go/token"

	"github.com/spf13/cobra"

	"j17/internal/base/value"
	"j17/internal/lang/spec"
	"j17/internal/lang/typegen"
)

func specTypesCommand(e *env) *cobra.Command {
	var lang, pkg, numbers string
	cmd := &cobra.Command{
		Use:   "types FILE --lang ts|go",
		Short: "Print TypeScript or Go types of events and states",
		Long: `Print the types of a spec's events, states and results of projections in TypeScript or Go. The types of events come from their
schemas; those of states are derived from what the handlers write, so all their members are optional, and a type that cannot be derived is
unknown (TypeScript) or any (Go). Numbers in Go are json.Number, which keeps them exact, and int64 where the schema says integer.`,
		Example:           "  j17 spec types spec.json --lang ts > types.ts",
		Args:              exactly("FILE"),
		ValidArgsFunction: jsonFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lang != "ts" && lang != "go" {
				return usageError{fmt.Errorf("%s needs --lang ts or --lang go", cmd.CommandPath())}
			}
			if !token.IsIdentifier(pkg) || pkg == "_" {
				return usageError{errors.New("--package must be a name that a Go package can have")}
			}

			if numbers != "" && (numbers != "text" || lang != "ts") {
				return usageError{errors.New("--numbers must be text, and goes with --lang ts: types in Go keep all digits anyway")}
			}

			c, _, err := e.compile(args[0])
			if err != nil {
				return err
			}
			root, err := specRoot(c)
			if err != nil {
				return err
			}

			// Go code is formatted, which shows whether it is any; TypeScript is written as it is.
			var out []byte
			switch {
			case numbers == "text":
				out = typegen.ExactTypeScript(root)
			case lang == "ts":
				out = typegen.TypeScript(root)
			default:
				if out, err = typegen.Go(root, pkg); err != nil {
					return err
				}
			}
			_, err = e.out.Write(out)
			return err
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "", "the `language`: ts or go")
	cmd.Flags().StringVar(&pkg, "package", "events", "the `name` of the Go package")
	cmd.Flags().StringVar(&numbers, "numbers", "", "text `form` of numbers in TypeScript, which keeps their digits: text")
	// The flag exists, so registering cannot fail.
	_ = cmd.RegisterFlagCompletionFunc(
		"lang", cobra.FixedCompletions([]string{"ts\tTypeScript", "go\tGo"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

func specRoot(c *spec.Compiled) (value.Value, error) { return value.Parse(c.Source) }
