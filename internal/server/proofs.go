package server

import (
	"fmt"

	"j17"
	"j17/internal/envlog"
)

// openProofs makes what keeps the logs of environments.
func (s *Server) openProofs() {
	o := &s.options
	s.logs = envlog.New(envlog.Options{Store: s.store, Clock: o.Clock, Logger: o.Logger, Worker: s.worker, Origin: s.originOf})
}

// originOf names the log of an environment: by the host of its instance, and the environment.
func (s *Server) originOf(t j17.Tenant) (string, error) {
	instance, env := instanceOf(t)
	known, ok := s.registry.Instances.ByID(instance)
	if !ok {
		return "", fmt.Errorf("server: there is no instance %q", instance)
	}
	return known.Name + "." + s.options.BaseDomain + "/" + string(env), nil
}
