package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// migrate makes the tables if there are none.
func (c *core) migrate(ctx context.Context) error {
	return c.read(ctx, "the tables of the store", func(conn reading) error {
		var there bool
		err := conn.QueryRow(
			ctx, `SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'meta')`, c.o.Schema,
		).Scan(&there)
		if err != nil || there {
			return err
		}
		sql := "BEGIN; CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{c.o.Schema}.Sanitize() + ";" +
			fmt.Sprintf(schema1, cells) + "COMMIT"
		return c.script(ctx, sql)
	})
}

// script executes several statements.
func (c *core) script(ctx context.Context, sql string) error {
	conn, err := c.dial(ctx, nil)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	if closing := conn.Close(ctx); err == nil {
		err = closing
	}
	return err
}
