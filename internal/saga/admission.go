package saga

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/store"
	"j17/internal/worker"
)

// room is how many more sagas of an environment may begin to run.
type room struct {
	// free is how many there are now, bound how many of the environment may run in all, with those of the instance's others.
	free, bound int64
	// queued tells that some wait already.
	queued bool
}

// room looks how many more sagas may run. Those of the environment itself are counted exactly, by the bound of take; those of the
// instance's others as they are now.
func (s *Service) room(ctx context.Context, t j17.Tenant) (*room, error) {
	r := &room{bound: s.most}
	for _, other := range siblings(t) {
		n, err := s.running(ctx, other)
		if err != nil {
			return nil, err
		}
		r.bound -= n
	}
	own, err := s.running(ctx, t)
	if err != nil {
		return nil, err
	}
	r.free = r.bound - own
	next, err := s.get(ctx, t, admissionSpace, admissionKey)
	r.queued = next.Rev != 0
	return r, err
}

// take counts sagas that begin to run. It fails where there is no room for them any more.
func (r *room) take(n int64) store.Side {
	return store.Side{Op: store.Add, Space: countSpace, Key: runningKey, Value: strconv.AppendInt(nil, n, 10), Most: r.bound}
}

// running returns the number of an environment's running sagas.
func (s *Service) running(ctx context.Context, t j17.Tenant) (int64, error) {
	it, err := s.get(ctx, t, countSpace, runningKey)
	if err != nil || it.Rev == 0 {
		return 0, err
	}
	n, err := strconv.ParseInt(string(it.Value), 10, 64)
	if err != nil {
		return 0, &store.CorruptionError{Where: string(countSpace), Err: err}
	}
	return n, nil
}

// siblings returns the other environments of an environment's instance.
func siblings(t j17.Tenant) (others []j17.Tenant) {
	instance, _, _ := strings.Cut(string(t), "/")
	for _, env := range j17.Environments() {
		if other := j17.TenantOf(instance, env); other != t {
			others = append(others, other)
		}
	}
	return others
}

// wake returns the write that lets somebody look whether queued sagas can start.
func wake(timestamp int64) store.Side {
	return store.Side{Op: store.Put, Space: admissionSpace, Key: admissionKey, Due: time.Unix(timestamp, 0)}
}

// tell wakes the queues of the instance's other environments. What is lost of it is made up for by what admissionPause says.
func (s *Service) tell(ctx context.Context, t j17.Tenant) {
	for _, other := range siblings(t) {
		next, err := s.get(ctx, other, admissionSpace, admissionKey)
		if err == nil && next.Rev != 0 {
			side := wake(s.clock.Now().Unix())
			side.Cond, side.Rev = store.IfRev, next.Rev
			_ = s.store.Write(ctx, other, []store.Side{side})
		}
	}
}

const (
	// admissionPause is how long queued sagas wait at most before somebody looks after them who was not told that there is room.
	admissionPause = 10 * time.Minute
	// admitted is how many sagas start in one commit, moved how many are put in order in one.
	admitted = 100
	moved    = 500
)

// admit starts queued sagas as far as there is room, in the order of their triggers.
func (s *Service) admit(ctx context.Context, c *worker.Claim) error {
	// All triggers up to here have arrived: those that come later stand behind them.
	extent, err := s.store.Extent(ctx, c.Tenant)
	if err != nil {
		return err
	}
	if err := s.arrange(ctx, c.Tenant); err != nil {
		return err
	}
	for {
		done, err := s.admitSome(ctx, c, extent.Last)
		if done || err != nil {
			return err
		}
	}
}

// arrange puts the sagas that have arrived into the order of their triggers.
func (s *Service) arrange(ctx context.Context, t j17.Tenant) error {
	for {
		items, err := s.store.Scan(ctx, t, arrivalSpace, store.Range{}, moved)
		if err != nil || len(items) == 0 {
			return err
		}
		var sides []store.Side
		for _, it := range items {
			at, _, err := store.ReadStamp(it.Value)
			if err != nil {
				return err
			}
			sides = append(
				sides,
				store.Side{Op: store.Delete, Space: arrivalSpace, Key: it.Key, Cond: store.IfRev, Rev: it.Rev},
				store.Side{Op: store.Put, Space: queueSpace, Key: queueKey(at, it.Key)},
			)
		}
		if _, err := conflict(s.store.Write(ctx, t, sides)); err != nil {
			return err
		}
	}
}

// queueKey is where a saga stands in the queue.
func queueKey(at j17.StreamID, id string) string {
	return fmt.Sprintf("%013d-%010d/%s", at.Ms, at.Seq, id)
}

// splitQueueKey takes a key of the queue apart.
func splitQueueKey(key string) (at j17.StreamID, id string, err error) {
	place, id, ok := strings.Cut(key, "/")
	if _, scanned := fmt.Sscanf(place, "%d-%d", &at.Ms, &at.Seq); !ok || scanned != nil {
		return at, id, &store.CorruptionError{Where: string(queueSpace), Err: errors.New("the key " + key + " has no position")}
	}
	return at, id, nil
}

// admitSome starts some of the queued sagas whose triggers stand no later than last, and tells whether there is nothing more to do.
func (s *Service) admitSome(ctx context.Context, c *worker.Claim, last j17.StreamID) (done bool, err error) {
	r, err := s.room(ctx, c.Tenant)
	if err != nil {
		return false, err
	}
	items, err := s.store.Scan(ctx, c.Tenant, queueSpace, store.Range{}, admitted+1)
	if err != nil {
		return false, err
	}

	// With nothing queued the work is done, without room it waits until a saga ends. Whoever queues, or ends, breaks the claim.
	switch {
	case len(items) == 0:
		return s.finish(ctx, c, c.Remove())
	case r.free <= 0:
		return s.finish(ctx, c, c.Replace(nil, s.clock.Now().Add(admissionPause)))
	}

	// The first ones start.
	var sides []store.Side
	now, n := s.clock.Now().Unix(), int64(0)
	for _, it := range items[:min(len(items), admitted)] {
		at, id, err := splitQueueKey(it.Key)
		if err != nil {
			return false, err
		}
		if n == r.free || at.Compare(last) > 0 {
			break
		}
		sides = append(sides, store.Side{Op: store.Delete, Space: queueSpace, Key: it.Key, Cond: store.IfRev, Rev: it.Rev})
		g, err := s.load(ctx, c.Tenant, id)
		if damaged, ok := errors.AsType[*store.CorruptionError](err); ok || isAbsent(err) {
			// It is in nobody's way.
			s.logger.LogAttrs(ctx, slog.LevelError, "a queued saga cannot be read and is not started", slog.String("tenant", string(c.Tenant)),
				slog.String("saga", id), slog.Any("error", damaged))
			continue
		}
		if err != nil {
			return false, err
		}
		n++
		m := machine{Saga: g, now: now}
		m.start()
		saved, err := save(g, nil, now)
		if err != nil {
			return false, err
		}
		sides = append(append(sides, saved...), store.Side{Op: store.Put, Space: workSpace, Key: id, Value: []byte(starts), Due: time.Unix(now, 0)})
	}
	if len(sides) == 0 { // those that are queued came after this look at the log
		return s.finish(ctx, c, c.Replace(nil, s.clock.Now()))
	}
	if n > 0 {
		sides = append(sides, r.take(n))
	}
	conflicting, err := conflict(s.store.Write(ctx, c.Tenant, sides))
	if err == nil && conflicting == nil {
		s.counts.queued.Add(uint64(n))
	}
	return false, err
}

// finish ends a try with the claim's last write. Who has broken the claim sees to the rest.
func (s *Service) finish(ctx context.Context, c *worker.Claim, side store.Side) (bool, error) {
	_, err := conflict(s.store.Write(ctx, c.Tenant, []store.Side{side}))
	return true, err
}

// arrive returns the write that lets a saga wait for room whose trigger is stored already.
func arrive(at j17.StreamID, id string) store.Side {
	return store.Side{Op: store.Put, Space: arrivalSpace, Key: id, Value: store.AppendStamp(nil, at)}
}
