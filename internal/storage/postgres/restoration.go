package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// restoringItem is the key of a row in meta that a schema has while it is being filled from a backup. Until then stores
// are opened in it only with Options.Restoring.
const restoringItem = "restoring"

// BeginRestoration creates an empty schema for a restoration from a backup. It returns an error for a schema that holds
// data and leaves it unchanged, unless the data is that of an unfinished restoration.
func BeginRestoration(ctx context.Context, o Options) error {
	return connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		if err := c.guard.begin(ctx, conn); err != nil {
			return err
		}
		version, err := c.version(ctx, conn, len(migrations()))
		if err != nil {
			return err
		}
		if version > 0 {
			unfinished, err := isRestoring(ctx, conn)
			if err == nil && unfinished {
				err = c.dropTables(ctx, conn)
			} else if err == nil {
				err = c.mustBeEmpty(ctx, conn)
			}
			if err != nil {
				return err
			}
		}
		if _, _, err := c.migrate(ctx, conn, migrations()); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `INSERT INTO meta (key, value) VALUES ($1, '')`, restoringItem)
		return err
	})
}

// FinishRestoration marks the restoration into a schema as complete.
func FinishRestoration(ctx context.Context, o Options) error {
	return connected(ctx, o, func(_ *core, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `DELETE FROM meta WHERE key = $1`, restoringItem)
		return err
	})
}

// DiscardRestoration removes the tables of an unfinished restoration.
func DiscardRestoration(ctx context.Context, o Options) error {
	return connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		unfinished, err := isRestoring(ctx, conn)
		if err == nil && unfinished {
			err = c.dropTables(ctx, conn)
		}
		return err
	})
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

func (c *core) mustBeEmpty(ctx context.Context, conn reading) error {
	var tenants int
	if err := conn.QueryRow(ctx, `SELECT count(*)::int FROM names`).Scan(&tenants); err != nil {
		return err
	}
	if tenants > 0 {
		return fmt.Errorf("the schema %s holds data, which nothing can be restored over: name one that does not exist or is empty with --store-schema", c.o.Schema)
	}
	return nil
}

// dropTables drops all tables of the schema. The schema stays, since the role may not own it.
func (c *core) dropTables(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
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
	})
}
