package unique

import (
	"context"
	"errors"
	"log/slog"

	"j17"
	"j17/internal/core/worker"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// Adopt puts the sets of the deployed spec into force where they are missing: after a restoration to an earlier moment,
// or when a new version of the program computes other values. Of several aggregates with one value, the first one holds
// it. Adopt also removes what an interrupted deployment has left. Run tries again for a tenant for which it has failed.
func (s *Service) Adopt(ctx context.Context, t j17.Tenant) error {
	err := s.adopt(ctx, t)
	if err == nil || gone(err) {
		s.left.Delete(t)
		return err
	}
	s.left.Store(t, struct{}{})
	select {
	case s.failed <- struct{}{}:
	default: // already signaled
	}
	return err
}

// gone reports whether an error means that nothing is deployed to a tenant any longer.
func gone(err error) bool {
	code := j17.CodeOf(err)
	return code == j17.CodeNoSpec || code == j17.CodeNotFound
}

// Run repeats failed adoptions until the context ends.
func (s *Service) Run(ctx context.Context) error {
	s.Worker.Every(ctx, worker.Loop{Name: "unique_sets", Wake: s.failed, Do: s.AdoptLeft})
	return nil
}

// AdoptLeft tries Adopt again, once for each tenant it has failed for, while deployments to that tenant are held.
func (s *Service) AdoptLeft(ctx context.Context) error {
	var failed error
	for at := range s.left.Range {
		t, _ := at.(j17.Tenant)
		switch err := s.Hold(ctx, t, func() error { return s.Adopt(ctx, t) }); {
		case err == nil:
			s.Logger.LogAttrs(ctx, slog.LevelInfo, "it is known again who holds unique values", slog.String("tenant", string(t)))
		case gone(err):
			s.left.Delete(t)
		default:
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

func (s *Service) adopt(ctx context.Context, t j17.Tenant) error {
	d, fences, err := s.Engine.Deployed(t)
	if err != nil {
		return err
	}
	if err := s.remove(ctx, t, deployment); err != nil {
		return err
	}
	if w, err := s.wants(ctx, t, d); err != nil || len(w.missing)+len(w.left) == 0 {
		return store.UserError(err)
	}
	return s.Deploy(ctx, t, d, func(sides []store.Side, found []diag.Diagnostic) error {
		for _, f := range found {
			s.Logger.LogAttrs(ctx, slog.LevelWarn, "two aggregates have one unique value, and the first one keeps it", slog.String("tenant", string(t)), slog.String("finding", f.Message))
		}
		return s.Store.Write(ctx, t, sides, fences...)
	})
}
