package index

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// unreadable is that it cannot be read which slots an index has, or how far one of them is.
type unreadable struct{ error }

// Unwrap returns what could not be read.
func (u unreadable) Unwrap() error { return u.error }

// keptDamage marks damage as that of heads and slots. Any other error stays.
func keptDamage(err error) error {
	if _, is := errors.AsType[*store.CorruptionError](err); is {
		return unreadable{err}
	}
	return err
}

// resetEvery is the least time between two times that all indexes of an environment are thrown away.
const resetEvery = time.Minute

// reset throws away all indexes of an environment where an error is that heads or slots cannot be read: what is stored
// of an index is known to them alone. The error is store.ErrNotFound then, since a query of a missing index has it
// built. Any other error stays.
func (s *Service) reset(ctx context.Context, t j17.Tenant, err error) error {
	if _, is := errors.AsType[unreadable](err); !is {
		return err
	}
	s.resetting.Lock()
	defer s.resetting.Unlock()
	now := s.o.Clock.Now()
	if last, ok := s.resets[t]; ok && now.Sub(last) < resetEvery {
		return &NotReadyError{} // somebody has seen the same, and done it
	}

	// Nobody is to write what belongs to nothing: a build or a subscription, which looks for its slot by itself where
	// it is not known here.
	ctx = context.WithoutCancel(ctx)
	for _, name := range s.slotsOf(t) {
		if failed := s.o.Feed.Unsubscribe(ctx, t, kind, name); failed != nil {
			return errors.Join(err, failed)
		}
		s.deferrals.drop(t, name)
	}
	sides, failed := s.o.Build.ForgetAll(ctx, t, kind)
	if failed == nil {
		failed = s.o.Store.Empty(
			ctx, t, []store.Space{headSpace, slotSpace, countSpace, entrySpace, rowSpace, sourceSpace}, sides,
		)
	}
	if failed != nil {
		return errors.Join(err, failed)
	}
	s.resets[t] = now
	s.counts.differences.Add(1)
	s.o.Logger.LogAttrs(ctx, slog.LevelError, "the directory of the indexes of an environment cannot be read: each index is rebuilt when it is asked for",
		slog.String("tenant", string(t)), slog.String("what", err.Error()))
	return store.ErrNotFound
}

// slotsOf returns the slots of a tenant that this process has worked on.
func (s *Service) slotsOf(t j17.Tenant) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.slots {
		if at.tenant == t {
			names = append(names, at.name)
		}
	}
	return names
}

// head is readHead of what is stored now. Damage of it is as if there were none.
func (s *Service) head(ctx context.Context, t j17.Tenant, id string) (head, error) {
	h, err := readHead(s.get(ctx, t), id)
	if err == nil {
		return h, nil
	}
	if err = s.reset(ctx, t, err); errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return head{}, err
}

// slot is readSlot of what is stored now. Damage of it is as if it were not there.
func (s *Service) slot(ctx context.Context, t j17.Tenant, name string) (*slot, error) {
	sl, err := readSlot(s.get(ctx, t), name)
	if err != nil {
		return nil, s.reset(ctx, t, err)
	}
	return sl, nil
}
