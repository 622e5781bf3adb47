package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"j17/internal/storage/store"
)

// The planner has to choose the same plan whatever the tables hold when a statement is prepared: all statements find
// few rows by indexes. Plans are made once a connection, since making one costs more than a write.
const sessionSettings = `SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET jit = off; SET search_path = `

// patience is how long calls wait for a database that cannot be reached.
const patience = 10 * time.Second

// connect reads the address and makes the pool of readers.
func (c *core) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(c.o.Address)
	if err != nil {
		return fmt.Errorf("the address of the store: %w", err)
	}
	config.MaxConns = int32(c.o.Connections - laneCount - lookupCount)
	config.ConnConfig.ConnectTimeout = patience
	config.AfterConnect = c.setSession
	c.address = config.ConnConfig.Copy()
	if c.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("the address of the store: %w", err)
	}
	return nil
}

// setSession prepares a new connection.
func (c *core) setSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, sessionSettings+pgx.Identifier{c.o.Schema}.Sanitize())
	return err
}

// dial makes a connection of its own. warned is called for each warning of the server.
func (c *core) dial(ctx context.Context, warned func(*pgconn.Notice)) (*pgx.Conn, error) {
	config := c.address.Copy()
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
