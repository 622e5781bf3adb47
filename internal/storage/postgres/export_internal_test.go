package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Look looks at the settings of the server now, and not only when a minute is over.
func (s *Store) Look() error { return s.guard.lookNow() }

// Migrated migrates the schema of a store with other migrations than those of the program.
func Migrated(ctx context.Context, o Options, steps []string) (from, to int, err error) {
	err = connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		from, to, err = c.migrate(ctx, conn, steps)
		return err
	})
	return from, to, err
}

// Migrations are those of the program.
func Migrations() []string { return migrations() }
