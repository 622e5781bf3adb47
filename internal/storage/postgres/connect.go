package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sessionSettings are those of each connection.
//
// The planner has to choose the same plan whatever the tables hold when a statement is prepared: all statements find
// few rows by indexes. Plans are made once a connection, since making one costs more than a write. Statements take as
// long as they take, whatever limits the server, the database or the role has: the outcome of a commit that is cut off
// is not known. Warnings are never held back, since they say that a commit was not replicated.
const sessionSettings = `SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_memoize = off; SET jit = off;
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';
SELECT set_config(name, '0', false) FROM pg_settings WHERE setting <> '0' AND name IN ('statement_timeout',
	'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout');
SET search_path = `

// proof is the commit of its own that a connection begins with. Each connection has one of a few rows, so that they do
// not wait for each other.
const proof = `; INSERT INTO meta AS m (key, value) VALUES ('beat/%d', '') ON CONFLICT (key) DO UPDATE SET value = m.value;
SELECT pg_postmaster_start_time()::text`

// proofRows is how many rows there are for proofs.
const proofRows = 32

// session is what the store keeps with a connection.
type session struct {
	server *server
	// began is what begins returned before the commit of the connection's own.
	began uint64
	// connected is set when the connection is there: no further one is made for it then, which would be to cancel what
	// it does. A wait for a standby that is cancelled ends as if the standby had answered.
	connected atomic.Bool
	// warned is the server's last warning. It belongs to whoever uses the connection.
	warned *pgconn.Notice
	// stop keeps the connection from being closed when its server is left.
	stop func() bool
}

// sessionKey is the key of the session in the data of a connection.
const sessionKey = "session"

func sessionOf(conn *pgx.Conn) *session {
	s, ok := conn.PgConn().CustomData()[sessionKey].(*session)
	if !ok {
		return &session{}
	}
	return s
}

// errNoCancel is why no request to cancel a statement is sent.
var errNoCancel = errors.New("statements are not cancelled")

// warnedError is the error of a commit that may not have been replicated.
type warnedError struct{ notice *pgconn.Notice }

// Error has the server's warning.
func (w *warnedError) Error() string { return "the database has warned: " + w.notice.Message }

// warning returns the warning of the server since the last call, as an error.
func (s *session) warning() error {
	if s.warned == nil {
		return nil
	}
	err := &warnedError{s.warned}
	s.warned = nil
	return err
}

// connect reads the address and makes the pools of readers.
func (c *core) connect(ctx context.Context) error {
	address, found := ParseAddress(c.o.Address, c.o.Password, c.o.Plain)
	if len(found) > 0 {
		return errors.Join(found...)
	}
	config := address.pool
	config.ConnConfig.ValidateConnect = suitable
	config.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		s, err := c.primary.find(ctx)
		if err == nil {
			c.lead(config, s)
		}
		return err
	}
	config.BeforeClose = forget
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // it would be a trip
	c.address, c.hosts = address, hosts(config.ConnConfig)
	var err error
	if c.pool, err = pool(ctx, config, c.o.readers()); err != nil {
		return err
	}
	c.lookupPool, err = pool(ctx, config, lookupCount)
	return err
}

func pool(ctx context.Context, config *pgxpool.Config, most int) (*pgxpool.Pool, error) {
	config = config.Copy()
	config.MaxConns = int32(most)
	return pgxpool.NewWithConfig(ctx, config)
}

// lead makes a configuration lead to a server. The connection then has a session, and has had a commit of its own.
func (c *core) lead(config *pgx.ConnConfig, to *server) {
	config.Host, config.Port, config.TLSConfig = to.config.Host, to.config.Port, to.config.TLSConfig
	config.Fallbacks = to.config.Fallbacks
	s := &session{server: to}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if s.connected.Load() {
			return nil, errNoCancel
		}
		return dial(ctx, network, address)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" && s.connected.Load() {
			s.warned = n
			c.primary.doubt()
		}
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		s.connected.Store(true)
		conn.CustomData()[sessionKey] = s
		return c.prove(ctx, conn, s)
	}
}

// prove sets up a new session, and commits something of its own.
func (c *core) prove(ctx context.Context, conn *pgconn.PgConn, s *session) error {
	// What waits for a standby ends only with the server that it waits on, or with ctx.
	broken := conn.Conn()
	closing := context.AfterFunc(ctx, func() { _ = broken.Close() })
	defer closing()
	if s.server.left != nil {
		stop := context.AfterFunc(s.server.left, func() { _ = broken.Close() })
		defer stop()
	}

	s.began = c.primary.begins()
	sql := sessionSettings + quoted(c.o.Schema) + fmt.Sprintf(proof, c.proofs.Add(1)%proofRows)
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err == nil {
		err = s.warning()
	}
	if err != nil {
		return err
	}
	s.server = c.primary.met(s.server, string(results[len(results)-1].Rows[0][0]))
	s.stop = context.AfterFunc(s.server.left, func() { _ = broken.Close() })
	c.primary.acknowledge(s.server, s.began)
	return nil
}

// connectTo makes a connection to a server.
func (c *core) connectTo(ctx context.Context, to *server) (*pgx.Conn, error) {
	config := c.address.pool.ConnConfig.Copy()
	c.lead(config, to)
	return pgx.ConnectConfig(ctx, config)
}

// dial makes a connection of its own to the primary. It waits for that as long as callers can be expected to.
func (c *core) dial(ctx context.Context) (*pgx.Conn, error) {
	s, err := c.primary.find(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.connectTo(ctx, s)
	if failed, is := errors.AsType[*pgconn.ConnectError](err); is {
		c.primary.failed(failed)
	}
	return conn, err
}

// dialAny makes a connection to a server that may not have the tables, or take no commits at the moment.
func (c *core) dialAny(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, c.address.pool.ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, sessionSettings+quoted(c.o.Schema)); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// quoted is a name as it stands in SQL.
func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// leastVersion is the oldest version of PostgreSQL that a store can be on.
const leastVersion = 15

// versionError is a server of a version that is too old.
type versionError struct{ version string }

// Error describes the version.
func (e *versionError) Error() string {
	return fmt.Sprintf("its version is %s, and j17 needs PostgreSQL %d or later", e.version, leastVersion)
}

// suitable returns why a server that was connected to cannot be used: another one of the address may be. Servers say
// what they are when a connection begins; some poolers do not pass all of it on.
func suitable(ctx context.Context, conn *pgconn.PgConn) error {
	version := conn.ParameterStatus("server_version")
	digits := strings.TrimLeft(version, "0123456789")
	if major, err := strconv.Atoi(version[:len(version)-len(digits)]); err == nil && major < leastVersion {
		return &versionError{version}
	}
	switch standby := conn.ParameterStatus("in_hot_standby"); {
	case standby == "":
		return pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn)
	case standby == "on" || conn.ParameterStatus("default_transaction_read_only") == "on":
		return pgconn.ErrReadOnlyConnection
	}
	return nil
}

// hangUp ends a connection. What it was doing is not cancelled.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	forget(conn)
	if conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing depends on it any more
}

// forget lets go what is kept with a connection that ends. One that was broken off is closed at once: the library would
// wait for the server for a while.
func forget(conn *pgx.Conn) {
	if s := sessionOf(conn); s.stop != nil {
		s.stop()
	}
	if conn.IsClosed() {
		_ = conn.PgConn().Conn().Close()
	}
}

// wait waits for a while, by the machine's clock: networks do not follow the store's.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d) //nolint:forbidigo // see above
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
