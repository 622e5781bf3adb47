package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/part"
	"j17/internal/custody/loading"
	"j17/internal/storage/store"
)

// parts lists all parts of the program; testdata/parts.txt shows them as a table. Code that needs a hook goes through
// this list, in its order, which matters where one part rests on another:
//
//   - When time passes, scheduled events are written before checkpoints are made of what there is, and sagas go on
//     after both.
//   - When streams are erased, checkpoints come before the engine, which they hand states to, and indexes before
//     projections, which are computed from them.
//   - After a deployment, projections come last: they begin the indexes that they need.
//
// It may be called on a server that is not open, to learn what the parts are.
func (s *Server) parts() []part.Part {
	return []part.Part{
		s.schedule.Part(),
		s.checkpoints.Part(),
		s.engine.Part(),
		s.feed.Part(),
		s.builds.Part(),
		s.deploy.Part(),
		s.sagas.Part(),
		s.listeners.Part(),
		s.places.Part(),
		s.generations.Part(),
		s.unique.Part(),
		s.tagging.Part(),
		s.indexes.Part(),
		s.projections.Part(),
		s.registry.Part(),
		s.backups.Part(),
		s.erasures.Part(),
		s.logs.Part(),
		s.scrub.Part(),
		s.usage.Part(),
		s.blobs.Part(),
		loading.Part(),
		s.tail.Part(),
		s.attention.Part(),
		ownFilesPart(),
		{Name: "handover", Work: part.Work{Run: s.settle}},
		{Name: "memory", Erase: part.Erase{Completed: s.forgetting.completed}, Work: part.Work{Run: s.runForgetting}},
	}
}

// spaces returns the side spaces of all parts.
func spaces() (all []part.Space) {
	for _, p := range new(Server).parts() {
		all = append(all, p.Spaces...)
	}
	return all
}

// sealedSpaces are the spaces with values that the store seals.
func sealedSpaces() map[store.Space]func(value []byte) bool {
	sealed := map[store.Space]func([]byte) bool{}
	for _, s := range spaces() {
		if s.Sealed != nil {
			sealed[s.Space] = s.Sealed
		}
	}
	return sealed
}

// sealedElsewhere are those of a store that is not on this machine's disk: the keys that the server signs with are
// sealed there too.
func sealedElsewhere() map[store.Space]func(value []byte) bool {
	sealed := sealedSpaces()
	for _, s := range spaces() {
		if s.Secret {
			sealed[s.Space] = part.Always
		}
	}
	return sealed
}

// useParts gives the list to the services that call hooks, once, before anything runs.
func (s *Server) useParts() {
	all := s.parts()
	s.engine.Use(all...)
	s.deploy.Use(all...)
	s.erasures.Use(all...)
}

// timed returns the work that waits for a time or for events. A development server does it while its clock is moved.
func (s *Server) timed() (all []part.Work) {
	for _, p := range s.parts() {
		if p.Work.Settle != nil {
			all = append(all, p.Work)
		}
	}
	return all
}

// buildWait is how long a deployment waits for the builds that it has started, before it answers.
const buildWait = 2 * time.Second

// built waits up to buildWait for what is built after a deployment. Before the server runs nothing is built, so it
// returns at once.
func (s *Server) built(ctx context.Context, t j17.Tenant) {
	if !s.building.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, buildWait)
	defer cancel()
	all := s.parts()
	errs := make([]error, len(all))
	var builds panics.Parts
	for i := range all {
		if await := all[i].Deploy.Await; await != nil {
			builds.Go(func() { errs[i] = await(ctx, t) })
		}
	}
	builds.Wait()
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		s.options.Logger.WarnContext(ctx, "the builds of an environment cannot be waited for",
			slog.String("tenant", string(t)), slog.Any("error", err))
	}
}

// allBuilt calls built for several environments in parallel.
func (s *Server) allBuilt(ctx context.Context, tenants []j17.Tenant) {
	var builds panics.Parts
	for _, t := range tenants {
		builds.Go(func() { s.built(ctx, t) })
	}
	builds.Wait()
}
