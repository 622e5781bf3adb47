package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"j17"
	"j17/internal/code/sandbox"
)

// Restore adopts all environments, as a server does at its start.
func (s *Service) Restore(ctx context.Context) error {
	var errs []error
	for _, instance := range s.registry.Instances.All() {
		for _, env := range j17.Environments() {
			errs = append(errs, s.Adopt(ctx, instance.ID, env))
		}
	}
	return errors.Join(errs...)
}

// SetAsking sets the work that a dry run may have with guards.
func (s *Service) SetAsking(units int64) { s.asking = units }

// Bindings lists what the deployed spec of an environment uses, as "pointer name version".
func (s *Service) Bindings(instance string, env j17.Environment) []string {
	e, _ := s.environment(instance, env)
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, b := range e.code.bindings {
		all = append(all, fmt.Sprint(b.at, " ", b.name, " ", b.version))
	}
	slices.Sort(all)
	return all
}

// Functions returns the functions of the deployed spec of an environment by the places that need them.
func (s *Service) Functions(instance string, env j17.Environment) map[string]sandbox.Function {
	e, _ := s.environment(instance, env)
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[string]sandbox.Function{}
	for _, f := range e.code.functions {
		if f, ok := f.(*function); ok {
			all[string(f.at)] = f
		}
	}
	return all
}

// Tenant returns the tenant of an environment.
func Tenant(instance string, env j17.Environment) j17.Tenant { return j17.TenantOf(instance, env) }

// CodeError is codeError.
func CodeError(err error) (string, bool) { return codeError(err) }

// ModuleCache is the cache of modules of a service.
type ModuleCache struct{ cache *moduleCache }

// NewModuleCache returns an empty cache.
func NewModuleCache(m Modules) ModuleCache { return ModuleCache{newModuleCache(m)} }

// Compile compiles a module for an instance, in its turn.
func (c ModuleCache) Compile(ctx context.Context, instance, hash, binary string) error {
	release, err := c.cache.turn(ctx, instance)
	if err != nil {
		return err
	}
	defer release()
	_, err = c.cache.get(ctx, hash, func() ([]byte, error) { return []byte(binary), nil })
	return err
}
