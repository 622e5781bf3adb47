package envlog

import (
	"context"
	"errors"
	"time"

	"j17"
	"j17/internal/core/worker"
)

const (
	// upkeepPause is the pause between two rounds in which logs catch up with the feeds.
	upkeepPause = 250 * time.Millisecond
	// upkeepEvents is how many events a log may be behind before it is updated in the background; requests catch up
	// with fewer themselves.
	upkeepEvents = 1024
	// changedAtOnce is how many environments are looked up at a time.
	changedAtOnce = 256
)

// Run keeps logs close to what is written, and anchors their heads, until the context ends.
func (s *Service) Run(ctx context.Context) error {
	var seen uint64
	loops := []worker.Loop{{Name: "environment_logs", Every: upkeepPause, Do: func(ctx context.Context) error {
		if err := s.Store.AwaitChange(ctx, seen); err != nil {
			return err
		}
		next, err := s.Upkeep(ctx, seen)
		seen = next
		return err
	}}}
	if s.Anchor != nil {
		loops = append(loops, s.anchorLoop())
	}
	s.Worker.Every(ctx, loops...)
	return nil
}

// Upkeep updates the logs of environments whose feeds have changed after since and which are far behind, and returns
// the number of the last change that was handled. Environments take turns.
func (s *Service) Upkeep(ctx context.Context, since uint64) (seen uint64, err error) {
	for at := since; ; {
		changed, failed := s.Store.Changed(ctx, at, changedAtOnce)
		if failed != nil {
			return since, failed
		}
		behind := make([]j17.Tenant, 0, len(changed))
		for _, c := range changed {
			if at = max(at, c.Number); c.Tenant != j17.System {
				behind = append(behind, c.Tenant)
			}
		}
		for len(behind) > 0 {
			var left []j17.Tenant
			for _, t := range behind {
				again, failed := s.step(ctx, t)
				if failed != nil && worker.ConcernsAll(failed) {
					return since, failed
				}
				if err = errors.Join(err, failed); again {
					left = append(left, t)
				}
			}
			behind = left
		}
		if err == nil {
			since = at // failed ones are tried again
		}
		if len(changed) < changedAtOnce {
			return since, err
		}
	}
}

// step updates a log that is far behind, by a bounded number of events, and reports whether it is still behind.
func (s *Service) step(ctx context.Context, t j17.Tenant) (again bool, err error) {
	l, leave, err := s.enter(ctx, t)
	if err != nil {
		return false, err
	}
	defer leave()
	extent, err := l.extent(ctx)
	if err != nil || extent.Events < l.stored*tileWidth+upkeepEvents {
		return false, err
	}
	if l.size < extent.Events {
		before := l.size
		if err := l.read(ctx, readAtOnce); err != nil {
			return false, ignoreReplaced(err)
		}
		if l.size == before {
			return false, damage(t, "the feed ends after %d of %d events", l.size, extent.Events)
		}
	}
	if l.size < extent.Events {
		return true, nil
	}
	return false, ignoreReplaced(l.store(ctx))
}

// ignoreReplaced drops the error of a log that another process has written: it is read again when it is needed.
func ignoreReplaced(err error) error {
	if errors.Is(err, errReplaced) {
		return nil
	}
	return err
}
