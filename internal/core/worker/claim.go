package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// Claim is a due item that is leased to one process.
type Claim struct {
	Tenant j17.Tenant
	Key    string
	// Value is the value of the item. Changes made by a failed try are kept for the next one.
	Value   []byte
	Expires time.Time
	// Attempt counts the tries from 1. Tries cut off by the end of their process are not counted.
	Attempt int

	space store.Space
	rev   uint64
	lease *lease
}

// lease is the lease of all claims of one try.
type lease struct {
	mu    sync.Mutex
	until time.Time
}

func (l *lease) end() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func (l *lease) renewed(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

// Remove returns the write that finishes the item by removing it. It holds only as long as the claim does.
func (c *Claim) Remove() store.Side {
	return store.Side{Op: store.Delete, Space: c.space, Key: c.Key, Cond: store.IfRev, Rev: c.rev}
}

// Replace returns the write that finishes the try with another value and due time; with the zero time the item stays
// and is no longer due. It holds only as long as the claim does.
func (c *Claim) Replace(value []byte, due time.Time) store.Side {
	return store.Side{
		Op: store.Put, Space: c.space, Key: c.Key, Value: value, Expires: c.Expires, Due: due, Cond: store.IfRev,
		Rev: c.rev,
	}
}

// Fence returns the condition that the claim holds, for commits that do not finish the item.
func (c *Claim) Fence() store.Fence { return store.Fence{Space: c.space, Key: c.Key, Rev: c.rev} }

// errLost reports that another process has claimed an item.
var errLost = errors.New("the lease of the item was lost")

// Keep calls do, and renews the leases of claims of one try meanwhile, since do may take longer than these. The context
// of do ends if a lease is lost. The claims must not be used until Keep returns. Claims of the try that are not among
// them may be lost.
func (q *Queue) Keep(ctx context.Context, claims []*Claim, do func(context.Context) error) error {
	doing, end := context.WithCancelCause(ctx)
	defer end(nil)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		// A renewal that fails is tried again before the lease is over.
		const rounds = 4
		for q.kit.clock.Wait(doing, q.kit.clock.Now().Add(q.Lease/rounds)) == nil {
			err := panics.Caught(func() error { return q.renew(doing, claims) })
			if errors.Is(err, errLost) {
				end(err)
			}
		}
	})
	err := do(doing)
	end(nil)
	renewing.Wait()
	if lost := context.Cause(doing); errors.Is(lost, errLost) {
		return errors.Join(lost, err)
	}
	return err
}

// renew renews the leases of claims.
func (q *Queue) renew(ctx context.Context, claims []*Claim) error {
	ctx = context.WithoutCancel(ctx) // a renewal that has begun is ended, so that the revision is known
	until := q.kit.clock.Now().Add(q.Lease)
	for _, c := range claims {
		// The value has the failed attempts, so it stays.
		item, err := q.Store.Get(ctx, c.Tenant, c.space, c.Key)
		if errors.Is(err, store.ErrNotFound) || err == nil && item.Rev != c.rev {
			return errLost
		}
		if err != nil {
			return err
		}
		lost, err := q.write(ctx, c.Tenant, c.Replace(item.Value, until))
		if lost {
			return errLost
		}
		if err != nil {
			return err
		}
		if item, err = q.Store.Get(ctx, c.Tenant, c.space, c.Key); err != nil {
			return err
		}
		c.rev = item.Rev
	}
	if len(claims) > 0 {
		claims[0].lease.renewed(until)
	}
	return nil
}

// start begins a try of claimed items.
func (q *Queue) start(ctx context.Context, t j17.Tenant, items []store.Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total++
	q.running[t]++
	q.count.running.Add(int64(len(items)))
	go func() {
		q.handle(ctx, t, items)
		q.end(t, len(items))
	}()
}

func (q *Queue) end(t j17.Tenant, items int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count.running.Add(-int64(items))
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

// handle tries items once and handles the results.
func (q *Queue) handle(ctx context.Context, t j17.Tenant, items []store.Item) {
	// Parse their values.
	claims, past := make([]*Claim, 0, len(items)), make([]Attempts, 0, len(items))
	for i := range items {
		it := &items[i]
		attempts, value, err := ReadAttempts(it.Value)
		c := &Claim{
			Tenant: t, Key: it.Key, Value: value, Expires: it.Expires, Attempt: attempts.Failed + 1, space: q.Space,
			rev: it.Rev,
		}
		if err != nil {
			c.Value = it.Value // keep it as it is
			q.failed(ctx, c, attempts, err, true)
			continue
		}
		claims, past = append(claims, c), append(past, attempts)
	}
	if len(claims) == 0 {
		return
	}

	// Try them, each alone if trying them together panics.
	errs, ok := q.try(ctx, claims, items[0].Due)
	if !ok && len(claims) > 1 {
		errs = errs[:0]
		for _, c := range claims {
			one, _ := q.try(ctx, []*Claim{c}, items[0].Due)
			errs = append(errs, errors.Join(one...))
		}
	}
	for i, c := range claims {
		if errs == nil || errs[i] == nil {
			q.count.done.Add(1)
			q.recovered(t)
			continue
		}
		q.failed(ctx, c, past[i], errs[i], false)
	}
}

// errLease is the cause of a context that ends with its lease.
var errLease = errors.New("the lease of the item is over")

// Overdue reports whether the context of a try has ended because its lease is over, which means that the try took too
// long.
func Overdue(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errLease) }

// try calls DoAll with a context that ends with the lease. After a panic ok is false, and each claim has an error.
func (q *Queue) try(ctx context.Context, claims []*Claim, until time.Time) (errs []error, ok bool) {
	limited, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	l := &lease{until: until}
	for _, c := range claims {
		c.lease = l
	}
	go func() {
		for q.kit.clock.Wait(limited, until) == nil {
			if end := l.end(); end.After(until) {
				until = end
				continue
			}
			cut(errLease)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			errs = slices.Repeat([]error{q.kit.panicked(ctx, p)}, len(claims))
		}
	}()
	return q.DoAll(limited, claims), true
}

// failed makes an item due again after a pause, or gives it up: after its last attempt, or if this one was final. It
// changes nothing if the claim no longer holds.
func (q *Queue) failed(ctx context.Context, c *Claim, a Attempts, err error, final bool) {
	now := q.kit.clock.Now()
	side := c.Replace(c.Value, now)
	dead := false

	// Decide what to do with the item.
	switch {
	case ctx.Err() != nil:
		// The process is ending, which is not a failure of the item: the next process tries it at once.
		if a.Failed > 0 {
			side.Value = a.with(c.Value)
		}
	default:
		a.Failed, a.Error = c.Attempt, j17.Record(err)
		side.Due = now.Add(q.Retry.After(a.Failed))
		if dead = final || q.Retry.Attempts > 0 && a.Failed >= q.Retry.Attempts; dead {
			a.DeadAt, side.Due = now, time.Time{}
		}
		side.Value = a.with(c.Value)
	}

	// The process may be ending, but the result is recorded all the same.
	kept := context.WithoutCancel(ctx)
	lost, fault := q.write(kept, c.Tenant, side)
	switch {
	case lost:
		q.count.lost.Add(1)
	case fault != nil: // The item is due again after its lease.
		q.report(kept, c, errors.Join(err, fault))
	case ctx.Err() != nil:
	case dead:
		q.count.failed.Add(1)
		q.count.dead.Add(1)
		q.kit.logger.LogAttrs(kept, slog.LevelError, "an item was given up", slog.String("work", q.Name),
			slog.String("tenant", string(c.Tenant)),
			slog.String("key", c.Key), slog.Int("attempts", c.Attempt), slog.Any("error", err))
	default:
		q.count.failed.Add(1)
		q.report(kept, c, err)
	}
}

// report logs the first failure of a series of a tenant's items, and any different error.
func (q *Queue) report(ctx context.Context, c *Claim, err error) {
	q.mu.Lock()
	told := q.failing[c.Tenant] == err.Error()
	q.failing[c.Tenant] = err.Error()
	q.mu.Unlock()
	if !told {
		q.kit.logger.LogAttrs(ctx, slog.LevelWarn, "an item failed; it is tried again", slog.String("work", q.Name),
			slog.String("tenant", string(c.Tenant)), slog.String("key", c.Key), slog.Int("attempt", c.Attempt),
			slog.Any("error", err))
	}
}

// recovered ends a series of failures of a tenant.
func (q *Queue) recovered(t j17.Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failing, t)
}
