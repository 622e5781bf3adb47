package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// This file asks functions and views that are specific to PostgreSQL. An engine that only speaks its protocol has other
// guarantees of durability, and other views.

// Finding is the state of one setting of a server, or of another requirement of a store.
type Finding struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Text says what is wrong and what to do, "" if nothing is wrong.
	Text string `json:"text,omitempty"`
	// Refused reports whether the finding keeps the store from being opened, and from taking writes.
	Refused bool `json:"refused"`
}

// serverSettings are the settings of a server, of the database and of the role.
type serverSettings struct {
	encoding, fsync, fullPages, commit, quorum, checksums, recycle string
	recovery                                                       bool
	// most is how many connections the server takes, kept how many of them are reserved; roleMost and databaseMost are
	// the limits of the role and of the database, -1 for none.
	most, kept             int
	roleMost, databaseMost int
	role, database         string
	// monitor reports whether the role may see the standbys; checkpoint and switches whether it may request checkpoints
	// and new segments.
	monitor, checkpoint, switches bool
	// standbys counts those that commits may wait for; lag is how many bytes the slowest of them is behind.
	standbys int
	lag      int64
}

const selectSettings = `SELECT current_setting('server_encoding'), current_setting('fsync'),
	current_setting('full_page_writes'), current_setting('synchronous_commit'),
	current_setting('synchronous_standby_names'), current_setting('data_checksums'), current_setting('wal_recycle'),
	pg_is_in_recovery(), current_setting('max_connections')::int,
	current_setting('superuser_reserved_connections')::int
		+ coalesce(nullif(current_setting('reserved_connections', true), '')::int, 0),
	r.rolconnlimit, d.datconnlimit, current_user, current_database(), pg_has_role('pg_read_all_stats', 'USAGE'),
	CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = 'pg_checkpoint') THEN pg_has_role('pg_checkpoint', 'USAGE')
		ELSE false END,
	has_function_privilege('pg_switch_wal()', 'EXECUTE')
FROM pg_roles r, pg_database d WHERE r.rolname = current_user AND d.datname = current_database()`

// selectStandbys measures what a standby has not flushed yet. That may be negative, as the positions change.
const selectStandbys = `SELECT count(*)::int, coalesce(max(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn)), 0)::bigint
FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')`

// settings reads the settings of a server.
func settings(ctx context.Context, conn reading) (s serverSettings, err error) {
	err = conn.QueryRow(ctx, selectSettings).Scan(
		&s.encoding, &s.fsync, &s.fullPages, &s.commit, &s.quorum, &s.checksums, &s.recycle, &s.recovery, &s.most,
		&s.kept, &s.roleMost, &s.databaseMost, &s.role, &s.database, &s.monitor, &s.checkpoint, &s.switches,
	)
	if err != nil || s.recovery || !s.monitor {
		return s, err
	}
	err = conn.QueryRow(ctx, selectStandbys).Scan(&s.standbys, &s.lag)
	s.lag = max(s.lag, 0)
	return s, err
}

// instead returns how a text about a setting goes on: with the flag that accepts its value, or that this is given.
func instead(what, flag string, given bool) string {
	if given {
		return "; " + flag + " accepts it"
	}
	return ", or allow " + what + " with " + flag
}

// lossy returns the findings on settings with which a crash of the server or its machine may lose acknowledged writes.
func (s *serverSettings) lossy(o *Options) (found []Finding) {
	allow := instead("that", "--store-allow-async", o.AllowAsync)
	for _, setting := range []struct{ name, value, lost string }{
		{"fsync", s.fsync, "when its machine ends"},
		{"full_page_writes", s.fullPages, "when its machine ends in the middle of a write"},
	} {
		f := Finding{Name: setting.name, Value: setting.value}
		if setting.value != "on" {
			f.Text = fmt.Sprintf("%s is %s, so the server may lose what it has acknowledged %s: set it to on%s", setting.name, setting.value, setting.lost, allow)
		}
		found = append(found, f)
	}
	f := Finding{Name: "synchronous_commit", Value: s.commit}
	if s.commit != "on" && s.commit != "remote_apply" {
		f.Text = fmt.Sprintf("synchronous_commit is %s, so the server acknowledges writes that may be lost: set it to on or remote_apply, for the server, the database and the role%s", s.commit, allow)
	}
	return append(found, f)
}

// replicated returns the finding on whether commits wait for a standby.
func (s *serverSettings) replicated(o *Options) Finding {
	f := Finding{Name: "synchronous_standby_names", Value: s.quorum}
	switch {
	case s.quorum == "":
		f.Text = "synchronous_standby_names is empty, so commits wait for no standby, and what was acknowledged is lost with the server: set it to ANY 1 (…) with the names of at least two standbys" + instead("a single server", "--store-allow-single", o.AllowSingle)
	case !s.monitor:
		f.Text = fmt.Sprintf("whether a standby of synchronous_standby_names (%s) is attached cannot be seen by the role %s: GRANT pg_monitor TO %s", s.quorum, s.role, quoted(s.role))
	case s.standbys == 0:
		f.Text = fmt.Sprintf("synchronous_standby_names is %s, and no standby of these is attached, so that no commit ends: start a standby whose application_name is one of the names", s.quorum)
	}
	return f
}

// findings returns the findings on all that a store needs of a server.
func (s *serverSettings) findings(o *Options) (found []Finding) {
	add := func(f Finding, refused bool) {
		f.Refused = refused && f.Text != ""
		found = append(found, f)
	}
	f := Finding{Name: "pg_is_in_recovery", Value: fmt.Sprint(s.recovery)}
	if s.recovery {
		f.Text = "the server is a standby (pg_is_in_recovery is true), which takes no writes: name the primary in the address"
	}
	add(f, true)
	f = Finding{Name: "server_encoding", Value: s.encoding}
	if s.encoding != "UTF8" {
		f.Text = fmt.Sprintf("server_encoding is %s: make a database with ENCODING 'UTF8' and name that in the address", s.encoding)
	}
	add(f, true)

	// Durability.
	for _, f := range s.lossy(o) {
		add(f, !o.AllowAsync)
	}
	f = s.replicated(o)
	add(f, s.quorum == "" && !o.AllowSingle || s.quorum != "" && (s.monitor || !o.AllowSingle))

	// Connections.
	f = Finding{Name: "max_connections", Value: fmt.Sprint(s.most)}
	if s.most-s.kept < o.Connections {
		f.Text = fmt.Sprintf("max_connections is %d, of which %d are reserved, and a node uses %d (--store-connections): set it to %d or more for each node", s.most, s.kept, o.Connections, o.Connections+s.kept)
	}
	add(f, true)
	for _, limit := range []struct {
		of, name, sql string
		most          int
	}{
		{"the role " + s.role, "rolconnlimit", "ALTER ROLE " + quoted(s.role), s.roleMost},
		{
			"the database " + s.database, "datconnlimit", "ALTER DATABASE " + quoted(s.database), s.databaseMost,
		},
	} {
		f = Finding{Name: limit.name, Value: fmt.Sprint(limit.most)}
		if limit.most >= 0 && limit.most < o.Connections {
			f.Text = fmt.Sprintf("%s takes %d connections (%s), and a node uses %d (--store-connections): %s CONNECTION LIMIT %d", limit.of, limit.most, limit.name, o.Connections, limit.sql, o.Connections)
		}
		add(f, true)
	}

	// Findings without consequences for the store.
	f = Finding{Name: "data_checksums", Value: s.checksums}
	if s.checksums != "on" {
		f.Text = "data_checksums is off, so the server does not notice damaged pages: switch it on with pg_checksums while the server is stopped"
	}
	add(f, false)
	return found
}

// erasing returns the findings that matter to erasures.
func (s *serverSettings) erasing() []Finding {
	recycle := Finding{Name: "wal_recycle", Value: s.recycle}
	if s.recycle != "off" {
		recycle.Text = "wal_recycle is on, so files of the log keep old content until they are written again, and an erasure waits for that: set it to off"
	}
	rights := Finding{Name: "rights for erasures", Value: "pg_checkpoint, pg_switch_wal"}
	var missing []string
	if !s.checkpoint {
		missing = append(missing, "GRANT pg_checkpoint TO "+quoted(s.role))
	}
	if !s.switches {
		missing = append(missing, "GRANT EXECUTE ON FUNCTION pg_switch_wal() TO "+quoted(s.role))
	}
	if !s.monitor {
		missing = append(missing, "GRANT pg_monitor TO "+quoted(s.role))
	}
	if len(missing) > 0 {
		rights.Value = "incomplete"
		rights.Text = "an erasure waits for what the server does by itself, since the role may not ask for it: " + strings.Join(missing, "; ")
	}
	return []Finding{recycle, rights}
}

// sessionsName is the name of the finding on whether connections keep their sessions.
const sessionsName = "sessions"

// errPooled is the error of a connection that does not keep its session.
var errPooled = errors.New("what is between j17 and the server gives each statement another session, as poolers in transaction mode do: use session mode (pool_mode = session in PgBouncer), or no pooler")

// sessions checks whether two connections keep their sessions: a statement that one has prepared must still exist in
// its next round trip, although the other one has begun a transaction in between.
func sessions(ctx context.Context, one, other *pgx.Conn) (err error) {
	const name, sql = "j17_session", "SELECT pg_backend_pid()"
	var before, after int
	if _, err := one.Prepare(ctx, name, sql); err != nil {
		return err
	}
	if err := one.QueryRow(ctx, name).Scan(&before); err != nil {
		return pooled(err)
	}
	tx, err := other.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback(ctx)) }()
	if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
		return err
	}
	if err := one.QueryRow(ctx, name).Scan(&after); err != nil {
		return pooled(err)
	}
	if before != after {
		return errPooled
	}
	return one.Deallocate(ctx, name)
}

// pooled returns errPooled if err says that a prepared statement does not exist, otherwise err.
func pooled(err error) error {
	if sqlState(err) == "26000" {
		return errPooled
	}
	return err
}
