package saga

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// room is how many more sagas of an environment may begin to run.
type room struct {
	// free is the number of free places, bound how many sagas of the environment may run in all, given those of the
	// instance's other environments.
	free, bound int64
	// queued reports that sagas are queued already.
	queued bool
}

// room determines how many more sagas may run. The environment's own sagas are counted exactly, by the bound of take;
// those of the instance's other environments as they are now.
func (s *Service) room(ctx context.Context, t j17.Tenant) (*room, error) {
	r := &room{bound: s.most}
	for _, other := range t.Siblings() {
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

// take returns the write that counts n sagas that begin to run, of at most bound. It fails if there is no longer room
// for them.
func take(n, bound int64) store.Side {
	return store.Side{
		Op: store.Add, Space: countSpace, Key: runningKey, Value: strconv.AppendInt(nil, n, 10), Most: bound,
	}
}

// running returns the number of an environment's running sagas.
func (s *Service) running(ctx context.Context, t j17.Tenant) (int64, error) {
	return store.Counter(ctx, s.store, t, countSpace, runningKey)
}

// wake returns the write that makes the admission of queued sagas due.
func wake(due time.Time) store.Side {
	return store.Side{Op: store.Put, Space: admissionSpace, Key: admissionKey, Due: due}
}

// tell wakes the queues of the instance's other environments. If that fails, they are looked at after admissionPause.
func (s *Service) tell(ctx context.Context, t j17.Tenant) {
	for _, other := range t.Siblings() {
		next, err := s.get(ctx, other, admissionSpace, admissionKey)
		if err == nil && next.Rev != 0 {
			side := wake(s.clock.Now())
			side.Cond, side.Rev = store.IfRev, next.Rev
			_ = s.store.Write(ctx, other, []store.Side{side})
		}
	}
}

const (
	// admissionPause is how long queued sagas wait at most before room is looked for without a wake.
	admissionPause = 10 * time.Minute
	// admitted is how many sagas start in one commit, moved how many are sorted in one.
	admitted = 100
	moved    = 500
)

// admit starts queued sagas while there is room, in the order of their triggers. Each starts in the commit of its first
// event.
func (s *Service) admit(ctx context.Context, c *worker.Claim) error {
	// All triggers up to here have arrived; later ones are queued behind them.
	extent, err := s.store.Extent(ctx, c.Tenant)
	if err != nil {
		return err
	}
	if err := s.arrange(ctx, c.Tenant); err != nil {
		return err
	}

	// With nothing queued the work is done; without room it waits until a saga ends. A saga that is queued, or ends,
	// breaks the claim.
	r, err := s.room(ctx, c.Tenant)
	if err != nil {
		return err
	}
	items, err := s.store.Scan(ctx, c.Tenant, queueSpace, store.Range{}, admitted)
	switch {
	case err != nil:
		return err
	case len(items) == 0:
		return s.finish(ctx, c, c.Remove())
	case r.free <= 0:
		return s.finish(ctx, c, c.Replace(nil, s.clock.Now().Add(admissionPause)))
	}
	if err := s.startInOrder(ctx, c.Tenant, items[:min(int64(len(items)), r.free)], extent.Last, r.bound); err != nil {
		return err
	}
	return s.finish(ctx, c, c.Replace(nil, s.clock.Now()))
}

// finish ends an attempt with the claim's last write. If another writer has broken the claim, that writer takes care of
// the rest.
func (s *Service) finish(ctx context.Context, c *worker.Claim, side store.Side) error {
	_, err := conflict(s.store.Write(ctx, c.Tenant, []store.Side{side}))
	return err
}

// startInOrder starts the queued sagas with triggers up to last, of which bound may run. A saga whose first event
// cannot be written now starts without it, so that it does not block those behind it.
func (s *Service) startInOrder(
	ctx context.Context, t j17.Tenant, items []store.Item, last j17.StreamID, bound int64,
) error {
	// The first event of each.
	var all []*step
	var writings []*writing
	var commands []*engine.Command
	for _, it := range items {
		st, err := s.starting(ctx, t, it, last, bound)
		if err != nil {
			return err
		}
		if st == nil {
			continue
		}
		w, err := st.next(ctx)
		if err != nil {
			if err := st.rest(ctx, 0); err != nil {
				return err
			}
		}
		if w != nil {
			all, writings, commands = append(all, st), append(writings, w), append(commands, w.command)
		}
	}

	// All of them are written in this order. A saga whose event is refused continues by itself.
	var failed error
	for i, o := range s.engine.ExecuteInOrder(ctx, t, commands) {
		done, err := all[i].wrote(ctx, writings[i], o.Err)
		if err == nil && !done {
			err = all[i].carryOn(ctx)
		}
		if err != nil {
			err = all[i].rest(ctx, 0)
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}

// starting returns a queued saga that is about to start; nil if its trigger is later than last, or it is damaged.
func (s *Service) starting(
	ctx context.Context, t j17.Tenant, it store.Item, last j17.StreamID, bound int64,
) (*step, error) {
	at, id, err := splitQueueKey(it.Key)
	if err != nil || at.Compare(last) > 0 {
		return nil, err
	}
	claim := store.Side{Op: store.Delete, Space: queueSpace, Key: it.Key, Cond: store.IfRev, Rev: it.Rev}
	g, err := s.load(ctx, t, id)
	if _, damaged := errors.AsType[*store.CorruptionError](err); damaged || isAbsent(err) {
		// A damaged saga must not block others.
		s.logger.LogAttrs(ctx, slog.LevelError, "a queued saga cannot be read and is not started", slog.String("tenant", string(t)),
			slog.String("saga", id), slog.Any("error", err))
		_, err = conflict(s.store.Write(ctx, t, []store.Side{claim}))
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	st, err := s.step(ctx, t, g)
	st.woken, st.claim, st.bound = []byte(starts), claim, bound
	st.start()
	if err != nil || st.Woken != nil {
		return nil, st.rest(ctx, 0)
	}
	return st, nil
}

// arrange moves the sagas that have arrived into the queue, in the order of their triggers.
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

// queueKey returns the key of a saga's place in the queue.
func queueKey(at j17.StreamID, id string) string {
	return store.StampedKey(at, "/"+id)
}

// splitQueueKey splits a key of the queue.
func splitQueueKey(key string) (at j17.StreamID, id string, err error) {
	place, id, ok := strings.Cut(key, "/")
	if _, scanned := fmt.Sscanf(place, "%d-%d", &at.Ms, &at.Seq); !ok || scanned != nil {
		return at, id,
			&store.CorruptionError{Where: string(queueSpace), Err: errors.New("the key " + key + " has no position")}
	}
	return at, id, nil
}

// arrive returns the write that makes a saga with a stored trigger wait for room.
func arrive(at j17.StreamID, id string) store.Side {
	return store.Side{Op: store.Put, Space: arrivalSpace, Key: id, Value: store.AppendStamp(nil, at)}
}
