package projection

import (
	"context"
	"errors"
	"sync"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// verifications has the comparisons under way, at most one of each projection.
type verifications struct {
	mu  sync.Mutex
	all map[verified]*wire.Verification
	// turns limits the comparisons, each of which keeps a processor busy.
	turns *work.Pool
}

// mostVerified is how many projections are compared at a time, sharedVerified how many of one environment.
const (
	mostVerified   = 4
	sharedVerified = 2
)

func newVerifications() verifications {
	return verifications{all: map[verified]*wire.Verification{}, turns: work.NewPool(mostVerified, sharedVerified)}
}

// verified identifies a projection of an environment.
type verified struct {
	tenant j17.Tenant
	name   string
}

// begin registers a comparison until over is called. The error is one of CodeConflict if the projection is being
// compared already, and of CodeBusy if as many are as may be.
func (v *verifications) begin(of verified) (progress *wire.Verification, over func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all[of] != nil {
		return nil, nil, j17.Errorf(j17.CodeConflict, "The projection '%s' is being compared already: its 'verification' says how far that is. Wait until it is over.", j17.Printable(of.name))
	}
	taken, ok := v.turns.TryTake(string(of.tenant), 1)
	if !ok {
		return nil, nil, j17.Errorf(j17.CodeBusy, "As many projections are being compared as may be at a time, %d of an environment and %d in all. Compare one after the other: try again when one of them is done.", sharedVerified, mostVerified)
	}
	progress = &wire.Verification{}
	v.all[of] = progress
	return progress, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.all, of)
		v.turns.Give(string(of.tenant), taken)
	}, nil
}

// move sets the progress of a comparison.
func (v *verifications) move(progress *wire.Verification, done, total uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	progress.Done, progress.Total = done, total
}

// of returns the progress of the comparison of a projection, nil for none.
func (v *verifications) of(of verified) *wire.Verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all[of] == nil {
		return nil
	}
	return new(*v.all[of])
}

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
	progress, over, err := s.verifying.begin(verified{t, name})
	if err != nil {
		return answer, err
	}
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
