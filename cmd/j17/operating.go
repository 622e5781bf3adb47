package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

// operating is an operator's connection to the control plane of a server.
type operating struct {
	*client.Client
	connection *connection
	env        *env
	// scratch reports that changes are undone at the end of the command.
	scratch bool
	// about is the environment and the instance that the command is about, if any.
	about struct {
		environment j17.Environment
		instance    string
	}
	// told is true once the user was told what is going to be changed.
	told bool
}

// where names what the command is about, for people.
func (o *operating) where() string {
	base, err := o.connection.base()
	if err != nil {
		base = o.connection.url.value
	}
	switch about := o.about; {
	case about.instance == "":
		return base
	case about.environment == "":
		return fmt.Sprintf("%s of %s", plain(about.instance), base)
	default:
		u, err := o.connection.address()
		var t target
		if err == nil {
			err = t.instance(u, about.instance, about.environment)
		}
		if err == nil && t.host != "" {
			u.Host = t.host + portOf(u)
		}
		if err != nil {
			return fmt.Sprintf("%s of %s, %s", about.environment, plain(about.instance), base)
		}
		return fmt.Sprintf("%s of %s", about.environment, u)
	}
}

const (
	// longRequest bounds requests that deploy or carry a blob.
	longRequest = time.Hour
	// controlAttempts is how often a request is sent at most while a person waits for it.
	controlAttempts = 3
)

// operate returns the connection of an operator who has logged in. The development server of the data folder needs no
// login.
func operate(e *env, cmd *cobra.Command, r *remote) (*operating, error) {
	s, err := e.connection(r)
	if err != nil {
		return nil, err
	}
	t, err := s.control()
	if err != nil {
		return nil, err
	}
	t.key = s.token.value
	l := s.loginOf()
	expired := l != nil && t.key == l.Token && !clock.System{}.Now().Before(l.expires())
	switch {
	case (t.key == "" || expired) && s.hasDev && s.isDev():
		if t.key, err = devToken(cmd.Context(), e, s, t); err != nil {
			return nil, err
		}
	case t.key == "":
		return nil, unauthorized("You are not logged in to %s. Log in with 'j17 login %[1]s', or set J17_TOKEN or J17_TOKEN_FILE.", s.url.value)
	case expired:
		return nil, unauthorized("Your login to %s has expired, on %s. Log in again: j17 login --context %s", s.url.value, moment(l.expires()), s.context.value)
	}
	if err := t.checkCredential("token"); err != nil {
		return nil, err
	}
	c, err := controlClient(e, t, longRequest)
	return &operating{Client: c, connection: s, env: e}, err
}

// devLogin is the file in a data folder that keeps the token of its operator: checking a password is slow on purpose.
const devLogin = "dev-login.json"

// devToken returns a token of the operator of the data folder: the stored one, as long as the server accepts it, or
// that of a new login.
func devToken(ctx context.Context, e *env, s *connection, t target) (string, error) {
	const longest = 1 << 16
	file := filepath.Join(s.folder, devLogin)
	var kept struct {
		Token string `json:"token"`
	}
	if raw, err := e.readAll(file, longest, ""); err == nil && json.Unmarshal(raw, &kept) == nil && kept.Token != "" {
		with := t
		with.key = kept.Token
		taken, err := takesOperators(ctx, e, with)
		if err != nil || taken {
			return kept.Token, err
		}
	}
	c, err := controlClient(e, t, 0)
	if err != nil {
		return "", err
	}
	got, err := logIn(ctx, c, s.dev.Operator.Email, s.dev.Operator.Password)
	if err != nil {
		return "", interrupted(ctx, fmt.Errorf("logging in to the development server of the data folder failed: %w", err))
	}
	kept.Token = got.Token
	if raw, err := json.Marshal(kept); err == nil {
		_ = replace(file, append(raw, '\n'), 0o600) // without it the next command logs in again
	}
	return got.Token, nil
}

// takesOperators reports whether a server accepts the token of a target.
func takesOperators(ctx context.Context, e *env, t target) (bool, error) {
	if t.checkCredential("token") != nil {
		return false, nil //nolint:nilerr // a file that was damaged holds no token
	}
	c, err := controlClient(e, t, 0)
	if err != nil {
		return false, err
	}
	var me json.RawMessage
	err = c.Call(ctx, client.Request{Path: []string{"api", "me"}}, &me)
	taken := err == nil
	if j17.CodeOf(err) == j17.CodeUnauthorized {
		err = nil
	}
	return taken, interrupted(ctx, err)
}

func unauthorized(format string, args ...any) error {
	return &j17.Error{Code: j17.CodeUnauthorized, Message: fmt.Sprintf(format, args...)}
}

// loginOf is the login of the context, nil where there is none.
func (s *connection) loginOf() *login {
	if s.chosen == nil {
		return nil
	}
	return s.chosen.Login
}

// isDev reports whether the address is that of the data folder's server.
func (s *connection) isDev() bool { return s.isDevAt(s.url.value) }

func (s *connection) isDevAt(address string) bool {
	u, err := url.Parse(address)
	if err != nil || !local(u.Hostname()) {
		return false
	}
	dev, err := url.Parse(s.dev.URL)
	return err == nil && dev.Port() == u.Port()
}

// control is the control plane that the connection leads to, without a credential.
func (s *connection) control() (target, error) {
	u, err := s.address()
	if err != nil {
		return target{}, err
	}
	t := target{url: s.url.value}
	if t.roots, err = trusted(s.caFile.value); err != nil {
		return target{}, err
	}
	if err := t.below(u, controlLabel); err != nil {
		return target{}, usageError{err}
	}
	return t, nil
}

// controlClient returns a client for the routes of operators.
func controlClient(e *env, t target, timeout time.Duration) (*client.Client, error) {
	c, err := client.New(client.Options{
		URL: t.url, Host: t.host, Key: t.key, RootCAs: t.roots, Clock: clock.System{}, Timeout: timeout,
		Attempts: controlAttempts,
		Retrying: e.retrying(clock.System{}),
	})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

func logIn(ctx context.Context, c *client.Client, email, password string) (wire.LoggedIn, error) {
	var got wire.LoggedIn
	err := c.Call(ctx, client.Request{
		Method: http.MethodPost, Path: []string{"api", "login"}, Body: wire.Login{Email: email, Password: password},
	}, &got)
	if err == nil && got.Token == "" {
		err = errors.New("the server's answer to the login has no token")
	}
	return got, err
}

// call sends a request below /api and decodes its answer.
func (o *operating) call(ctx context.Context, method string, path []string, query url.Values, body, into any) error {
	return o.change(ctx, method != http.MethodGet, func() error {
		return o.Call(
			ctx, client.Request{Method: method, Path: append([]string{"api"}, path...), Query: query, Body: body}, into,
		)
	})
}

// change sends a request; changes reports whether it changes something. If so and it has succeeded, the command reports
// that even if its output fails.
func (o *operating) change(ctx context.Context, changes bool, send func() error) error {
	changes = changes && !o.scratch
	if changes {
		o.env.startChange()
		if !o.told && !o.connection.ofFolder() {
			o.env.note("Changing %s.\n", o.where())
		}
		o.told = true
	}
	err := send()
	if changes && err == nil {
		o.env.reportChange("the change was made")
	}
	return o.explained(ctx, err)
}

// rows gathers a list below /api; count is the most that is wanted, 0 for all.
func (o *operating) rows(
	ctx context.Context, path []string, query url.Values, plural string, count int,
) ([]json.RawMessage, error) {
	all := []json.RawMessage{}
	for row, err := range o.Rows(ctx, append([]string{"api"}, path...), query, plural, count) {
		if err != nil {
			return nil, o.explained(ctx, err)
		}
		all = append(all, row)
	}
	return all, nil
}

// explained adds to an error what to do about it.
func (o *operating) explained(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Problem.Code == j17.CodeUnauthorized &&
		o.connection.token.value != "" {
		again := "j17 login " + o.connection.url.value
		if o.connection.context.value != "" {
			again = "j17 login --context " + o.connection.context.value
		}
		return unauthorized("The server no longer accepts your login: it has expired or was revoked. Log in again: %s", again)
	}
	return interrupted(ctx, explained(o.env, inCommands(o.env, err)))
}

// inCommands replaces the parts of the API that a server's error names by commands and flags.
func inCommands(e *env, err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	words := []string{
		"GET /api/instances/{id}/keys lists them", "'j17 keys list' lists them",
		"GET /api/instances lists them", "'j17 instances list' lists them",
		"GET events lists those that there are", "'j17 events tail --before now' lists the newest ones",
		"GET /_audit/checkpoint tells how large it is", "'j17 audit checkpoint' tells how large it is",
		"GET tombstones lists them", "'j17 tombstone list' lists them",
		"POST /_admin/blobs", "j17 blobs put FILE", "POST /api/login", "j17 login",
		`ask with "again": true`, "ask with --again", "Wait, or force it", "Wait, or execute it with --force",
		`"force": true`, "--force",
	}
	if !e.machine { // who sees the errors above the message, and no member of that name
		words = append(
			words, "'errors' says where", "It is said above where", "what 'errors' lists", "what is listed above",
		)
	}
	refused.Problem.Message = strings.NewReplacer(words...).Replace(refused.Problem.Message)
	return err
}

// instance finds the instance that a command is about: by name or id, or the only one there is.
func (o *operating) instance(ctx context.Context, want string) (wire.Instance, error) {
	raw, err := o.rows(ctx, []string{"instances"}, nil, "instances", 0)
	if err != nil {
		return wire.Instance{}, err
	}
	all, err := decodeRows[wire.Instance](raw)
	if err != nil {
		return wire.Instance{}, err
	}
	var names []string
	for _, i := range all {
		if i.ID == want || i.Name == want {
			return i, nil
		}
		names = append(names, i.Name)
	}
	switch {
	case want != "":
		return wire.Instance{}, notFound("There is no instance %q here, or none that you may see. 'j17 instances list' shows them.", want)
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return wire.Instance{}, notFound("There is no instance that you may see. Platform admins make one with 'j17 instances create NAME'.")
	default:
		return wire.Instance{}, usageError{fmt.Errorf("there are several instances (%s): say which one with --instance", strings.Join(names, ", "))}
	}
}

func notFound(format string, args ...any) error {
	return &j17.Error{Code: j17.CodeNotFound, Message: fmt.Sprintf(format, args...)}
}

// chosenInstance is the instance that flags, variables or the context name.
func (o *operating) chosenInstance(ctx context.Context) (wire.Instance, error) {
	want := o.connection.instance.value
	if want == "" && o.connection.isDev() && o.connection.hasDev {
		want = devInstance
	}
	found, err := o.instance(ctx, want)
	o.about.instance = found.Name
	return found, err
}

// environment returns the environment that a command is about: fallback, if none is named.
func (o *operating) environment(fallback j17.Environment) (j17.Environment, error) {
	want, err := o.connection.environment()
	if want == "" {
		want = fallback
	}
	o.about.environment = want
	return want, err
}

func decodeRows[T any](raw []json.RawMessage) ([]T, error) {
	rows := make([]T, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &rows[i]); err != nil {
			return nil, fmt.Errorf("the server's answer cannot be read: %w", err)
		}
	}
	return rows, nil
}

// printTable prints rows under a header. Characters that terminals obey are left out.
func (e *env) printTable(header []string, rows [][]string) error {
	t := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = plain(cell)
		}
		if _, err := io.WriteString(t, strings.TrimRight(strings.Join(cells, "\t"), "\t")+"\n"); err != nil {
			return err
		}
	}
	return t.Flush()
}

// printFurther prints a table behind another one, where it has rows.
func (e *env) printFurther(header []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := io.WriteString(e.out, "\n"); err != nil {
		return err
	}
	return e.printTable(header, rows)
}

// plain returns a text on one line without characters that terminals obey; "-" stands for none.
func plain(s string) string {
	s = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, s)
	if s == "" {
		return "-"
	}
	return s
}

// printRows prints rows of the server as an array of JSON, or as a table that describe makes.
func printRows[T any](e *env, raw []json.RawMessage, asJSON bool, header []string, describe func(T) []string) error {
	if asJSON {
		return e.printJSON(raw)
	}
	rows, err := decodeRows[T](raw)
	if err != nil {
		return err
	}
	cells := make([][]string, len(rows))
	for i, row := range rows {
		cells[i] = describe(row)
	}
	return e.printTable(header, cells)
}

// listing describes a command that lists things of an environment.
type listing[T any] struct {
	short, example string
	// note is shown to people beside the table.
	note string
	// path is where the rows are below the environment. The member of the answer with the rows has the same name, with
	// "_" for "-".
	path string
	// filters are the flags that select rows.
	filters []rowFilter
	// limit, where it is not 0, is the most rows there are unless --limit says otherwise.
	limit    int
	header   []string
	describe func(T) []string
}

// rowFilter is a flag that takes a text, and the parameter of the same name that it becomes.
type rowFilter struct {
	name, usage string
	// words, if any, are the only values that it takes.
	words []string
}

// withStatus is the flag for rows with one status.
func withStatus(words ...string) rowFilter {
	last := len(words) - 1
	return rowFilter{
		"status", "only those with a `status`: " + strings.Join(words[:last], ", ") + " or " + words[last], words,
	}
}

// text declares the flag.
func (f *rowFilter) text(cmd *cobra.Command) *string {
	given := cmd.Flags().String(f.name, "", f.usage)
	if f.words != nil {
		// The flag exists and has no function yet, so registering cannot fail.
		_ = cmd.RegisterFlagCompletionFunc(f.name, cobra.FixedCompletions(f.words, cobra.ShellCompDirectiveNoFileComp))
	}
	return given
}

// check says what is wrong with the text that was given, "" for none.
func (f *rowFilter) check(given string) error {
	if given == "" || f.words == nil {
		return nil
	}
	return oneOf("--"+f.name, given, f.words...)
}

// listCommand is the command that lists something.
func listCommand[T any](e *env, l listing[T]) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "list", Short: l.short, Example: l.example, Args: noArgs}
	r := opsFlags(cmd)
	given := make([]*string, len(l.filters))
	for i := range l.filters {
		given[i] = l.filters[i].text(cmd)
	}
	limit := 0
	if l.limit > 0 {
		cmd.Flags().IntVar(&limit, "limit", l.limit, "at most this `number` of rows; 0 for all")
	}
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Which rows are asked for.
		query := url.Values{}
		for i := range l.filters {
			f := &l.filters[i]
			if err := f.check(*given[i]); err != nil {
				return err
			}
			if *given[i] != "" {
				query.Set(f.name, *given[i])
			}
		}
		count := 0 // all
		if limit < 0 {
			return usageError{errors.New("--limit must be 0 or more")}
		} else if limit > 0 {
			count = limit + 1 // one more shows whether there are more
		}

		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), l.path)
		if err != nil {
			return err
		}
		rows, err := o.rows(cmd.Context(), path, query, strings.ReplaceAll(l.path, "-", "_"), count)
		if err != nil {
			return err
		}
		if limit > 0 && len(rows) > limit {
			rows = rows[:limit]
			e.note("There are more than these; --limit says how many are shown.\n")
		}
		if l.note != "" && !asJSON && len(rows) > 0 {
			e.note("%s\n", l.note)
		}
		return printRows(e, rows, asJSON, l.header, l.describe)
	}
	return cmd
}

// opsCall sends a request below the environment that the command is about.
func (o *operating) opsCall(ctx context.Context, method string, body any, more ...string) (json.RawMessage, error) {
	path, err := o.opsPath(ctx, more...)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	err = o.call(ctx, method, path, nil, body, &raw)
	return raw, err
}

// opsRead reads below the environment that the command is about.
func (o *operating) opsRead(ctx context.Context, query url.Values, more ...string) (json.RawMessage, error) {
	path, err := o.opsPath(ctx, more...)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	err = o.call(ctx, http.MethodGet, path, query, nil, &raw)
	return raw, err
}

// opsAsk sends a spec, the text of a file, below the environment that the command is about, to a route that answers and
// changes nothing. The findings of a refusal are shown at their places in the file.
func (o *operating) opsAsk(
	ctx context.Context, query url.Values, name string, source []byte, more ...string,
) (json.RawMessage, error) {
	path, err := o.opsPath(ctx, more...)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	err = o.Call(ctx, client.Request{
		Method: http.MethodPost, Path: append([]string{"api"}, path...), Query: query, Body: source, Repeatable: true,
	}, &raw)
	o.showRefusal(err, name, source)
	return raw, o.explained(ctx, err)
}

// verb is a command on one thing of an environment, whose id or name is its argument: a request, and how its answer is
// printed.
type verb[T any] struct {
	use, short, long, example string
	method                    string
	// path is that of the request below the environment; "{}" stands for the argument.
	path string
	// confirm, where it is not "", is asked first unless --yes is given; "{}" stands for the argument.
	confirm string
	// show prints an answer for people.
	show func(*env, T) error
}

func verbCommand[T any](e *env, v verb[T]) *cobra.Command {
	var asJSON bool
	yes := true
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example, Args: exactly(strings.Fields(v.use)[1]),
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)
	if v.confirm != "" {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !yes {
			if err := e.confirm(cmd.Context(), yes, strings.ReplaceAll(v.confirm, "{}", plain(args[0]))); err != nil {
				return err
			}
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path := strings.Split(v.path, "/")
		for i := range path {
			if path[i] == "{}" {
				path[i] = args[0]
			}
		}
		raw, err := o.opsCall(cmd.Context(), v.method, nil, path...)
		if err != nil {
			return err
		}
		return printAs(e, raw, asJSON, v.show)
	}
	return cmd
}

// printAs prints an answer as JSON, or for people.
func printAs[T any](e *env, raw json.RawMessage, asJSON bool, show func(*env, T) error) error {
	if asJSON {
		return e.printAnswer(raw)
	}
	answer, err := decoded[T](raw)
	if err != nil {
		return err
	}
	return show(e, answer)
}

// onOneLine prints an answer on one line.
func onOneLine[T any](line func(T) string) func(*env, T) error {
	return func(e *env, answer T) error {
		_, err := fmt.Fprintln(e.out, printable(line(answer)))
		return err
	}
}

// inOneRow prints an answer as the only row of a table.
func inOneRow[T any](header func() []string, row func(T) []string) func(*env, T) error {
	return func(e *env, answer T) error { return e.printTable(header(), [][]string{row(answer)}) }
}

// printAnswer prints an answer of the server as JSON, without the member "ok".
func (e *env) printAnswer(raw json.RawMessage) error {
	text := string(raw)
	if rest, ok := strings.CutPrefix(text, `{"ok":true`); ok {
		text = "{" + strings.TrimPrefix(rest, ",")
	}
	_, err := io.WriteString(e.out, text+"\n")
	return err
}

// moment is a time for people.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// when turns a time of the server into one for people, "" for none.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return moment(t)
}

// confirm asks a person before something that cannot easily be undone. Without a terminal, only --yes confirms.
func (e *env) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !terminal(e.in) {
		return usageError{errors.New("this needs a confirmation, and there is no terminal to ask on: pass --yes")}
	}
	e.note("%s [y/N] ", question)
	answer, err := e.line(ctx)
	if err != nil {
		return err
	}
	if answer = strings.ToLower(answer); answer != "y" && answer != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

// confirmName has a person type the name of something that will be deleted for good. Without a terminal, only --yes
// confirms.
func (e *env) confirmName(ctx context.Context, yes bool, what, name string) error {
	if yes {
		return nil
	}
	if !terminal(e.in) {
		return usageError{errors.New("this needs a confirmation, and there is no terminal to ask on: pass --yes")}
	}
	e.note("%s Type %s to confirm: ", what, plain(name))
	answer, err := e.line(ctx)
	if err == nil && answer != name {
		err = errors.New("nothing was done: that is another name")
	}
	return err
}

// line reads a line from the user.
func (e *env) line(ctx context.Context) (string, error) {
	const longest = 4 << 10
	in, b := e.interruptible(e.in), make([]byte, 1)
	var s strings.Builder
	for s.Len() < longest {
		n, err := in.Read(b)
		if n > 0 && b[0] == '\n' {
			break
		}
		s.Write(b[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", interrupted(ctx, err)
		}
	}
	return strings.TrimSpace(s.String()), nil
}

// group is a command that consists of subcommands.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// jsonFlag declares --json.
func jsonFlag(cmd *cobra.Command, into *bool) { cmd.Flags().BoolVar(into, "json", false, "print JSON") }
