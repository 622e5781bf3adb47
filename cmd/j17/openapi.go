package main

import (
	"github.com/spf13/cobra"

	"j17/internal/server"
	"j17/internal/spec"
)

func (e *env) openAPI() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi [FILE]",
		Short: "Print the OpenAPI document of the API",
		Long: `Print an OpenAPI 3.1 document as JSON. With a spec it describes the hosts of an environment that has this spec, with a path for each
of its event types and the schema of its data; without one, the control plane. A server answers with the same at
GET /_openapi.json.`,
		Example: "  j17 openapi spec.json > openapi.json\n  j17 openapi > control.json",
		Args:    atMost("FILE"), ValidArgsFunction: jsonFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			var compiled *spec.Compiled
			if len(args) > 0 {
				var err error
				if compiled, _, err = e.compile(args[0]); err != nil {
					return err
				}
			}
			raw, err := server.OpenAPI(programVersion, compiled)
			if err != nil {
				return err
			}
			_, err = e.out.Write(append(raw, '\n'))
			return err
		},
	}
}
