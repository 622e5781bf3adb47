package deploy

import (
	"context"

	"j17"
)

// Adopt hands the spec that the registry has for an environment to the engine, where that is not the one in use: it was
// deployed before this server started, or by another one. A spec whose custom code cannot be loaded is deployed without it, so that
// everything else goes on; one that is not valid any more is not deployed. Both are logged.
func (s *Service) Adopt(ctx context.Context, instance string, env j17.Environment) error {
	e, err := s.environment(instance, env)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.catchUp(ctx, e)
}

// catchUp makes the spec that is stored for an environment that of the engine, if it is not yet. The caller holds e.mu.
func (s *Service) catchUp(ctx context.Context, e *environment) error {
	stored, err := s.registry.Specs.Current(ctx, e.instance, e.env)
	if j17.CodeOf(err) == j17.CodeNoSpec || err == nil && stored.Version == e.version {
		return nil
	}
	if err != nil {
		return err
	}
	return s.adopt(ctx, e, stored)
}

// Forget lets go of the specs and the code of an instance that has been deleted.
func (s *Service) Forget(instance string) {
	for _, env := range j17.Environments() {
		t := j17.TenantOf(instance, env)
		s.mu.Lock()
		e := s.environments[t]
		delete(s.environments, t)
		s.mu.Unlock()
		if e == nil {
			continue
		}
		e.mu.Lock()
		s.engine.Undeploy(t)
		e.mu.Unlock()
	}
}
