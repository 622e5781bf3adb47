package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

const (
	// mostUnits is about how many units a lane takes at a time.
	mostUnits = 256
	// mostBatchBytes is the size from which on a batch takes no further units. The last one may exceed it.
	mostBatchBytes = 4 << 20
)

// call is one call that waits for a lane.
type call = queue.Call[*batch]

// lane is a writer with a connection of its own. It works on tenants that no other lane works on at the same time.
type lane struct {
	*core

	// id is the lane's among all lanes that there ever were, batches how many batches it has written.
	id, batches int64
	conn        *pgx.Conn
	// warned is the last warning that the server gave during a statement.
	warned *pgconn.Notice
	batch  *batch
}

func newLane(c *core, n int) *lane {
	l := &lane{core: c, id: c.holder()*laneCount + int64(n)}
	l.batch = newBatch(l)
	return l
}

// run carries out calls until the store is closed and no call waits.
func (l *lane) run() {
	var calls []*call
	for l.queue.Wait() {
		calls = l.queue.Take(calls[:0])
		if len(calls) == 0 {
			continue // another lane was faster
		}
		var names []j17.Tenant
		for _, c := range calls {
			names = append(names, c.Tenant)
		}
		l.work(calls)
		l.queue.Release(names...)
		clear(calls)
	}
	if l.conn != nil {
		l.hangUp()
	}
}

// place is how far a call was when a batch began.
type place struct {
	done  int
	split bool
}

// work carries out and answers calls, as many at a time as fit into a batch.
func (l *lane) work(calls []*call) {
	for len(calls) > 0 {
		places := make([]place, len(calls))
		for i, c := range calls {
			places[i].done, places[i].split = c.Progress()
		}
		complete, stale, err := l.commit(calls)
		switch {
		case err != nil:
			l.forget(calls)
			queue.Refuse(calls, err)
			return
		case stale != nil:
			calls = l.answer(calls, complete, places, stale)
		default:
			for _, c := range calls[:complete] {
				c.Finish()
			}
			calls = calls[complete:]
		}
	}
}

// answer answers the complete calls of tenants that are not stale, and returns the others, which are decided again.
func (l *lane) answer(calls []*call, complete int, places []place, stale map[*tenant]bool) (rest []*call) {
	for i, c := range calls {
		switch {
		case stale[l.tenant(c.Tenant)]:
			c.Rewind(places[i].done, places[i].split)
			rest = append(rest, c)
		case i < complete:
			c.Finish()
		default:
			rest = append(rest, c)
		}
	}
	return rest
}

// forget makes the tenants of calls be read again.
func (l *lane) forget(calls []*call) {
	for _, c := range calls {
		l.tenant(c.Tenant).forget()
	}
}

// commit decides calls and commits what they write. It returns how many are complete: with stale tenants, only those of
// others. The error is the answer to all calls.
func (l *lane) commit(calls []*call) (complete int, stale map[*tenant]bool, err error) {
	if err := l.guard.admit(queue.Always); err != nil {
		return 0, nil, err // they have waited since before writes stopped
	}
	if err := l.connect(); err != nil {
		return 0, nil, err
	}
	b := l.batch
	b.reset()
	defer b.reset() // other lanes may have the tenants next
	if err := b.prepare(calls); err != nil {
		return 0, nil, err
	}
	complete = b.fill(calls)
	stale, err = l.write(b)
	if err == nil && stale != nil {
		err = l.replaced()
	}
	if err != nil {
		return 0, nil, err
	}
	b.publish(stale)
	return complete, stale, nil
}

// replaced returns an error if another node works: it is why nothing was written.
func (l *lane) replaced() error {
	n := l.o.Node
	if n == nil {
		return nil
	}
	var term int64
	if err := l.conn.QueryRow(l.ending, `SELECT term FROM cluster`).Scan(&term); err != nil {
		return l.failed("which node works", err)
	}
	if term != n.Term() {
		return fmt.Errorf("%w: %w", store.ErrBusy, ErrReplaced)
	}
	return nil
}

// connect sees to it that the lane has a connection. It gives up after the time for which callers can be expected to
// wait.
func (l *lane) connect() error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.ending, patience)
	defer cancel()
	for {
		conn, err := l.dial(ctx, func(n *pgconn.Notice) { l.warned = n })
		if err == nil {
			l.conn, l.warned = conn, nil
			return nil
		}
		if ctx.Err() != nil || !broken(err) {
			return fmt.Errorf("%w: the database cannot be reached: %v", store.ErrBusy, err) //nolint:errorlint // it is worth another try
		}
		if wait(ctx, retryAfter) != nil {
			return fmt.Errorf("%w: the database cannot be reached: %v", store.ErrBusy, err) //nolint:errorlint // the same
		}
	}
}

// retryAfter is the pause between two tries to connect.
const retryAfter = 50 * time.Millisecond

// wait waits for a while, by the machine's clock: networks do not follow the store's.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d) //nolint:forbidigo // see above
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hangUp ends the lane's connection.
func (l *lane) hangUp() {
	ctx, cancel := context.WithTimeout(l.life, time.Second)
	defer cancel()
	_ = l.conn.Close(ctx) // nothing depends on it any more
	l.conn = nil
}

// failed is the error of a statement that has changed nothing that anybody relies on.
func (l *lane) failed(what string, err error) error {
	if !refused(err) && l.conn != nil {
		l.hangUp()
	}
	return fault(what, err)
}

// write commits the batch. stale are the tenants that somebody else has written to since they were read; nothing of
// theirs was written.
func (l *lane) write(b *batch) (stale map[*tenant]bool, err error) {
	if b.w.empty() && len(b.decided) == 0 {
		return nil, nil
	}
	if err := l.connect(); err != nil {
		return nil, err
	}
	if _, err := rand.Read(b.id[:]); err != nil {
		return nil, err
	}
	l.warned = nil
	l.batches++
	written, err := b.w.run(l, b)
	switch {
	case err == nil && l.warned == nil:
	case err == nil:
		// The server gave up waiting for a standby: what was committed may be lost with the server.
		return l.settle(b, fmt.Errorf("the database has warned: %s", l.warned.Message))
	case isUnique(err) && len(b.w.named) > 0:
		// Somebody else has created a tenant of one of these names.
		written = map[int32]bool{}
	case refused(err):
		return nil, l.failed("a commit", err)
	default:
		return l.settle(b, err)
	}
	return b.staleOf(written), nil
}

// settle finds out whether the batch was committed: it changes the terms of the batch's tenants, which waits for
// whatever is still under way, and looks whose batch was the last one.
func (l *lane) settle(b *batch, cause error) (stale map[*tenant]bool, err error) {
	l.logger.Warn("the outcome of a commit has to be looked up", slog.Any("cause", cause))
	ctx, cancel := context.WithTimeout(l.ending, patience)
	defer cancel()
	for {
		l.hangUp()
		written, err := l.settleOnce(ctx, b)
		if err == nil {
			return b.staleOf(written), nil
		}
		if ctx.Err() != nil || wait(ctx, retryAfter) != nil {
			l.doubts.add(b.changedTenants())
			return nil, queue.Unknown(errors.Join(cause, err))
		}
	}
}

const settleTerms = `UPDATE tenants SET term = term + 1 WHERE t = ANY($1) RETURNING t, batch`

// settleOnce returns the tenants whose last batch is the given one.
func (l *lane) settleOnce(ctx context.Context, b *batch) (written map[int32]bool, err error) {
	if err := l.connect(); err != nil {
		return nil, err
	}
	rows, err := l.conn.Query(ctx, settleTerms, b.w.tenants.t)
	if err != nil {
		return nil, err
	}
	written = map[int32]bool{}
	var t int32
	var id []byte
	_, err = pgx.ForEachRow(rows, []any{&t, &id}, func() error {
		if string(id) == string(b.id[:]) {
			written[t] = true
		}
		return nil
	})
	if err == nil && l.warned != nil {
		err = fmt.Errorf("the database has warned: %s", l.warned.Message)
	}
	for _, tn := range b.changedTenants() {
		tn.term++ // if this is wrong, the next batch finds out
	}
	return written, err
}
