package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"j17/internal/storage/store"
)

// reading is a connection or a transaction that is read from.
type reading interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// read calls do with a connection of the pool. A connection that breaks is replaced by another one for as long as a
// caller can be expected to wait, so do may be called several times.
func (c *core) read(ctx context.Context, what string, do func(conn reading) error) error {
	return c.retry(ctx, what, func() error { return c.readOnce(ctx, do) })
}

// retry calls do again and again while its connection breaks, for as long as a caller can be expected to wait.
func (c *core) retry(ctx context.Context, what string, do func() error) error {
	begun := time.Now() //nolint:forbidigo // how long the network takes is not the store's time
	for {
		if c.isClosed() {
			return store.ErrClosed
		}
		if err := c.works(); err != nil {
			return err
		}
		err := do()
		if err == nil {
			err = c.works() // what was read may be what another node has changed since
		}
		switch {
		case err == nil || ctx.Err() != nil || !broken(err):
			return fault(what, err)
		case time.Since(begun) > patience: //nolint:forbidigo // the same
			return fmt.Errorf("%w: %s: %v", store.ErrBusy, what, err) //nolint:errorlint // worth another try
		}
	}
}

// readOnce calls do with a connection of the pool.
func (c *core) readOnce(ctx context.Context, do func(conn reading) error) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return do(conn)
}

// broken reports whether an error is that of a connection, so that the statement is worth another try on a new one.
func broken(err error) bool {
	said, is := errors.AsType[*pgconn.PgError](err)
	if is {
		return len(said.Code) == 5 && (said.Code[:2] == "57" || said.Code[:2] == "08")
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return connecting || network || pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}

// errSum is the cause of damage that a checksum shows.
var errSum = errors.New("the checksum is not that of the value")
