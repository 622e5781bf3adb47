package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"j17/internal/lang/diag"
)

//go:embed templates/*.json
var templateFiles embed.FS

// template is a spec to start from.
type template struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

func templates() []template {
	return []template{
		{"minimal", "one aggregate type with two events: a note that is written and changed"},
		{"orders", "orders with lines, payments and parcels, lists of them, and a counter of all"},
		{"tasks", "a task list: projects, tasks with an assignee, a due date and a status"},
	}
}

func specNewCommand(e *env) *cobra.Command {
	var file string
	var list, asJSON bool
	cmd := &cobra.Command{
		Use:   "new [TEMPLATE]",
		Short: "Start a spec from a template",
		Long: `Print a spec to start from, or write it to a file that does not exist yet. Without a TEMPLATE it is the minimal one; --list
shows the templates.`,
		Example: "  j17 spec new orders -o spec.json",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return usageError{fmt.Errorf("%s takes one template", cmd.CommandPath())}
			case list && (len(args) > 0 || file != ""):
				return usageError{errors.New("--list takes neither a template nor a file")}
			case asJSON && !list:
				return usageError{errors.New("--json goes with --list; a spec is JSON anyway")}
			default:
				return nil
			}
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, t := range templates() {
				if len(args) == 0 {
					names = append(names, t.Name+"\t"+t.About)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return listTemplates(e, asJSON)
			}

			// The first template is the smallest.
			name := templates()[0].Name
			if len(args) == 1 {
				name = args[0]
			}
			source, err := templateSource(name)
			if err != nil {
				return err
			}

			if file == "" || file == "-" {
				_, err = e.out.Write(source)
				return err
			}
			return create(file, source)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "write to a new `file`; - for standard output")
	f.BoolVar(&list, "list", false, "list the templates")
	f.BoolVar(&asJSON, "json", false, "list them as JSON")
	return cmd
}

func listTemplates(e *env, asJSON bool) error {
	if asJSON {
		return e.printJSON(struct {
			Templates []template `json:"templates"`
		}{templates()})
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	for _, t := range templates() {
		if _, err := fmt.Fprintf(w, "%s\t%s\n", t.Name, t.About); err != nil {
			return err
		}
	}
	return w.Flush()
}

func templateSource(name string) ([]byte, error) {
	var names []string
	for _, t := range templates() {
		names = append(names, t.Name)
	}
	if !slices.Contains(names, name) {
		hint := "there are " + strings.Join(names, ", ")
		if near := diag.Nearest(name, names); near != "" {
			hint = "did you mean " + near + "?"
		}
		return nil, usageError{fmt.Errorf("there is no template %q: %s", name, hint)}
	}
	return templateFiles.ReadFile("templates/" + name + ".json")
}

// create writes a file that must not exist.
func create(name string, content []byte) error {
	//nolint:gosec // the caller names the file; a spec is no secret
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already and is left alone: choose another name, or remove it", name)
	}
	if err != nil {
		return fmt.Errorf("cannot write: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, errors.Join(err, os.Remove(name)))
	}
	return nil
}
