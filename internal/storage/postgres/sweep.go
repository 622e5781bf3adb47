package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"j17/internal/base/clock"
	"j17/internal/base/panics"
)

// deleting is the description of a sweep in messages.
const deleting = "deleting rows"

// sweepEvery is the time between two searches for expired rows. A statement deletes at most 5,000 rows.
const sweepEvery = time.Minute

// sweeper deletes the rows that are no longer visible: those of tenants without a name, items that a row of cleared
// covers, and items and commands that have expired. Snapshots keep what they show, archives end with their tenants, and
// loads are protected by a row of unnamed with their owner.
type sweeper struct {
	*core

	// turn is held during a sweep, and during a rewrite of a cell.
	turn sync.Mutex
}

// wakeSweeper makes the sweeper look for rows to delete.
func (c *core) wakeSweeper() {
	select {
	case c.sweepable <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// run sweeps until the store is closed: at the start, when something was removed, and every sweepEvery.
func (s *sweeper) run() {
	for s.closing.Err() == nil {
		err := panics.Logged(s.closing, s.logger, deleting, func() error { return s.sweep(s.closing) })
		if err != nil && s.closing.Err() == nil {
			s.logger.WarnContext(
				s.closing, "rows that nobody can see were not deleted, and will be later", slog.Any("error", err),
			)
		}
		clock.Either(s.closing, s.clock, s.clock.Now().Add(sweepEvery), s.sweepable)
	}
}

// sweep deletes all rows that are not visible now.
func (s *sweeper) sweep(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	for _, part := range []func(context.Context) error{s.sweepUnnamed, s.sweepCleared, s.sweepExpired} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pages executes a statement that processes a page of rows until none is left. The statement returns columns of the
// last row of a full page, which replace the last arguments for the next page.
func (c *core) pages(ctx context.Context, what, sql string, args ...any) error {
	for more := true; more; {
		err := c.read(ctx, what, func(conn reading) error {
			rows, err := conn.Query(ctx, sql, args...)
			if err != nil {
				return err
			}
			defer rows.Close()
			if more = rows.Next(); !more {
				return rows.Err()
			}
			last, err := rows.Values()
			if err == nil {
				args = append(args[:len(args)-len(last)], last...)
				rows.Close()
				err = rows.Err()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keyOrder is a table in the order of its key, which begins with t.
type keyOrder struct {
	table string
	// key are the columns after t, before are values that are less than all of theirs.
	key    []string
	before []any
}

// keyOrders returns the tables with rows of tenants.
func keyOrders() []keyOrder {
	return []keyOrder{
		{"events", []string{"ms", "n"}, []any{int64(-1), int64(-1)}},
		{"tags", []string{"tag", "ms", "n"}, []any{[]byte{}, int64(-1), int64(-1)}},
		{"items", []string{"space", "key"}, []any{noSpace, []byte{}}},
		{"commands", []string{"id"}, []any{[]byte{}}},
	}
}

// deletePage returns the statement that deletes the next page of a tenant's rows. Its arguments are t and the key of
// the last row of the previous page.
func (o *keyOrder) deletePage() string {
	var places, same []string
	for i, column := range o.key {
		places = append(places, fmt.Sprintf("$%d", i+2))
		same = append(same, fmt.Sprintf("x.%s = p.%s", column, column))
	}
	return fmt.Sprintf(
		`WITH page AS (SELECT t, %[2]s FROM %[1]s WHERE t = $1 AND (%[2]s) > (%[3]s) ORDER BY %[2]s LIMIT 5000),
		gone AS (DELETE FROM %[1]s x USING page p WHERE x.t = p.t AND %[4]s)
		SELECT %[2]s FROM page OFFSET 4999`,
		o.table, strings.Join(o.key, ", "), strings.Join(places, ", "), strings.Join(same, " AND "),
	)
}

// deleteTenant deletes the remaining rows of a tenant without events, tags, items and commands.
const deleteTenant = `WITH c AS (DELETE FROM cleared WHERE t = $1), x AS (DELETE FROM tenants WHERE t = $1)
DELETE FROM unnamed WHERE t = $1`

// numbers returns the numbers of tenants that a statement selects.
func (s *sweeper) numbers(ctx context.Context, sql string, args ...any) (list []int32, err error) {
	err = s.read(ctx, "removed tenants", func(conn reading) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		}
		return err
	})
	return list, err
}

// sweepUnnamed deletes the rows of tenants that have no name and are not being loaded.
func (s *sweeper) sweepUnnamed(ctx context.Context) error {
	if err := s.giveUpOrphans(ctx); err != nil {
		return err
	}
	list, err := s.numbers(ctx, `SELECT t FROM unnamed WHERE owner IS NULL ORDER BY t`)
	if err != nil {
		return err
	}
	for _, t := range list {
		for _, order := range keyOrders() {
			if err := s.pages(ctx, deleting, order.deletePage(), append([]any{t}, order.before...)...); err != nil {
				return err
			}
		}
		if err := s.execute(ctx, deleting, deleteTenant, t); err != nil {
			return err
		}
	}
	return nil
}

const (
	// deleteCovered deletes a page of the items that a row of cleared covers. It skips a row that a lane is writing:
	// waiting for that while holding locks on others could be a deadlock.
	deleteCovered = `WITH page AS (
		SELECT t, space, key FROM items WHERE t = $1 AND space = $2 AND key > $6 AND key >= $3
		AND key < coalesce($4, '\xff'::bytea) AND rev <= $5 ORDER BY key LIMIT 5000 FOR UPDATE SKIP LOCKED
	), gone AS (
		DELETE FROM items x USING page p WHERE x.t = p.t AND x.space = p.space AND x.key = p.key AND x.rev <= $5
	) SELECT key FROM page OFFSET 4999`
	// deleteCleared deletes a row of cleared that no longer covers anything.
	deleteCleared = `DELETE FROM cleared WHERE t = $1 AND space = $2 AND from_key = $3 AND to_key IS NOT DISTINCT FROM $4
	AND rev = $5 AND NOT EXISTS (
		SELECT 1 FROM items WHERE t = $1 AND space = $2 AND key >= $3 AND key < coalesce($4, '\xff'::bytea) AND rev <= $5
	)`
)

// sweepCleared deletes items that a row of cleared covers, and then the row.
func (s *sweeper) sweepCleared(ctx context.Context) error {
	var list [][]any
	err := s.read(ctx, "removed items", func(conn reading) error {
		rows, err := conn.Query(ctx, `SELECT t, space, from_key, to_key, rev FROM cleared`)
		if err == nil {
			list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, cleared := range list {
		if err := s.pages(ctx, deleting, deleteCovered, append(cleared[:5:5], []byte{})...); err != nil {
			return err
		}
		if err := s.execute(ctx, deleting, deleteCleared, cleared...); err != nil {
			return err
		}
	}
	return nil
}

const (
	// deleteExpiredItems and deleteExpiredCommands delete a page of expired rows, from a time of expiry on.
	deleteExpiredItems = `WITH page AS (
		SELECT t, space, key, expires FROM items WHERE expires <= $1 AND expires >= $2
		ORDER BY expires LIMIT 5000 FOR UPDATE SKIP LOCKED
	), gone AS (
		DELETE FROM items x USING page p WHERE x.t = p.t AND x.space = p.space AND x.key = p.key AND x.expires <= $1
	) SELECT expires FROM page OFFSET 4999`
	deleteExpiredCommands = `WITH page AS (
		SELECT t, id, expires FROM commands WHERE expires <= $1 AND expires >= $2
		ORDER BY expires LIMIT 5000 FOR UPDATE SKIP LOCKED
	), gone AS (
		DELETE FROM commands x USING page p WHERE x.t = p.t AND x.id = p.id AND x.expires <= $1
	) SELECT expires FROM page OFFSET 4999`
)

// sweepExpired deletes items and commands that have expired.
func (s *sweeper) sweepExpired(ctx context.Context) error {
	now := s.clock.Now().UnixNano()
	for _, sql := range []string{deleteExpiredItems, deleteExpiredCommands} {
		if err := s.pages(ctx, deleting, sql, now, int64(0)); err != nil {
			return err
		}
	}
	return nil
}
