package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/lang/spec"
)

// completeFlags gives every command below cmd the completions of its flags.
func completeFlags(e *env, cmd *cobra.Command) {
	// The words that flags take, by the names of the flags: a name means the same almost everywhere.
	var environments []string
	for _, env := range j17.Environments() {
		environments = append(environments, string(env))
	}
	words := map[string][]string{
		"env": environments, "from": environments, "to": environments,
		"scope": {string(j17.ScopeRead), string(j17.ScopeWrite)}, "role": operatorRoles(),
		"outcome":    {"done", "refused", "failed"},
		"containers": containerDrivers(), "of": {"events", "aggregates"},
	}
	for name, all := range words {
		f := cmd.Flags().Lookup(name)
		times := strings.HasPrefix(cmd.CommandPath(), "j17 audit") && (name == "from" || name == "to")
		serves := name == "role" && cmd.Name() == "serve"
		if f == nil || times || serves || f.Value.Type() == "uint64" {
			continue
		}
		if _, known := cmd.GetFlagCompletionFunc(name); !known {
			// The flag exists and has no function yet, so registering cannot fail.
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
		}
	}

	// Contexts are known when they are asked for.
	if cmd.Flags().Lookup("context") != nil {
		_ = cmd.RegisterFlagCompletionFunc("context",
			func(cmd *cobra.Command, _ []string, to string) ([]string, cobra.ShellCompDirective) {
				return completeContexts(e, cmd, nil, to)
			})
	}

	if cmd.ValidArgsFunction == nil && takesNoFiles(cmd) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		completeFlags(e, below)
	}
}

// takesNoFiles reports whether a command's arguments are names of things on a server, in whose place a shell would
// offer files.
func takesNoFiles(cmd *cobra.Command) bool {
	words := strings.Fields(cmd.CommandPath())
	if len(words) < 3 {
		return false
	}
	return slices.Contains(
		[]string{
			"aggregates", "audit", "checkpoint", "instances", "keys", "listener", "operators", "projection", "saga",
			"scheduled", "tombstone",
		}, words[1],
	) && cmd.CommandPath() != "j17 audit verify" || words[1] == "blobs" && words[2] != "put" || cmd.Name() == "export"
}

// completeKeys completes the aggregate of a command and, where the command takes one, an event type after it, from the
// spec file of the folder.
func completeKeys(e *env, events bool) cobra.CompletionFunc {
	const none = cobra.ShellCompDirectiveNoFileComp
	return func(_ *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
		// The spec in the present folder is most likely the right one.
		file := specBeside()
		if file == "" || strings.ContainsAny(to, "/:") {
			return nil, none
		}
		source, err := e.read(file)
		if err != nil {
			return nil, none
		}
		envelope, found := spec.Unwrap(source)
		if len(found) > 0 {
			return nil, none
		}

		// What can be said of it, by what is there already.
		c, _ := spec.Compile(envelope.Spec)
		switch {
		case c == nil:
		case len(args) == 0:
			var types []string
			for _, name := range slices.Sorted(maps.Keys(c.Types)) {
				types = append(types, name+"/")
			}
			return types, none | cobra.ShellCompDirectiveNoSpace
		case len(args) == 1 && events:
			key, err := parseKey(args[0])
			if t := c.Types[key.Type]; err == nil && t != nil {
				return slices.Sorted(maps.Keys(t.Events)), none
			}
		case len(args) == 2 && events: // the data, which may be @FILE
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, none
	}
}
