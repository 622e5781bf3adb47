package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jackc/pgx/v5"
)

// A cell is rewritten by copying its rows into new tables, which then replace the partitions. That removes old versions
// of rows from PostgreSQL: an engine without such partitions needs another method.

const (
	// copyRate is the most that is copied in bytes per second, so that other work is not delayed.
	copyRate = 32 << 20
	// copiedRows and copiedBytes are about the most rows and bytes that one statement copies.
	copiedRows, copiedBytes = 1000, 1 << 20
	// keysAtOnce is how many rows one statement copies again, leftAtMost about how many while writers are blocked.
	keysAtOnce = 1000
	leftAtMost = 10 * keysAtOnce
	// exchangePatience is how long the exchange waits for a lock, which delays writers. exchangePause is the time until
	// it is tried again, which doubles up to longestPause.
	exchangePatience = 500 * time.Millisecond
	exchangePause    = time.Second
	longestPause     = time.Minute
)

// cellTable is a table that is partitioned into cells.
type cellTable struct {
	name string
	// key are the columns of its key after t, size is an expression for about the bytes of a row.
	key  []keyColumn
	size string
}

// keyColumn is a column of a key, with the field of rowKey that has its values: "text", "x" or "y".
type keyColumn struct{ name, typ, field string }

// The tables of a cell, by their indexes in cellTables.
const (
	eventRows = iota
	tagRows
	itemRows
	commandRows
	cellTableCount
)

func cellTables() [cellTableCount]cellTable {
	ms, n := keyColumn{"ms", "bigint", "x"}, keyColumn{"n", "bigint", "y"}
	return [...]cellTable{
		eventRows: {"events", []keyColumn{ms, n}, "length(i.raw) + 200"},
		tagRows:   {"tags", []keyColumn{{"tag", "bytea", "text"}, ms, n}, "60"},
		itemRows: {
			"items",
			[]keyColumn{{"space", "smallint", "x"}, {"key", "bytea", "text"}},
			"length(i.key) + length(i.value) + 80",
		},
		commandRows: {"commands", []keyColumn{{"id", "bytea", "text"}}, "length(i.result) + 60"},
	}
}

// columns returns the columns of the key after t, each with a prefix.
func (t *cellTable) columns(prefix string) string {
	names := make([]string, len(t.key))
	for i := range t.key {
		names[i] = prefix + t.key[i].name
	}
	return strings.Join(names, ", ")
}

// join returns the condition that rows of i and u have the same key.
func (t *cellTable) join() string {
	return "(i.t, " + t.columns("i.") + ") = (u.t, " + t.columns("u.") + ")"
}

// cellRun is one rewrite of a cell.
type cellRun struct {
	*cellJob

	cell, cells int
	// number is the number of the rewrite among those of the cell, covers the value of cellRow.wanted that it covers.
	number, covers int64
	conn           *pgxpool.Conn
	capture        *capture
	tables         [cellTableCount]cellTable
	// owed is the time that must still pass after paid because of what was copied.
	owed time.Duration
	paid time.Time
}

// old returns the name of a partition, fresh that of the table that replaces it.
func (r *cellRun) old(table int) string { return fmt.Sprintf("%s_%d", r.tables[table].name, r.cell) }

func (r *cellRun) fresh(table int) string {
	return fmt.Sprintf("%s_%d_r%d", r.tables[table].name, r.cell, r.number)
}

// leavings is the pattern of the names of fresh tables; anyCell matches the number of any cell.
const (
	leavings = `^(events|tags|items|commands)_%s_r[0-9]+$`
	anyCell  = `[0-9]+`
)

// dropLeavings drops the fresh tables of one cell, or of anyCell, that have not replaced a partition.
func (j *cellJob) dropLeavings(ctx context.Context, cell string) error {
	var names []string
	err := j.read(ctx, "what is left of rewrites of cells", func(conn reading) error {
		rows, err := conn.Query(
			ctx, `SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'
			AND NOT relispartition AND relname ~ $2 ORDER BY 1`, quoted(j.o.Schema), fmt.Sprintf(leavings, cell),
		)
		if err == nil {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	for _, name := range names {
		err = errors.Join(err, j.change(ctx, "DROP TABLE IF EXISTS "+quoted(name)))
	}
	return err
}

const (
	claimCell = `UPDATE cells SET run = run + 1, holder = $2 WHERE cell = $1 AND holder IN (0, $2)
	RETURNING run, wanted, (SELECT count(*) FROM cells)`
	releaseCell = `UPDATE cells SET holder = 0 WHERE cell = $1 AND run = $2`
)

// rewrite rewrites a cell, unless another store is working on it.
func (j *cellJob) rewrite(ctx context.Context, cell int) (err error) {
	// Rows that are no longer visible are deleted first, and none during the copy, so that all rows have to be copied.
	j.sweeper.turn.Lock()
	defer j.sweeper.turn.Unlock()
	for _, sweep := range []func(context.Context) error{j.sweeper.sweepUnnamed, j.sweeper.sweepCleared} {
		if err := sweep(ctx); err != nil {
			return err
		}
	}
	r := &cellRun{cellJob: j, cell: cell, tables: cellTables(), capture: newCapture()}
	if r.conn, err = j.acquire(ctx, j.pool); err != nil {
		return err
	}
	defer r.conn.Release()
	err = r.conn.QueryRow(ctx, claimCell, cell, j.holder()).Scan(&r.number, &r.covers, &r.cells)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	j.tell(cell, "")
	exchanged := false
	defer func() { err = errors.Join(err, r.end(exchanged)) }()

	if err := j.dropLeavings(ctx, strconv.Itoa(cell)); err != nil {
		return err
	}

	// Lanes record what they write from here on. When Settled has returned, no unrecorded write is in progress.
	j.capture.Store(r.capture)
	defer j.capture.Store(nil)
	if err := j.queue.Settled(ctx); err != nil {
		return err
	}
	if err := r.make(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for table := range r.tables {
		if err := r.copy(ctx, table, 0, maxTenant); err != nil {
			return err
		}
	}
	for pause := exchangePause; ; pause = min(2*pause, longestPause) {
		loading, err := r.catchUp(ctx)
		if err != nil {
			return err
		}
		if !loading {
			if exchanged, err = r.exchange(ctx); err != nil || exchanged {
				return err
			}
		}
		r.tell(r.cell, heldUp)
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// heldUp says what the end of a rewrite may wait for.
const heldUp = "the end of long reads and loads, which hold up the rewrite of cells"

// maxTenant is the greatest number that a tenant can have.
const maxTenant = 1<<31 - 1

// end releases the cell, and drops the fresh tables if they have not replaced the partitions.
func (r *cellRun) end(exchanged bool) error {
	ctx, cancel := context.WithTimeout(r.life, patience)
	defer cancel()
	var err error
	if !exchanged {
		for table := range r.tables {
			err = errors.Join(err, r.change(ctx, "DROP TABLE IF EXISTS "+r.fresh(table)))
		}
		err = errors.Join(err, r.cleanUp(ctx, r.cell))
	}
	return errors.Join(err, r.change(ctx, releaseCell, r.cell, r.number))
}

// autovacuum has the settings of a table for its automatic vacuum.
const autovacuum, noAutovacuum = "(autovacuum_enabled, toast.autovacuum_enabled)",
	"(autovacuum_enabled = false, toast.autovacuum_enabled = false)"

// cleanUp switches the automatic vacuum of the partitions of a cell on again.
func (j *cellJob) cleanUp(ctx context.Context, cell int) error {
	var sql strings.Builder
	for _, t := range cellTables() {
		fmt.Fprintf(&sql, "ALTER TABLE %s_%d RESET %s;", t.name, cell, autovacuum)
	}
	return j.change(ctx, sql.String())
}

// make creates the fresh tables. A constraint says that all rows are of the cell, so that the server need not scan them
// when they become partitions. Old and fresh tables have no automatic vacuum meanwhile, since it delays the rewrite.
func (r *cellRun) make(ctx context.Context) error {
	var sql strings.Builder
	for i := range r.tables {
		parent, fresh := r.tables[i].name, r.fresh(i)
		fmt.Fprintf(
			&sql, `CREATE TABLE %[2]s (
				LIKE %[1]s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE
			) WITH %[6]s;
			ALTER TABLE %[5]s SET %[6]s;
			DO $$ DECLARE a name; BEGIN
				EXECUTE format(
					'ALTER TABLE %[2]s ADD CONSTRAINT cell CHECK (satisfies_hash_partition(%%s::oid, %[3]d, %[4]d, t))',
					'%[1]s'::regclass::oid
				);
				FOR a IN SELECT attname FROM pg_attribute
					WHERE attrelid = '%[1]s'::regclass AND attstattarget = 0 AND attnum > 0 AND NOT attisdropped
				LOOP
					EXECUTE format('ALTER TABLE %[2]s ALTER %%I SET STATISTICS 0', a);
				END LOOP;
			END $$;
			`, parent, fresh, r.cells, r.cell, r.old(i), noAutovacuum,
		)
	}
	_, err := r.conn.Exec(ctx, sql.String())
	return err
}

const selectCellTenants = `SELECT x.t, x.ver, coalesce(x.batch, ''), u.owner IS NOT NULL
FROM tenants x LEFT JOIN unnamed u ON u.t = x.t
WHERE satisfies_hash_partition('events'::regclass, $1::int, $2::int, x.t)`

// states returns the tenants of the cell.
func (r *cellRun) states(ctx context.Context) ([]cellTenant, error) {
	rows, err := r.conn.Query(ctx, selectCellTenants, r.cells, r.cell)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s cellTenant, err error) {
		err = row.Scan(&s.t, &s.ver, &s.batch, &s.loading)
		return s, err
	})
}

// begin gives the present versions of tenants to capture.
func (r *cellRun) begin(ctx context.Context) error {
	var highest int32
	// Numbers ascend, so no tenant with a lower number than this comes later.
	if err := r.conn.QueryRow(ctx, `SELECT coalesce(max(t), 0) FROM tenants`).Scan(&highest); err != nil {
		return err
	}
	states, err := r.states(ctx)
	if err != nil {
		return err
	}
	for _, s := range states {
		highest = max(highest, s.t)
	}
	r.capture.begin(states, highest)
	return nil
}

// copyPage returns the statement that copies a page of rows: those after a key, up to a tenant. The statement yields
// how many rows the page has, their size in bytes, and the key of the last one.
func (r *cellRun) copyPage(table int) string {
	t := &r.tables[table]
	places, order := make([]string, len(t.key)), make([]string, len(t.key))
	for i, c := range t.key {
		places[i], order[i] = fmt.Sprintf("$%d", i+4), "i."+c.name+" DESC"
	}
	where := ""
	if table == itemRows {
		where = " WHERE " + itemLives
	}
	return fmt.Sprintf(
		`WITH p AS MATERIALIZED (
			SELECT * FROM %[1]s i WHERE i.t <= $1 AND (i.t, %[3]s) > ($3, %[4]s) ORDER BY i.t, %[3]s LIMIT $2
		), c AS (
			INSERT INTO %[2]s SELECT i.* FROM p i%[5]s ON CONFLICT DO NOTHING
		)
		SELECT (SELECT count(*) FROM p), (SELECT sum(%[6]s) FROM p i)::bigint, i.t, %[3]s FROM p i ORDER BY i.t DESC, %[7]s LIMIT 1`,
		r.old(table), r.fresh(table), t.columns("i."), strings.Join(places, ", "), where, t.size,
		strings.Join(order, ", "),
	)
}

// copy copies the rows of a table of the tenants with numbers greater than after, up to upTo.
func (r *cellRun) copy(ctx context.Context, table int, after, upTo int32) error {
	// The first page begins after the last row that a lower number could have.
	t := &r.tables[table]
	last := []any{after + 1}
	var count, size int64
	targets := []any{&count, &size, new(int32)}
	for _, c := range t.key {
		if c.field == "text" {
			last, targets = append(last, []byte{}), append(targets, new([]byte))
		} else {
			last, targets = append(last, int64(-1)), append(targets, new(int64))
		}
	}

	// Pages, each behind the last row of the previous one, as large as the size of the rows allows.
	sql, limit := r.copyPage(table), int64(100)
	for {
		err := r.conn.QueryRow(ctx, sql, append([]any{upTo, limit}, last...)...).Scan(targets...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		last = last[:0]
		for _, target := range targets[2:] {
			switch v := target.(type) {
			case *int32:
				last = append(last, *v)
			case *int64:
				last = append(last, *v)
			case *[]byte:
				last = append(last, slices.Clone(*v))
			}
		}
		if r.capture.count() > keysAtOnce {
			if err := r.copyAgain(ctx, false); err != nil {
				return err
			}
		}
		if count < limit {
			return nil
		}
		limit = max(1, min(copiedRows, copiedBytes/(1+size/count)))
		if err := r.pace(ctx, size); err != nil {
			return err
		}
	}
}

// pace is called after some bytes were copied, and waits so that the rate does not exceed copyRate.
func (r *cellRun) pace(ctx context.Context, bytes int64) error {
	now := time.Now() //nolint:forbidigo // the server's work does not follow the store's clock
	r.owed = max(0, r.owed-now.Sub(r.paid)) + time.Duration(bytes)*time.Second/copyRate
	r.paid = now
	const least = 50 * time.Millisecond
	if r.owed < least {
		return nil
	}
	return wait(ctx, r.owed)
}

// copyAgain copies the rows again that lanes have recorded, with pending also those that may not be committed yet.
func (r *cellRun) copyAgain(ctx context.Context, pending bool) error {
	for table := range r.tables {
		for some := range slices.Chunk(r.capture.take(table, pending), keysAtOnce) {
			if err := r.copyRows(ctx, table, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyRows replaces rows of a fresh table by those with the same keys in the partition.
func (r *cellRun) copyRows(ctx context.Context, table int, keys []rowKey) error {
	t := &r.tables[table]
	numbers := make([]int32, len(keys))
	for i := range keys {
		numbers[i] = keys[i].t
	}
	args, casts := []any{numbers}, "$1::int[]"
	for i, c := range t.key {
		texts, ints := make([][]byte, len(keys)), make([]int64, len(keys))
		for n := range keys {
			texts[n] = []byte(keys[n].text)
			if ints[n] = keys[n].x; c.field == "y" {
				ints[n] = keys[n].y
			}
		}
		if c.field == "text" {
			args = append(args, texts)
		} else {
			args = append(args, ints)
		}
		casts += fmt.Sprintf(", $%d::%s[]", i+2, c.typ)
	}
	batch := &pgx.Batch{}
	batch.Queue(fmt.Sprintf(
		`DELETE FROM %s i USING unnest(%s) u (t, %s) WHERE %s`, r.fresh(table), casts, t.columns(""), t.join(),
	), args...)
	batch.Queue(fmt.Sprintf(
		`INSERT INTO %s SELECT i.* FROM unnest(%s) u (t, %s), LATERAL (SELECT * FROM %s i WHERE %s LIMIT 1) i
		ON CONFLICT DO NOTHING`, r.fresh(table), casts, t.columns(""), r.old(table), t.join(),
	), args...)
	return r.conn.SendBatch(ctx, batch).Close()
}

// catchUp copies what was written since the copy began, until little is left. It reports whether a tenant of the cell
// is being loaded.
func (r *cellRun) catchUp(ctx context.Context) (loading bool, err error) {
	for {
		if err := r.copyAgain(ctx, false); err != nil {
			return false, err
		}
		states, err := r.states(ctx)
		if err != nil {
			return false, err
		}
		others := r.capture.others(states)
		for _, t := range others {
			if err := r.copyTenant(ctx, t); err != nil {
				return false, err
			}
		}
		if len(others) == 0 && r.capture.count() <= leftAtMost {
			return slices.ContainsFunc(states, isLoading), nil
		}
	}
}

func isLoading(t cellTenant) bool { return t.loading }

// copyTenant copies all rows of a tenant again.
func (r *cellRun) copyTenant(ctx context.Context, t int32) error {
	for table := range r.tables {
		for n := int64(keysAtOnce); n == keysAtOnce; {
			tag, err := r.conn.Exec(ctx, fmt.Sprintf(
				`DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %[1]s WHERE t = $1 LIMIT $2))`, r.fresh(table),
			), t, keysAtOnce)
			if err != nil {
				return err
			}
			n = tag.RowsAffected()
		}
		if err := r.copy(ctx, table, t-1, t); err != nil {
			return err
		}
	}
	return nil
}

const noteExchange = `UPDATE cells SET copied = $3, rewritten = $4::bigint, lsn = '',
	since = CASE WHEN wanted > $3 THEN $4::bigint ELSE 0 END WHERE cell = $1 AND run = $2`

// errTaken is the error of a rewrite when another store has begun to rewrite the cell.
var errTaken = errors.New("another store has begun to write the cell anew")

// exchange replaces the partitions by the fresh tables, and reports whether it has. Reads and writes are blocked
// meanwhile. It gives up if it waits for a lock for too long, or if too much was written since the last copy.
func (r *cellRun) exchange(ctx context.Context) (done bool, err error) {
	_, err = r.conn.Exec(ctx, r.exchangeBegin())
	if err == nil {
		done, err = r.exchangeLocked(ctx)
	}
	if !done {
		if _, failed := r.conn.Exec(ctx, "ROLLBACK"); err == nil {
			err = failed
		}
		if said, is := errors.AsType[*pgconn.PgError](err); is && (said.Code == "55P03" || said.Code == "40P01") {
			r.logger.LogAttrs(ctx, slog.LevelDebug, "the exchange of tables waits", slog.Any("error", err))
			err = nil
		}
		return false, err
	}

	// If the answer to COMMIT is lost, the row of the cell tells the outcome.
	if _, err = r.conn.Exec(ctx, "COMMIT"); err == nil {
		return true, nil
	}
	var copied int64
	failed := r.read(ctx, "the state of a cell", func(conn reading) error {
		return conn.QueryRow(ctx, `SELECT copied FROM cells WHERE cell = $1`, r.cell).Scan(&copied)
	})
	if failed != nil {
		return true, errors.Join(err, failed) // the fresh tables may be the partitions
	}
	if copied >= r.covers {
		return true, nil
	}
	return false, err
}

// exchangeBegin returns the script that locks the tables against all others, until the transaction ends or this process
// pauses. Its commit needs no standby: stored content does not change, and the log has it before all that is
// acknowledged later.
func (r *cellRun) exchangeBegin() string {
	return fmt.Sprintf(
		`BEGIN; SET LOCAL lock_timeout = %[1]d; SET LOCAL idle_in_transaction_session_timeout = %[1]d;
		SET LOCAL synchronous_commit = local;
		LOCK TABLE tenants IN EXCLUSIVE MODE;
		LOCK TABLE ONLY events, ONLY tags, ONLY items, ONLY commands IN ACCESS EXCLUSIVE MODE;`,
		exchangePatience.Milliseconds(),
	)
}

// exchangeLocked exchanges the tables in the open transaction, which the caller commits.
func (r *cellRun) exchangeLocked(ctx context.Context) (done bool, err error) {
	if r.capture.count() > 2*leftAtMost {
		return false, nil
	}
	if err := r.copyAgain(ctx, true); err != nil {
		return false, err
	}
	states, err := r.states(ctx)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(states, isLoading) {
		return false, nil
	}
	if others := r.capture.others(states); len(others) > 0 {
		for _, t := range others {
			r.capture.forget(t)
		}
		return false, nil
	}
	tag, err := r.conn.Exec(ctx, noteExchange, r.cell, r.number, r.covers, r.clock.Now().UnixNano())
	if err == nil && tag.RowsAffected() == 0 {
		err = errTaken
	}
	if err != nil {
		return false, err
	}
	var sql strings.Builder
	for i := range r.tables {
		fmt.Fprintf(
			&sql, `ALTER TABLE %[1]s DETACH PARTITION %[2]s; DROP TABLE %[2]s; ALTER TABLE %[3]s RENAME TO %[2]s;
			ALTER TABLE %[1]s ATTACH PARTITION %[2]s FOR VALUES WITH (MODULUS %[4]d, REMAINDER %[5]d);
			ALTER TABLE %[2]s DROP CONSTRAINT cell; ALTER TABLE %[2]s RESET %[6]s;`,
			r.tables[i].name, r.old(i), r.fresh(i), r.cells, r.cell, autovacuum,
		)
	}
	if _, err = r.conn.Exec(ctx, sql.String()); err != nil {
		return false, err
	}
	return true, nil
}
