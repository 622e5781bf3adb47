package projection

import (
	"context"

	"j17"
	"j17/internal/core/part"
)

// Erase releases the values of an environment that are kept. One that is computed at this moment is no longer good when
// it is asked for, since the streams that it was made of have other generations.
func (s *Service) Erase(_ context.Context, t j17.Tenant, _ part.Erased) error {
	s.values.kept.drop(t)
	return nil
}

// drop forgets all values of a tenant.
func (k *keptValues) drop(t j17.Tenant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for of, at := range k.all {
		if of.tenant == t {
			k.lineOf(valueAt(at)).take(at)
			delete(k.all, of)
		}
	}
}
