package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/edge/client"
	"j17/internal/server"
)

// remote is how a command finds its server: its flags as they were given.
type remote struct {
	url, key, env, data, context, instance, caFile string
}

// Where a development server is by default.
const (
	defaultURL  = "http://localhost:17000"
	defaultData = "j17-data"
	// devInstance and devDomain make up the hosts of a server that is reached by a bare address.
	devInstance = "app"
	devDomain   = "localhost"
	// controlLabel starts the host of the routes of operators.
	controlLabel = "control"
)

// remoteFlags declares the flags of every command that talks to an environment.
func remoteFlags(cmd *cobra.Command) *remote {
	r := serverFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.key, "key", "", "API `key` (J17_KEY or J17_KEY_FILE; else that of the context; else, for a server on this machine, from the data folder)")
	environmentFlag(cmd, r)
	instanceFlag(cmd, r)
	return r
}

// serverFlags declares the flags of every command that talks to a server.
func serverFlags(cmd *cobra.Command) *remote {
	var r remote
	f := cmd.Flags()
	f.StringVar(&r.url, "url", "", "`URL` of the server (J17_URL; else that of the context, of the data folder, or "+defaultURL+")")
	f.StringVar(&r.context, "context", "", "`name` of the context to use (J17_CONTEXT; else the current one, see 'j17 context')")
	f.StringVar(&r.caFile, "ca-file", "", "`file` of the authorities whose certificates are trusted (J17_CA_FILE)")
	f.StringVar(&r.data, "data", "", "data `folder` of a development server (J17_DATA; else "+defaultData+")")
	return &r
}

func environmentFlag(cmd *cobra.Command, r *remote) {
	cmd.Flags().StringVar(&r.env, "env", "", "`environment`: prod, staging or test (J17_ENV; else that of the context, or the one that the URL names)")
}

func instanceFlag(cmd *cobra.Command, r *remote) {
	cmd.Flags().StringVar(&r.instance, "instance", "", "`name` of the instance (J17_INSTANCE; else that of the context, or the one that the URL names)")
}

// target is a server, one of its environments, and the credential for it.
type target struct {
	url, host, key string
	roots          *x509.CertPool
}

// sourced is a setting and where it comes from.
type sourced struct{ value, from string }

// connection is the settings that a command uses: flags, then the context that a flag names, then variables, then the
// development server of the folder if it runs, then the current context, then what a development server has left in its
// data folder.
type connection struct {
	// context is the name of the context in use, "" where there is none.
	context, url, instance, env, key, token, caFile sourced
	// chosen is the context itself, nil where there is none.
	chosen *serverContext
	config *config
	dev    server.DevAccess
	hasDev bool
	// folder is the data folder of dev; named reports that it was named.
	folder string
	named  bool
}

// connection is the only place that decides which server, environment and credentials a command uses.
func (e *env) connection(r *remote) (*connection, error) {
	s := &connection{}
	var err error
	if s.config, err = e.config(); err != nil {
		return nil, err
	}
	if r.context != "" && (r.url != "" || r.data != "") {
		return nil, usageError{errors.New("--context names a server, and so do --url and --data: give one of them")}
	}

	// A development server's folder, named or the usual one. Only one that is named has to be there.
	dir := cmp.Or(r.data, e.getenv("J17_DATA"))
	s.folder, s.named = cmp.Or(dir, defaultData), dir != ""
	if s.dev, err = server.ReadDevAccess(s.folder); err == nil {
		s.hasDev = true
	} else if dir != "" && errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(dir[:1], "{[@") {
		return nil, usageError{fmt.Errorf("--data names the data folder of a development server, and %s is none. An event's data is no flag: j17 events post TYPE/ID EVENT_TYPE '{…}' --actor TYPE:ID", fileName(dir))}
	} else if dir != "" && errors.Is(err, fs.ErrNotExist) {
		return nil, notYet{fmt.Errorf("the folder %s has no keys of a development server: start one with 'j17 dev --data %[1]s', or name another folder", fileName(dir))}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the keys of the development server cannot be read: %w", err)
	}

	// The context, and what it has.
	if err := s.choose(e, r); err != nil {
		return nil, err
	}
	var kept serverContext
	if s.chosen != nil {
		kept = *s.chosen
	}

	// Flags come before variables, and these before the context, unless a flag names the context.
	pick := func(flag, given, variable, inContext string) sourced {
		v := e.getenv(variable)
		ofContext := sourced{inContext, "context " + s.context.value}
		for _, c := range []sourced{
			{given, "--" + flag}, sourcedIf(r.context != "", ofContext), {v, variable}, ofContext,
		} {
			if c.value != "" {
				return c
			}
		}
		return sourced{}
	}

	s.instance = pick("instance", r.instance, "J17_INSTANCE", kept.Instance)
	s.env = pick("env", r.env, "J17_ENV", string(kept.Environment))
	s.caFile = pick("ca-file", r.caFile, "J17_CA_FILE", kept.CAFile)
	return s, s.credentials(e, r, kept)
}

// noKey is the error of a command for which there is no API key.
type noKey struct{ error }

func (e noKey) Unwrap() error { return e.error }

// notYet is the error of a connection that will work once a development server is started.
type notYet struct{ error }

func (e notYet) Unwrap() error { return e.error }

func sourcedIf(ok bool, s sourced) sourced {
	if ok {
		return s
	}
	return sourced{}
}

// choose picks the address. Where an address is given by itself, no context is used.
func (s *connection) choose(e *env, r *remote) error {
	variable := e.getenv("J17_URL")
	named := sourced{r.context, "--context"}
	switch {
	case r.context != "":
	case r.url != "":
		s.url = sourced{r.url, "--url"}
		return nil
	case variable != "":
		s.url = sourced{variable, "J17_URL"}
		return nil
	case s.named:
	case e.getenv("J17_CONTEXT") != "":
		named = sourced{e.getenv("J17_CONTEXT"), "J17_CONTEXT"}
	case s.config.Current != "" && !s.beforeCurrent(e):
		named = sourced{s.config.Current, "current context"}
	}
	if named.value != "" {
		ctx, err := s.config.context(named.value)
		if err != nil {
			return err
		}
		s.context, s.chosen = named, ctx
		s.url = sourced{ctx.Server, "context " + named.value}
		return nil
	}
	s.url = sourced{defaultURL, "default"}
	if s.dev.URL != "" {
		s.url = sourced{s.dev.URL, "data folder"}
	}
	return nil
}

// beforeCurrent reports whether the development server of this folder comes before the current context: it runs, and
// the context is for another server.
func (s *connection) beforeCurrent(e *env) bool {
	if !s.hasDev || s.dev.URL == "" || e.answers == nil {
		return false
	}
	current := s.config.Contexts[s.config.Current]
	if current != nil && s.isDevAt(current.Server) {
		return false
	}
	return e.answers(s.dev)
}

// aMoment is how long a server on this machine may take to show that it is there.
const aMoment = time.Second

// devAnswers reports whether the server of a data folder answers at its URL, rather than another one that has its port
// by now. The server identifies itself without a credential.
func devAnswers(ctx context.Context, dev server.DevAccess) bool {
	u, err := url.Parse(dev.URL)
	if err != nil || !local(u.Hostname()) {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("livez").String(), nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: aMoment}).Do(req)
	if err != nil {
		return false
	}
	return errors.Join(resp.Body.Close()) == nil && resp.StatusCode == http.StatusOK &&
		dev.Sign != "" && resp.Header.Get(server.SignHeader) == dev.Sign
}

// credentials adds the API key and the operator's token. Those of a context are only for its server and its instance.
func (s *connection) credentials(e *env, r *remote, kept serverContext) error {
	fromContext := sourced{from: "context " + s.context.value}
	if s.chosen != nil && s.instance.value == kept.Instance {
		fromContext.value = kept.Keys[cmp.Or(j17.Environment(s.env.value), j17.Prod)]
	}
	key, err := e.secret("J17_KEY", "a key")
	if err != nil {
		return err
	}
	for _, c := range []sourced{{r.key, "--key"}, sourcedIf(r.context != "", fromContext), key, fromContext} {
		if s.key.value == "" && c.value != "" {
			s.key = c
		}
	}
	token, err := e.secret("J17_TOKEN", "a token")
	if err != nil {
		return err
	}
	var logged sourced
	if kept.Login != nil {
		logged = sourced{kept.Login.Token, "context " + s.context.value}
	}
	for _, c := range []sourced{sourcedIf(r.context != "", logged), token, logged} {
		if s.token.value == "" && c.value != "" {
			s.token = c
		}
	}
	return nil
}

// secret reads a variable, or the file that the variable with _FILE names.
func (e *env) secret(variable, what string) (sourced, error) {
	if v := e.getenv(variable); v != "" {
		return sourced{v, variable}, nil
	}
	file := e.getenv(variable + "_FILE")
	if file == "" {
		return sourced{}, nil
	}
	raw, err := e.readText(file, 1<<20, "It should hold nothing but "+what+".")
	if err != nil {
		return sourced{}, fmt.Errorf("%s_FILE: %w", variable, err)
	}
	return sourced{strings.TrimSpace(string(raw)), variable + "_FILE"}, nil
}

// address is the URL in parts.
func (s *connection) address() (*url.URL, error) {
	u, err := url.Parse(s.url.value)
	if err != nil || u.Hostname() == "" {
		return nil, usageError{fmt.Errorf("%q is no URL of a server; it has the form %s", s.url.value, defaultURL)}
	}
	return u, nil
}

// environment returns the environment that was asked for, "" where the address decides.
func (s *connection) environment() (j17.Environment, error) {
	if s.env.value == "" {
		return "", nil
	}
	want, err := j17.ParseEnvironment(s.env.value)
	if err != nil {
		return "", usageError{err}
	}
	return want, nil
}

// resolve returns the environment that a command talks to.
func (e *env) resolve(r *remote) (target, error) {
	s, err := e.connection(r)
	if err != nil {
		return target{}, err
	}
	return s.target()
}

// target is the environment that the connection leads to.
func (s *connection) target() (target, error) {
	t := target{url: s.url.value, key: s.key.value}
	want, err := s.environment()
	if err != nil {
		return target{}, err
	}
	u, err := s.address()
	if err != nil {
		return target{}, err
	}
	if t.roots, err = trusted(s.caFile.value); err != nil {
		return target{}, err
	}

	// The environment, by the name of the instance or by the address itself.
	if s.instance.value == "" {
		err = t.address(u, want)
	} else {
		err = t.instance(u, s.instance.value, want)
	}
	if err != nil {
		return target{}, usageError{err}
	}
	// The keys of a folder are for its server. Naming the folder together with an address on this machine declares the
	// two to be one.
	ours := s.hasDev && local(u.Hostname()) && (s.named || s.isDev())
	if t.key == "" && ours && (s.instance.value == "" || s.instance.value == devInstance) {
		s.key = sourced{
			s.dev.Keys[environmentOf(cmp.Or(t.host, u.Hostname()), want)].Write,
			"the data folder " + fileName(s.folder),
		}
		t.key = s.key.value
	}
	if t.key == "" {
		err := noKey{usageError{fmt.Errorf("there is no API key for %s: pass --key, set J17_KEY or J17_KEY_FILE, make one with 'j17 keys create --save', or run this in the folder in which 'j17 dev' runs (or name its data folder with --data)", t.url)}}
		if local(u.Hostname()) {
			return target{}, notYet{err}
		}
		return target{}, err
	}
	return t, t.checkCredential("API key")
}

func (t *target) checkCredential(what string) error {
	if strings.ContainsFunc(t.key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return usageError{fmt.Errorf("the %s contains characters that no %[1]s has: it was not copied whole, or more than it was", what)}
	}
	return nil
}

// trusted returns the authorities in a file, nil for those of the machine where no file is named.
func trusted(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file) //nolint:gosec // the user names the file
	if err != nil {
		return nil, unreadable(file, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", fileName(file))
	}
	return roots, nil
}

// instance sets URL and Host header so that the request reaches an environment of an instance of the server at u.
func (t *target) instance(u *url.URL, instance string, want j17.Environment) error {
	if strings.HasPrefix(instance, "ins_") {
		return fmt.Errorf("--instance takes the name of the instance here, not its id %s: it is a part of the address", instance)
	}
	if want != "" && want != j17.Prod {
		instance += "-" + string(want)
	}
	return t.below(u, instance)
}

// below sets URL and Host header to a host directly below that of u.
func (t *target) below(u *url.URL, label string) error {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	_, numeric := netip.ParseAddr(name)
	switch {
	case numeric == nil && local(name):
		t.host = label + "." + baseDomain(name)
	case numeric == nil:
		return fmt.Errorf("the address %s has no host name, below which the server's hosts are: use a name such as example.com", u.Host)
	default:
		u.Host = label + "." + baseDomain(name) + portOf(u)
	}
	t.url = u.String()
	return nil
}

// baseDomain returns the host name below which a server has its hosts, from a name that was given for it: its own, that
// of its control plane, or one that a development server prints.
func baseDomain(name string) string {
	name = strings.TrimPrefix(name, controlLabel+".")
	if label, ok := strings.CutSuffix(name, "."+devDomain); ok {
		for _, env := range j17.Environments() {
			if label == devInstance || label == devInstance+"-"+string(env) {
				return devDomain
			}
		}
		return name
	}
	if local(name) { // by its number
		return devDomain
	}
	return name
}

// address sets URL and Host header so that the request reaches the environment that is wanted, "" for the one that the
// URL names.
func (t *target) address(u *url.URL, want j17.Environment) error {
	// Without a name, the host does not say which instance is meant, but on this machine there is a development server.
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	_, numeric := netip.ParseAddr(name)
	nameless := numeric == nil || name == devDomain
	switch {
	case nameless && want == "":
		return nil
	case nameless && local(name):
		name = devInstance + "." + devDomain
	case nameless:
		return fmt.Errorf("the address %s names no instance, so --env cannot pick its environment: use a host name such as app.example.com", u.Host)
	}

	// The environment is a part of the name.
	if want != "" {
		label, domain, ok := strings.Cut(name, ".")
		if !ok {
			return fmt.Errorf("the host %s names no instance, so --env cannot pick its environment: use a host name such as app.example.com", u.Host)
		}
		for _, env := range []j17.Environment{j17.Staging, j17.Test} {
			if short, ok := strings.CutSuffix(label, "-"+string(env)); ok {
				label = short
				break
			}
		}
		if want != j17.Prod {
			label += "-" + string(want)
		}
		name = label + "." + domain
	}

	// A number stays the address, and the name is sent as the Host header.
	if numeric == nil {
		t.host = name
	} else {
		u.Host = name + portOf(u)
	}
	t.url = u.String()
	return nil
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return ":" + port
	}
	return ""
}

// environmentOf is the environment that a request goes to.
func environmentOf(host string, want j17.Environment) j17.Environment {
	if want != "" {
		return want
	}
	label, _, _ := strings.Cut(host, ".")
	for _, env := range []j17.Environment{j17.Staging, j17.Test} {
		if strings.HasSuffix(label, "-"+string(env)) {
			return env
		}
	}
	return j17.Prod
}

// local reports whether a host name is this machine.
func local(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	ip := net.ParseIP(host)
	return host == devDomain || strings.HasSuffix(host, "."+devDomain) || ip != nil && ip.IsLoopback()
}

// connect returns the client that a command reads through. It notes attempts that are repeated.
func (e *env) connect(r *remote) (*client.Client, error) {
	c, _, err := e.reach(r)
	return c, err
}

// connectToWrite returns the client that a command writes through. Where it leads to another server than that of this
// folder, it notes which one.
func (e *env) connectToWrite(r *remote) (*client.Client, error) {
	c, where, err := e.reach(r)
	if err == nil && where != "" {
		e.note("Writing to %s.\n", where)
	}
	return c, err
}

// reach returns a client for the environment that a command is about, and its name, "" if it is that of this folder's
// server.
func (e *env) reach(r *remote) (*client.Client, string, error) {
	s, err := e.connection(r)
	if err != nil {
		return nil, "", err
	}
	t, err := s.target()
	if err != nil {
		return nil, "", err
	}
	c, err := e.clientOf(s, t)
	if err != nil {
		return nil, "", err
	}
	if s.ofFolder() {
		return c, "", nil
	}
	want, err := s.environment()
	u, urlErr := url.Parse(c.URL())
	if err = errors.Join(err, urlErr); err != nil {
		return nil, "", err
	}
	return c, fmt.Sprintf("%s of %s", environmentOf(u.Hostname(), want), c.URL()), nil
}

// clientOf returns a client with an API key for an environment.
func (e *env) clientOf(s *connection, t target) (*client.Client, error) {
	c, err := client.New(client.Options{
		URL: t.url, Host: t.host, Key: t.key, RootCAs: t.roots, Clock: clock.System{},
		Retrying: e.retrying(clock.System{}), Advice: s.aboutKey,
	})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// ofFolder reports whether the connection leads to the development server of the data folder.
func (s *connection) ofFolder() bool { return s.hasDev && s.isDev() }

// aboutKey says where a key that was refused was found, and what to do, "" for a refusal of something else.
func (s *connection) aboutKey(refusal j17.Code) string {
	var advice string
	//nolint:exhaustive // all others are not about keys
	switch refusal {
	case j17.CodeUnauthorized:
		advice = "Give another one with --key or J17_KEY; 'j17 keys create' makes one."
	case j17.CodeWrongEnvironment:
		advice = "Give one of this environment with --key or J17_KEY, or name the environment of this key with --env."
	case j17.CodeWrongInstance:
		advice = "Give one of this instance with --key or J17_KEY, or name the instance of this key with --instance."
	case j17.CodeInsufficientScope:
		advice = "Give one that may write with --key or J17_KEY; 'j17 keys create --scope write' makes one."
	default:
		return ""
	}
	return "The key is from " + s.key.from + ". " + advice
}

// retrying returns a function that notes a request that is repeated. Of requests that fail side by side it notes only
// one.
func (e *env) retrying(c clock.Clock) func(err error, wait time.Duration) {
	var mu sync.Mutex
	var until time.Time
	return func(err error, wait time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now := c.Now()
		if now.Before(until) {
			return
		}
		until = now.Add(wait)
		e.note("%v Trying again in %s.\n", sentence(err), wait)
	}
}

// note shows a person something that is not part of the data.
func (e *env) note(format string, args ...any) {
	_, _ = io.WriteString(e.err, shown(fmt.Sprintf(format, args...))) // there is nowhere else to say it
}

// sentence is an error's text with a full stop.
func sentence(err error) string {
	s := err.Error()
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".?!") {
		return s
	}
	return s + "."
}

// interrupted distinguishes a command that the user has stopped from one that failed.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := streamOf(stream).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colored reports whether text on w may have colors.
func (e *env) colored(w io.Writer) bool { return e.getenv("NO_COLOR") == "" && terminal(w) }

// parseKey reads an aggregate's name in the form of events, type:id, or of URLs, type/id.
func parseKey(s string) (j17.Key, error) {
	i := strings.IndexAny(s, ":/")
	if i > 0 && i < len(s)-1 && !strings.Contains(s[i+1:], "/") {
		return j17.Key{Type: s[:i], ID: s[i+1:]}, nil
	}
	return j17.Key{}, usageError{fmt.Errorf("%q is no aggregate: it has the form TYPE/ID or TYPE:ID", s)}
}

// parseAgent reads an actor or target in the form type:id.
func parseAgent(flag, s string) (j17.Agent, error) {
	k, ok := j17.ParseKey(s)
	if !ok {
		return j17.Agent{}, usageError{fmt.Errorf("--%s %q does not have the form TYPE:ID, such as user:global", flag, s)}
	}
	return j17.Agent(k), nil
}
