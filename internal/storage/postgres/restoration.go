package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"j17/internal/base/clock"
)

// restoringItem is the key of a row in meta that a schema has while it is being filled from a backup. Until then stores
// are opened in it only with Options.Restoring.
const restoringItem = "restoring"

// JoinToRestore is Join for a process that restores a backup into the schema, with Options.Restoring. It returns an
// error for a schema that holds data and leaves it unchanged, unless the data is that of an unfinished restoration.
func JoinToRestore(ctx context.Context, o Options, name, url string, c clock.Clock) (*Node, error) {
	err := connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		if err := c.guard.begin(ctx, conn); err != nil {
			return err
		}
		if version, err := c.version(ctx, conn, len(c.migrations())); err != nil || version == 0 {
			return err
		}
		return c.mustBeEmpty(ctx, conn)
	})
	if err != nil {
		return nil, err
	}
	return Join(ctx, o, name, url, c)
}

// BeginRestoration empties the schema of the active node for a restoration. Until that is finished, no other node opens
// a store in it.
func (n *Node) BeginRestoration(ctx context.Context) error {
	return n.alone(ctx, func(tx pgx.Tx) error {
		if err := n.core.mustBeEmpty(ctx, tx); err != nil {
			return err
		}
		unfinished, err := isRestoring(ctx, tx)
		if err != nil {
			return err
		}
		if unfinished {
			if _, err := tx.Exec(ctx, truncateTables); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `INSERT INTO meta (key, value) VALUES ($1, '') ON CONFLICT DO NOTHING`, restoringItem)
		return err
	})
}

// truncateTables empties the tables that have something of a tenant.
const truncateTables = `TRUNCATE names, unnamed, tenants, events, tags, items, commands, spaces, cleared`

// FinishRestoration marks the restoration into the schema as complete.
func (n *Node) FinishRestoration(ctx context.Context) error {
	return n.alone(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM meta WHERE key = $1`, restoringItem)
		return err
	})
}

// DiscardRestoration removes the tables of an unfinished restoration. All that the node can do then is to leave.
func (n *Node) DiscardRestoration(ctx context.Context) error {
	return n.alone(ctx, func(tx pgx.Tx) error {
		unfinished, err := isRestoring(ctx, tx)
		if err != nil || !unfinished {
			return err
		}
		n.endBeats()
		return n.core.dropTables(ctx, tx)
	})
}

// alone executes do in a transaction, unless another node is active. No other one takes over before its end.
func (n *Node) alone(ctx context.Context, do func(tx pgx.Tx) error) error {
	conn, err := n.core.dial(ctx, &n.core.counts.other)
	if err != nil {
		return fault("a restoration", err)
	}
	defer hangUp(n.core.life, conn)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var term int64
		switch err := tx.QueryRow(ctx, `SELECT term FROM cluster WHERE term = $1 FOR UPDATE`, n.Term()).Scan(&term); {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrReplaced
		case err != nil:
			return err
		}
		return do(tx)
	})
	if err == nil {
		err = sessionOf(conn).warning()
	}
	return err
}

// isRestoring reports whether the schema, which must have tables, has an unfinished restoration.
func isRestoring(ctx context.Context, conn reading) (is bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM meta WHERE key = $1)`, restoringItem).Scan(&is)
	return is, err
}

// mustBeFinished returns an error if the schema has an unfinished restoration, unless Options.Restoring is set.
func (c *core) mustBeFinished(ctx context.Context, conn reading) error {
	unfinished, err := isRestoring(ctx, conn)
	if err == nil && unfinished && !c.o.Restoring {
		err = fmt.Errorf("a restoration into the schema %s has not come to its end: run 'j17 backup restore' again, or name another schema with --store-schema", c.o.Schema)
	}
	return err
}

// mustBeEmpty returns an error if the schema, which must have tables, holds data that are not those of an unfinished
// restoration.
func (c *core) mustBeEmpty(ctx context.Context, conn reading) error {
	var tenants int
	var works, at string
	if err := conn.QueryRow(
		ctx, `SELECT (SELECT count(*)::int FROM names WHERE NOT EXISTS (SELECT FROM meta WHERE key = $1)), active, url
			FROM cluster`, restoringItem,
	).Scan(&tenants, &works, &at); err != nil {
		return err
	}
	if tenants == 0 {
		return nil
	}
	of := ""
	if works != "" {
		of = fmt.Sprintf(", those of the server %s at %s", works, at)
	}
	return fmt.Errorf("the schema %s holds data%s, which nothing can be restored over: name one that does not exist or is empty with --store-schema", c.o.Schema, of)
}

// dropTables drops all tables of the schema. The schema stays, since the role may not own it.
func (c *core) dropTables(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(
		ctx, `SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition`, c.o.Schema,
	)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		_, dropping := tx.Exec(ctx, "DROP TABLE "+quoted(c.o.Schema)+"."+quoted(name))
		err = errors.Join(err, dropping)
	}
	return err
}
