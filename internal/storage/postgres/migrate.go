package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// migrations returns the scripts that bring the tables from one version to the next, of which the first creates them.
// Each is one transaction.
func (c *core) migrations() []string { return []string{fmt.Sprintf(schema1, c.o.Cells)} }

// migrate applies the missing steps, and returns the version that the schema had, 0 for none, and the one that it has.
// Stores that are opened at the same time wait for each other. A schema that is not that of a store, or that a newer
// program has migrated, is left unchanged and is an error.
func (c *core) migrate(ctx context.Context, conn *pgx.Conn, steps []string) (from, to int, err error) {
	const tries = 10
	for range tries {
		if from, err = c.version(ctx, conn, len(steps)); err != nil {
			return from, from, err
		}
		for to = from; to < len(steps) && err == nil; to++ {
			err = c.step(ctx, conn, to, steps[to])
		}
		if err == nil {
			return from, to, nil
		}
		if !overtaken(err) {
			return from, from, c.unmigrated(err)
		}
	}
	return from, from, err
}

// errOvertaken is the error of a step when another store has changed the version meanwhile.
var errOvertaken = errors.New("another program is migrating the schema")

// overtaken reports whether an error may be due to another store that takes the same step.
func overtaken(err error) bool {
	return errors.Is(err, errOvertaken) || slices.Contains([]string{"23505", "42P06", "42P07", "42710"}, sqlState(err))
}

// step brings the tables from the version from to the next one, in one transaction.
func (c *core) step(ctx context.Context, conn *pgx.Conn, from int, sql string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if from == 0 {
			if err := c.createSchema(ctx, tx); err != nil {
				return err
			}
		} else {
			// The row is locked until the end.
			if _, err := tx.Exec(ctx, `SELECT FROM meta WHERE key = 'migration' FOR UPDATE`); err != nil {
				return err
			}
			if now, err := versionOf(ctx, tx); err != nil || now != from {
				return errors.Join(err, errOvertaken)
			}
		}
		if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE meta SET value = $1 WHERE key = 'version'`, []byte(strconv.Itoa(from+1)))
		return err
	})
}

// createSchema creates the schema if there is none: an operator may have created it for a role that must not.
func (c *core) createSchema(ctx context.Context, tx pgx.Tx) error {
	var there bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, c.o.Schema).Scan(&there)
	if err != nil || there {
		return err
	}
	_, err = tx.Exec(ctx, "CREATE SCHEMA "+quoted(c.o.Schema))
	return err
}

const selectVersion = `SELECT convert_from(value, 'UTF8') FROM meta WHERE key = 'version'`

func versionOf(ctx context.Context, conn reading) (int, error) {
	var text string
	if err := conn.QueryRow(ctx, selectVersion).Scan(&text); err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// version returns the version of the schema, 0 if it does not exist or is empty. It returns an error for a schema that
// the store cannot use.
func (c *core) version(ctx context.Context, conn *pgx.Conn, newest int) (int, error) {
	// The tables that there are.
	rows, err := conn.Query(
		ctx, `SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') ORDER BY 1`, c.o.Schema,
	)
	if err != nil {
		return 0, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return 0, err
	}
	own := []string{"meta", "cluster", "names", "tenants", "events", "items", "commands", "tags", "spaces", "cleared"}
	for _, name := range own {
		if !slices.Contains(names, name) {
			const shown = 5
			return 0, fmt.Errorf("the schema %s is not that of a store of j17: it has %s, and no table %s. Name another one with --store-schema", c.o.Schema, strings.Join(names[:min(shown, len(names))], ", "), name)
		}
	}

	// The owner and the version. Erasures and migrations create and drop tables, which only the owner may.
	var owner string
	var ours bool
	err = conn.QueryRow(
		ctx, `SELECT pg_get_userbyid(c.relowner)::text, pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE')
			AND has_schema_privilege(n.oid, 'USAGE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = 'meta'`, c.o.Schema,
	).Scan(&owner, &ours)
	if err != nil {
		return 0, err
	}
	if role := c.address.pool.ConnConfig.User; !ours {
		return 0, fmt.Errorf("the schema %s belongs to the role %s, and %s has not all rights in it: name the owner in the address of the store, or GRANT %s TO %s",
			c.o.Schema, owner, role, quoted(owner), quoted(role))
	}
	version, err := versionOf(ctx, conn)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the schema %s is not that of a store of j17: its table meta says no version (%w). Name another one with --store-schema", c.o.Schema, err)
	case version > newest:
		return 0, fmt.Errorf("the schema %s was made by a newer version of j17: its version is %d, and this one knows %d. Use the newer program", c.o.Schema, version, newest)
	}
	return version, nil
}

// unmigrated returns the error of a migration that has changed nothing.
func (c *core) unmigrated(err error) error {
	if sqlState(err) == "42501" {
		return c.noRight()
	}
	return fmt.Errorf("the tables of the store cannot be made: %w", err)
}

// noRight returns the error of a role that may not create the schema, or tables in it.
func (c *core) noRight() error {
	role := c.address.pool.ConnConfig.User
	return fmt.Errorf("the role %s has no right to make the schema %s, or tables in it: CREATE SCHEMA %s AUTHORIZATION %s, or GRANT CREATE ON DATABASE … TO %s",
		role, c.o.Schema, quoted(c.o.Schema), quoted(role), quoted(role))
}
