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

// sessionSettings are the settings of each connection.
//
// All statements find few rows by indexes, so the planner must choose the same plan whatever the tables hold when a
// statement is prepared. Plans are made once per connection, since planning costs more than a write. Time limits of the
// server, the database or the role are lifted: the outcome of a commit that is cancelled is not known. Warnings are
// never suppressed, since they report that a commit was not replicated.
const sessionSettings = `SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_memoize = off; SET jit = off;
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';
SELECT set_config(name, '0', false) FROM pg_settings WHERE setting <> '0' AND name IN ('statement_timeout',
	'lock_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout');
SET search_path = `

// proof is a commit that changes nothing: once it is acknowledged, all that was visible before is kept. Sessions use
// different rows, so that they rarely wait for each other.
const proof = `INSERT INTO meta AS m (key, value) VALUES ('beat/' || pg_backend_pid() % 32, '')
ON CONFLICT (key) DO UPDATE SET value = m.value`

// session is what the store keeps with a connection.
type session struct {
	server *server
	// began is what primary.begins returned before the connection's first commit.
	began commitStart
	// connected is set when the connection is established. Further dials are refused then: they could only be requests
	// to cancel a statement, and a cancelled wait for a standby ends as if the standby had answered.
	connected atomic.Bool
	// warned is the server's last warning. It is owned by the user of the connection.
	warned *pgconn.Notice
	// stop cancels the closing of the connection when its server is left.
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

// errNoCancel is the error of a dial for a request to cancel a statement.
var errNoCancel = errors.New("statements are not cancelled")

// warnedError is the error of a commit that may not have been replicated.
type warnedError struct{ notice *pgconn.Notice }

// Error returns a message with the server's warning.
func (w *warnedError) Error() string { return "the database has warned: " + w.notice.Message }

// warning returns the last warning of the server since the previous call as an error, nil for none.
func (s *session) warning() error {
	if s.warned == nil {
		return nil
	}
	err := &warnedError{s.warned}
	s.warned = nil
	return err
}

// connect parses the address and creates the pools of readers and look-ups.
func (c *core) connect(ctx context.Context) error {
	address, found := ParseAddress(c.o.Address, c.o.Password, c.o.Plain)
	if len(found) > 0 {
		return errors.Join(found...)
	}
	config := address.pool
	config.ConnConfig.ValidateConnect, config.ConnConfig.Tracer = suitable, &c.counts.other
	config.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		if c.o.Reads == ReadPrimary {
			s, err := c.primary.reachable(ctx)
			if err == nil {
				c.lead(config, s, c.setUp)
			}
			return err
		}
		s, err := c.primary.find(ctx)
		if err == nil {
			c.lead(config, s, c.prove)
		}
		return err
	}
	config.BeforeClose = forget
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // it costs a round trip
	c.address, c.hosts = address, hosts(config.ConnConfig)
	var err error
	if c.pool, err = pool(ctx, config, c.o.readers(), &c.counts.reads); err != nil {
		return err
	}
	c.lookupPool, err = pool(ctx, config, lookupCount, &c.counts.lookups)
	return err
}

func pool(ctx context.Context, config *pgxpool.Config, most int, count *tripCount) (*pgxpool.Pool, error) {
	config = config.Copy()
	config.ConnConfig.Tracer = count
	config.MaxConns = int32(most)
	return pgxpool.NewWithConfig(ctx, config)
}

// lead directs a configuration to a server. Its connections get a session, which begin prepares.
func (c *core) lead(
	config *pgx.ConnConfig, to *server, begin func(context.Context, *pgconn.PgConn, *session) error,
) {
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
		return begin(ctx, conn, s)
	}
}

// setUp sets up a new session.
func (c *core) setUp(ctx context.Context, conn *pgconn.PgConn, s *session) error {
	if _, err := conn.Exec(ctx, sessionSettings+quoted(c.o.Schema)).ReadAll(); err != nil {
		return err
	}
	if s.server.left != nil {
		s.stop = context.AfterFunc(s.server.left, func() { _ = conn.Conn().Close() })
	}
	return nil
}

// prove sets up a new session, and commits its proof.
func (c *core) prove(ctx context.Context, conn *pgconn.PgConn, s *session) error {
	// A commit that waits for a standby ends only when its server is left, or with ctx.
	broken := conn.Conn()
	closing := context.AfterFunc(ctx, func() { _ = broken.Close() })
	defer closing()
	if s.server.left != nil {
		stop := context.AfterFunc(s.server.left, func() { _ = broken.Close() })
		defer stop()
	}

	if _, err := conn.Exec(ctx, sessionSettings+quoted(c.o.Schema)).ReadAll(); err != nil {
		return err
	}
	c.primary.reached(s.server)
	s.began = c.primary.begins()
	results, err := conn.Exec(ctx, proof+`; SELECT pg_postmaster_start_time()::text`).ReadAll()
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

// connectTo makes a connection to a server, whose round trips are counted by count.
func (c *core) connectTo(ctx context.Context, to *server, count *tripCount) (*pgx.Conn, error) {
	config := c.address.pool.ConnConfig.Copy()
	config.Tracer = count
	c.lead(config, to, c.prove)
	return pgx.ConnectConfig(ctx, config)
}

// dial makes a connection outside the pools to the primary. It waits for up to patience.
func (c *core) dial(ctx context.Context, count *tripCount) (*pgx.Conn, error) {
	s, err := c.primary.find(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.connectTo(ctx, s, count)
	if failed, is := errors.AsType[*pgconn.ConnectError](err); is {
		c.primary.failed(failed)
	}
	return conn, err
}

// dialAny makes a connection to a server that may have no tables, or may not take commits at the moment.
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

// quoted returns a name as a quoted identifier of SQL.
func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// leastVersion is the oldest supported major version of PostgreSQL.
const leastVersion = 15

// versionError is the error of a server whose version is too old.
type versionError struct{ version string }

// Error describes the version.
func (e *versionError) Error() string {
	return fmt.Sprintf("its version is %s, and j17 needs PostgreSQL %d or later", e.version, leastVersion)
}

// suitable returns an error if a connected server cannot be used, upon which the next one of the address is tried.
// Servers report their parameters when a connection begins; some poolers do not pass on all of them.
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

// hangUp closes a connection. Its statement is not cancelled.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	forget(conn)
	if conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing depends on it any longer
}

// forget releases the session of a connection that ends. A broken connection is closed at once: the library would wait
// for the server for a while.
func forget(conn *pgx.Conn) {
	if s := sessionOf(conn); s.stop != nil {
		s.stop()
	}
	if conn.IsClosed() {
		_ = conn.PgConn().Conn().Close()
	}
}

// wait waits for a duration by the machine's clock: networks do not follow the store's. The error is that of ctx.
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
