package postgres

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"j17/internal/lang/diag"
)

// Address says where a store is and how to connect to it. Its text form omits the password.
type Address struct {
	pool *pgxpool.Config
	// hosts are the hosts of the address with their ports, in the order of the address.
	hosts []string
	// secret reports whether the text has a password.
	secret bool
}

// addressForm is the form of an address.
const addressForm = "postgres://ROLE@HOST:PORT/DATABASE"

// connectTime is how long one server may take to accept a connection, unless the address says otherwise. With several
// servers, a silent one delays the attempt at the next by that long.
const connectTime = 3 * time.Second

// parameters returns the names of the parameters that an address may have after the question mark.
func parameters() []string {
	return []string{
		"application_name", "channel_binding", "connect_timeout", "host", "port", "sslcert", "sslkey", "sslmode",
		"sslrootcert", "target_session_attrs",
	}
}

// ParseAddress parses a PostgreSQL connection URL, which may have several hosts, and returns all errors in it. password
// is for an address without one; "" means none. plain allows connections to other machines without verification of the
// server's identity.
func ParseAddress(text, password string, plain bool) (*Address, []error) {
	var found []error
	add := func(format string, args ...any) { found = append(found, fmt.Errorf(format, args...)) }

	// The form. Its errors quote nothing of the text, since a password may be anywhere in it.
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "postgres" && scheme != "postgresql" {
		add("the address of the store must begin with postgres://, as in %s", addressForm)
		return nil, found
	}
	base, queryText, _ := strings.Cut(text, "?")
	query, err := url.ParseQuery(queryText)
	if err != nil {
		add("the parameters of the address of the store, behind the question mark, are not those of a URL: other characters than letters, digits, '-', '.' and '_' are written as %%XX")
		return nil, found
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	user := authority[:max(0, strings.LastIndex(authority, "@"))]
	secret := strings.Contains(user, ":")

	// The parameters.
	for name := range query {
		switch {
		case name == "password":
			add("the address of the store has the password as a parameter: write it behind the role, as in postgres://ROLE:PASSWORD@HOST")
		case !slices.Contains(parameters(), name):
			hint := "it may have " + strings.Join(parameters(), ", ")
			if near := diag.Nearest(name, parameters()); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			add("the address of the store has a parameter %q, which is unknown: %s", name, hint)
		}
	}
	if wanted := query.Get("target_session_attrs"); wanted != "" && wanted != "read-write" && wanted != "primary" {
		add("target_session_attrs in the address of the store is %q, and a store is written to: it can be read-write only", wanted)
	}
	if secret && password != "" {
		add("there are two passwords of the store: one in its address, and another one")
	}
	for _, name := range []string{"sslcert", "sslkey"} {
		if file := query.Get(name); file != "" {
			if _, err := os.Stat(file); err != nil {
				add("%s in the address of the store: %w", name, err)
			}
		}
	}
	if file := query.Get("sslrootcert"); file != "" && file != "system" {
		if raw, err := os.ReadFile(file); err != nil { //nolint:gosec // the operator names it
			add("sslrootcert in the address of the store: %w", err)
		} else if !x509.NewCertPool().AppendCertsFromPEM(raw) {
			add("sslrootcert in the address of the store: %s holds no certificate in PEM format", file)
		}
	}
	if len(found) > 0 {
		return nil, found
	}

	// The rest is parsed twice, since the required security of a connection depends on the hosts.
	mode := query.Get("sslmode")
	query.Del("target_session_attrs")
	parse := func(mode string) (*Address, error) {
		query.Set("sslmode", mode)
		return newAddress(base+"?"+query.Encode(), secret)
	}
	a, err := parse("disable")
	if err != nil {
		add("the address of the store is not of the form %s: look at its host, its port and its parameters", addressForm)
		return nil, found
	}
	if mode, err = a.tlsMode(mode, plain); err == nil {
		a, err = parse(mode)
	}
	if err != nil {
		found = append(found, err)
		return nil, found
	}
	if password != "" {
		a.pool.ConnConfig.Password = password
	}
	return a, nil
}

// newAddress parses an address whose form and parameters were checked.
func newAddress(text string, secret bool) (*Address, error) {
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, errors.New("the library cannot read it") // its own message may show the text
	}
	a := &Address{pool: config, secret: secret}
	add := func(host string, port uint16) {
		at := host
		if !strings.HasPrefix(host, "/") {
			at = net.JoinHostPort(host, strconv.Itoa(int(port)))
		}
		if !slices.Contains(a.hosts, at) {
			a.hosts = append(a.hosts, at)
		}
	}
	c := config.ConnConfig
	add(c.Host, c.Port)
	for _, f := range c.Fallbacks {
		add(f.Host, f.Port)
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTime
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "j17"
	}
	return a, nil
}

// tlsMode returns the sslmode to use for the given one, "" for none. Connections to other machines must be encrypted
// and the server's certificate verified, unless plain is set.
func (a *Address) tlsMode(given string, plain bool) (string, error) {
	modes := []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
	safe := given == "verify-ca" || given == "verify-full"
	away := slices.IndexFunc(a.hosts, func(host string) bool { return !isHere(host) })
	switch {
	case given != "" && !slices.Contains(modes, given):
		return "", fmt.Errorf("sslmode in the address of the store cannot be %q: it takes %s", given, strings.Join(modes, ", "))
	case given == "" && (plain || away < 0):
		return "prefer", nil
	case given == "":
		return "verify-full", nil
	case !safe && !plain && away >= 0:
		return "", fmt.Errorf("sslmode in the address of the store is %s, and %s is another machine: whoever is between can read and change what is stored. Leave sslmode out, for verify-full, or allow that with --store-plain", given, a.hosts[away])
	}
	return given, nil
}

// isHere reports whether a host, given with its port, is this machine: a Unix socket or a loopback address.
func isHere(host string) bool {
	if strings.HasPrefix(host, "/") {
		return true
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil || name == "localhost" {
		return err == nil
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// HasPassword reports whether the text of the address has a password.
func (a *Address) HasPassword() bool { return a.secret }

// String returns the address without its password and parameters.
func (a *Address) String() string {
	c := a.pool.ConnConfig
	hosts := strings.Join(a.hosts, ",")
	if strings.HasPrefix(hosts, "/") {
		hosts = ""
	}
	return (&url.URL{Scheme: "postgres", User: url.User(c.User), Host: hosts, Path: "/" + c.Database}).String()
}
