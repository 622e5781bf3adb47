package projection

import (
	"context"
	"errors"

	"j17"
	"j17/internal/engine"
	"j17/internal/store"
	"j17/internal/wire"
)

// Verify makes the rows of a projection anew and compares them with its indexes, and all entries of these with the rows. What has not been
// built yet is CodeIndexNotReady.
func (s *Service) Verify(ctx context.Context, t j17.Tenant, name string) (wire.VerifiedProjection, error) {
	v, err := s.survey(ctx, t)
	if err != nil {
		return wire.VerifiedProjection{}, err
	}
	if v == nil || v.in.all[name] == nil {
		return wire.VerifiedProjection{}, unknown(v, name)
	}
	answer := wire.VerifiedProjection{Name: name, Verified: true, Position: positionText(v.m.At())}
	for _, x := range s.needs(v.reading, v.in.all[name]) {
		status := v.statuses[x.ID]
		if !status.Ready {
			return answer, j17.Errorf(j17.CodeIndexNotReady, "An index of the projection '%s' is still being built, so that there is nothing to compare. Try again when it is ready.", j17.Printable(name))
		}
		answer.Rows += status.Rows
		answer.Entries += status.Entries
		found, err := s.indexes.Verify(ctx, t, x.ID, nil)
		if errors.Is(err, store.ErrNotFound) {
			return answer, j17.Errorf(j17.CodeConflict, "The indexes of the projection '%s' were replaced meanwhile. Try again.", j17.Printable(name))
		}
		if err != nil {
			return answer, engine.StorageError(err)
		}
		if found != nil {
			answer.Verified, answer.Difference = false, &wire.RowDifference{Row: found.Row, What: found.What}
			return answer, nil
		}
	}
	return answer, nil
}
