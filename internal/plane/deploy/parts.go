package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Use sets the parts of the program, once, before anything is deployed. They are called in this order.
func (s *Service) Use(parts ...part.Part) { s.parts = parts }

// preparing asks the parts right before a spec is stored. An error refuses the deployment.
func (s *Service) preparing(ctx context.Context, t j17.Tenant, before, after *spec.Compiled) error {
	for i := range s.parts {
		if prepare := s.parts[i].Deploy.Prepare; prepare != nil {
			if err := prepare(ctx, t, before, after); err != nil {
				return err
			}
		}
	}
	return nil
}

// beside returns the effect of a spec on what was deployed beside the spec of an environment.
func (s *Service) beside(ctx context.Context, t j17.Tenant, after *spec.Compiled) (all part.Beside, err error) {
	for i := range s.parts {
		if beside := s.parts[i].Deploy.Beside; beside != nil {
			more, err := beside(ctx, t, after)
			if err != nil {
				return all, err
			}
			all.Add(&more)
		}
	}
	return all, nil
}

// fill has the parts build what has to exist when a spec comes into force, and calls commit, which stores the spec,
// with what they have built.
func (s *Service) fill(
	ctx context.Context, t j17.Tenant, after *decider.Decider, asked part.Asked, commit func(*part.Filled) error,
) error {
	var all []*part.Filling
	for i := range s.parts {
		fill := s.parts[i].Deploy.Fill
		if fill == nil {
			continue
		}
		f, err := fill(ctx, t, after, asked)
		if err != nil {
			part.Ended(ctx, all, err)
			return err
		}
		if f != nil {
			all = append(all, f)
		}
	}
	return part.Fill(ctx, all, func(do func() error) error { return s.engine.Hold(t, do) }, commit)
}

// try adds to a result the effect of a spec on the data of an environment.
func (s *Service) try(
	ctx context.Context, t j17.Tenant, after *decider.Decider, asked part.Asked, r *Result,
) error {
	for i := range s.parts {
		if try := s.parts[i].Deploy.Try; try != nil {
			trial, err := try(ctx, t, after, asked)
			if err != nil {
				return err
			}
			r.Incompatible = append(r.Incompatible, trial.Found...)
			r.Replay.Complete = r.Replay.Complete && !trial.Partial
			r.Projections = append(r.Projections, trial.Projections...)
			if trial.Tried != nil {
				r.Trial = trial.Tried
			}
			r.Failures = append(r.Failures, trial.Failures...)
		}
	}
	return nil
}

// prepares reports whether anything is built for a spec before it is deployed.
func (s *Service) prepares() bool {
	for i := range s.parts {
		if s.parts[i].Deploy.Ready != nil {
			return s.waiting != nil
		}
	}
	return false
}

// ready begins to build what a spec needs, and reports the progress of all of it, or the first failure.
func (s *Service) ready(ctx context.Context, t j17.Tenant, after *decider.Decider) (all part.Readiness, err error) {
	all.Done = true
	for i := 0; i < len(s.parts) && all.Failed == ""; i++ {
		if ready := s.parts[i].Deploy.Ready; ready != nil {
			more, err := ready(ctx, t, after)
			if err != nil {
				return all, err
			}
			all.Add(more)
		}
	}
	return all, nil
}

// unready discards what was built for a spec that is no longer prepared.
func (s *Service) unready(ctx context.Context, t j17.Tenant) {
	other, err := IsPrepared(ctx, s.sides, t)
	if err != nil {
		other = true // keep what it may need; the next call removes it
	}
	errs := []error{err}
	for i := range s.parts {
		if unready := s.parts[i].Deploy.Unready; unready != nil {
			errs = append(errs, unready(ctx, t, other))
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "what was built for a spec that was prepared is still there",
			slog.String("tenant", string(t)), slog.Any("error", err))
	}
}

// adopted notifies the parts of the deployment to an environment. Those that fail are notified again by AdoptAgain.
func (s *Service) adopted(ctx context.Context, t j17.Tenant) {
	if err := s.notify(ctx, t); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "parts of an environment do not follow its deployed spec yet; it is tried again",
			slog.String("tenant", string(t)), slog.Any("error", err))
		s.behind.Store(t, struct{}{})
		select {
		case s.failed <- struct{}{}:
		default: // already signaled
		}
	}
}

// notify has all parts adopt the deployed spec of an environment.
func (s *Service) notify(ctx context.Context, t j17.Tenant) error {
	var errs []error
	for i := range s.parts {
		if adopt := s.parts[i].Deploy.Adopt; adopt != nil {
			if err := adopt(ctx, t); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.parts[i].Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// AdoptAgain notifies the parts again, once for each tenant with parts that have failed to adopt their spec.
func (s *Service) AdoptAgain(ctx context.Context) error {
	var failed error
	for at := range s.behind.Range {
		t, _ := at.(j17.Tenant)
		err := s.Hold(ctx, t, func(*spec.Compiled, store.Fence) error { return s.notify(ctx, t) })
		switch code := j17.CodeOf(err); {
		case err == nil:
			s.logger.LogAttrs(ctx, slog.LevelInfo, "all parts of an environment follow its deployed spec again", slog.String("tenant", string(t)))
			s.behind.Delete(t)
		case code == j17.CodeNoSpec || code == j17.CodeNotFound: // nothing is deployed any longer
			s.behind.Delete(t)
		default:
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
