package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"j17/internal/storage/store"
)

// The planner has to choose the same plan whatever the tables hold when a statement is prepared: all statements find
// few rows by indexes. Plans are made once a connection, since making one costs more than a write.
const sessionSettings = `SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off; SET search_path = `

// patience is how long calls wait for a database that cannot be reached.
const patience = 10 * time.Second

// connect reads the address and makes the pool of readers.
func (c *core) connect(ctx context.Context) error {
	address, found := ParseAddress(c.o.Address, c.o.Password, c.o.Plain)
	if len(found) > 0 {
		return errors.Join(found...)
	}
	address.pool.MaxConns = int32(c.o.readers())
	address.pool.AfterConnect = c.setSession
	address.pool.ConnConfig.ValidateConnect = suitable
	c.address = address
	var err error
	c.pool, err = pgxpool.NewWithConfig(ctx, address.pool.Copy())
	return err
}

// setSession prepares a new connection.
func (c *core) setSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, sessionSettings+quoted(c.o.Schema))
	return err
}

// dial makes a connection of its own. warned is called for each warning of the server.
func (c *core) dial(ctx context.Context, warned func(*pgconn.Notice)) (*pgx.Conn, error) {
	config := c.address.pool.ConnConfig.Copy()
	if warned != nil {
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if n.SeverityUnlocalized == "WARNING" {
				warned(n)
			}
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := c.setSession(ctx, conn); err != nil {
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

// refused reports whether an error says for certain that a statement which was sent has changed nothing: the server has
// answered that it failed, and goes on. Whatever else goes wrong leaves the outcome open.
func refused(err error) bool {
	if pgconn.SafeToRetry(err) {
		return true
	}
	said, is := errors.AsType[*pgconn.PgError](err)
	return is && said.SeverityUnlocalized == "ERROR"
}

// fault is the error of a statement as the store returns it.
func fault(what string, err error) error {
	if err == nil || errors.Is(err, store.ErrBusy) {
		return err
	}
	said, is := errors.AsType[*pgconn.PgError](err)
	if !is {
		if !broken(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return fmt.Errorf("%w: %s: %v", store.ErrBusy, what, err) //nolint:errorlint // the call is worth another try
	}
	switch {
	case said.Code == "53100":
		return fmt.Errorf("%w: %s: %v", store.ErrFull, what, err) //nolint:errorlint // the same
	case said.Code == "XX001" || said.Code == "XX002":
		return &store.CorruptionError{Where: what, Err: err}
	case said.Code[:2] == "53" || said.Code[:2] == "57" || said.Code[:2] == "08" || said.Code[:2] == "40" ||
		said.Code == "25006":
		return fmt.Errorf("%w: %s: %v", store.ErrBusy, what, err) //nolint:errorlint // the same
	}
	return fmt.Errorf("%s: %w", what, err)
}
