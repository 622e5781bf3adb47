package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/apikey"
	"j17/internal/edge/client"
)

func contextsCommand(e *env) *cobra.Command {
	cmd := group("context", "Servers that you work with, by name",
		contextListCommand(e), contextUseCommand(e), contextShowCommand(e), contextSetCommand(e),
		contextDeleteCommand(e))
	cmd.Long = `A context is a server with an instance, an environment and your credentials, under a name. Commands use the current one, or that
of --context. They are kept in $XDG_CONFIG_HOME/j17/config.json (~/.config/j17/config.json), which only you can read.

What counts, the first that is given: flags, the context of --context, variables (J17_...), the 'j17 dev' that runs in this folder,
the current context, and then what a 'j17 dev' has left in the folder. An address in --url or J17_URL stands alone: nothing of a
current context goes there.`
	return cmd
}

// contextRow is a context in the output of --json: without its secrets.
type contextRow struct {
	Name        string            `json:"name"`
	Current     bool              `json:"current"`
	Server      string            `json:"server"`
	Instance    string            `json:"instance,omitempty"`
	Environment j17.Environment   `json:"environment,omitempty"`
	CAFile      string            `json:"ca_file,omitempty"`
	Email       string            `json:"email,omitempty"`
	ExpiresAt   int64             `json:"expires_at,omitempty"`
	Keys        []j17.Environment `json:"keys,omitempty"`
}

func (c *config) row(name string) contextRow {
	ctx := c.Contexts[name]
	row := contextRow{
		Name: name, Current: name == c.Current, Server: ctx.Server, Instance: ctx.Instance,
		Environment: ctx.Environment, CAFile: ctx.CAFile,
	}
	if ctx.Login != nil {
		row.Email, row.ExpiresAt = ctx.Login.Email, ctx.Login.ExpiresAt
	}
	for _, env := range j17.Environments() {
		if ctx.Keys[env] != "" {
			row.Keys = append(row.Keys, env)
		}
	}
	return row
}

func contextListCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts", Example: "  j17 context list", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := e.config()
			if err != nil {
				return err
			}
			rows := []contextRow{}
			for _, name := range c.names() {
				rows = append(rows, c.row(name))
			}

			// The current one has a mark.
			if asJSON {
				return e.printJSON(rows)
			}
			if len(rows) == 0 {
				e.note("There are no contexts. 'j17 login URL' makes one.\n")
				return nil
			}
			var cells [][]string
			for _, row := range rows {
				mark := " "
				if row.Current {
					mark = "*"
				}
				cells = append(cells, []string{
					mark, row.Name, row.Server, row.Instance, string(row.Environment), row.Email,
				})
			}
			return e.printTable([]string{" ", "name", "server", "instance", "environment", "logged in as"}, cells)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// completeContexts completes names of contexts.
func completeContexts(e *env, _ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := e.config()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.names(), cobra.ShellCompDirectiveNoFileComp
}

func contextUseCommand(e *env) *cobra.Command {
	var none, asJSON bool
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Example: "  j17 context use example.com\n  j17 context use --none",
		ValidArgsFunction: func(a0 *cobra.Command, args []string, a2 string) ([]string, cobra.ShellCompDirective) {
			return completeContexts(e, a0, args, a2)
		},
		Args: func(cmd *cobra.Command, args []string) error {
			if none {
				return exactly()(cmd, args)
			}
			return exactly("NAME")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := e.config()
			if err != nil {
				return err
			}

			// None, or one that exists.
			said := "There is no current context now."
			if none {
				c.Current = ""
			} else {
				if _, err := c.context(args[0]); err != nil {
					return err
				}
				c.Current = args[0]
				said = fmt.Sprintf("The current context is %s: %s.", plain(args[0]), c.Contexts[args[0]].Server)
			}

			return e.keepConfig(c, asJSON, struct {
				Current string `json:"current"`
			}{c.Current}, said)
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "let no context be the current one")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func contextShowCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "Show what commands use here, and where each part of it comes from",
		Long: `Show what commands that are called like this use: the server, the instance, the environment and the credentials, and where each
comes from. Secrets are shown by their first characters only.`,
		Example: "  j17 context show\n  j17 context show --context example.com --env staging", Args: noArgs,
	}

	r := remoteFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(*cobra.Command, []string) error {
		s, err := e.connection(r)
		if err != nil {
			return err
		}
		if _, err := s.environment(); err != nil {
			return err
		}

		// The credentials in the folder of a development server are used where no others are given.
		key, token := s.key, s.token
		if key.value == "" && s.hasDev {
			if t, err := s.target(); err == nil {
				key = sourced{t.key, "data folder"}
			}
		}

		// Secrets are shortened to what distinguishes them.
		switch l := s.loginOf(); {
		case token.value == "" && s.hasDev && s.isDev():
			token = sourced{s.dev.Operator.Email, "data folder"}
		case l != nil && token.value == l.Token:
			token.value = l.Email
		default:
			token.value = shortened(token.value)
		}
		key.value = shortened(key.value)

		// Each part with its source.
		type row struct {
			Setting string `json:"setting"`
			Value   string `json:"value"`
			From    string `json:"from"`
		}
		rows := []row{}
		for _, p := range []struct {
			name string
			sourced
		}{
			{"context", s.context},
			{"server", s.url},
			{"instance", s.instance},
			{"environment", s.env},
			{"api key", key},
			{"operator", token},
			{"ca file", s.caFile},
		} {
			rows = append(rows, row{p.name, p.value, p.from})
		}
		if asJSON {
			return e.printJSON(rows)
		}
		var cells [][]string
		for _, r := range rows {
			cells = append(cells, []string{r.Setting, r.Value, r.From})
		}
		return e.printTable([]string{"setting", "value", "from"}, cells)
	}
	return cmd
}

// keepConfig saves the contexts and reports the outcome for the context that the command is about: as JSON, or in a
// sentence.
func (e *env) keepConfig(c *config, asJSON bool, result any, said string) error {
	e.startChange()
	if err := e.saveConfig(c); err != nil {
		return err
	}
	e.reportChange("the contexts are saved")
	if asJSON {
		return e.printJSON(result)
	}
	e.note("%s\n", said)
	return nil
}

// shortened returns the beginning of a secret, enough to recognise it.
func shortened(secret string) string {
	const shown = 16
	if secret == "" {
		return ""
	}
	return secret[:min(shown, len(secret)/3)] + "…"
}

func contextSetCommand(e *env) *cobra.Command {
	var serverURL, instance, environment, caFile string
	var keyStdin, asJSON bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make or change a context",
		Long: `Make a context, or change what the flags name. Without --instance, the address may be that of an instance. The API key is for the
instance and the environment of the context, or for the environment that the key names where the context has none.`,
		Example: `  j17 context set shop --server https://example.com --instance shop --env staging
  j17 context set shop --key-stdin < key`,
		Args: exactly("NAME"),
		ValidArgsFunction: func(a0 *cobra.Command, args []string, a2 string) ([]string, cobra.ShellCompDirective) {
			return completeContexts(e, a0, args, a2)
		},
	}
	f := cmd.Flags()
	f.StringVar(&serverURL, "server", "", "`URL` of the server; another one forgets all credentials")
	f.StringVar(&instance, "instance", "", "`name` of the instance; another one forgets the API keys")
	f.StringVar(&environment, "env", "", "`environment`: prod, staging or test; \"\" for none")
	f.StringVar(&caFile, "ca-file", "", "`file` of the authorities whose certificates are trusted")
	f.BoolVar(&keyStdin, "key-stdin", false, "read an API key from standard input")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(_ *cobra.Command, args []string) error {
		// The context that is changed, or a new one.
		c, err := e.config()
		if err != nil {
			return err
		}
		if strings.TrimSpace(args[0]) == "" || plain(args[0]) != args[0] {
			return usageError{errors.New("a context needs a name that can be seen")}
		}
		ctx := c.Contexts[args[0]]
		existed := ctx != nil
		if ctx == nil {
			if serverURL == "" {
				return usageError{fmt.Errorf("there is no context %q yet: --server says which server it is for", args[0])}
			}
			ctx = &serverContext{}
			c.Contexts[args[0]] = ctx
		}

		// Another server or instance has other credentials.
		if serverURL != "" {
			base := strings.TrimSuffix(serverURL, "/")
			if _, err := client.ParseURL(base); err != nil {
				return usageError{err}
			}
			if ctx.Server != base {
				ctx.Keys, ctx.Login = nil, nil
			}
			ctx.Server = base
		}
		if f.Changed("instance") {
			if ctx.Instance != instance {
				ctx.Keys = nil
			}
			ctx.Instance = instance
		}

		if f.Changed("env") {
			if ctx.Environment = ""; environment != "" {
				if ctx.Environment, err = j17.ParseEnvironment(environment); err != nil {
					return usageError{err}
				}
			}
		}
		if f.Changed("ca-file") {
			if ctx.CAFile = caFile; caFile != "" {
				if ctx.CAFile, err = filepath.Abs(caFile); err != nil {
					return err
				}
			}
		}

		// A key is for the environment that the context has by now.
		if keyStdin {
			if err := keyFromStdin(e, ctx); err != nil {
				return err
			}
		}

		// The first context becomes the current one.
		if c.Current == "" && len(c.Contexts) == 1 {
			c.Current = args[0]
		}
		return e.keepConfig(c, asJSON, c.row(args[0]), c.sentence(args[0], existed))
	}
	return cmd
}

// keyFromStdin puts the API key on standard input into a context, for the environment that the key itself names.
func keyFromStdin(e *env, ctx *serverContext) error {
	raw, err := e.readText("-", 1<<20, "It should hold nothing but a key.")
	if err != nil {
		return err
	}
	key := strings.TrimSpace(string(raw))
	env, ok := apikey.Environment(key)
	switch {
	case key == "":
		return usageError{errors.New("--key-stdin reads an API key from standard input, and that is empty: nothing was changed")}
	case !ok:
		return usageError{errors.New("what --key-stdin reads is no API key, which has the form j17_0_ENVIRONMENT_… and ends in a checksum: it was mistyped, or not copied whole. Nothing was changed")}
	case ctx.Environment != "" && ctx.Environment != env:
		return usageError{fmt.Errorf("the API key is for %s, and the context for %s: give a key for %[2]s, or name the environment with --env %[1]s. Nothing was changed", env, ctx.Environment)}
	}
	ctx.keep(env, key)
	return nil
}

// sentence says what a context is for.
func (c *config) sentence(name string, existed bool) string {
	row := c.row(name)
	text := "The context " + plain(name) + " is new"
	if existed {
		text = "The context " + plain(name) + " is changed"
	}
	text += ": " + row.Server
	if row.Instance != "" {
		text += ", instance " + plain(row.Instance)
	}
	if row.Environment != "" {
		text += ", environment " + string(row.Environment)
	}
	if len(row.Keys) > 0 {
		text += ", with " + keysFor(row.Keys)
	}
	if row.Current {
		text += ". It is the current one"
	}
	return text + "."
}

// keysFor says which environments a context has keys for.
func keysFor(environments []j17.Environment) string {
	names := make([]string, len(environments))
	for i, env := range environments {
		names[i] = string(env)
	}
	if last := len(names) - 1; last > 0 {
		return "keys for " + strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return "a key for " + names[0]
}

// keep puts an API key into a context.
func (c *serverContext) keep(env j17.Environment, key string) {
	if c.Keys == nil {
		c.Keys = map[j17.Environment]string{}
	}
	c.Keys[cmp.Or(env, j17.Prod)] = key
}

func contextDeleteCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Forget a context and its credentials",
		Long: `Forget a context and its credentials. Nothing changes on the server: run 'j17 logout' first to invalidate the login, and 'j17 keys revoke'
for an API key.`,
		Example: "  j17 context delete example.com", Args: exactly("NAME"),
		ValidArgsFunction: func(a0 *cobra.Command, args []string, a2 string) ([]string, cobra.ShellCompDirective) {
			return completeContexts(e, a0, args, a2)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := e.config()
			if err != nil {
				return err
			}
			if _, err := c.context(args[0]); err != nil {
				return err
			}
			delete(c.Contexts, args[0])
			if c.Current == args[0] {
				c.Current = ""
			}
			return e.keepConfig(c, asJSON, struct {
				Name    string `json:"name"`
				Deleted bool   `json:"deleted"`
			}{args[0], true}, fmt.Sprintf("The context %s is forgotten.", plain(args[0])))
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
