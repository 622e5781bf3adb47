package deploy

import (
	"context"

	"j17"
)

// Adopt hands the spec that the registry has for an environment to the engine, where that is not the one in use: another
// server has deployed it. A spec that is not valid here, or whose code cannot be loaded, is treated as Restore does.
func (s *Service) Adopt(ctx context.Context, instance string, env j17.Environment) error {
	e, err := s.environment(instance, env)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	stored, err := s.registry.Spec(ctx, instance, env)
	if j17.CodeOf(err) == j17.CodeNoSpec || err == nil && stored.Version == e.version {
		return nil
	}
	if err != nil {
		return err
	}
	return s.adopt(ctx, e, stored)
}
