package index

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// unreadable marks damage to a head or a slot: which slots an index has, or how far one has come, is unknown.
type unreadable struct{ error }

// Unwrap returns the read error.
func (u unreadable) Unwrap() error { return u.error }

// keptDamage marks damage to heads and slots. It returns any other error unchanged.
func keptDamage(err error) error {
	if _, is := errors.AsType[*store.CorruptionError](err); is {
		return unreadable{err}
	}
	return err
}

// resetEvery is the minimum interval between resets of an environment.
const resetEvery = time.Minute

// reset throws away all indexes of an environment if the error means that heads or slots cannot be read, without which
// the other data of indexes are useless. It then returns store.ErrNotFound, since a query of a missing index has it
// built. It returns any other error unchanged.
func (s *Service) reset(ctx context.Context, t j17.Tenant, err error) error {
	if _, is := errors.AsType[unreadable](err); !is {
		return err
	}
	s.resetting.Lock()
	defer s.resetting.Unlock()
	now := s.o.Clock.Now()
	if last, ok := s.resets.Load(t); ok {
		if at, _ := last.(time.Time); now.Sub(at) < resetEvery {
			return &NotReadyError{} // another caller has seen the same damage, and has reset the indexes
		}
	}

	// Builds and subscriptions end, so that nothing writes for slots that are gone. Subscriptions of slots not known
	// here end by themselves when they look for their slot.
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
	s.resets.Store(t, now)
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

// head reads the present head. A damaged head resets the indexes, and reads as missing.
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

// slot reads the present slot. A damaged slot resets the indexes, and reads as missing.
func (s *Service) slot(ctx context.Context, t j17.Tenant, name string) (*slot, error) {
	sl, err := readSlot(s.get(ctx, t), name)
	if err != nil {
		return nil, s.reset(ctx, t, err)
	}
	return sl, nil
}
