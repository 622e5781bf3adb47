package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// A cell is the partition of events, tags, items and commands that a tenant is in. A server keeps old versions of rows
// until it reuses their space, and its log of changes (WAL) holds them too. So a Purge has the cell of its tenant
// rewritten, and waits until the earlier log is gone. The table cells has the requests and their progress.

// cellJob rewrites cells. Only one store of a schema works on a cell at a time.
type cellJob struct {
	*core

	sweeper *sweeper
	// wake has an element if there was a request.
	wake chan struct{}

	mu sync.Mutex
	// changed is closed at the next change of what AwaitPurge returns.
	changed chan struct{}
	// waits is what the work on a cell waits for, "" if for nothing unusual.
	waits map[int]string
	// logs is the state of the wait for the log, by cell.
	logs map[int]*logWait
}

func newCellJob(c *core, s *sweeper) *cellJob {
	return &cellJob{
		core: c, sweeper: s, wake: make(chan struct{}, 1), changed: make(chan struct{}), waits: map[int]string{},
		logs: map[int]*logWait{},
	}
}

// cellRow is the row of a cell. wanted is the number of requests so far, copied how many of them the last rewrite has
// covered, and done how many are carried out.
type cellRow struct {
	cell                 int
	wanted, copied, done int64
	// since is the time of the first request that no rewrite has covered, rewritten that of the last rewrite, both in
	// Unix nanoseconds.
	since, rewritten int64
	// lsn is the end of the log just after the last rewrite, "" if it was not recorded.
	lsn string
	// report is the store.Purged of the requests that are done, as JSON.
	report []byte
}

const (
	requestCell = `UPDATE cells SET wanted = wanted + 1, since = CASE WHEN wanted = copied THEN $1 ELSE since END
WHERE satisfies_hash_partition('events'::regclass, (SELECT count(*)::int FROM cells), cell, $2::int)
RETURNING cell, wanted`

	selectCells = `SELECT cell, wanted, copied, done, since, rewritten, lsn, coalesce(report, '') FROM cells `
)

// readCell reads a row of cells.
func readCell(row pgx.CollectableRow) (c cellRow, err error) {
	err = row.Scan(&c.cell, &c.wanted, &c.copied, &c.done, &c.since, &c.rewritten, &c.lsn, &c.report)
	return c, err
}

// due returns when the next rewrite of a cell begins at the latest: EraseEvery after the previous one.
func (j *cellJob) due(c *cellRow) time.Time {
	at := time.Unix(0, c.since)
	if c.rewritten > 0 {
		if next := time.Unix(0, c.rewritten).Add(j.o.EraseEvery); next.After(at) {
			return next
		}
	}
	return at
}

// RequestPurge is part of store.PurgeRequests.
func (e *eraser) RequestPurge(ctx context.Context, t j17.Tenant) (string, error) {
	if err := e.endArchives(ctx); err != nil {
		return "", err
	}
	number, err := e.lookups.number(ctx, t)
	if err != nil || number == 0 {
		return "", err
	}
	var cell int
	var wanted int64
	err = e.read(ctx, "the request to write a cell anew", func(conn reading) error {
		return conn.QueryRow(ctx, requestCell, e.clock.Now().UnixNano(), int32(number)).Scan(&cell, &wanted)
	})
	if err != nil {
		return "", err
	}
	select {
	case e.cells.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
	return fmt.Sprintf("%d/%d", cell, wanted), nil
}

// PurgeProgress is part of store.PurgeRequests.
func (e *eraser) PurgeProgress(ctx context.Context, request string) (p store.PurgeProgress, err error) {
	cellText, wantedText, _ := strings.Cut(request, "/")
	cell, err := strconv.Atoi(cellText)
	wanted, err2 := strconv.ParseInt(wantedText, 10, 64)
	if err = errors.Join(err, err2); err != nil {
		return p, fmt.Errorf("%w: no request to remove old bytes is called %q", store.ErrInvalid, request)
	}
	return e.cells.progress(ctx, cell, wanted)
}

// AwaitPurge is part of store.PurgeRequests.
func (e *eraser) AwaitPurge(ctx context.Context, request string) (p store.PurgeProgress, err error) {
	for {
		changed := e.cells.next()
		if p, err = e.PurgeProgress(ctx, request); err != nil || p.Done || !p.Until.IsZero() {
			return p, err
		}
		// Another store may be working on it.
		clock.Either(ctx, clock.System{}, clock.System{}.Now().Add(lookPause), changed)
		if ctx.Err() != nil {
			return p, nil //nolint:nilerr // that is not an error, see above
		}
	}
}

// next returns a channel that is closed at the next change.
func (j *cellJob) next() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed
}

// tell sets what the work on a cell waits for, "" for nothing unusual, and wakes the callers that wait for the cell.
func (j *cellJob) tell(cell int, waits string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waits[cell] = waits
	close(j.changed)
	j.changed = make(chan struct{})
}

// progress returns the progress of a request.
func (j *cellJob) progress(ctx context.Context, cell int, wanted int64) (p store.PurgeProgress, err error) {
	var row cellRow
	err = j.read(ctx, "how far the rewrite of a cell is", func(conn reading) error {
		rows, err := conn.Query(ctx, selectCells+`WHERE cell = $1 AND wanted >= $2`, cell, wanted)
		if err == nil {
			row, err = pgx.CollectExactlyOneRow(rows, readCell)
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return store.ErrNotFound
		}
		return err
	})
	if err != nil {
		return p, err
	}
	if row.done >= wanted {
		p.Done = true
		return p, json.Unmarshal(row.report, &p.Purged)
	}
	j.mu.Lock()
	p.Waits = j.waits[cell]
	j.mu.Unlock()
	if row.copied < wanted {
		if due := j.due(&row); due.After(j.clock.Now()) {
			p.Until, p.Waits = due, ""
		}
	}
	if p.Waits == "" {
		p.Waits = "the rewrite of cells"
	}
	return p, nil
}

// Purge is part of store.Erasure. It takes as long as the rewrite of a cell of the schema, which begins at most
// Options.EraseEvery after the previous one.
func (e *eraser) Purge(
	ctx context.Context, t j17.Tenant, keys []j17.Key, spaces []store.Declared, items []store.ItemName,
) (store.Purged, error) {
	if len(keys)+len(spaces)+len(items) == 0 {
		return purged(), nil
	}
	request, err := e.RequestPurge(ctx, t)
	if err != nil || request == "" {
		return purged(), err
	}
	for {
		p, err := e.AwaitPurge(ctx, request)
		if err != nil || p.Done {
			return p.Purged, err
		}
		if err := ctx.Err(); err != nil {
			return store.Purged{}, err
		}
		if err := e.clock.Wait(ctx, p.Until); err != nil {
			return store.Purged{}, err
		}
	}
}

// purged returns the evidence without a server.
func purged() store.Purged {
	return store.Purged{
		Method:  "The partitions of tables that had it were written anew without it. The logs of changes (WAL) of the servers that are named here have no file from before the place lsn.",
		Remains: "Base backups, archives of the log of changes, copies of disks, and servers that were not looked at have what was erased until they are removed, or until the log there is.",
	}
}

// lookPause is the time between two checks of the servers' logs. After errors it doubles, up to errorPause.
const (
	lookPause  = time.Second
	errorPause = time.Minute
)

// run rewrites cells until the store is closed.
func (j *cellJob) run() {
	begun, again := false, lookPause
	for j.closing.Err() == nil {
		var pause time.Duration
		var due time.Time
		err := panics.Logged(j.closing, j.logger, "the rewrite of cells", func() (err error) {
			if !begun {
				if err = j.begin(j.closing); err != nil {
					return err
				}
				begun = true
			}
			pause, due, err = j.step(j.closing)
			return err
		})
		switch {
		case j.closing.Err() != nil:
		case err != nil:
			j.logger.WarnContext(
				j.closing, "old bytes could not be removed from the database, which is tried again", slog.Any("error", err),
			)
			clock.Either(j.closing, clock.System{}, clock.System{}.Now().Add(again), j.wake)
			again = min(2*again, errorPause)
			continue
		case pause > 0:
			clock.Either(j.closing, clock.System{}, clock.System{}.Now().Add(pause), j.wake)
		case !due.IsZero():
			clock.Either(j.closing, j.clock, due, j.wake)
		default:
			select {
			case <-j.wake:
			case <-j.closing.Done():
			}
		}
		again = lookPause
	}
}

// begin cleans up after unfinished rewrites of stores that have ended.
func (j *cellJob) begin(ctx context.Context) error {
	rows, err := j.pool.Query(ctx, `SELECT cell FROM cells WHERE holder <> 0`)
	if err != nil {
		return err
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return err
	}
	if err := j.dropLeavings(ctx, anyCell); err != nil {
		return err
	}
	for _, cell := range left {
		if err := j.cleanUp(ctx, cell); err != nil {
			return err
		}
	}
	return j.change(ctx, `UPDATE cells SET holder = 0`)
}

// change executes a statement, even while the store is closing.
func (j *cellJob) change(ctx context.Context, sql string, args ...any) error {
	_, err := j.pool.Exec(ctx, sql, args...)
	return err
}

// step does the work that is due. It returns how long to wait until the next step, or the time of it by the store's
// clock; neither if there are no requests.
func (j *cellJob) step(ctx context.Context) (pause time.Duration, due time.Time, err error) {
	rows, err := j.wanted(ctx)
	if err != nil {
		return 0, due, err
	}
	var failed error
	for i := range rows {
		c := &rows[i]
		if c.wanted == c.copied || j.due(c).After(j.clock.Now()) {
			continue
		}
		if err := j.rewrite(ctx, c.cell); err != nil {
			j.tell(c.cell, fmt.Sprintf("the rewrite of cells, which has failed and is tried again (%v)", err))
			failed = errors.Join(failed, fmt.Errorf("cell %d: %w", c.cell, err))
		}
	}
	if rows, err = j.wanted(ctx); err != nil {
		return 0, due, errors.Join(failed, err)
	}
	left, err := j.awaitLogs(ctx, rows)
	if left {
		pause = lookPause
	}
	for i := range rows {
		c := &rows[i]
		if c.wanted == c.copied {
			continue
		}
		if at := j.due(c); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if !due.IsZero() && !due.After(j.clock.Now()) {
		pause = lookPause // another store works on it, or a request came meanwhile
	}
	return pause, due, errors.Join(failed, err)
}

// wanted returns the cells with requests that are not carried out yet.
func (j *cellJob) wanted(ctx context.Context) (list []cellRow, err error) {
	err = j.read(ctx, "the cells to write anew", func(conn reading) error {
		rows, err := conn.Query(ctx, selectCells+`WHERE wanted > done ORDER BY since, cell`)
		if err == nil {
			list, err = pgx.CollectRows(rows, readCell)
		}
		return err
	})
	return list, err
}
