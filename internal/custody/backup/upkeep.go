package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"j17"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// upkeepEvery is the interval between tests of the folder and checks that all backups due by rule will be made.
const upkeepEvery = time.Hour

// Daily are the settings of servers without settings: a backup a day, kept for a week.
func Daily() Settings { return Settings{EveryHours: 24, KeepLast: 7} }

// upkeep tests the folder, if scheduled backups go there, and makes the tenants due for a look that have a rule but no
// time of a look, such as those that only have default settings.
func (s *Service) upkeep(ctx context.Context) error {
	tenants, err := s.tenants(ctx)
	if err != nil {
		return err
	}
	if !s.counted {
		if err := s.countLast(ctx, tenants); err != nil {
			return err
		}
		s.counted = true
	}
	if s.ByDefault == nil {
		return nil
	}

	// Each tenant with a rule is checked.
	inFolder := false
	for _, t := range tenants {
		set, _, err := s.settings.load(ctx, instanceOf(t))
		if err != nil {
			return err
		}
		if set.EveryHours == 0 {
			continue
		}
		inFolder = inFolder || set.S3 == nil
		_, err = s.Store.Get(ctx, t, dueSpace, dueKey)
		if errors.Is(err, store.ErrNotFound) {
			err = s.touch(ctx, t)
		}
		if err != nil {
			return err
		}
	}
	s.tryFolder(ctx, inFolder)
	return nil
}

// tryFolder tests whether backups can be written to the folder, if some are to go there, and logs when that changes.
func (s *Service) tryFolder(ctx context.Context, wanted bool) {
	var err error
	if wanted {
		err = repository.TryFolder(s.Folder)
	}
	was := s.counts.unwritable.Swap(err != nil)
	switch {
	case err != nil && !was:
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "no backups can be made in their folder: name another one with --backups, give the server's user rights to this one, or switch backups off with --no-backups",
			slog.String("folder", s.Folder), slog.String("error", err.Error()))
	case err == nil && was:
		s.Logger.LogAttrs(ctx, slog.LevelInfo, "backups can be written to their folder again", slog.String("folder", s.Folder))
	}
}

// countLast finds when the last backups of earlier processes were completed.
func (s *Service) countLast(ctx context.Context, tenants []j17.Tenant) error {
	for _, t := range tenants {
		err := s.rows.each(ctx, t, func(b *Backup) bool { // newest first
			if b.Status == Completed {
				s.completed(b)
			}
			return b.Status != Completed
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// completed notes when a backup was completed.
func (s *Service) completed(b *Backup) {
	last := &s.counts.lastEnvironment
	if b.Scope == j17.System {
		last = &s.counts.lastServer
	}
	for at := b.CompletedAt.Unix(); ; {
		if was := last.Load(); was >= at || last.CompareAndSwap(was, at) {
			return
		}
	}
}

// tryTime is the time limit of a test of a place.
const tryTime = 30 * time.Second

// Try tests whether backups could be written, read, listed and removed at the place after a change of the settings, and
// changes nothing.
func (s *Service) Try(ctx context.Context, instance string, amend func(*Settings)) error {
	set, _, err := s.settings.amended(ctx, instance, amend)
	if err != nil {
		return err
	}
	repo, err := s.places.open(s.places.of(&set), &set)
	if err != nil {
		return failure(err)
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	err = repo.Try(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("there was no answer within %s", tryTime)
	}
	if set.S3 == nil {
		return j17.Errorf(j17.CodeUnavailable, "No backup can be written to the server's folder, so nothing was changed. Have the server's operator give it another one with --backups, or name a bucket.").Because(err)
	}
	return j17.Errorf(j17.CodeInvalidField, "No backup can be written to the bucket, so nothing was changed: %s.", err.Error()).At("s3")
}
