package listener

import (
	"context"
	"errors"

	"j17"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Erasures and tries under way meet at the state of the listener: Erase changes its revision, on which the commit of an
// outcome is fenced. A try that is refused for that, or begins later, sees the stream's new generation.

// Erase removes from deliveries and their logs what endpoints have said about events of rewritten streams. The outcome
// of each try stays.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	// The outcomes of tries under way are decided again.
	names, err := s.log.names(ctx, t)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.states.change(ctx, t, name, func(*state) bool { return true }); err != nil &&
			!errors.Is(err, store.ErrNotFound) {
			return err
		}
	}

	for _, key := range e.Keys {
		if err := s.log.eraseLogs(ctx, t, key.String()+"/"); err != nil {
			return err
		}
	}
	return nil
}
