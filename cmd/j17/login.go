package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

func loginCommand(e *env) *cobra.Command {
	var email string
	var passwordStdin, asJSON bool
	cmd := &cobra.Command{
		Use:   "login [URL]",
		Short: "Log in to a server as an operator",
		Long: `Log in to a server as an operator and keep the token, which is valid for 24 hours, in a context, which becomes the current
one. URL is the address under whose host name the instances have theirs, such as https://example.com; without it, it is that
of the context.

The password is asked for on the terminal, or read from standard input. In the folder of 'j17 dev' nothing is asked: its data
folder has the password.`,
		Example: `  j17 login https://example.com
  j17 login https://example.com --email ada@example.com --password-stdin < password`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s does not take %q", cmd.CommandPath(), args[1])}
			}
			return nil
		},
	}
	var r remote
	f := cmd.Flags()
	f.StringVar(&r.context, "context", "", "`name` of the context to keep the login in; made up from the address if left out")
	f.StringVar(&r.caFile, "ca-file", "", "`file` of the authorities whose certificates are trusted (J17_CA_FILE); it is kept in the context")
	f.StringVar(&r.data, "data", "", "data `folder` of a development server (J17_DATA; else "+defaultData+")")
	environmentFlag(cmd, &r)
	instanceFlag(cmd, &r)
	f.StringVar(&email, "email", "", "e-mail `address` of the operator")
	f.BoolVar(&passwordStdin, "password-stdin", false, "read the password from standard input")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Which server, and as whom.
		name := r.context
		s, err := loginTarget(e, r, args)
		if err != nil {
			return err
		}
		t, err := s.control()
		if err != nil {
			return err
		}
		password, err := askLogin(cmd.Context(), e, s, t, &email, passwordStdin)
		if err != nil {
			return err
		}

		c, err := controlClient(e, t, 0)
		if err != nil {
			return err
		}

		// The token is kept, never the password.
		got, err := logIn(cmd.Context(), c, email, password)
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		return keepLogin(cmd.Context(), e, s, t, name, got, asJSON)
	}
	return cmd
}

// loginTarget returns the server to log in to: the one that is named, or that of the context.
func loginTarget(e *env, r remote, args []string) (*connection, error) {
	name := r.context
	if len(args) > 0 {
		r.context, r.data = "", ""
		r.url = strings.TrimSuffix(args[0], "/")
	} else if name != "" {
		// A context that does not exist yet is made for the server that would be used without it.
		kept, err := e.config()
		if err != nil {
			return nil, err
		}
		if kept.Contexts[name] == nil {
			r.context = ""
		}
	}
	return e.connection(&r)
}

// askLogin completes e-mail address and password. It asks for no password where no server answers.
func askLogin(ctx context.Context, e *env, s *connection, t target, email *string, passwordStdin bool) (string, error) {
	if *email == "" && !passwordStdin && s.hasDev && s.isDev() {
		*email = s.dev.Operator.Email
		return s.dev.Operator.Password, nil
	}
	if *email == "" && s.loginOf() != nil {
		*email = s.loginOf().Email
	}
	if passwordStdin && *email == "" {
		return "", usageError{errors.New("--password-stdin needs --email")}
	}
	if err := somebodyAnswers(ctx, t); err != nil {
		return "", err
	}
	if passwordStdin {
		raw, err := e.readAll("-", 1<<20, "It should hold nothing but a password.")
		return strings.TrimRight(string(raw), "\r\n"), err
	}
	in, ok := e.in.(*os.File)
	if !ok || !terminal(e.in) {
		return "", usageError{errors.New("there is no terminal to ask for the password on: pass --email and --password-stdin")}
	}
	if *email == "" {
		e.note("E-mail address: ")
		var err error
		if *email, err = e.line(ctx); err != nil {
			return "", err
		}
	}
	e.note("Password of %s for %s: ", plain(*email), s.url.value)
	password, err := readPassword(ctx, in)
	e.note("\n")
	return password, err
}

// somebodyAnswers sends one request to see whether a server is there. The answer does not matter.
func somebodyAnswers(ctx context.Context, t target) error {
	c, err := client.New(client.Options{URL: t.url, Host: t.host, RootCAs: t.roots, Clock: clock.System{}, Attempts: 1})
	if err != nil {
		return usageError{err}
	}
	err = c.Call(ctx, client.Request{Path: []string{"readyz"}}, &struct{}{})
	if _, unreachable := errors.AsType[*client.Unreachable](err); unreachable || ctx.Err() != nil {
		return interrupted(ctx, err)
	}
	return nil
}

// readPassword reads a line that the terminal does not show.
func readPassword(ctx context.Context, in *os.File) (string, error) {
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", fmt.Errorf("the terminal cannot be used: %w", err)
	}
	type answer struct {
		text []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := term.ReadPassword(int(in.Fd()))
		done <- answer{text, err}
	}()
	select {
	case a := <-done:
		if errors.Is(a.err, io.EOF) {
			return "", errors.New("no password was typed")
		}
		return string(a.text), a.err
	case <-ctx.Done():
		return "", errors.Join(errInterrupted, term.Restore(int(in.Fd()), before))
	}
}

// keepLogin puts a login into a context and makes it the current one.
func keepLogin(
	ctx context.Context, e *env, s *connection, t target, name string, got wire.LoggedIn, asJSON bool,
) error {
	if got.ExpiresAt == 0 {
		return errors.New("the server's answer to the login has no time when it ends")
	}
	base, err := s.base()
	if err != nil {
		return err
	}

	// The context: the one that is named, or the one of that server.
	if name == "" {
		name = cmp.Or(s.context.value, s.config.nameFor(base))
	}
	kept := s.config.Contexts[name]
	if kept == nil || kept.Server != base {
		kept = &serverContext{Server: base}
		s.config.Contexts[name] = kept
	}

	// What it keeps.
	kept.Login = &login{Email: got.Operator.Email, Token: got.Token, ExpiresAt: got.ExpiresAt}
	if s.caFile.value != "" {
		if kept.CAFile, err = filepath.Abs(s.caFile.value); err != nil {
			return err
		}
	}
	if s.env.value != "" {
		if kept.Environment, err = s.environment(); err != nil {
			return err
		}
	}
	t.key = got.Token
	if err := keepInstance(ctx, e, s, t, kept); err != nil {
		return err
	}

	// It is the current one from now on.
	s.config.Current = name
	e.startChange()
	if err := e.saveConfig(s.config); err != nil {
		return err
	}
	e.reportChange("you are logged in to %s, in the context %s", kept.Server, name)

	if asJSON {
		return e.printJSON(struct {
			Context   string `json:"context"`
			Server    string `json:"server"`
			Instance  string `json:"instance,omitempty"`
			Email     string `json:"email"`
			Role      string `json:"role"`
			ExpiresAt int64  `json:"expires_at"`
		}{name, kept.Server, kept.Instance, got.Operator.Email, got.Operator.Role, got.ExpiresAt})
	}
	about := ""
	if kept.Instance != "" {
		about = ", instance " + kept.Instance
	}
	_, err = fmt.Fprintf(e.out, "Logged in to %s as %s (%s) until %s.\nThe current context is %s%s.\n",
		kept.Server, plain(got.Operator.Email), plain(got.Operator.Role), moment(kept.Login.expires()), name, about)
	return err
}

// keepInstance puts the instance that was asked for into a context, or the only one there is.
func keepInstance(ctx context.Context, e *env, s *connection, t target, kept *serverContext) error {
	c, err := controlClient(e, t, 0)
	if err != nil {
		return err
	}
	want := s.instance.value
	found, err := (&operating{Client: c, connection: s, env: e}).instance(ctx, want)
	if err != nil {
		if want != "" {
			return err
		}
		return nil // None or several: commands will ask which one.
	}
	if kept.Instance != found.Name {
		kept.Keys = nil // those of another instance
	}
	kept.Instance = found.Name
	return nil
}

// base is the address of the server, below whose host name all its hosts are.
func (s *connection) base() (string, error) {
	u, err := s.address()
	if err != nil {
		return "", err
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	switch {
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	case net.ParseIP(host) == nil:
		host = baseDomain(host)
	}
	return (&url.URL{Scheme: u.Scheme, Host: host + portOf(u), Path: strings.TrimSuffix(u.Path, "/")}).String(), nil
}

// nameFor returns the name of a context for a server: that of an existing one, or the server's host with the port.
func (c *config) nameFor(base string) string {
	if now := c.Contexts[c.Current]; now != nil && now.Server == base {
		return c.Current
	}
	for _, name := range c.names() {
		if c.Contexts[name].Server == base {
			return name
		}
	}
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	name := u.Host
	for i := 2; c.Contexts[name] != nil; i++ {
		name = fmt.Sprintf("%s-%d", u.Host, i)
	}
	return name
}

func (c *config) names() []string {
	names := make([]string, 0, len(c.Contexts))
	for name := range c.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func logoutCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Invalidate the login of a context and forget it",
		Long: `Invalidate the token of a context on the server, and forget it. API keys of the context stay; 'j17 context delete' forgets the
whole context.`,
		Example: "  j17 logout\n  j17 logout --context example.com",
		Args:    noArgs,
	}
	var r remote
	var asJSON bool
	cmd.Flags().StringVar(&r.context, "context", "", "`name` of the context (J17_CONTEXT; else the current one)")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Which context.
		name := cmp.Or(r.context, e.getenv("J17_CONTEXT"))
		kept, err := e.config()
		if err != nil {
			return err
		}
		if r.context = cmp.Or(name, kept.Current); r.context == "" {
			return unauthorized("There is no context to log out of.")
		}

		s, err := e.connection(&r)
		if err != nil {
			return err
		}
		l := s.loginOf()
		if l == nil {
			return unauthorized("You are not logged in in the context %s.", s.context.value)
		}

		// It is deleted here first: whatever the server answers, it is not used again on this machine.
		s.chosen.Login = nil
		e.startChange()
		if err := e.saveConfig(s.config); err != nil {
			return err
		}
		t, err := s.control()
		if err != nil {
			return err
		}

		// The server revokes it, so that nobody else can use it either.
		t.key = l.Token
		c, err := controlClient(e, t, 0)
		if err != nil {
			return err
		}
		var answer json.RawMessage
		err = (&operating{Client: c, connection: s, env: e}).call(
			cmd.Context(), http.MethodPost, []string{"logout"}, nil, nil, &answer,
		)
		if err != nil && j17.CodeOf(err) != j17.CodeUnauthorized { // void already
			return fmt.Errorf("the login is forgotten here, but the server could not be told, where it is valid until %s: %w", moment(l.expires()), err)
		}

		e.reportChange("you are logged out of %s", s.url.value)
		if asJSON {
			return e.printJSON(struct {
				Context   string `json:"context"`
				Server    string `json:"server"`
				LoggedOut bool   `json:"logged_out"`
			}{s.context.value, s.url.value, true})
		}
		_, err = fmt.Fprintf(e.out, "Logged out of %s.\n", s.url.value)
		return err
	}
	return cmd
}

func whoamiCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "whoami",
		Short:   "Show who you are logged in as, and where",
		Example: "  j17 whoami\n  j17 whoami --context staging --json",
		Args:    noArgs,
	}

	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodGet, []string{"me"}, nil, nil, &raw); err != nil {
			return err
		}

		var me wire.Operator
		if err := json.Unmarshal(raw, &me); err != nil {
			return err
		}
		var until time.Time
		if l := o.connection.loginOf(); l != nil && l.Token == o.connection.token.value {
			until = l.expires()
		}
		if asJSON {
			return e.printJSON(struct {
				wire.Operator
				Server  string    `json:"server"`
				Context string    `json:"context,omitempty"`
				Until   time.Time `json:"until,omitzero"`
			}{me, o.connection.url.value, o.connection.context.value, until})
		}

		// Who, where and for how long.
		rows := [][]string{{"role", me.Role}, {"id", me.ID}, {"server", o.connection.url.value}}
		if len(me.Instances) > 0 {
			rows = append(rows, []string{"instances", strings.Join(me.Instances, ", ")})
		}
		if o.connection.context.value != "" {
			rows = append(rows, []string{"context", o.connection.context.value})
		}
		if !until.IsZero() {
			rows = append(rows, []string{
				"until", fmt.Sprintf("%s (%s)", moment(until), until.Sub(clock.System{}.Now()).Round(time.Minute)),
			})
		}
		return e.printTable([]string{"email", me.Email}, rows)
	}
	return cmd
}
