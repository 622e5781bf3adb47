package projection

import (
	"context"
	"errors"
	"sync"

	"j17"
	"j17/internal/store"
	"j17/internal/wire"
)

// verifications are the comparisons that are under way, the latest one of each projection.
type verifications struct {
	mu  sync.Mutex
	all map[verified]*wire.Verification
}

// verified names a projection of an environment.
type verified struct {
	tenant j17.Tenant
	name   string
}

// begin shows a comparison until it is over.
func (v *verifications) begin(of verified) (progress *wire.Verification, over func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all == nil {
		v.all = map[verified]*wire.Verification{}
	}
	progress = &wire.Verification{}
	v.all[of] = progress
	return progress, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.all[of] == progress {
			delete(v.all, of)
		}
	}
}

// move says how far a comparison is.
func (v *verifications) move(progress *wire.Verification, done, total uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	progress.Done, progress.Total = done, total
}

// of returns how far the comparison of a projection is, nil for none.
func (v *verifications) of(of verified) *wire.Verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all[of] == nil {
		return nil
	}
	return new(*v.all[of])
}

// Verify makes the rows of a projection anew and compares them with its indexes, and all entries of these with the rows. What has not been
// built yet is CodeIndexNotReady. Describe shows how far it is.
func (s *Service) Verify(ctx context.Context, t j17.Tenant, name string) (wire.VerifiedProjection, error) {
	v, err := s.survey(ctx, t)
	if err != nil {
		return wire.VerifiedProjection{}, err
	}
	if v == nil || v.in.all[name] == nil {
		return wire.VerifiedProjection{}, unknown(v, name)
	}
	answer := wire.VerifiedProjection{Name: name, Verified: true, Position: positionText(v.m.At())}
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
	progress, over := s.verifying.begin(verified{t, name})
	defer over()
	before, all := uint64(0), answer.Rows+answer.Entries
	for _, x := range needs {
		last := uint64(0)
		found, err := s.indexes.Verify(ctx, t, x.ID, func(done, _ uint64) {
			last = done
			s.verifying.move(progress, before+done, max(all, before+done))
		})
		before += last
		if errors.Is(err, store.ErrNotFound) {
			return answer, j17.Errorf(j17.CodeConflict, "The indexes of the projection '%s' were replaced meanwhile. Try again.", j17.Printable(name))
		}
		if err != nil {
			return answer, indexNotReady(err)
		}
		if found != nil {
			answer.Verified, answer.Difference = false, &wire.RowDifference{Row: found.Row, What: found.What}
			return answer, nil
		}
	}
	return answer, nil
}
