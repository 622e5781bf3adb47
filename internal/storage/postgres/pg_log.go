package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgreSQL's log of changes (WAL) has earlier content of rows. Its files, the segments, have one size. A checkpoint
// removes those that are no longer needed, or renames them for reuse: they have old content until then.

// logWait is the state of the wait until the log up to lsn, the end after a rewrite of a cell, is gone.
type logWait struct {
	lsn string
	// overwritten has, by server, the number of the last segment that existed when all from before lsn were gone:
	// renamed files may have old content until the log has passed it.
	overwritten map[string]uint64
	// switches is how many more segments may be begun only to advance the log: about as many as have to be passed. It
	// is bounded, since a server may keep its log for an absent standby, however far the log advances.
	switches int
	// begun reports whether one was begun.
	begun bool
	// asked has the last request of a checkpoint, by server.
	asked map[string]asked
}

// asked is the time of the last request of something, and the pause until the next one.
type asked struct {
	at    time.Time
	pause time.Duration
}

// serverLog is what a server reports of its log.
type serverLog struct {
	conn *pgx.Conn
	// name is the server's, unseen is why it does not show its log, "" if it does.
	name, unseen string
	standby      bool
	// recycles reports whether files are renamed for reuse; size is that of a segment in bytes.
	recycles bool
	size     uint64
	// current is the number of the segment being written, redo that of the segment where the last checkpoint began.
	current, redo uint64
	// segments are the numbers of the existing segments.
	segments []uint64
	// attached is how many programs receive the log, -1 if the server does not tell.
	attached int
	// switches reports whether the role may begin a new segment, checkpoints whether it may request a checkpoint.
	switches, checkpoints bool
}

const selectLog = `SELECT pg_is_in_recovery(), current_setting('wal_recycle') = 'on',
	(SELECT setting::bigint FROM pg_settings WHERE name = 'wal_segment_size'),
	CASE WHEN pg_is_in_recovery() THEN coalesce(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')
		ELSE pg_current_wal_insert_lsn() END::text,
	(SELECT redo_lsn::text FROM pg_control_checkpoint()),
	has_function_privilege('pg_switch_wal()', 'EXECUTE'), pg_has_role('pg_checkpoint', 'USAGE')`

// parseLSN parses a position in the log.
func parseLSN(text string) (uint64, error) {
	high, low, _ := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, err2 := strconv.ParseUint(low, 16, 32)
	return h<<32 | l, errors.Join(err, err2)
}

// segmentOf returns the number of the segment with a position in the log.
func (l *serverLog) segmentOf(text string) (uint64, error) {
	at, err := parseLSN(text)
	return at / l.size, err
}

// segmentNamed returns the number of the segment that a file contains, in whole or in part.
func (l *serverLog) segmentNamed(name string) (number uint64, is bool) {
	const digits = 8
	if len(name) < 3*digits {
		return 0, false
	}
	high, err := strconv.ParseUint(name[digits:2*digits], 16, 32)
	low, err2 := strconv.ParseUint(name[2*digits:3*digits], 16, 32)
	_, err3 := strconv.ParseUint(name[:digits], 16, 32)
	return high*(1<<32/l.size) + low, errors.Join(err, err2, err3) == nil
}

// look asks a server for the state of its log: first for the files, since the log advances meanwhile.
func (l *serverLog) look(ctx context.Context) error {
	rows, err := l.conn.Query(ctx, `SELECT name FROM pg_ls_waldir()`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case sqlState(err) == withoutRight:
		l.unseen = l.name + " does not let the role see the files of its log (pg_monitor)"
	case err != nil:
		return err
	}
	var current, redo string
	var size int64
	err = l.conn.QueryRow(ctx, selectLog).Scan(
		&l.standby, &l.recycles, &size, &current, &redo, &l.switches, &l.checkpoints,
	)
	if err != nil {
		return err
	}
	l.size = uint64(size)
	if l.current, err = l.segmentOf(current); err == nil {
		l.redo, err = l.segmentOf(redo)
	}
	if err != nil {
		return err
	}
	l.segments = l.segments[:0]
	for _, name := range names {
		if number, is := l.segmentNamed(name); is {
			l.segments = append(l.segments, number)
		}
	}
	l.attached = -1
	if l.unseen == "" && !l.standby {
		return l.conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication`).Scan(&l.attached)
	}
	return nil
}

// before returns how many segments have, or may have, what was written up to a segment, as far as the server shows.
func (l *serverLog) before(last uint64, w *logWait) (n int) {
	if l.unseen != "" {
		if l.redo <= last {
			return 1 // the last checkpoint is from before
		}
		return 0
	}
	for _, number := range l.segments {
		if number <= last {
			n++
		}
	}
	if n > 0 || len(l.segments) == 0 {
		return n
	}
	overwritten, known := w.overwritten[l.name]
	if !known {
		overwritten = slices.Max(l.segments)
		if !l.recycles && overwritten <= l.current {
			overwritten = 0
		}
		w.overwritten[l.name] = overwritten
		w.switches += max(0, int(overwritten)-int(l.current)+1)
	}
	if l.current <= overwritten {
		return int(overwritten-l.current) + 1
	}
	return 0
}

// withoutRight is the SQLSTATE of the error that the role has no right to do something.
const withoutRight = "42501"

// servers connects to all servers of the address. unseen are messages on those that cannot be asked.
func (j *cellJob) servers(ctx context.Context) (logs []*serverLog, unseen []string) {
	for _, host := range j.hosts {
		name, config := hostName(host.Host, host.Port), host.Copy()
		config.ValidateConnect = nil // standbys are asked too
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			l := &serverLog{conn: conn, name: name}
			if err = l.look(ctx); err == nil {
				logs = append(logs, l)
				continue
			}
			_ = conn.Close(ctx) // it is of no use
		}
		unseen = append(unseen, name+" could not be asked")
	}
	return logs, unseen
}

// awaitLogs checks the logs of the servers for the cells that were rewritten and are not done. left reports whether
// some of them still are not.
func (j *cellJob) awaitLogs(ctx context.Context, rows []cellRow) (left bool, err error) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(c cellRow) bool { return c.copied == c.done })
	if len(rows) == 0 {
		return false, nil
	}
	for i := range rows {
		if rows[i].lsn == "" {
			if rows[i].lsn, err = j.noteEnd(ctx, rows[i].cell); err != nil {
				return true, err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	logs, unseen := j.servers(ctx)
	defer func() {
		for _, l := range logs {
			_ = l.conn.Close(ctx) // nothing depends on it
		}
	}()
	if !slices.ContainsFunc(logs, func(l *serverLog) bool { return !l.standby }) {
		return true, fmt.Errorf("no primary was found: %s", strings.Join(unseen, ", "))
	}
	for i := range rows {
		done, err := j.awaitLog(ctx, &rows[i], logs, unseen)
		if err != nil {
			return true, err
		}
		left = left || !done
	}
	return left, nil
}

// noteEnd records and returns the present end of the log for a cell that was rewritten.
func (j *cellJob) noteEnd(ctx context.Context, cell int) (lsn string, err error) {
	err = j.read(ctx, "the end of the log", func(conn reading) error {
		return conn.QueryRow(
			ctx, `UPDATE cells SET lsn = pg_current_wal_insert_lsn()::text WHERE cell = $1 AND lsn = '' RETURNING lsn`, cell,
		).Scan(&lsn)
	})
	return lsn, err
}

// awaitLog requests that the servers remove their logs from before a rewrite of a cell, as far as the role may do that,
// and reports whether these are gone.
func (j *cellJob) awaitLog(ctx context.Context, c *cellRow, logs []*serverLog, unseen []string) (done bool, err error) {
	w := j.logs[c.cell]
	if w == nil || w.lsn != c.lsn {
		w = &logWait{lsn: c.lsn, overwritten: map[string]uint64{}, asked: map[string]asked{}}
		j.logs[c.cell] = w
	}
	waiting, err := w.waiting(logs)
	if err != nil {
		return false, err
	}
	var missing []string
	if len(waiting) > 0 {
		if missing, err = j.ask(ctx, c, w, logs, waiting); err != nil {
			return false, err
		}
		for _, l := range waiting {
			if err := l.look(ctx); err != nil {
				return false, err
			}
		}
		if waiting, err = w.waiting(waiting); err != nil {
			return false, err
		}
	}
	if len(waiting) == 0 {
		return true, j.finish(ctx, c, logs, unseen)
	}
	names := make([]string, len(waiting))
	for i, l := range waiting {
		names[i] = l.name
	}
	j.tell(c.cell, strings.Join(append([]string{"the logs of " + strings.Join(names, ", ")}, missing...), "; "))
	return false, nil
}

// waiting returns the servers whose logs have, or may have, something from before lsn.
func (w *logWait) waiting(logs []*serverLog) (list []*serverLog, err error) {
	for _, l := range logs {
		last, err := l.segmentOf(w.lsn)
		if err != nil {
			return nil, err
		}
		n := l.before(last, w)
		if n == 0 {
			continue
		}
		if list = append(list, l); !w.begun {
			const more = 2
			w.switches = max(w.switches, n+more)
		}
	}
	return list, nil
}

// ask makes servers remove segments, by new segments and checkpoints. It returns messages on what the role may not
// request.
func (j *cellJob) ask(
	ctx context.Context, c *cellRow, w *logWait, logs, waiting []*serverLog,
) (missing []string, err error) {
	// Writes advance the log. Without any, it advances only by new segments.
	for _, l := range logs {
		switch {
		case l.standby || w.switches <= 0:
			continue
		case !l.switches:
			missing = append(missing, "the role may not begin a new file (pg_switch_wal), so that waits for writes")
			continue
		case w.begun: // an empty segment is not ended
			if err := j.change(ctx, `UPDATE cells SET lsn = lsn WHERE cell = $1`, c.cell); err != nil {
				return nil, err
			}
		}
		if _, err := l.conn.Exec(ctx, `SELECT pg_switch_wal()`); err != nil {
			return nil, err
		}
		w.begun = true
		w.switches--
	}

	// A checkpoint costs the server much, so it is requested rarely.
	const first, most = 2 * time.Second, time.Minute
	for _, l := range waiting {
		if !l.checkpoints {
			missing = append(missing, "the role may not ask "+l.name+" for a checkpoint (pg_checkpoint), so that waits for the server's own")
			continue
		}
		before, at := w.asked[l.name], now()
		if at.Sub(before.at) < before.pause {
			continue
		}
		w.asked[l.name] = asked{at, min(most, max(first, before.pause*2))}
		if _, err := l.conn.Exec(ctx, `CHECKPOINT`); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// finish records that requests are carried out, and which servers were checked.
func (j *cellJob) finish(ctx context.Context, c *cellRow, logs []*serverLog, unseen []string) error {
	p := purged()
	p.LSN, p.Unseen = c.lsn, slices.Clone(unseen)
	standbys, attached := 0, 0
	for _, l := range logs {
		name := l.name + ", primary"
		if l.standby {
			name = l.name + ", standby"
			standbys++
		}
		attached = max(attached, l.attached)
		if l.unseen != "" {
			p.Unseen = append(p.Unseen, l.unseen)
			continue
		}
		p.Servers = append(p.Servers, name)
	}
	if attached > standbys {
		p.Unseen = append(p.Unseen, fmt.Sprintf(
			"%d programs follow the primary, and the address has %d standbys that could be asked", attached, standbys,
		))
	}
	report, err := json.Marshal(p)
	if err == nil {
		err = j.change(
			ctx, `UPDATE cells SET done = $2, report = $3 WHERE cell = $1 AND copied >= $2`, c.cell, c.copied, report,
		)
	}
	if err != nil {
		return err
	}
	delete(j.logs, c.cell)
	j.tell(c.cell, "")
	return nil
}
