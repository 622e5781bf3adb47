package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Look checks the settings of the server now, instead of at the next interval.
func (s *Store) Look() error { return s.guard.lookNow() }

// Migrated migrates the schema of a store with the given migrations.
func Migrated(ctx context.Context, o Options, steps []string) (from, to int, err error) {
	err = connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		from, to, err = c.migrate(ctx, conn, steps)
		return err
	})
	return from, to, err
}

// Migrations returns the migrations of the program.
func Migrations() []string { return (&core{o: Options{Cells: DefaultCells}}).migrations() }
