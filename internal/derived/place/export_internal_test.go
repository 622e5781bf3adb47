package place

import (
	"context"

	"j17"
)

// Bound makes a service look at less, for tests.
func (s *Service) Bound(few, enough int) { s.few, s.enough = few, enough }

// Crowded makes a service hold fewer groups of points, and look at less, for tests.
func (s *Service) Crowded(crowd, most int) { s.crowd, s.most = crowd, most }

// Compare looks through the places of a tenant, as Run does from time to time.
func (s *Service) Compare(ctx context.Context, t j17.Tenant) error {
	return s.scrubTenant(ctx, t, func(int) error { return nil })
}

// Remembers reports whether something is kept of an erasure in parts.
func (s *Service) Remembers(t j17.Tenant) bool {
	_, is := s.staying.Load(t)
	return is
}
