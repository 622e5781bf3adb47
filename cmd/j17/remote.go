package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"j17"
	"j17/internal/client"
	"j17/internal/clock"
	"j17/internal/server"
)

// remote is how a command finds its server: its flags as they were given.
type remote struct {
	url, key, env, data string
}

// Where a development server is unless told otherwise.
const (
	defaultURL  = "http://localhost:17000"
	defaultData = "j17-data"
	// devInstance and devDomain make up the hosts of a server that is reached by a bare address.
	devInstance = "app"
	devDomain   = "localhost"
)

// remoteFlags declares the flags of every command that talks to a server.
func remoteFlags(cmd *cobra.Command) *remote {
	var r remote
	f := cmd.Flags()
	f.StringVar(&r.url, "url", "", "`URL` of the server (J17_URL; else that of the data folder, else "+defaultURL+")")
	f.StringVar(&r.key, "key", "", "API `key` (J17_KEY or J17_KEY_FILE; else, for a server on this machine, from the data folder)")
	f.StringVar(&r.env, "env", "", "`environment`: prod, staging or test (J17_ENV; else the one that the URL names)")
	f.StringVar(&r.data, "data", "", "data `folder` of a development server (J17_DATA; else "+defaultData+")")
	return &r
}

// target is a server, one of its environments, and the key for it.
type target struct {
	url, host, key string
}

// resolve is the only place that decides which server, environment and key a command uses: flags, then variables, then
// what a development server has left in its data folder.
func (e *env) resolve(r *remote) (target, error) {
	t := target{url: cmp.Or(r.url, e.getenv("J17_URL")), key: cmp.Or(r.key, e.getenv("J17_KEY"))}
	if t.key == "" {
		if file := e.getenv("J17_KEY_FILE"); file != "" {
			raw, err := e.read(file)
			if err != nil {
				return target{}, fmt.Errorf("J17_KEY_FILE: %w", err)
			}
			t.key = strings.TrimSpace(string(raw))
		}
	}
	var want j17.Environment
	if name := cmp.Or(r.env, e.getenv("J17_ENV")); name != "" {
		var err error
		if want, err = j17.ParseEnvironment(name); err != nil {
			return target{}, usageError{err}
		}
	}
	dir := cmp.Or(r.data, e.getenv("J17_DATA"))
	dev, err := server.ReadDevAccess(cmp.Or(dir, defaultData))
	found := err == nil
	if err != nil && (dir != "" || !errors.Is(err, fs.ErrNotExist)) {
		return target{}, fmt.Errorf("the keys of the development server cannot be read: %w", err)
	}
	if t.url == "" {
		t.url = cmp.Or(dev.URL, defaultURL)
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Hostname() == "" {
		return target{}, usageError{fmt.Errorf("%q is no URL of a server; it has the form %s", t.url, defaultURL)}
	}
	if err := t.address(u, want); err != nil {
		return target{}, usageError{err}
	}
	if t.key == "" && found && local(u.Hostname()) {
		t.key = dev.Keys[environmentOf(t.host, want)].Write
	}
	if t.key == "" {
		return target{}, usageError{fmt.Errorf("there is no API key for %s: pass --key, set J17_KEY or J17_KEY_FILE, or run this in the folder in which 'j17 dev' runs (or name its data folder with --data)", t.url)}
	}
	if strings.ContainsFunc(t.key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return target{}, usageError{errors.New("the API key contains characters that no key has: it was not copied whole, or more than it was")}
	}
	return t, nil
}

// address sets URL and Host header so that the request reaches the environment that is wanted, "" for the one that the
// URL names. Names below localhost are not looked up: few systems know them.
func (t *target) address(u *url.URL, want j17.Environment) error {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	_, numeric := netip.ParseAddr(name)
	bare := numeric == nil || name == devDomain
	switch {
	case bare && want == "":
		return nil
	case bare && local(name):
		name = devInstance + "." + devDomain
	case bare:
		return fmt.Errorf("the address %s names no instance, so --env cannot pick its environment: use a host name such as app.example.com", u.Host)
	}
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
	t.host = name
	if local(u.Hostname()) {
		if numeric != nil { // a name below localhost
			u.Host = devDomain + portOf(u)
		}
	} else {
		u.Host, t.host = name+portOf(u), ""
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

// connect returns the client that a command talks through. It tells about attempts that are repeated.
func (e *env) connect(r *remote) (*client.Client, error) {
	t, err := e.resolve(r)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{
		URL: t.url, Host: t.host, Key: t.key, Clock: clock.System{},
		Retrying: func(err error, wait time.Duration) {
			e.note("%v Trying again in %s.\n", sentence(err), wait)
		},
	})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// note tells a person something beside the data.
func (e *env) note(format string, args ...any) {
	_, _ = fmt.Fprintf(e.err, format, args...) // there is nowhere else to say it
}

// sentence is an error's text with a full stop.
func sentence(err error) string {
	s := err.Error()
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".?!") {
		return s
	}
	return s + "."
}

// interrupted tells a command that was stopped by the user from one that failed.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
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
