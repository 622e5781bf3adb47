package postgres

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/store"
)

// What keeps old versions of rows in the database, and how many there are, is known to views of PostgreSQL only.
// Another engine has other ways to remove what nobody sees any longer.

// measurement is what the database has told of itself at some time.
type measurement struct {
	at     time.Time
	oldest time.Duration
	dead   store.DeadRows
}

const (
	// oldestSnapshot is the age in seconds of the oldest transaction in pg_stat_activity that keeps rows of the
	// database from being removed. Autovacuum has a snapshot too, which keeps nothing.
	oldestSnapshot = `coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)) FILTER (
		WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL AND backend_type = 'client backend'
		AND datname = current_database()
	), 0)::float8`

	selectOldest = `SELECT ` + oldestSnapshot + ` FROM pg_stat_activity WHERE pid <> pg_backend_pid()`

	selectDead = `SELECT coalesce(p.relname, s.relname)::text, coalesce(sum(s.n_dead_tup), 0)::bigint
FROM pg_stat_user_tables s LEFT JOIN pg_class p ON p.oid = pg_partition_root(s.relid)
WHERE s.schemaname = $1 GROUP BY 1`
)

// measure asks the database for the figures that only it knows, unless that was done within lookEvery. If it does not
// answer, the figures stay as they were.
func (g *guard) measure(ctx context.Context, conn *pgx.Conn) {
	is, last := &measurement{at: now()}, *g.measured.Load()
	if !last.at.IsZero() && is.at.Sub(last.at) < lookEvery {
		return
	}
	b := &pgx.Batch{}
	b.Queue(selectOldest).QueryRow(func(row pgx.Row) error {
		var seconds float64
		err := row.Scan(&seconds)
		is.oldest = time.Duration(seconds * float64(time.Second))
		return err
	})
	b.Queue(selectDead, g.o.Schema).Query(func(rows pgx.Rows) error {
		var table string
		var dead int64
		_, err := pgx.ForEachRow(rows, []any{&table, &dead}, func() error {
			*is.of(table) += dead
			return nil
		})
		return err
	})
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		g.logger.LogAttrs(ctx, slog.LevelWarn, "the dead rows of the store's database could not be counted", slog.Any("error", err))
		is.oldest, is.dead = last.oldest, last.dead
	}
	g.measured.Store(is)
}

// of returns the number of the dead rows of a table.
func (m *measurement) of(table string) *int64 {
	switch table {
	case "tenants":
		return &m.dead.Tenants
	case "events":
		return &m.dead.Events
	case "tags":
		return &m.dead.Tags
	case "items":
		return &m.dead.Items
	case "commands":
		return &m.dead.Commands
	}
	return &m.dead.Other
}
