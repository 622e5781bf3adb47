package engine

import (
	"context"
	"log/slog"
	"sync"

	"j17"
	"j17/internal/base/panics"
)

// refreshQueue holds the aggregates whose states are to be folded in the background. The tenants take turns.
type refreshQueue struct {
	mu       sync.Mutex
	byTenant map[j17.Tenant][]stateKey
	queued   map[stateKey]bool
	turn     []j17.Tenant
	filled   chan struct{}
}

const (
	// refreshWorkers is how many aggregates are refreshed at once.
	refreshWorkers = 2
	// maxRefreshes bounds the aggregates of one tenant that wait for it.
	maxRefreshes = 256
)

func newRefreshQueue() refreshQueue {
	return refreshQueue{byTenant: map[j17.Tenant][]stateKey{}, queued: map[stateKey]bool{}, filled: make(chan struct{}, 1)}
}

// enqueue asks for an aggregate's state to be folded in the background, and for a snapshot if one is due. It drops the
// job when its tenant has too many: the next read or the next write that is due makes up for it.
func (e *Engine) enqueue(job stateKey) {
	q := &e.refresh
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.byTenant[job.tenant]
	if q.queued[job] || len(waiting) >= maxRefreshes {
		return
	}
	if len(waiting) == 0 {
		q.turn = append(q.turn, job.tenant)
	}
	q.byTenant[job.tenant], q.queued[job] = append(waiting, job), true
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
func (q *refreshQueue) next() (stateKey, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turn) == 0 {
		return stateKey{}, false
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

// Run makes snapshots and keeps states warm until the context ends. Then it ends what nobody waits for and returns when
// nothing is under way in the background any more.
func (e *Engine) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range refreshWorkers {
		workers.Go(func() { e.refreshAll(ctx) })
	}
	workers.Wait()
	e.endFlights()
	return nil
}

func (e *Engine) refreshAll(ctx context.Context) {
	for {
		select {
		case <-e.refresh.filled:
		case <-ctx.Done():
			return
		}
		for job, ok := e.refresh.next(); ok && ctx.Err() == nil; job, ok = e.refresh.next() {
			if err := panics.Caught(func() error { return e.refreshOne(ctx, job) }); err != nil && ctx.Err() == nil {
				e.logger.LogAttrs(ctx, slog.LevelWarn, "state refresh failed",
					slog.String("tenant", string(job.tenant)), slog.String("key", job.key.String()), slog.Any("error", err))
			}
		}
	}
}
