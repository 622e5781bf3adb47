package projection

import (
	"context"
	"errors"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/storage/store"
)

// mostVerified is how many projections are compared at a time, sharedVerified how many of one environment.
const (
	mostVerified   = 4
	sharedVerified = 2
)

// Verify computes the rows of a projection again and compares them with its indexes, and all entries of these with the
// rows. The error is one of CodeIndexNotReady if an index is not built yet, or is lost meanwhile; of CodeConflict if
// the projection is being compared already, and of CodeBusy if too many others are. Describe shows the progress.
func (s *Service) Verify(ctx context.Context, t j17.Tenant, name string) (wire.VerifiedProjection, error) {
	v, err := s.survey(ctx, t)
	if err != nil {
		return wire.VerifiedProjection{}, err
	}
	if v == nil || v.in.all[name] == nil {
		return wire.VerifiedProjection{}, unknown(v, name)
	}
	answer := wire.VerifiedProjection{Name: name, Verified: true, Position: v.m.At().PositionText()}
	needs := s.needs(v.reading, v.in.all[name])
	for _, x := range needs {
		status := v.statuses[x.ID]
		if !status.Ready {
			return answer, j17.Errorf(j17.CodeIndexNotReady, "An index of the projection '%s' is still being built, so that there is nothing to compare. Try again when it is ready.", j17.Printable(name))
		}
		answer.Rows += status.Rows
		answer.Entries += status.Entries
	}

	// One index after the other.
	move, over, err := s.verifying.Begin(
		t, name,
		j17.Errorf(j17.CodeConflict, "The projection '%s' is being compared already: its 'verification' says how far that is. Wait until it is over.", j17.Printable(name)),
		j17.Errorf(j17.CodeBusy, "As many projections are being compared as may be at a time, %d of an environment and %d in all. Compare one after the other: try again when one of them is done.", sharedVerified, mostVerified),
	)
	if err != nil {
		return answer, err
	}
	defer over()
	before, all := uint64(0), answer.Rows+answer.Entries
	for _, x := range needs {
		last := uint64(0)
		found, err := s.indexes.Verify(ctx, t, x.ID, func(done, _ uint64) {
			last = done
			move(before+done, all)
		})
		before += last
		if errors.Is(err, store.ErrNotFound) {
			return answer, j17.Errorf(j17.CodeConflict, "The indexes of the projection '%s' were replaced meanwhile. Try again.", j17.Printable(name))
		}
		if err != nil {
			return answer, indexNotReady(err)
		}
		if found != nil {
			answer.Verified, answer.Difference = false, &wire.RowDifference{Row: found.ID, What: found.What}
			return answer, nil
		}
	}
	return answer, nil
}
