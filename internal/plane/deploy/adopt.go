package deploy

import (
	"context"
	"strings"

	"j17"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Adopt hands the registry's spec for an environment to the engine, unless it is in use already: it was deployed before
// this server started, or by another one. A spec whose custom code cannot be loaded is deployed without it, so that
// everything else works; one that is no longer valid is not deployed. Both are logged.
func (s *Service) Adopt(ctx context.Context, instance string, env j17.Environment) error {
	e, err := s.environment(instance, env)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.catchUp(ctx, e)
}

// Renew hands the registry's spec for a tenant to the engine, after the store has refused the engine's own: another
// server of the same store has deployed one, or the environment is gone.
func (s *Service) Renew(ctx context.Context, t j17.Tenant) error {
	s.mu.Lock()
	e := s.environments[t]
	s.mu.Unlock()
	if e == nil { // it was forgotten meanwhile
		s.engine.Undeploy(t)
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := s.catchUp(ctx, e)
	if j17.CodeOf(err) == j17.CodeNotFound {
		s.engine.Undeploy(t)
	}
	return err
}

// catchUp gives the engine the spec that is stored for an environment, if it does not have it yet. The caller holds
// e.mu.
func (s *Service) catchUp(ctx context.Context, e *environment) error {
	stored, err := s.registry.Specs.Current(ctx, e.instance, e.env)
	if err == nil && stored.Version == e.version && stored.Fence == e.fence {
		return nil
	}
	if j17.CodeOf(err) == j17.CodeNoSpec {
		if e.version != 0 { // its data was dropped
			s.engine.Undeploy(e.tenant)
			e.version, e.fence, e.compiled, e.code = 0, store.Fence{}, nil, &code{}
		}
		return nil
	}
	if err != nil {
		return err
	}
	return s.adopt(ctx, e, &stored)
}

// Forget releases the specs and the code of an instance that has been deleted.
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

// Hold calls f with the spec that is deployed to an environment and its fence; meanwhile this server deploys nothing
// there. If there is none, it is an error of CodeNoSpec.
func (s *Service) Hold(ctx context.Context, t j17.Tenant, f func(*spec.Compiled, store.Fence) error) error {
	instance, env, _ := strings.Cut(string(t), "/")
	e, err := s.environment(instance, j17.Environment(env))
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := s.catchUp(ctx, e); err != nil {
		return err
	}
	if e.compiled == nil {
		return j17.Errorf(j17.CodeNoSpec, "No spec has been deployed to %s. Deploy one first.", e.env.LongName())
	}
	return f(e.compiled, e.fence)
}
