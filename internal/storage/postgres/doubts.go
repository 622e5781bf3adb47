package postgres

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/queue"
)

// errOverwritten is why the outcome of a batch is not known although the database answers.
var errOverwritten = errors.New("another node has written to the tenant since")

// settleTerms increments the terms of tenants and returns their last batches. It waits for statements in progress, and
// makes later ones with the old terms change nothing.
const settleTerms = `UPDATE tenants SET term = term + 1 WHERE t = ANY($1) RETURNING t, ver, batch`

// settle finds out whether a batch was committed, however long that takes: the lane keeps its tenants until then. The
// batch counts as committed once a later commit was acknowledged, which the log has after it.
func (l *lane) settle(b *batch, done *outcome, cause error) error {
	l.logger.Warn("the outcome of a commit has to be looked up", slog.Any("cause", cause))
	l.primary.doubt()
	done.lookedUp = true
	l.callers.limitTo(patience, true)
	for {
		err := l.settleOnce(b, done)
		if err == nil {
			return nil
		}
		if wait(l.ending, retryAfter) != nil {
			return queue.Unknown(errors.Join(cause, err))
		}
	}
}

// settleOnce tries to set the outcome of a batch.
func (l *lane) settleOnce(b *batch, done *outcome) error {
	if l.conn.IsClosed() {
		if err := l.redial(l.ending); err != nil {
			return err
		}
	}
	s := sessionOf(l.conn)
	s.warned = nil
	began := l.primary.begins()
	written, overwritten, err := l.lastBatches(l.ending, b)
	if err == nil {
		err = s.warning()
	}
	if err != nil {
		l.hangUp()
		return err
	}
	l.primary.acknowledge(s.server, began)
	for _, t := range b.changedTenants() {
		t.term++ // if this is wrong, the next batch detects it
		if overwritten[int32(t.next.Number)] {
			if done.doubtful == nil {
				done.doubtful = map[*tenant]bool{}
			}
			done.doubtful[t] = true
		}
	}
	done.wrote, done.stale = b.wrote(written), b.staleOf(written)
	return nil
}

// lastBatches returns the tenants whose last batch is b, and those that others have overwritten, with or without it.
func (l *lane) lastBatches(ctx context.Context, b *batch) (written, overwritten map[int32]bool, err error) {
	was := map[int32]int64{}
	for i, t := range b.w.tenants.t {
		was[t] = b.w.tenants.ver[i]
	}
	rows, err := l.conn.Query(ctx, settleTerms, b.w.tenants.t)
	if err != nil {
		return nil, nil, err
	}
	written, overwritten = map[int32]bool{}, map[int32]bool{}
	var t int32
	var ver int64
	var id []byte
	_, err = pgx.ForEachRow(rows, []any{&t, &ver, &id}, func() error {
		written[t] = string(id) == string(b.id[:])
		overwritten[t] = !written[t] && ver > was[t]+1
		return nil
	})
	return written, overwritten, err
}
