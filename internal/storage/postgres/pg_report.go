package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Report describes a server and a schema for an operator, before a store is opened there.
type Report struct {
	Store  string `json:"store"`
	Server string `json:"server_version"`
	Schema string `json:"schema"`
	// Version is that of the tables, 0 if there are none; Newest is the version that this program migrates to.
	Version  int       `json:"version"`
	Newest   int       `json:"newest_version"`
	Findings []Finding `json:"findings"`
}

// Refused counts the findings that keep a store from being opened.
func (r *Report) Refused() (n int) {
	for _, f := range r.Findings {
		if f.Refused {
			n++
		}
	}
	return n
}

// connected calls do with a connection to the server of the options.
func connected(ctx context.Context, o Options, do func(c *core, conn *pgx.Conn) error) error {
	c, err := newCore(ctx, o)
	if err != nil {
		return err
	}
	defer c.close()
	conn, err := c.dialFirst(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(c, conn), conn.Close(c.life))
}

// Check checks a server and a schema as Open does, but changes nothing. It returns an error only if the server cannot
// be asked.
func Check(ctx context.Context, o Options) (r Report, err error) {
	err = connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		r = Report{
			Store: c.address.String(), Server: conn.PgConn().ParameterStatus("server_version"), Schema: c.o.Schema,
			Newest: len(c.migrations()),
		}
		s, found, err := c.guard.look(ctx, conn)
		if err != nil {
			return err
		}
		if r.Findings = append(found, s.erasing()...); found[0].Name == sessionsName && found[0].Refused {
			return nil // nothing else was asked
		}

		// The schema, and whether this node belongs to it.
		f := Finding{Name: "schema", Value: c.o.Schema}
		r.Version, err = c.version(ctx, conn, r.Newest)
		switch {
		case err != nil:
		case r.Version == 0:
			err = c.mayCreate(ctx, conn)
		default:
			if err = c.mustBeFinished(ctx, conn); err == nil && o.Key != nil {
				err = c.opens(ctx, conn)
			}
		}
		if err != nil {
			f.Text, f.Refused = err.Error(), true
		}
		r.Findings = append(r.Findings, f)
		return nil
	})
	return r, err
}

// opens returns an error if the key of the schema cannot be opened, nil if there is none yet.
func (c *core) opens(ctx context.Context, conn *pgx.Conn) error {
	var sealed []byte
	err := conn.QueryRow(ctx, selectKey, clusterItem).Scan(&sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, _, err = c.unseal(sealed)
	}
	return err
}

// mayCreate returns an error if the role may not create the schema, or tables in it.
func (c *core) mayCreate(ctx context.Context, conn *pgx.Conn) error {
	var may bool
	err := conn.QueryRow(
		ctx, `SELECT CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
			ELSE has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE') END
			FROM (SELECT) one LEFT JOIN pg_namespace n ON n.nspname = $1`, c.o.Schema,
	).Scan(&may)
	if err == nil && !may {
		err = c.noRight()
	}
	return err
}

// Migrate migrates a schema to the version of this program, as Open does too. It returns the version that the schema
// had, 0 for none, and the one that it has.
func Migrate(ctx context.Context, o Options) (from, to int, err error) {
	err = connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		err := c.guard.begin(ctx, conn)
		if err == nil {
			from, to, err = c.migrate(ctx, conn, c.migrations())
		}
		return err
	})
	return from, to, err
}

// Stats is how much a store holds, and the state of its server.
type Stats struct {
	Store   string `json:"store"`
	Schema  string `json:"schema"`
	Version int    `json:"version"`
	// Tenants and Events are exact; the rows of Tables are the server's latest estimates.
	Tenants int64       `json:"tenants"`
	Events  int64       `json:"events"`
	Tables  []TableSize `json:"tables"`
	Bytes   int64       `json:"bytes"`
	// Connections counts those of all programs to the server, Most is how many there may be.
	Connections int `json:"connections"`
	Most        int `json:"max_connections"`
	// OldestSnapshotSeconds is the age of the oldest transaction that keeps dead rows from being removed.
	OldestSnapshotSeconds float64   `json:"oldest_snapshot_seconds"`
	Standbys              []Standby `json:"standbys"`
}

// TableSize is the size of a table with all its partitions and indexes.
type TableSize struct {
	Name  string `json:"name"`
	Rows  int64  `json:"rows"`
	Dead  int64  `json:"dead_rows"`
	Bytes int64  `json:"bytes"`
}

// Standby is a server that follows the primary. Fields that the role may not see are empty.
type Standby struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Sync     string `json:"sync"`
	LagBytes int64  `json:"lag_bytes"`
}

const (
	selectTables = `SELECT coalesce(p.relname, c.relname)::text, coalesce(sum(s.n_live_tup), 0)::bigint,
	coalesce(sum(s.n_dead_tup), 0)::bigint, sum(pg_total_relation_size(c.oid))::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_class p ON p.oid = pg_partition_root(c.oid)
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE n.nspname = $1 AND c.relkind = 'r' GROUP BY 1 ORDER BY 4 DESC, 1`

	selectActivity = `SELECT count(*) FILTER (WHERE backend_type = 'client backend')::int,
	current_setting('max_connections')::int,
	` + oldestSnapshot + `
FROM pg_stat_activity WHERE pid <> pg_backend_pid()`

	selectEachStandby = `SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, ''),
	coalesce(greatest(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn), 0), 0)::bigint
FROM pg_stat_replication ORDER BY 1`
)

// Measure asks a server how much a store holds. It scans no large table.
func Measure(ctx context.Context, o Options) (s Stats, err error) {
	err = connected(ctx, o, func(c *core, conn *pgx.Conn) error {
		s = Stats{Store: c.address.String(), Schema: c.o.Schema, Tables: []TableSize{}, Standbys: []Standby{}}
		var err error
		if s.Version, err = c.version(ctx, conn, len(c.migrations())); err != nil {
			return err
		}
		if s.Version > 0 {
			const sums = `SELECT count(*), coalesce(sum(x.events), 0)::bigint FROM names JOIN tenants x USING (t)`
			if err := conn.QueryRow(ctx, sums).Scan(&s.Tenants, &s.Events); err != nil {
				return err
			}
		}
		rows, err := conn.Query(ctx, selectTables, c.o.Schema)
		if err != nil {
			return err
		}
		if s.Tables, err = pgx.AppendRows(s.Tables, rows, pgx.RowToStructByPos[TableSize]); err != nil {
			return err
		}
		for _, t := range s.Tables {
			s.Bytes += t.Bytes
		}
		err = conn.QueryRow(ctx, selectActivity).Scan(&s.Connections, &s.Most, &s.OldestSnapshotSeconds)
		if err != nil {
			return err
		}
		if rows, err = conn.Query(ctx, selectEachStandby); err != nil {
			return err
		}
		s.Standbys, err = pgx.AppendRows(s.Standbys, rows, pgx.RowToStructByPos[Standby])
		return err
	})
	return s, err
}
