package place

import (
	"context"
	"errors"
	"slices"
	"time"

	"j17"
	"j17/internal/core/worker"
)

const (
	// scrubEvery is the interval between checks of all places unless the options set it, scrubPause the pause before
	// each page of them.
	scrubEvery = 6 * time.Hour
	scrubPause = 50 * time.Millisecond
)

// Run checks all places at intervals, slowly, until the context ends. Places that differ from the events are taken out
// of use and rebuilt.
func (s *Service) Run(ctx context.Context) error {
	s.Worker.Every(ctx, worker.Loop{Name: "place_scrub", Do: func(ctx context.Context) error {
		if err := s.Clock.Wait(ctx, s.Clock.Now().Add(s.Scrub)); err != nil {
			return err
		}
		return s.scrub(ctx)
	}})
	return nil
}

// scrub checks the places of all environments that are known here.
func (s *Service) scrub(ctx context.Context) error {
	var all []j17.Tenant
	s.known.Range(func(t, _ any) bool {
		tenant, _ := t.(j17.Tenant)
		all = append(all, tenant)
		return true
	})
	slices.Sort(all)
	var errs []error
	for _, t := range all {
		errs = append(errs, s.scrubTenant(ctx, t))
	}
	return errors.Join(errs...)
}

// scrubTenant checks the places of an environment, up to the first difference.
func (s *Service) scrubTenant(ctx context.Context, t j17.Tenant) error {
	s.known.Delete(t) // places begun again by another process are not compared before they are complete
	k, err := s.present(ctx, t)
	if err != nil {
		if j17.CodeOf(err) == j17.CodeNoSpec {
			return nil
		}
		return err
	}
	for _, list := range k.slots {
		for _, sl := range list {
			if s.check(ctx, t, sl) != nil {
				continue
			}
			c := comparison{s: s, t: t, k: k, slot: sl, pause: func(int) error {
				return s.Clock.Wait(ctx, s.Clock.Now().Add(scrubPause))
			}}
			found, err := c.all(ctx)
			if damage := damageOf(err); damage != nil {
				found, err = &Difference{What: damage.Error()}, nil
			}
			if errors.Is(err, errMoved) {
				return nil // the next check will tell
			}
			if err != nil {
				return err
			}
			if found != nil {
				return s.replace(ctx, t, []*slot{sl}, found.What)
			}
		}
	}
	return nil
}
