package main

import (
	"errors"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"j17/internal/lang/spec"
	"j17/internal/server"
)

func openAPICommand(e *env) *cobra.Command {
	var at, part string
	cmd := &cobra.Command{
		Use:   "openapi [FILE]",
		Short: "Print the OpenAPI document of the API",
		Long: `Print an OpenAPI 3.1 document as JSON. With a spec it describes the hosts of an environment that has this spec, with a path for each
of its event types and the schema of its data; without one, the control plane. A server answers with the same at
GET /_openapi.json. The routes under /_admin have a document of their own, which --part admin prints.`,
		Example: "  j17 openapi spec.json --server https://shop.example.com > openapi.json\n  j17 openapi --part admin > admin.json\n  j17 openapi > control.json",
		Args:    atMost("FILE"), ValidArgsFunction: jsonFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			// What is asked for.
			if u, err := url.Parse(at); at != "" && (err != nil || u.Host == "" ||
				u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "") {
				return usageError{errors.New("--server must be a URL such as https://shop.example.com")}
			}
			if part != "" && part != "admin" {
				return usageError{errors.New("--part must be admin, for the routes under /_admin")}
			}
			var compiled *spec.Compiled
			if len(args) > 0 {
				var err error
				if compiled, _, err = e.compile(args[0]); err != nil {
					return err
				}
			}

			raw, err := server.OpenAPI(programVersion, strings.TrimRight(at, "/"), compiled, part == "admin")
			if err != nil {
				return err
			}
			_, err = e.out.Write(append(raw, '\n'))
			return err
		},
	}
	cmd.Flags().StringVar(&at, "server", "", "the `URL` at which the API is served; that of 'j17 dev' without it")
	cmd.Flags().StringVar(&part, "part", "", "admin `part`: the routes under /_admin of an environment alone")
	// The flag exists, so registering cannot fail.
	_ = cmd.RegisterFlagCompletionFunc(
		"part", cobra.FixedCompletions([]string{"admin\tthe routes under /_admin"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}
