package listener

import (
	"context"
	"errors"

	"j17"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// Progress is how far a listener is, as known without looking at events.
type Progress struct {
	Name   string
	Status Status
	// Lag is the number of events that have not been looked at for the listener yet, whether it selects them or not.
	Lag uint64
}

// Progress returns the progress of up to limit listeners of an environment, by name. It looks at no events.
func (s *Service) Progress(ctx context.Context, t j17.Tenant, limit int) ([]Progress, error) {
	_, env := s.o.Name(t)
	names := namesIn(s.o.Spec(t), env)
	all := make([]Progress, 0, min(limit, len(names)))
	for _, name := range names[:min(limit, len(names))] {
		p := Progress{Name: name, Status: Active}
		st, _, err := s.states.stateOf(ctx, t, name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, failure(err)
		}
		if err == nil {
			p.Status = st.Status
		}
		status, err := s.o.Feed.Status(ctx, t, kind, name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, failure(err)
		}
		p.Lag = status.Lag
		all = append(all, p)
	}
	return all, nil
}

// EachFailed passes the failed deliveries of an environment, the newest first, until do reports false. Each is charged
// to the budget; when that is used up, its error is returned.
func (s *Service) EachFailed(ctx context.Context, t j17.Tenant, b *work.Budget, do func(*Delivery) bool) error {
	err := s.log.each(ctx, t, Filter{Status: Failed}, b, func(d *delivery) bool {
		if d.Status != Failed {
			return true // it is being tried again
		}
		shown := d.shown()
		return do(&shown)
	})
	if j17.CodeOf(err) == j17.CodeWorkLimit {
		return err
	}
	return failure(err)
}
