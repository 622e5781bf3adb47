package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// unreachable is the error of a store that cannot connect to any of its servers.
type unreachable struct {
	address *Address
	reasons []reason
	err     error
}

// reason is why the store cannot connect to one server.
type reason struct {
	server, text string
	// lasting reports whether waiting cannot help.
	lasting bool
}

// Error names each server with its reason.
func (u *unreachable) Error() string {
	texts := make([]string, len(u.reasons))
	for i, r := range u.reasons {
		texts[i] = r.text
		if r.server != "" {
			texts[i] = r.server + ": " + r.text
		}
	}
	return fmt.Sprintf("the store %s cannot be opened: %s", u.address, strings.Join(texts, "; "))
}

// Unwrap returns the error of the library.
func (u *unreachable) Unwrap() error { return u.err }

// passes reports whether waiting may help.
func (u *unreachable) passes() bool {
	return slices.ContainsFunc(u.reasons, func(r reason) bool { return !r.lasting })
}

// whyUnreachable describes the error of a connection.
func whyUnreachable(a *Address, err error) *unreachable {
	u := &unreachable{address: a, err: err}
	parts := []error{err}
	if connecting, is := errors.AsType[*pgconn.ConnectError](err); is {
		parts = []error{connecting.Unwrap()}
		if several, is := parts[0].(interface{ Unwrap() []error }); is {
			parts = several.Unwrap()
		}
	}
	for _, part := range parts {
		r := reasonOf(a, part)
		if server, _, ok := strings.Cut(part.Error(), "): "); ok {
			r.server = server + ")"
		}

		// A server is tried with TLS and then without where both are allowed.
		u.reasons = slices.DeleteFunc(u.reasons, func(other reason) bool { return other.server == r.server })
		u.reasons = append(u.reasons, r)
	}
	return u
}

func reasonOf(a *Address, err error) reason {
	said, answered := errors.AsType[*pgconn.PgError](err)
	version, old := errors.AsType[*versionError](err)
	certificate, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	host, misnamed := errors.AsType[x509.HostnameError](err)
	lookup, unknown := errors.AsType[*net.DNSError](err)
	network, unanswered := errors.AsType[*net.OpError](err)
	role := a.pool.ConnConfig.User
	switch {
	case answered && strings.HasPrefix(said.Code, "28"):
		return reason{text: fmt.Sprintf("it refuses the role %s (%s). A password is given by --store-password-file, or in the address where that comes from J17_STORE", role, said.Message), lasting: true}
	case answered && strings.HasPrefix(said.Code, "53"):
		return reason{text: fmt.Sprintf("it takes no further connection (%s)", said.Message)}
	case answered:
		passes := strings.HasPrefix(said.Code, "57")
		return reason{text: fmt.Sprintf("%s (SQLSTATE %s)", said.Message, said.Code), lasting: !passes}
	case old:
		return reason{text: version.Error(), lasting: true}
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return reason{text: "it is a standby, or read-only: the address needs the primary"}
	case misnamed:
		return reason{text: fmt.Sprintf("its certificate is for another host (%v). Name the host in the address as the certificate does, or do not compare the names with sslmode=verify-ca", host), lasting: true}
	case untrusted:
		return reason{text: fmt.Sprintf("its certificate is not trusted (%v). Name the one of its authority with sslrootcert in the address", certificate.Err), lasting: true}
	case strings.HasSuffix(err.Error(), "server refused TLS connection"):
		return reason{text: "it takes no connections with TLS. Switch ssl on there, or allow connections without with --store-plain", lasting: true}
	case pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded):
		return reason{text: "it does not answer"}
	case unknown:
		text := fmt.Sprintf("the host %s is not known (%s)", lookup.Name, lookup.Err)
		return reason{text: text, lasting: lookup.IsNotFound}
	case unanswered:
		return reason{text: network.Err.Error()}
	}
	return reason{text: "what answers is no PostgreSQL, or it has ended the connection", lasting: true}
}

// dialFirst is dialAny for a store that is being opened. It waits for servers that start or fail over.
func (c *core) dialFirst(ctx context.Context) (*pgx.Conn, error) {
	begun := time.Now() //nolint:forbidigo // how long the network takes is not the store's time
	for told := false; ; told = true {
		conn, err := c.dialAny(ctx)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		why := whyUnreachable(c.address, err)
		if !why.passes() || time.Since(begun) > patience { //nolint:forbidigo // the same
			return nil, why
		}
		if !told {
			c.logger.LogAttrs(ctx, slog.LevelWarn, "the store cannot be reached yet, and is tried again", slog.Any("error", why))
		}
		if err := wait(ctx, retryAfter); err != nil {
			return nil, err
		}
	}
}
