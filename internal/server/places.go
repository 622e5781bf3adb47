package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// buildWait is how long a deployment waits for what it has begun to build, before it answers.
const buildWait = 2 * time.Second

// adopted hands what is deployed to an environment to those who keep something that rests on it.
func (s *Server) adopted(ctx context.Context, t j17.Tenant) {
	s.listeners.Adopted(ctx, t)
	if err := s.places.Adopt(ctx, t); err != nil {
		// It is made up for before the next write.
		s.options.Logger.WarnContext(ctx, "the places of an environment are not prepared yet", slog.String("tenant", string(t)), slog.Any("error", err))
	}
	if err := s.unique.Adopt(ctx, t); err != nil {
		s.options.Logger.ErrorContext(ctx, "who holds unique values in an environment is not known yet, and what takes one is refused until then; it is tried again",
			slog.String("tenant", string(t)), slog.Any("error", err))
	}
	if err := s.tagging.Adopt(ctx, t); err != nil {
		// As with places.
		s.options.Logger.WarnContext(ctx, "the tags of an environment are not prepared yet", slog.String("tenant", string(t)), slog.Any("error", err))
	}
	s.projections.Adopted(ctx, t)
}

// adoptUnique tries again to find out who holds unique values, where that has failed.
func (s *Server) adoptUnique(ctx context.Context) error {
	return s.unique.AdoptLeft(ctx, func(ctx context.Context, t j17.Tenant, f func() error) error {
		return s.deploy.Hold(ctx, t, func(*spec.Compiled, store.Fence) error { return f() })
	})
}

// built waits a little for what is built after a deployment. Before the server runs nothing is built that could be waited for.
func (s *Server) built(ctx context.Context, t j17.Tenant) {
	if !s.building.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, buildWait)
	defer cancel()
	var indexes panics.Parts
	indexes.Go(func() { s.projections.Settled(ctx, t) })
	defer indexes.Wait()
	if err := errors.Join(s.places.Await(ctx, t), s.tagging.Await(ctx, t)); err != nil && ctx.Err() == nil {
		s.options.Logger.WarnContext(ctx, "the builds of an environment cannot be waited for", slog.String("tenant", string(t)), slog.Any("error", err))
	}
}

// allBuilt is built for several environments side by side.
func (s *Server) allBuilt(ctx context.Context, tenants []j17.Tenant) {
	var builds panics.Parts
	for _, t := range tenants {
		builds.Go(func() { s.built(ctx, t) })
	}
	builds.Wait()
}
