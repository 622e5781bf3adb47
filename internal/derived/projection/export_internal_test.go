package projection

import (
	"context"
	"errors"
	"time"

	"j17"
)

// SettleIn sets how long a change of definitions waits for the indexes that it needs.
func (s *Service) SettleIn(d time.Duration) { s.settle = d }

// ViewAfter opens the index of a list for a read that began before meanwhile was called, and reports whether it has to
// begin again.
func (s *Service) ViewAfter(ctx context.Context, t j17.Tenant, name string, meanwhile func()) (anew bool, err error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return false, err
	}
	meanwhile()
	view, err := s.view(ctx, r, r.in.all[name])
	if err == nil {
		view.Close()
	}
	if anew = errors.Is(err, errRedeployed); anew {
		err = nil
	}
	return anew, err
}
