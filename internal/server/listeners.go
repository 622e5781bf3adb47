package server

import (
	"context"
	"strings"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/plane/control"
)

// openListeners creates the service that sends events to endpoints.
func (s *Server) openListeners(ctx context.Context) {
	o := &s.options
	// Receivers compare the time of a message with their own, whatever the clock of a development server shows.
	sender := outbound.New(outbound.Options{Clock: clock.System{}, Private: o.PrivateListeners})
	s.listeners = listener.New(ctx, listener.Options{
		Store: s.store, Shown: s.engine.Shown(), Feed: s.feed, Worker: s.worker, Clock: o.Clock, Logger: o.Logger,
		Send: sender.Send, Spec: s.engine.Spec, Name: s.nameOf,
		Disabled: func(ctx context.Context, t j17.Tenant, name, delivery string) error {
			instance, env := instanceOf(t)
			return s.registry.Audit.Add(ctx, control.Record{
				Action: "listener.disable", Instance: instance, Environment: env, Target: name,
				Details: map[string]string{"delivery": delivery, "status": "410"},
			})
		},
	})
}

// instanceOf returns the instance and the environment of a tenant.
func instanceOf(t j17.Tenant) (instance string, env j17.Environment) {
	instance, name, _ := strings.Cut(string(t), "/")
	return instance, j17.Environment(name)
}

// nameOf returns the name of a tenant's instance, and its environment.
func (s *Server) nameOf(t j17.Tenant) (instance string, env j17.Environment) {
	instance, env = instanceOf(t)
	if known, ok := s.registry.Instances.ByID(instance); ok {
		instance = known.Name
	}
	return instance, env
}
