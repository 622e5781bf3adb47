package attention

import (
	"context"
	"errors"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/custody/backup"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
)

const (
	// surveyAge is how long a survey is reused, so that many requests cost one survey.
	surveyAge = 2 * time.Second
	// maxConsumers bounds the consumers of one kind that an overview shows.
	maxConsumers = 100
	// running is the status of consumers that have no other.
	running = "running"
)

// survey is the part of an overview that comes from services. It is made by one request, and shared by all that arrive
// meanwhile.
type survey struct {
	mu sync.Mutex
	// at is when it was made, by the machine's clock; the zero time for never.
	at   time.Time
	seen wire.Overview
}

// Overview describes what goes on in an environment. Position, events and rates are current, everything else may be two
// seconds old.
func (s *Service) Overview(ctx context.Context, t j17.Tenant) (wire.Overview, error) {
	extent, err := s.o.Store.Extent(ctx, t)
	if err != nil {
		return wire.Overview{}, store.UserError(err)
	}
	found, err := s.survey(ctx, t)
	if err != nil {
		return wire.Overview{}, err
	}
	found.Position, found.Events, found.Rates = extent.Last.PositionText(), extent.Events, s.o.Usage.Rates(t)
	return found, nil
}

// survey returns the latest survey, or makes a new one if that is too old.
func (s *Service) survey(ctx context.Context, t j17.Tenant) (wire.Overview, error) {
	s.mu.Lock()
	v := s.surveys[t]
	if v == nil {
		v = &survey{}
		s.surveys[t] = v
	}
	s.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := (clock.System{}).Now(); v.at.IsZero() || now.Sub(v.at) >= surveyAge || now.Before(v.at) {
		// Other requests wait for it, so it goes on if the first one ends.
		seen, err := s.look(context.WithoutCancel(ctx), t)
		if err != nil {
			return wire.Overview{}, err
		}
		v.seen, v.at = seen, (clock.System{}).Now()
	}
	return v.seen, nil
}

// look asks the services.
func (s *Service) look(ctx context.Context, t j17.Tenant) (o wire.Overview, err error) {
	o.Consumers, o.Builds = []wire.Consumer{}, []wire.RunningBuild{}
	for _, part := range []func(context.Context, j17.Tenant, *wire.Overview) error{
		s.spec, s.listeners, s.projections, s.places, s.tags, s.workflows, s.kept,
	} {
		if err := part(ctx, t, &o); err != nil {
			return o, err
		}
	}
	if free, total, err := s.o.Disk(); err == nil && total > 0 {
		o.Disk = &wire.Disk{Free: free, Total: total}
	}
	return o, nil
}

// spec adds the deployed and the prepared spec.
func (s *Service) spec(ctx context.Context, t j17.Tenant, o *wire.Overview) error {
	instance, env := instanceOf(t)
	switch current, err := s.o.Registry.Specs.Current(ctx, instance, env); {
	case err == nil:
		o.Spec = &wire.SpecInForce{Version: current.Version, DeployedAt: current.DeployedAt.Truncate(time.Second)}
	case j17.CodeOf(err) != j17.CodeNoSpec:
		return err
	}
	switch next, err := s.o.Deploy.Prepared(ctx, t); {
	case err == nil && next.Failed == "":
		o.Builds = append(o.Builds, wire.RunningBuild{
			Kind: kindSpec, Name: next.Hash[:12], Done: next.Built, Total: next.Total,
		})
	case err != nil && j17.CodeOf(err) != j17.CodeNotFound:
		return err
	}
	return nil
}

func (s *Service) listeners(ctx context.Context, t j17.Tenant, o *wire.Overview) error {
	all, err := s.o.Listeners.Progress(ctx, t, maxConsumers)
	for i := range all {
		o.Consumers = append(o.Consumers, wire.Consumer{
			Kind: kindListener, Name: all[i].Name, Status: string(all[i].Status), Lag: all[i].Lag,
		})
	}
	return err
}

func (s *Service) projections(ctx context.Context, t j17.Tenant, o *wire.Overview) error {
	all, err := s.o.Projections.DescribeAll(ctx, t)
	for i := range all {
		p := &all[i]
		if i < maxConsumers {
			o.Consumers = append(o.Consumers, wire.Consumer{
				Kind: kindProjection, Name: p.Name, Status: p.Status, Lag: p.Lag,
			})
		}
		building(o, kindProjection, p.Name, p.Build)
	}
	return err
}

func (s *Service) places(ctx context.Context, t j17.Tenant, o *wire.Overview) error {
	if s.o.Engine.Spec(t) == nil {
		return nil
	}
	described, err := s.o.Places.Describe(ctx, t)
	for i, p := range described.Places {
		if i < maxConsumers {
			o.Consumers = append(o.Consumers, wire.Consumer{Kind: kindPlace, Name: p.Type, Status: p.Status})
		}
		building(o, kindPlace, p.Type, p.Build)
	}
	return err
}

func (s *Service) tags(ctx context.Context, t j17.Tenant, o *wire.Overview) error {
	if s.o.Engine.Spec(t) == nil {
		return nil
	}
	all, err := s.o.Tagging.Tags(ctx, t)
	for i := range all {
		building(o, "tag", all[i].Name, all[i].Build)
	}
	return err
}

// building adds a build of derived data if it is running.
func building(o *wire.Overview, kind, name string, b *wire.Build) {
	if b != nil && b.Status == string(build.Running) && len(o.Builds) < maxConsumers {
		o.Builds = append(o.Builds, wire.RunningBuild{Kind: kind, Name: name, Done: b.Done, Total: b.Total})
	}
}

// workflows adds sagas and scheduled events.
func (s *Service) workflows(ctx context.Context, t j17.Tenant, o *wire.Overview) error {
	begun, queued, err := s.o.Sagas.Load(ctx, t)
	if err != nil {
		return err
	}
	next, err := s.o.Schedule.Outlook(ctx, t)
	if err != nil {
		return err
	}
	o.Sagas = &wire.SagaLoad{Running: begun, Queued: queued}
	o.Schedule = &wire.Outlook{NextDue: seconds(next.Next), DueToday: next.Today, Overdue: next.Overdue}
	o.Consumers = append(o.Consumers,
		wire.Consumer{Kind: kindSaga, Name: "sagas", Status: running, Lag: uint64(queued)},
		wire.Consumer{Kind: "schedule", Name: "schedule", Status: running, Lag: uint64(next.Overdue)})
	return nil
}

// kept adds the last backup and the last recorded root.
func (s *Service) kept(ctx context.Context, t j17.Tenant, o *wire.Overview) error {
	var last *wire.LastBackup
	all, err := s.o.Backups.List(ctx, t, 0, maxBackups)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].Status == backup.Completed {
			last = &wire.LastBackup{ID: all[i].ID, CompletedAt: all[i].CompletedAt.Truncate(time.Second)}
			break
		}
	}
	o.Backup = &last

	var root *wire.LastRoot
	switch found, err := s.o.Checkpoints.LatestRoot(ctx, t); {
	case err == nil:
		root = &wire.LastRoot{Size: found.Size, Root: found.Root, CreatedAt: found.CreatedAt}
	case j17.CodeOf(err) != j17.CodeNotFound && !errors.Is(err, store.ErrNotFound):
		return err
	}
	o.RootCheckpoint = &root
	return nil
}
