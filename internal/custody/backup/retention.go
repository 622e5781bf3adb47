package backup

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"j17"
)

// removeAll removes backups that are no longer kept, and the remains of failed ones among all. A place that has failed
// once is left alone until the next time.
func (s *Service) removeAll(ctx context.Context, gone, all []*Backup) error {
	failed := map[string]error{}
	for _, b := range gone {
		if (b.Status != Failed || b.Left) && failed[b.Place.name()] != nil {
			continue
		}
		if err := s.remove(ctx, b); err != nil {
			failed[b.Place.name()] = err
			continue
		}
		b.Left = false
		s.Logger.LogAttrs(
			ctx, slog.LevelInfo, "a backup was removed by rule", slog.String("backup", b.ID),
			slog.String("of", saidScope(b.Scope)),
		)
	}
	for _, b := range all {
		if b.Status != Failed || !b.Left || failed[b.Place.name()] != nil {
			// a backup that waits again continues with its files
			continue
		}
		if err := s.clear(ctx, b); err != nil {
			failed[b.Place.name()] = err
		}
	}
	return errors.Join(slices.Collect(maps.Values(failed))...)
}

// expired returns the backups that are no longer kept, and when the next one expires. all are the existing ones, the
// newest first. The newest completed one is always kept.
func (set *Settings) expired(all []*Backup, now time.Time) (gone []*Backup, next time.Time) {
	age := time.Duration(set.KeepDays) * 24 * time.Hour
	completed, failed := 0, 0
	for _, b := range all {
		switch b.Status {
		case Running:
		case Failed:
			if failed++; failed > keepFailed {
				gone = append(gone, b)
			}
		case Completed:
			completed++
			ends := b.CreatedAt.Add(age)
			switch {
			case completed == 1:
			case set.KeepLast > 0 && completed > set.KeepLast, age > 0 && !ends.After(now):
				gone = append(gone, b)
			case age > 0:
				next = earlier(next, ends)
			}
		}
	}
	return gone, next
}

// loosePlace is a place that may have unneeded parts, and the instance whose settings have its credentials.
type loosePlace struct {
	place
	instance string
	// tenants are those whose backups have changed there.
	tenants map[j17.Tenant]bool
}
