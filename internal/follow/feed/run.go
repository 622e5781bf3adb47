package feed

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

const (
	// changesAtOnce is how many changed tenants are read at a time.
	changesAtOnce = 256
	// followPause is the pause between reads of the changes, so that several writes are read together. Reading with
	// each commit slowed 16 writers by 45 %.
	followPause = 5 * time.Millisecond
	// takers is how many tenants are taken at a time.
	takers = 4
	// foreignPause is the pause before the next look while tenants held by others are due.
	foreignPause = 100 * time.Millisecond
	// idleTime is how long a tenant is held after it was busy.
	idleTime = 5 * time.Second
	// turnTime is how long a tenant is held while others wait.
	turnTime = 2 * time.Second
	// upkeepEvery is how often leases are checked, and moved checkpoints stored.
	upkeepEvery = time.Second
	// drainTime is how long calls under way may continue when a set ends.
	drainTime = 5 * time.Second
)

// pending is a tenant that waits to be taken.
type pending struct {
	// taking is set during a try; again if another try has to follow it.
	taking, again bool
	// failures counts the consecutive tries that failed because of the tenant.
	failures int
}

// Run works until the context ends. Then it waits for handlers under way and gives back its leases.
func (s *Subscriptions) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	loops := []worker.Loop{
		{Name: "feed_changes", Do: func(ctx context.Context) error {
			s.mu.Lock()
			since := s.since
			s.mu.Unlock()
			if err := s.o.Store.AwaitChange(ctx, since); err != nil {
				return err
			}
			if err := s.follow(ctx); err != nil {
				return err
			}
			_ = s.o.Clock.Wait(ctx, s.o.Clock.Now().Add(followPause)) // the caller sees the end of the context
			return nil
		}},
		{Name: "feed_due", Do: func(ctx context.Context) error {
			due, err := s.askDue(ctx)
			if err != nil {
				return err
			}
			return s.awaitDue(ctx, due > 0)
		}},
		{Name: "feed_upkeep", Every: upkeepEvery, Do: func(context.Context) error {
			s.pokeAll()
			return nil
		}},
	}
	for range takers {
		loops = append(loops, worker.Loop{
			Name: "feed_leases", Do: func(ctx context.Context) error { return s.takeNext(ctx, work) },
		})
	}
	s.o.Worker.Every(ctx, loops...)

	// Drain: calls that do not end in time are cut off.
	limit, over := context.WithCancel(work)
	defer over()
	go func() {
		if s.o.Clock.Wait(limit, s.o.Clock.Now().Add(drainTime)) == nil {
			cut()
		}
	}()
	s.stop()
	return nil
}

// follow reads all new changes.
func (s *Subscriptions) follow(ctx context.Context) error {
	s.following.Lock()
	defer s.following.Unlock()
	for {
		s.mu.Lock()
		since := s.since
		s.mu.Unlock()
		changed, err := s.o.Store.Changed(ctx, since, changesAtOnce)
		if err != nil {
			return err
		}
		for _, c := range changed {
			s.notice(c.Tenant, (*holding).changed)
			since = c.Number
		}
		s.mu.Lock()
		s.since = since
		s.mu.Unlock()
		if len(changed) < changesAtOnce {
			return nil
		}
	}
}

// askDue looks at the tenants that are due, and returns their number. Tenants held by others are left to them.
func (s *Subscriptions) askDue(ctx context.Context) (due int, err error) {
	tenants, err := s.o.Store.DueTenants(ctx, leases, changesAtOnce)
	for _, t := range tenants {
		s.notice(t, (*holding).look)
	}
	return len(tenants), err
}

// awaitDue waits until a tenant is due; for foreignPause if some are already.
func (s *Subscriptions) awaitDue(ctx context.Context, some bool) error {
	if some {
		_ = s.o.Clock.Wait(ctx, s.o.Clock.Now().Add(foreignPause)) // the caller sees the end of the context
		return nil
	}
	next, err := s.o.Store.NextDue(ctx, leases)
	if err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var timer sync.WaitGroup
	if !next.IsZero() {
		timer.Go(func() {
			defer stop()
			_ = s.o.Clock.Wait(waiting, next)
		})
	}
	err = s.o.Store.AwaitDue(waiting, leases, next)
	over := waiting.Err() != nil
	stop()
	timer.Wait()
	if over {
		return nil
	}
	return err
}

// notice records that a tenant may have something to hand out, and tells its holding if there is one.
func (s *Subscriptions) notice(t j17.Tenant, tell func(*holding)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, p := s.held[t], s.pending[t]
	switch {
	case h != nil:
		tell(h)
	case p == nil:
		s.pending[t] = &pending{}
		s.waiting = append(s.waiting, t)
		s.signal()
	case p.taking:
		p.again = true
	}
}

// signal tells one taker that a tenant may be ready to be taken. The caller holds mu.
func (s *Subscriptions) signal() {
	select {
	case s.more <- struct{}{}:
	default: // signalled already
	}
}

// takeNext takes the next tenant in line.
func (s *Subscriptions) takeNext(ctx, work context.Context) error {
	t, ok := s.next()
	if !ok {
		select {
		case <-s.more:
		case <-ctx.Done():
		}
		return nil
	}
	var h *holding
	err := panics.Caught(func() (err error) {
		h, err = s.take(ctx, work, t)
		return err
	})
	_, conflict := errors.AsType[*store.SideConflict](err)
	if conflict {
		err = nil
	}

	// An error of one tenant does not delay others.
	damaged := err != nil && !worker.ConcernsAll(err)
	if damaged {
		s.warn(ctx, "take a tenant", t, err)
		err = nil
	}

	// A tenant that could not be tried is tried again.
	s.mu.Lock()
	p := s.pending[t]
	p.taking = false
	switch {
	case damaged:
		p.failures++
		pause := worker.Backoff{}.After(p.failures)
		go func() {
			if s.o.Clock.Wait(ctx, s.o.Clock.Now().Add(pause)) == nil {
				s.mu.Lock()
				s.waiting = append(s.waiting, t)
				s.signal()
				s.mu.Unlock()
			}
		}()
	case h != nil:
		delete(s.pending, t)
		if p.again {
			h.sig.changes++
		}
		s.held[t] = h
		go h.run()
	case err != nil || conflict || p.again:
		p.again = false
		s.waiting = append(s.waiting, t)
	default:
		delete(s.pending, t)
	}
	if len(s.waiting) > 0 {
		s.signal()
	}
	s.moved.Broadcast()
	s.mu.Unlock()
	return err
}

// next returns the next tenant in line, if there is one and room for it.
func (s *Subscriptions) next() (t j17.Tenant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return "", false
	}
	if len(s.held) >= s.o.Tenants {
		for _, h := range s.held {
			h.poke()
		}
		return "", false
	}
	t = s.waiting[0]
	s.waiting = s.waiting[1:]
	s.pending[t].taking = true
	return t, true
}

// crowded reports whether tenants wait for room.
func (s *Subscriptions) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0 && len(s.held) >= s.o.Tenants
}

// take takes the lease of a tenant, if its subscriptions are behind and no other set has it. It also writes each
// subscription again, so that late writes of a former holder are refused by their revisions.
func (s *Subscriptions) take(ctx, work context.Context, t j17.Tenant) (*holding, error) {
	l, err := s.readLease(ctx, t)
	if err != nil || l.rev == 0 || s.heldByOther(&l) {
		return nil, err
	}
	items, err := s.scan(ctx, t, "")
	if err != nil {
		return nil, err
	}
	behind, retry, err := s.behind(ctx, t, items)
	if err != nil {
		return nil, err
	}
	if !behind {
		if l.Holder == "" && l.due.Equal(retry) {
			return nil, nil
		}
		return nil, s.leave(ctx, t, l, retry)
	}
	l.Holder, l.Term, l.Until = s.id, l.Term+1, s.o.Clock.Now().Add(s.o.Lease)
	sides := []store.Side{l.put(l.Until)}
	for i := range items {
		it := &items[i]
		sides = append(sides, store.Side{
			Op: store.Put, Space: subscriptions, Key: it.key, Value: it.encode(), Cond: store.IfRev, Rev: it.rev,
		})
	}
	if err := s.o.Store.Write(ctx, t, sides); err != nil {
		return nil, err
	}
	s.count.taken.Add(1)
	return s.newHolding(work, t, l), nil
}

// behind reports whether a subscription has something to read now, and returns when the first pause of the others ends.
func (s *Subscriptions) behind(
	ctx context.Context, t j17.Tenant, items []item,
) (behind bool, retry time.Time, err error) {
	now := s.o.Clock.Now()
	known := map[j17.StreamID]bool{}
	for i := range items {
		c := &items[i].checkpoint
		kind, _, _ := strings.Cut(items[i].key, "/")
		if c.Paused || s.kinds[kind] == nil || s.stuck(t, items[i].key) {
			continue
		}
		behind = behind || nextMark(c.Checked) <= c.Count
		if c.RetryAt.After(now) {
			if retry.IsZero() || c.RetryAt.Before(retry) {
				retry = c.RetryAt
			}
			continue
		}
		more, ok := known[c.After]
		if !ok {
			for _, err := range s.o.Store.ReadChanges(ctx, t, c.After, 1) {
				if err != nil {
					return false, retry, err
				}
				more = true
			}
			known[c.After] = more
		}
		behind = behind || more
	}
	return behind, retry, nil
}

// leave records that no set has a tenant. due is when it has to be looked at.
func (s *Subscriptions) leave(ctx context.Context, t j17.Tenant, l lease, due time.Time) error {
	l.Holder, l.Until = "", time.Time{}
	err := s.o.Store.Write(ctx, t, []store.Side{l.put(due)})
	if _, conflict := errors.AsType[*store.SideConflict](err); conflict {
		return nil // another set has written the lease since, and serves the tenant
	}
	return err
}

// pokeAll makes each held tenant check what there is to do.
func (s *Subscriptions) pokeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		h.poke()
	}
}

// drop forgets a tenant that is no longer held. Signals since its last check are not lost.
func (s *Subscriptions) drop(h *holding) {
	h.cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, h.tenant)
	if h.missed() {
		s.pending[h.tenant] = &pending{}
		s.waiting = append(s.waiting, h.tenant)
	}
	if len(s.waiting) > 0 {
		s.signal()
	}
	s.moved.Broadcast()
}

// stop ends the work on all tenants.
func (s *Subscriptions) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		h.end()
	}
	for len(s.held) > 0 {
		s.moved.Wait()
	}
}

// acquire takes one of the slots for calls. A holding that gets none is poked when one is free again.
func (s *Subscriptions) acquire(h *holding) bool {
	s.slots.Lock()
	defer s.slots.Unlock()
	if s.free == 0 {
		s.thirsty[h] = true
		return false
	}
	s.free--
	return true
}

func (s *Subscriptions) release() {
	s.slots.Lock()
	defer s.slots.Unlock()
	s.free++
	for h := range s.thirsty {
		h.poke()
	}
	clear(s.thirsty)
}

// leaveBehind counts a call that did not return in time, until it returns.
func (s *Subscriptions) leaveBehind(t j17.Tenant, key string, done <-chan error) {
	of := reference{t, key}
	s.count.left.Add(1)
	s.slots.Lock()
	s.lost[of]++
	s.slots.Unlock()
	go func() {
		_ = <-done // its error no longer matters
		s.slots.Lock()
		if s.lost[of]--; s.lost[of] == 0 {
			delete(s.lost, of)
		}
		s.slots.Unlock()
		s.notice(t, (*holding).changed)
	}()
}

// stuck reports whether so many calls of a subscription were left behind that it has to wait for one of them.
func (s *Subscriptions) stuck(t j17.Tenant, key string) bool {
	s.slots.Lock()
	defer s.slots.Unlock()
	return s.lost[reference{t, key}] >= maxLost
}

// Settle handles everything that can be handled now, and returns when nothing is left or under way. The set must be
// running.
func (s *Subscriptions) Settle(ctx context.Context) error {
	if err := s.follow(ctx); err != nil {
		return err
	}
	if _, err := s.askDue(ctx); err != nil {
		return err
	}
	s.settled(ctx)
	return ctx.Err()
}

// settled waits until no tenant is held or waits.
func (s *Subscriptions) settled(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.moved.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ctx.Err() == nil && (len(s.held) > 0 || s.expecting()) {
		for _, h := range s.held {
			h.settle()
		}
		s.moved.Wait()
	}
}

// expecting reports whether a tenant is about to be taken. Tenants that cannot be taken are left out. The caller holds
// mu.
func (s *Subscriptions) expecting() bool {
	for _, p := range s.pending {
		if p.failures == 0 {
			return true
		}
	}
	return false
}

// NextDue returns when a subscription is tried again; the zero time if none is. It is exact after Settle, until
// something else happens.
func (s *Subscriptions) NextDue(ctx context.Context) (time.Time, error) {
	return s.o.Store.NextDue(ctx, leases)
}

// warn logs a temporary failure.
func (s *Subscriptions) warn(ctx context.Context, what string, t j17.Tenant, err error) {
	s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "work on subscriptions failed; it is tried again", slog.String("what", what),
		slog.String("tenant", string(t)), slog.Any("error", err))
}
