package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// Work describes the items of one space, of all tenants.
type Work struct {
	// Name identifies the queue in the log and in metrics.
	Name  string
	Store store.Sides
	Space store.Space
	// Do handles one item. It finishes it with the claim's Remove or Replace, in the commit of what the item causes, so
	// that both happen or neither. After an error or a panic the item is due again after a pause, with the value that
	// the claim then has; an item that is neither finished nor failed is due again when its lease ends. Each item is
	// thus handled at least once, more often if processes or leases end early, and finished once. The context ends with
	// the lease.
	Do func(context.Context, *Claim) error
	// DoAll, if not nil, is called instead of Do and handles up to Batch items of one tenant in one try, in the order
	// in which they are due, so that many share a commit. It returns an error for each of them, or nil if it has
	// finished all. If it panics with several items it is called with each of them alone.
	DoAll func(context.Context, []*Claim) []error
	Batch int
	// Lease is how long one try may take.
	Lease time.Duration
	// AtOnce and Each bound the tries under way, of all tenants and of one; 0 means 1. With an Each of 1 a tenant's
	// items are handled in the order of their due times. Tenants take turns.
	AtOnce, Each int
	// Retry determines when failed items are tried again, and after how many attempts they are given up: such items
	// stay, but are not due.
	Retry Backoff
	// Freeing marks work that frees space: it goes on while the disk is full.
	Freeing bool
}

// Queue hands out the items of one space as they become due. It is safe for concurrent use.
type Queue struct {
	Work
	kit   *Kit
	count *counter
	// more is signalled when an item has ended, so that there is room for the next one.
	more chan struct{}

	// claiming is held while items are claimed.
	claiming sync.Mutex
	// first is the tenant whose turn is next.
	first j17.Tenant
	// faulty are the tenants whose items could not be claimed.
	faulty map[j17.Tenant]*fault

	mu sync.Mutex
	// total counts the tries under way, running those of each tenant.
	total   int
	running map[j17.Tenant]int
	// ends counts the tries that have ended; ended is signalled when none is under way.
	ends  uint64
	ended sync.Cond
	// crowded is set while there may be due items that found no room.
	crowded bool
	// failing holds the last logged error of each tenant whose items fail.
	failing map[j17.Tenant]string
}

// fault describes a tenant whose items could not be claimed: how often in a row, what was logged, and until when it is
// skipped.
type fault struct {
	failures int
	told     string
	until    time.Time
}

// Queue returns a queue of work.
func (k *Kit) Queue(w Work) *Queue {
	w.AtOnce, w.Each, w.Batch = max(w.AtOnce, 1), max(w.Each, 1), max(w.Batch, 1)
	if w.DoAll == nil {
		w.Batch = 1
		w.DoAll = func(ctx context.Context, claims []*Claim) []error { return []error{w.Do(ctx, claims[0])} }
	}
	q := &Queue{
		Work: w, kit: k, count: k.counter(w.Name), more: make(chan struct{}, 1), faulty: map[j17.Tenant]*fault{},
		running: map[j17.Tenant]int{}, failing: map[j17.Tenant]string{},
	}
	q.ended.L = &q.mu
	return q
}

const (
	// dueTenants is how many tenants with due items are looked at in one round.
	dueTenants = 256
	// claimRounds bounds the rounds of one call of claim: items may end as fast as they are claimed.
	claimRounds = 100
	// crowdedPause is how long a queue waits before it looks again while due items have no room.
	crowdedPause = 100 * time.Millisecond
)

// drainTime is how long items under way may go on when a queue ends, before their contexts are canceled.
const drainTime = 5 * time.Second

// Run hands out items until the context ends. It then claims no others, and waits for those under way; items that do
// not end within drainTime are canceled and due again at once.
func (q *Queue) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	again := false
	q.kit.Every(ctx, Loop{Name: q.Name + "_claims", Do: func(ctx context.Context) error {
		if _, err := q.claim(ctx, work); err != nil {
			return err
		}
		var err error
		again, err = q.await(ctx, again)
		return err
	}})

	// Drain.
	limit, over := context.WithCancel(work)
	defer over()
	go func() {
		if q.kit.clock.Wait(limit, q.kit.clock.Now().Add(drainTime)) == nil {
			cut()
		}
	}()
	q.wait()
	return nil
}

// await waits until an item is due. If one is due already, it may have come since the last claim: await returns true at
// once, for another claim. looked reports that it did so the last time; if an item is then still due, there is no room
// for it or its tenant is being skipped, so await waits until an item has ended, but at most crowdedPause.
func (q *Queue) await(ctx context.Context, looked bool) (again bool, err error) {
	next, err := q.Store.NextDue(ctx, q.Space)
	if err != nil {
		return false, err
	}
	if !next.IsZero() && !next.After(q.kit.clock.Now()) {
		if looked {
			q.kit.rest(ctx, crowdedPause, q.more)
		}
		return !looked, nil
	}
	// Whichever wait ends first ends the other.
	waiting, stop := context.WithCancel(ctx)
	var sooner sync.WaitGroup
	sooner.Go(func() {
		defer stop()
		if failed := q.Store.AwaitDue(waiting, q.Space, next); waiting.Err() == nil {
			err = failed
		}
	})
	if next.IsZero() {
		q.kit.rest(waiting, 0, q.more)
	} else {
		// Either also notices a clock that was set forward after next was read.
		clock.Either(waiting, q.kit.clock, next, q.more)
	}
	stop()
	sooner.Wait()
	return false, err
}

// ErrUnsettled is the error of Settle if handling items keeps making others due at once.
var ErrUnsettled = errors.New("worker: what is handled makes more due, again and again")

// MaxRounds bounds the rounds of Settle. One round handles as much as may be under way at once.
const MaxRounds = 10_000

// Settle handles all items that are due now and returns when none is due or under way any longer; it returns
// ErrUnsettled after MaxRounds.
func (q *Queue) Settle(ctx context.Context) error {
	for range MaxRounds {
		claimed, err := q.claim(ctx, ctx)
		crowded := q.wait()
		if err != nil {
			return err
		}
		if claimed == 0 && !crowded {
			return ctx.Err()
		}
	}
	return ErrUnsettled
}

// wait waits until nothing is under way, and reports whether there may be due items that found no room before.
func (q *Queue) wait() (crowded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.total > 0 {
		q.ended.Wait()
	}
	return q.crowded
}

// claim claims items as long as there are due ones and room for them, and starts work on them. An error concerns the
// store as a whole; faults of single tenants are logged and do not hold up others.
func (q *Queue) claim(ctx, work context.Context) (claimed int, err error) {
	q.claiming.Lock()
	defer q.claiming.Unlock()
	before := q.endings()
	// No tenant hides another: fewer tenants than the limit have no room or are skipped.
	tenants, err := q.Store.DueTenants(ctx, q.Space, dueTenants+q.AtOnce+len(q.faulty))
	if err != nil {
		return 0, err
	}
	crowded := false
	tenants = q.turns(tenants)
	for round := 0; len(tenants) > 0 && round < claimRounds; round++ {
		var again []j17.Tenant // tenants that may have more
		for i, t := range tenants {
			n := q.room(t, len(tenants)-i)
			if n == 0 {
				crowded = true
				continue
			}
			items, err := q.claimOf(ctx, t, n*q.Batch)
			for some := range slices.Chunk(items, q.Batch) {
				q.start(work, t, some)
			}
			claimed += len(items)
			if err != nil && ConcernsAll(err) {
				return claimed, err
			}
			q.tell(ctx, t, err)
			if len(items) == n*q.Batch {
				again = append(again, t)
				q.first = t
			}
		}
		tenants = again
	}

	// If there was no room for all, the end of an item signals another claim. One may have ended meanwhile.
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.crowded = crowded || len(tenants) > 0; q.crowded && q.ends != before {
		q.signal()
	}
	return claimed, nil
}

func (q *Queue) endings() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ends
}

// signal asks for another claim. The caller holds mu.
func (q *Queue) signal() {
	select {
	case q.more <- struct{}{}:
	default: // signalled already
	}
}

// turns orders tenants so that the one after the last one served is first, and leaves out tenants that are skipped for
// now.
func (q *Queue) turns(tenants []j17.Tenant) []j17.Tenant {
	now := q.kit.clock.Now()
	var later, sooner []j17.Tenant
	for _, t := range tenants {
		if f := q.faulty[t]; f != nil && now.Before(f.until) {
			continue
		}
		if t > q.first {
			sooner = append(sooner, t)
		} else {
			later = append(later, t)
		}
	}
	return append(sooner, later...)
}

// room returns how many tries of a tenant may be started if the free ones are shared equally by several tenants.
func (q *Queue) room(t j17.Tenant, tenants int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	free := q.AtOnce - q.total
	return min(q.Each-q.running[t], (free+tenants-1)/tenants)
}

// claimOf claims due items of a tenant. The end of ctx does not cancel a claim that has begun.
func (q *Queue) claimOf(ctx context.Context, t j17.Tenant, limit int) ([]store.Item, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return q.Store.ClaimDue(context.WithoutCancel(ctx), t, store.Claim{
		Space: q.Space, Limit: limit, Lease: q.Lease, Freeing: q.Freeing,
	})
}

// write applies one side write and reports whether its condition did not hold.
func (q *Queue) write(ctx context.Context, t j17.Tenant, side store.Side) (conflict bool, err error) {
	write := q.Store.Write
	if q.Freeing {
		write = q.Store.WriteFreeing
	}
	err = write(ctx, t, []store.Side{side})
	if _, conflict = errors.AsType[*store.SideConflict](err); conflict {
		err = nil
	}
	return conflict, err
}

// ConcernsAll reports whether an error of the store is not about a single tenant.
func ConcernsAll(err error) bool {
	for _, of := range []error{
		store.ErrFull, store.ErrBusy, store.ErrClock, store.ErrFailed, store.ErrUnknown, store.ErrClosed,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// tell records whether the items of a tenant could be claimed. It logs the first failure of a series, and any different
// error.
func (q *Queue) tell(ctx context.Context, t j17.Tenant, err error) {
	if err == nil {
		delete(q.faulty, t)
		return
	}
	f := q.faulty[t]
	if f == nil {
		f = &fault{}
		q.faulty[t] = f
	}
	f.failures++
	f.until = q.kit.clock.Now().Add(Backoff{}.After(f.failures))
	if f.told != err.Error() {
		f.told = err.Error()
		q.kit.logger.LogAttrs(ctx, slog.LevelWarn, "due items could not be claimed; they are tried again", slog.String("work", q.Name),
			slog.String("tenant", string(t)), slog.Any("error", err))
	}
}

// NextDue returns when the next item of any tenant is due; the zero time if none has a due time.
func (q *Queue) NextDue(ctx context.Context) (time.Time, error) { return q.Store.NextDue(ctx, q.Space) }
