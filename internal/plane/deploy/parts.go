package deploy

import (
	"context"
	"errors"
	"log/slog"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
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

// fill lets a part make what has to exist when a spec comes into force, and calls commit with its writes.
func (s *Service) fill(ctx context.Context, t j17.Tenant, after *decider.Decider, commit part.CommitSpec) error {
	for i := range s.parts {
		if fill := s.parts[i].Deploy.Fill; fill != nil { // at most one part has it
			return fill(ctx, t, after, commit)
		}
	}
	return commit(nil, nil)
}

// try adds to a result the effect of a spec on the data of an environment.
func (s *Service) try(ctx context.Context, t j17.Tenant, after *decider.Decider, most int, r *Result) error {
	for i := range s.parts {
		if try := s.parts[i].Deploy.Try; try != nil {
			trial, err := try(ctx, t, after, most)
			if err != nil {
				return err
			}
			r.Incompatible = append(r.Incompatible, trial.Found...)
			r.Replay.Complete = r.Replay.Complete && !trial.Partial
			r.Projections = append(r.Projections, trial.Projections...)
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

// adopted notifies the parts of the deployment to an environment.
func (s *Service) adopted(ctx context.Context, t j17.Tenant) {
	for i := range s.parts {
		if adopt := s.parts[i].Deploy.Adopt; adopt != nil {
			if err := adopt(ctx, t); err != nil {
				s.logger.LogAttrs(ctx, slog.LevelError, "a part of an environment does not follow its deployed spec yet; if it does not recover by itself, deploy the spec again, or restart the server",
					slog.String("part", s.parts[i].Name), slog.String("tenant", string(t)), slog.Any("error", err))
			}
		}
	}
}
