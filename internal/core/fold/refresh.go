package fold

import (
	"context"
	"log/slog"
	"sync"

	"j17"
	"j17/internal/base/panics"
)

// refreshQueue holds the aggregates whose states have to be folded in the background. Tenants take turns.
type refreshQueue struct {
	mu       sync.Mutex
	byTenant map[j17.Tenant][]StateKey
	queued   map[StateKey]bool
	turn     []j17.Tenant
	filled   chan struct{}
}

const (
	// refreshWorkers is how many aggregates are refreshed concurrently.
	refreshWorkers = 2
	// maxRefreshes bounds the waiting aggregates of one tenant.
	maxRefreshes = 256
)

func newRefreshQueue() refreshQueue {
	return refreshQueue{
		byTenant: map[j17.Tenant][]StateKey{}, queued: map[StateKey]bool{}, filled: make(chan struct{}, 1),
	}
}

// Refresh asks for an aggregate's state to be folded in the background, and for a snapshot if one is due. It drops the
// job if its tenant has too many: the next read, or the next write that needs a refresh, makes up for it.
func (l *Loader) Refresh(job StateKey) {
	q := &l.refresh
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.byTenant[job.Tenant]
	if q.queued[job] || len(waiting) >= maxRefreshes {
		return
	}
	if len(waiting) == 0 {
		q.turn = append(q.turn, job.Tenant)
	}
	q.byTenant[job.Tenant], q.queued[job] = append(waiting, job), true
	q.signal()
}

// signal wakes a worker. The caller holds mu.
func (q *refreshQueue) signal() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// next returns a job of the tenant whose turn it is.
func (q *refreshQueue) next() (StateKey, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turn) == 0 {
		return StateKey{}, false
	}
	t := q.turn[0]
	q.turn = q.turn[1:]
	waiting := q.byTenant[t]
	job := waiting[0]
	if len(waiting) > 1 {
		q.byTenant[t] = waiting[1:]
		q.turn = append(q.turn, t)
	} else {
		delete(q.byTenant, t)
	}
	delete(q.queued, job)
	if len(q.turn) > 0 {
		q.signal()
	}
	return job, true
}

// Run makes snapshots and keeps states warm until the context ends. It then ends folds without waiting callers and
// returns when no background work is under way any longer.
func (l *Loader) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range refreshWorkers {
		workers.Go(func() { l.refreshAll(ctx) })
	}
	workers.Wait()
	l.endFolds()
	return nil
}

func (l *Loader) refreshAll(ctx context.Context) {
	for {
		select {
		case <-l.refresh.filled:
		case <-ctx.Done():
			return
		}
		for job, ok := l.refresh.next(); ok && ctx.Err() == nil; job, ok = l.refresh.next() {
			if err := panics.Caught(func() error { return l.refreshOne(ctx, job) }); err != nil && ctx.Err() == nil {
				l.logger.LogAttrs(ctx, slog.LevelWarn, "state refresh failed",
					slog.String("tenant", string(job.Tenant)), slog.String("key", job.Key.String()),
					slog.Any("error", err))
			}
		}
	}
}

// refreshOne folds the present state of an aggregate, and keeps a snapshot of it if one is due.
func (l *Loader) refreshOne(ctx context.Context, job StateKey) error {
	typ := l.program(job.Tenant, job.Key.Type)
	if typ == nil {
		return nil
	}
	heads, err := l.store.Heads(ctx, job.Tenant, []j17.Key{job.Key})
	if err != nil || heads[0].Length == 0 {
		return err
	}
	f, err := l.foldTo(
		ctx, sharedKey{StateKey: job, fingerprint: typ.Fingerprint, generation: heads[0].Generation}, typ,
		heads[0].Length, true,
	)
	if j17.CodeOf(err) == j17.CodeStateNotReady {
		return nil // the fold goes on, and queues a refresh when it is done
	}
	if err != nil || f.Length-f.Snapshot < l.every {
		return err
	}
	kept, err := l.snapshots.keep(ctx, job, f)
	if err != nil {
		return err
	}
	l.cache.put(job, kept)
	return nil
}
