package unique

import (
	"context"
	"log/slog"

	"j17"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// Adopt puts the sets of the deployed spec into force where they are missing: after a restoration to an earlier moment,
// or when a new version of the program computes other values. Of several aggregates with one value, the first one holds
// it. Adopt also removes what an interrupted deployment has left.
func (s *Service) Adopt(ctx context.Context, t j17.Tenant) error {
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
