package backup

import (
	"context"
	"errors"
	"time"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// dueSpace has, in each tenant with backups to be made or removed by rule, one item that is due when there is something
// to do.
const dueSpace store.Space = "backup.due"

const dueKey = "look"

// Limits of looks and of the removal of parts.
const (
	lookLease = 10 * time.Minute
	// looksAtOnce is how many tenants are checked at a time: most of that is waiting for object stores.
	looksAtOnce  = 8
	firstCollect = time.Minute
	// longestCollect is the longest pause before the removal of unneeded parts is tried again.
	longestCollect = time.Hour
	// collectTime is how long it may take at one place before other places have their turn. What was removed by then
	// stays removed.
	collectTime = 30 * time.Minute
	// retryFailed is how long after a failed scheduled backup it is tried again, unless the next one is due earlier.
	retryFailed = time.Hour
	// keepFailed is how many failed ones are listed.
	keepFailed = 20
)

// looks is the work of checking what is due in a tenant.
func (s *Service) looks() worker.Work {
	return worker.Work{
		Name: "backup_schedule", Store: s.Store, Space: dueSpace, Lease: lookLease, AtOnce: looksAtOnce, Do: s.look,
		Freeing: true,
	}
}

// touch makes the backups of a tenant due for a look now.
func (s *Service) touch(ctx context.Context, t j17.Tenant) error {
	side := store.Side{Op: store.Put, Space: dueSpace, Key: dueKey, Value: []byte("{}"), Due: s.Clock.Now()}
	return s.Store.WriteFreeing(ctx, t, []store.Side{side})
}

// look makes the backup that is due, removes those that are no longer kept, and sets the time of the next look.
func (s *Service) look(ctx context.Context, c *worker.Claim) error {
	set, _, err := s.settings.load(ctx, instanceOf(c.Tenant))
	if err != nil {
		return err
	}
	if instance := instanceOf(c.Tenant); instance != "" {
		if _, known := s.Registry.Instances.ByID(instance); !known {
			return s.Store.WriteFreeing(ctx, c.Tenant, []store.Side{c.Remove()})
		}
	}
	var all []*Backup
	if err := s.rows.each(ctx, c.Tenant, func(b *Backup) bool { all = append(all, b); return true }); err != nil {
		return err
	}

	// What the rules say now.
	now := s.Clock.Now()
	gone, next := set.expired(all, now)
	if at := set.due(all, now); !at.IsZero() && !at.After(now) {
		if _, err := s.Create(ctx, c.Tenant, ""); err != nil && j17.CodeOf(err) != j17.CodeConflict {
			return err
		}
		// Its end causes a look as well, but it may never reach an end that can be recorded.
		next = earlier(next, now.Add(time.Duration(set.EveryHours)*time.Hour))
	} else {
		next = earlier(next, at)
	}

	// Failed removals are tried again soon, and hold up neither the new backup nor removals at other places.
	if err := s.removeAll(ctx, gone, all); err != nil {
		return err
	}

	// The time of the next look. If a concurrent change has made it due already, that stays.
	side := c.Remove()
	if !next.IsZero() {
		side = c.Replace([]byte("{}"), next)
	}
	err = s.Store.WriteFreeing(ctx, c.Tenant, []store.Side{side})
	if _, changed := errors.AsType[*store.SideConflict](err); changed {
		return nil
	}
	return err
}

// earlier is the earlier of two times; the zero time stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// due returns when the next backup has to be made, the zero time for never. all are the existing ones, the newest
// first.
func (set *Settings) due(all []*Backup, now time.Time) time.Time {
	if set.EveryHours == 0 {
		return time.Time{}
	}
	every := time.Duration(set.EveryHours) * time.Hour
	var tried time.Time
	for _, b := range all {
		if b.Status != Failed {
			at := b.CreatedAt.Add(every)
			if !tried.IsZero() && tried.Add(min(every, retryFailed)).After(at) {
				at = tried.Add(min(every, retryFailed))
			}
			return at
		}
		if b.CreatedAt.After(tried) {
			tried = b.CreatedAt
		}
	}
	if !tried.IsZero() {
		return tried.Add(min(every, retryFailed))
	}
	return now
}

// NextDue returns when something is next due, the zero time for never.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.schedule.NextDue(ctx) }

// Settle does what is due now. Backups that it begins are made in the background.
func (s *Service) Settle(ctx context.Context) error { return s.schedule.Settle(ctx) }
