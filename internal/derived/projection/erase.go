package projection

import (
	"context"

	"j17"
	"j17/internal/core/part"
)

// Erase drops the cached values of an environment. A value that is being computed fails the check when it is next
// requested, since the streams of its sources have other generations.
func (s *Service) Erase(_ context.Context, t j17.Tenant, _ part.Erased) error {
	s.values.kept.drop(t)
	return nil
}

// drop drops all values of a tenant.
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
