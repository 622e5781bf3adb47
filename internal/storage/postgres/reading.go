package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"j17/internal/storage/store"
)

// reading is a connection or a transaction to query.
type reading interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// read calls do with a connection of the pool. If the connection breaks, do is called again with another one, for up to
// patience. What do has read is valid only after read has returned without an error.
func (c *core) read(ctx context.Context, what string, do func(conn reading) error) error {
	return c.readFrom(ctx, c.pool, what, do)
}

// readFrom is read with a connection of any pool.
func (c *core) readFrom(ctx context.Context, pool *pgxpool.Pool, what string, do func(conn reading) error) error {
	return c.retry(ctx, what, func(ctx context.Context) error { return c.readOnce(ctx, pool, do) })
}

// retry calls do repeatedly while its connection breaks, for up to patience. The context of do ends if the database
// takes no commits for that long, and with the store.
func (c *core) retry(ctx context.Context, what string, do func(ctx context.Context) error) error {
	attended, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer context.AfterFunc(c.ending, func() { giveUp(store.ErrClosed) })()
	defer c.primary.attend(giveUp)()
	begun := now()
	var pause time.Duration
	for {
		err := c.works()
		if err == nil && !c.isClosed() {
			err = do(attended)
		}
		if err == nil {
			err = c.works() // another node may have changed what was read
		}
		switch {
		case c.isClosed():
			return store.ErrClosed
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case attended.Err() != nil:
			return context.Cause(attended)
		case !broken(err) && !crowded(err):
			return fault(what, err)
		case now().Sub(begun) > patience:
			return busy(what, err)
		}
		_ = wait(attended, pause) // do returns the error of attended
		pause = min(2*pause+retryAfter, retryMost)
	}
}

// readOnce calls do with a connection of a pool, and returns when what it has read is kept.
func (c *core) readOnce(ctx context.Context, pool *pgxpool.Pool, do func(conn reading) error) error {
	conn, err := c.acquire(ctx, pool)
	if err != nil {
		return err
	}
	s := sessionOf(conn.Conn())
	stop := breakOff(ctx, conn.Conn())
	err = do(conn)
	stop()
	conn.Release()
	if err == nil && c.confirm != nil && pool != c.lookupPool {
		err = c.confirm(ctx)
	}
	if err == nil {
		err = c.primary.kept(ctx, s.server)
	}
	if err != nil && broken(err) {
		pool.Reset() // the others are likely to be broken as well
	}
	return err
}

// breakOff closes a connection if ctx ends before stop is called.
func breakOff(ctx context.Context, conn *pgx.Conn) (stop func()) {
	socket, done := conn.PgConn().Conn(), make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = socket.Close() // it may be closed already
	})
	return func() {
		if !cancel() {
			<-done
			hangUp(ctx, conn)
		}
	}
}

// acquire takes a connection from a pool. The caller releases it.
func (c *core) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if failed, is := errors.AsType[*pgconn.ConnectError](err); is {
		c.primary.failed(failed)
	}
	return conn, err
}

// errSum is the cause of a CorruptionError for a wrong checksum.
var errSum = errors.New("the checksum is not that of the value")
