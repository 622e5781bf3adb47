package listener

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// stateStore accesses the states of listeners, and makes due what waits for them.
type stateStore struct{ o *Options }

// stateOf returns the state of a listener and its revision, store.ErrNotFound if there is none. A state sealed with the
// key of another data folder is returned as active and without a secret.
func (s *stateStore) stateOf(ctx context.Context, t j17.Tenant, name string) (state, uint64, error) {
	it, err := s.o.Store.Get(ctx, t, stateSpace, name)
	if errors.Is(err, store.ErrSealed) {
		return state{Status: Active}, it.Rev, nil
	}
	if err != nil {
		return state{}, 0, err
	}
	st, err := store.Decode[state](stateSpace, &it)
	return st, it.Rev, err
}

// change applies a function to the state of a listener, which reports whether there is something to store, and tries
// again on conflicts. more returns further writes of the same commit, and their fences, given the previous status.
func (s *stateStore) change(
	ctx context.Context, t j17.Tenant, name string, change func(*state) bool,
	more ...func(before Status) ([]store.Side, []store.Fence, error),
) error {
	for range maxTries {
		st, rev, err := s.stateOf(ctx, t, name)
		if err != nil {
			return err
		}
		before := st.Status
		if !change(&st) {
			return nil
		}
		sides, fences := []store.Side{put(stateSpace, name, st, time.Time{}).On(rev)}, []store.Fence(nil)
		for _, of := range more {
			extra, rests, err := of(before)
			if err != nil {
				return err
			}
			sides, fences = append(sides, extra...), append(fences, rests...)
		}
		err = s.o.Store.Write(ctx, t, sides, fences...)
		if overtaken(err) {
			continue
		}
		return err
	}
	return errContended
}

// ensure creates the state of a listener, and its subscription from now on, if they do not exist.
func (s *stateStore) ensure(ctx context.Context, t j17.Tenant, name string) error {
	_, _, err := s.stateOf(ctx, t, name)
	if errors.Is(err, store.ErrNotFound) {
		err = s.o.Store.Write(ctx, t, []store.Side{
			put(stateSpace, name, state{Status: Active, Secret: NewSecret()}, time.Time{}).On(0),
		})
		if overtaken(err) {
			err = nil // another process was faster
		}
	}
	if err != nil {
		return err
	}
	return s.o.Feed.Subscribe(ctx, t, kind, name, feed.End())
}

// align makes the feed hand out events to a listener exactly if it is active.
func (s *stateStore) align(ctx context.Context, t j17.Tenant, name string) error {
	for {
		st, rev, err := s.stateOf(ctx, t, name)
		if err != nil {
			return err
		}
		if st.Status == Active {
			err = errors.Join(s.o.Feed.Resume(ctx, t, kind, name), s.o.Feed.Wake(ctx, t, kind, name))
		} else {
			err = s.o.Feed.Pause(ctx, t, kind, name)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		// The state may have been changed meanwhile.
		_, now, err := s.stateOf(ctx, t, name)
		if err != nil || now == rev {
			return err
		}
	}
}

// endWaiting makes due what waits for a removed listener to be resumed, or for its next try, so that it ends. Tries
// under way end by themselves.
func (s *stateStore) endWaiting(ctx context.Context, t j17.Tenant, name string) error {
	// The outcomes of tries under way are decided again, without the listener.
	if err := s.change(ctx, t, name, func(*state) bool { return true }); err != nil &&
		!errors.Is(err, store.ErrNotFound) {
		return err
	}
	for range maxTries {
		sides, others, err := s.unpark(ctx, t, name)
		if err != nil {
			return err
		}
		now := s.o.Clock.Now()
		for _, lane := range others {
			if lane.Space != laneSpace {
				continue
			}
			it, err := s.o.Store.Get(ctx, t, laneSpace, lane.Key)
			if err != nil || it.Rev != lane.Rev {
				continue // the lane continues by itself
			}
			_, id, err := worker.ReadAttempts(it.Value)
			if err != nil || len(id) == 0 {
				continue
			}
			d, _, err := read[*delivery](ctx, s.o.Store, t, deliverySpace, string(id))
			if err == nil && d.Next.Equal(it.Due) {
				sides = append(sides, store.Side{
					Op: store.Put, Space: laneSpace, Key: it.Key, Value: it.Value, Due: now, Cond: store.IfRev,
					Rev: it.Rev,
				})
			}
		}

		// In parts, so that each commit conflicts with few others.
		again := false
		for piece := range slices.Chunk(sides, endedAtOnce) {
			switch err := s.o.Store.Write(ctx, t, piece); {
			case overtaken(err):
				again = true
			case err != nil:
				return err
			}
		}
		if !again {
			return nil
		}
	}
	return errContended
}

// unpark returns the writes that make due what has waited for a listener to be resumed. The fences hold as long as
// nothing else has begun to wait: deliveries under way when the listener was stopped do so when their tries end.
func (s *stateStore) unpark(
	ctx context.Context, t j17.Tenant, name string,
) (sides []store.Side, fences []store.Fence, err error) {
	now := s.o.Clock.Now()
	for _, space := range []store.Space{laneSpace, replaySpace} {
		const page = 1000
		for it, err := range store.Items(ctx, s.o.Store, t, space, store.Prefix(name+"/"), page) {
			if err != nil {
				return nil, nil, err
			}
			if it.Due.IsZero() {
				sides = append(sides, store.Side{
					Op: store.Put, Space: space, Key: it.Key, Value: it.Value, Due: now, Cond: store.IfRev, Rev: it.Rev,
				})
			} else {
				fences = append(fences, store.Fence{Space: space, Key: it.Key, Rev: it.Rev})
			}
		}
	}
	return sides, fences, nil
}

// resecret gives a secret to a listener without one, which was restored from a backup that was not encrypted.
func (s *stateStore) resecret(ctx context.Context, t j17.Tenant, name string) error {
	fresh := false
	err := s.change(ctx, t, name, func(st *state) bool {
		if fresh = st.Secret == ""; fresh {
			st.Secret = NewSecret()
		}
		return fresh
	})
	if err == nil && fresh {
		s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "the secret of a listener cannot be read here, and it has a new one: its endpoint has to be told", slog.String("tenant", string(t)), slog.String("listener", name))
	}
	return err
}
