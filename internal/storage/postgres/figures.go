package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/store"
)

// counts are the numbers that a store counts while it works. Each costs an atomic addition.
type counts struct {
	// The round trips of the connections of lanes, look-ups and readers, and of all others.
	writes, lookups, reads, other tripCount

	batches, units atomic.Uint64
	// commits is how long all batches took, in nanoseconds.
	commits atomic.Int64
	// These count the commits whose outcome was looked up, by what their callers were told.
	committed, notWritten, unknown atomic.Uint64
	momentsRefused                 atomic.Uint64
}

// tripCount counts the round trips of connections whose Tracer it is. What sets up a connection is not traced.
type tripCount struct{ atomic.Uint64 }

// TraceQueryStart is part of pgx.QueryTracer.
func (n *tripCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	n.Add(1)
	return ctx
}

// TraceQueryEnd is part of pgx.QueryTracer.
func (*tripCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart is part of pgx.BatchTracer.
func (n *tripCount) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	n.Add(1)
	return ctx
}

// TraceBatchQuery is part of pgx.BatchTracer.
func (*tripCount) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd is part of pgx.BatchTracer.
func (*tripCount) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// commit counts a batch that was sent and took some time, after which err is what execute has returned. wanted reports
// whether its callers still waited; otherwise giveUp has counted it as one of unknown outcome.
func (n *counts) commit(done *outcome, took time.Duration, err error, wanted bool) {
	if done.wrote {
		n.batches.Add(1)
		n.commits.Add(int64(took))
	}
	switch {
	case !done.lookedUp || !wanted:
	case err != nil || len(done.doubtful) > 0:
		n.unknown.Add(1)
	case done.wrote:
		n.committed.Add(1)
	default:
		n.notWritten.Add(1)
	}
}

// Figures is part of store.Monitoring.
func (s *Store) Figures() store.Figures {
	n, measured := &s.counts, s.guard.measured.Load()
	waits, waited := s.queue.Waits()
	return store.Figures{
		Trips: store.Trips{
			Write: n.writes.Load(), Lookup: n.lookups.Load(), Read: n.reads.Load(), Other: n.other.Load(),
		},
		Batches: n.batches.Load(), Units: n.units.Load(), Commits: time.Duration(n.commits.Load()),
		Waits: waits, Waited: waited,
		Doubts: store.Doubts{
			Committed: n.committed.Load(), NotWritten: n.notWritten.Load(), Unknown: n.unknown.Load(),
		},
		Moments: len(s.open), MomentsRefused: n.momentsRefused.Load(),
		OldestSnapshot: measured.oldest, DeadRows: measured.dead,
	}
}
