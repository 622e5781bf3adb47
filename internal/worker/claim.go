package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"j17"
	"j17/internal/store"
)

// Claim is an item that is due and leased to one process.
type Claim struct {
	Tenant j17.Tenant
	Key    string
	// Value is that of the item. What a failed try leaves in it is there for the next one.
	Value   []byte
	Expires time.Time
	// Attempt counts the tries from 1. Tries that their process did not survive are not counted.
	Attempt int

	space store.Space
	rev   uint64
}

// Remove is the write that finishes the item by removing it. It holds only as long as the claim does.
func (c *Claim) Remove() store.Side {
	return store.Side{Op: store.Delete, Space: c.space, Key: c.Key, Cond: store.IfRev, Rev: c.rev}
}

// Replace is the write that finishes the try with another value and due time; with the zero time the item stays and is not due
// any more. It holds only as long as the claim does.
func (c *Claim) Replace(value []byte, due time.Time) store.Side {
	return store.Side{Op: store.Put, Space: c.space, Key: c.Key, Value: value, Expires: c.Expires, Due: due, Cond: store.IfRev, Rev: c.rev}
}

// start begins work on an item that was claimed.
func (q *Queue) start(ctx context.Context, t j17.Tenant, it store.Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total++
	q.running[t]++
	q.count.running.Add(1)
	go func() {
		q.handle(ctx, t, it)
		q.end(t)
	}()
}

func (q *Queue) end(t j17.Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count.running.Add(-1)
	if q.running[t]--; q.running[t] == 0 {
		delete(q.running, t)
	}
	q.ends++
	if q.total--; q.total == 0 {
		q.ended.Broadcast()
	}
	if q.crowded {
		q.signal()
	}
}

// handle tries an item once and sees to what becomes of it.
func (q *Queue) handle(ctx context.Context, t j17.Tenant, it store.Item) {
	past, value, err := ReadAttempts(it.Value)
	damaged := err != nil
	if damaged {
		value = it.Value // which is kept as it is
	}
	c := &Claim{Tenant: t, Key: it.Key, Value: value, Expires: it.Expires, Attempt: past.Failed + 1, space: q.Space, rev: it.Rev}
	if !damaged {
		err = q.try(ctx, c, it.Due)
	}
	if err == nil {
		q.count.done.Add(1)
		q.recovered(t)
		return
	}
	q.failed(ctx, c, past, err, damaged)
}

// errLease is why the context of a try ends with its lease.
var errLease = errors.New("the lease of the item is over")

// try calls Do with a context that ends with the lease, and turns a panic into an error.
func (q *Queue) try(ctx context.Context, c *Claim, until time.Time) (err error) {
	limited, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	go func() {
		if q.kit.clock.Wait(limited, until) == nil {
			cut(errLease)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			err = q.kit.panicked(ctx, p)
		}
	}()
	return q.Do(limited, c)
}

// failed makes an item due again after a pause, or gives it up: after its last attempt, or if this was final. All of it holds only if the claim still does.
func (q *Queue) failed(ctx context.Context, c *Claim, a Attempts, err error, final bool) {
	now := q.kit.clock.Now()
	side := c.Replace(c.Value, now)
	dead := false

	// What becomes of the item.
	switch {
	case ctx.Err() != nil:
		// The process ends: that is nobody's failure, and the next one begins at once.
		if a.Failed > 0 {
			side.Value = a.with(c.Value)
		}
	default:
		a.Failed, a.Error = c.Attempt, err.Error()
		side.Due = now.Add(q.Retry.After(a.Failed))
		if dead = final || q.Retry.Attempts > 0 && a.Failed >= q.Retry.Attempts; dead {
			a.DeadAt, side.Due = now, time.Time{}
		}
		side.Value = a.with(c.Value)
	}

	// The process may be ending, but what has happened is noted.
	kept := context.WithoutCancel(ctx)
	lost, fault := q.write(kept, c.Tenant, side)
	switch {
	case lost:
		q.count.lost.Add(1)
	case fault != nil: // It comes up again after its lease.
		q.report(kept, c, errors.Join(err, fault))
	case ctx.Err() != nil:
	case dead:
		q.count.failed.Add(1)
		q.count.dead.Add(1)
		q.kit.logger.LogAttrs(kept, slog.LevelError, "an item was given up", slog.String("work", q.Name), slog.String("tenant", string(c.Tenant)),
			slog.String("key", c.Key), slog.Int("attempts", c.Attempt), slog.Any("error", err))
	default:
		q.count.failed.Add(1)
		q.report(kept, c, err)
	}
}

// report logs the first of a row of failures of a tenant's items, and another error.
func (q *Queue) report(ctx context.Context, c *Claim, err error) {
	q.mu.Lock()
	told := q.failing[c.Tenant] == err.Error()
	q.failing[c.Tenant] = err.Error()
	q.mu.Unlock()
	if !told {
		q.kit.logger.LogAttrs(ctx, slog.LevelWarn, "an item failed; it is tried again", slog.String("work", q.Name),
			slog.String("tenant", string(c.Tenant)), slog.String("key", c.Key), slog.Int("attempt", c.Attempt), slog.Any("error", err))
	}
}

// recovered ends a row of failures of a tenant.
func (q *Queue) recovered(t j17.Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failing, t)
}
