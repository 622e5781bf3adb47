package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

const (
	// settingsKey is the only key of the spaces of settings and of hours.
	settingsKey = "root"
	// rootLease is how long an automatic root checkpoint may take.
	rootLease = 10 * time.Minute
	// followPause lets events gather before they are counted.
	followPause = 50 * time.Millisecond
)

// defaultSettings are those of an environment without settings.
func defaultSettings() wire.RootCheckpointSettings {
	return wire.RootCheckpointSettings{EveryEvents: 100_000, EveryHours: 24, Keep: 30}
}

// Set changes settings. Enabling takes effect at once: the existing events count, and the hours begin now.
func (s *Service) Set(
	ctx context.Context, t j17.Tenant, change wire.RootCheckpointSettingsChange,
) (wire.RootCheckpointSettings, error) {
	if err := validChange(&change); err != nil {
		return wire.RootCheckpointSettings{}, err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	set, err := s.Settings(ctx, t)
	if err != nil {
		return set, err
	}
	before := set
	take(&set.Enabled, change.Enabled)
	take(&set.EveryEvents, change.EveryEvents)
	take(&set.EveryHours, change.EveryHours)
	take(&set.Keep, change.Keep)
	raw, err := json.Marshal(set)
	if err != nil {
		return set, err
	}
	sides := []store.Side{{Op: store.Put, Space: settings, Key: settingsKey, Value: raw}}
	switch {
	case !set.Enabled:
		sides = append(sides, store.Side{Op: store.Delete, Space: hours, Key: settingsKey})
	case !before.Enabled || before.EveryHours != set.EveryHours:
		sides = append(sides, store.Side{
			Op: store.Put, Space: hours, Key: settingsKey, Due: s.Clock.Now().Add(period(&set)),
		})
	}
	if err := s.Store.Write(ctx, t, sides); err != nil {
		return set, store.UserError(err)
	}
	s.await(t, &set, 0, true)
	return set, nil
}

// take sets a value if one is given.
func take[T any](into *T, given *T) {
	if given != nil {
		*into = *given
	}
}

// period is how long after one root checkpoint the next one is made, if there are events by then.
func period(set *wire.RootCheckpointSettings) time.Duration {
	return time.Duration(set.EveryHours) * time.Hour
}

// hourly makes a root checkpoint when the period since the last one is over.
func (s *Service) hourly(ctx context.Context, c *worker.Claim) error {
	set, err := s.Settings(ctx, c.Tenant)
	if err != nil {
		return err
	}
	if !set.Enabled {
		return s.Store.Write(ctx, c.Tenant, []store.Side{c.Remove()})
	}
	last, err := s.lastAuto(ctx, c.Tenant)
	if err != nil {
		return err
	}
	now := s.Clock.Now()
	next := now.Add(period(&set))
	if last != nil && last.CreatedAt.Add(period(&set)).After(now) {
		next = last.CreatedAt.Add(period(&set)) // one was made meanwhile because of events
	} else if err := s.byItself(ctx, c.Tenant, &set, 1); err != nil {
		return err
	}
	return s.Store.Write(ctx, c.Tenant, []store.Side{c.Replace(nil, next)})
}

// lastAuto returns the newest automatic root checkpoint, nil if there is none.
func (s *Service) lastAuto(ctx context.Context, t j17.Tenant) (last *wire.RootCheckpoint, err error) {
	err = s.roots().each(ctx, t, func(n *numbered[wire.RootCheckpoint]) bool {
		if n.row.Reason == Auto {
			last = &n.row
		}
		return last == nil
	})
	return last, err
}

// byItself makes an automatic root checkpoint, if there are at least so many events more than at the last automatic
// one, and some that no root checkpoint covers.
func (s *Service) byItself(ctx context.Context, t j17.Tenant, set *wire.RootCheckpointSettings, events uint64) error {
	extent, err := s.Store.Extent(ctx, t)
	if err != nil {
		return err
	}
	last, err := s.lastAuto(ctx, t)
	if err != nil {
		return err
	}
	newest, err := s.roots().page(ctx, t, 0, 1)
	if err != nil {
		return err
	}
	before := uint64(0)
	if last != nil {
		before = last.Size
	}
	if extent.Events >= before+events && (len(newest) == 0 || extent.Events > newest[0].Size) {
		made, err := s.Root(ctx, t, Auto)
		if err != nil {
			return err
		}
		before = made.Size
	}
	s.await(t, set, before, false)
	return nil
}

// await sets the number of events at which the next root checkpoint of an environment is made, if any is, given the
// number at the last one; look also makes it due for a check.
func (s *Service) await(t j17.Tenant, set *wire.RootCheckpointSettings, last uint64, look bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !set.Enabled {
		delete(s.auto, t)
		return
	}
	s.auto[t] = last + set.EveryEvents
	if look {
		s.look[t] = true
		s.tell()
	}
}

// tell wakes the goroutine that checks environments. The caller holds mu.
func (s *Service) tell() {
	select {
	case s.changed <- struct{}{}:
	default: // signalled already
	}
}

// follow returns a function that makes root checkpoints when there are enough events, one round a call.
func (s *Service) follow() func(context.Context) error {
	var unknown []j17.Tenant
	listed, seen := false, uint64(0)
	return func(ctx context.Context) (err error) {
		// After the first round the settings of all environments are known, except for those that cannot be read.
		if !listed {
			if unknown, err = s.Store.Tenants(ctx); err != nil {
				return err
			}
			listed = true
		}
		var failed []error
		if unknown, err = s.recall(ctx, unknown); err != nil {
			if worker.ConcernsAll(err) {
				return err
			}
			failed = append(failed, err)
		}
		if len(failed) == 0 {
			if err := s.awaitChange(ctx, seen); err != nil {
				return err
			}
		}

		// Check those that have changed. A failure of one holds up no other.
		changed, err := s.Store.Changed(ctx, seen, changedAtOnce)
		if err != nil {
			return err
		}
		for _, c := range changed {
			seen = max(seen, c.Number)
		}
		for t, due := range s.toLook(changed) {
			if err := s.enough(ctx, t, due); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", t, err))
				if _, damaged := errors.AsType[*store.CorruptionError](err); !damaged {
					// otherwise only a change makes it due again
					s.again(t)
				}
			}
		}
		return errors.Join(failed...)
	}
}

// changedAtOnce is how many changed environments are checked in one round.
const changedAtOnce = 256

// recall reads which of some environments have automatic root checkpoints, and returns those for which that is still
// unknown. Damaged settings are reported once.
func (s *Service) recall(ctx context.Context, of []j17.Tenant) (left []j17.Tenant, err error) {
	var failed []error
	for i, t := range of {
		if t == j17.System {
			continue
		}
		set, err := s.Settings(ctx, t)
		if err == nil {
			s.await(t, &set, 0, true)
			continue
		}
		if worker.ConcernsAll(err) {
			return append(left, of[i:]...), err
		}
		failed = append(failed, fmt.Errorf("%s: %w", t, err))
		if _, damaged := errors.AsType[*store.CorruptionError](err); !damaged {
			left = append(left, t)
		}
	}
	return left, errors.Join(failed...)
}

// awaitChange waits until an environment has to be checked; if none has automatic root checkpoints, it waits for one
// that does.
func (s *Service) awaitChange(ctx context.Context, seen uint64) error {
	s.mu.Lock()
	some, now := len(s.auto) > 0, len(s.look) > 0
	s.mu.Unlock()
	switch {
	case now:
		return nil
	case !some:
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
		return ctx.Err()
	}

	// The first of both to happen ends the other wait.
	waiting, stop := context.WithCancel(ctx)
	var told sync.WaitGroup
	told.Go(func() {
		select {
		case <-s.changed:
			stop()
		case <-waiting.Done():
		}
	})
	err := s.Store.AwaitChange(waiting, seen)
	if waiting.Err() != nil {
		err = ctx.Err()
	}
	stop()
	told.Wait()
	return err
}

// toLook returns the environments to check, with the number of events at which their next root checkpoints are made.
func (s *Service) toLook(changed []store.Change) map[j17.Tenant]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := make(map[j17.Tenant]uint64, len(s.look))
	for t := range s.look {
		look[t] = s.auto[t]
	}
	clear(s.look)
	for _, c := range changed {
		if due, ok := s.auto[c.Tenant]; ok {
			look[c.Tenant] = due
		}
	}
	return look
}

// again makes an environment due for a check in the next round.
func (s *Service) again(t j17.Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.auto[t]; ok {
		s.look[t] = true
		s.tell()
	}
}

// enough makes a root checkpoint if there are as many events as are due.
func (s *Service) enough(ctx context.Context, t j17.Tenant, due uint64) error {
	extent, err := s.Store.Extent(ctx, t)
	if err != nil || extent.Events < due {
		return err
	}
	set, err := s.Settings(ctx, t)
	if err != nil {
		return err
	}
	if !set.Enabled {
		s.await(t, &set, 0, false)
		return nil
	}
	return s.byItself(ctx, t, &set, set.EveryEvents)
}
