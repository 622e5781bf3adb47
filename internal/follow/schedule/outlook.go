package schedule

import (
	"cmp"
	"context"
	"time"

	"j17"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// Outlook has the pending events of an environment at a glance.
type Outlook struct {
	// Next is when the next event is due, the zero time for none.
	Next time.Time
	// Today is how many are due from now to the end of the day (UTC), Overdue how many should have been written
	// already. Both are counted up to MaxOutlook.
	Today, Overdue int
}

// MaxOutlook bounds what an Outlook counts.
const MaxOutlook = 1000

// Outlook returns the outlook. Its cost does not depend on how many events are pending.
func (s *Service) Outlook(ctx context.Context, t j17.Tenant) (o Outlook, err error) {
	now := s.Clock.Now()
	if o.Overdue, o.Next, err = s.Store.CountDue(ctx, t, Pending.space(), now, MaxOutlook); err != nil {
		return o, store.UserError(err)
	}
	tomorrow := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	all, _, err := s.Store.CountDue(ctx, t, Pending.space(), tomorrow, MaxOutlook)
	o.Today = all - min(all, o.Overdue)
	return o, store.UserError(err)
}

// GivenUp is a dead letter.
type GivenUp struct {
	ID string
	// AggregateType and Event are those of the event that could not be written, Code is the reason; "" if it was not
	// stored.
	AggregateType, Event string
	Code                 j17.Code
	// At is when it was last tried.
	At time.Time
}

// lookWork is the work of finding and decoding a dead letter.
const lookWork = 64

// EachGivenUp passes the dead letters of an environment, the latest scheduled ones first, until do reports false. Each
// is charged to the budget; when that is used up, its error is returned.
func (s *Service) EachGivenUp(ctx context.Context, t j17.Tenant, b *work.Budget, do func(*GivenUp) bool) error {
	for l, err := range s.listed(ctx, t, DeadLetter, listPage) {
		if err != nil {
			return store.UserError(err)
		}
		if !b.Spend(lookWork) {
			return b.Err()
		}
		key, err := rowOf(l.item.Value)
		if err != nil {
			return store.UserError(err)
		}
		r, err := s.load(ctx, t, key)
		if err != nil {
			return store.UserError(err)
		}
		if r == nil {
			continue // it was erased
		}
		g := GivenUp{
			ID: r.id, AggregateType: r.Type, Event: r.Event, Code: r.LastCode,
			At: time.Unix(cmp.Or(r.FailedAt, r.FireAt), 0).UTC(),
		}
		if !do(&g) {
			return nil
		}
	}
	return nil
}
