// Package attention shows operators what goes on in an environment: an overview that may be requested continually, and
// everything that waits for a person, by its cause. It asks other services, stores nothing itself, and retries what has
// failed for one cause.
//
// The decisions behind it are in docs/internals/custody.md.
package attention

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/custody/backup"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/erasure"
	"j17/internal/custody/scrub"
	"j17/internal/derived/build"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/follow/listener"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
	"j17/internal/storage/store"
)

// Options configures a Service. All fields are required.
type Options struct {
	Store       store.Feed
	Engine      *engine.Engine
	Registry    *control.Registry
	Deploy      *deploy.Service
	Usage       *usage.Meter
	Schedule    *schedule.Service
	Sagas       *saga.Service
	Listeners   *listener.Service
	Projections *projection.Service
	Places      *place.Service
	Tagging     *build.Tagger
	Backups     *backup.Service
	Checkpoints *checkpoint.Service
	Erasures    *erasure.Service
	Scrub       *scrub.Service
	// Disk returns the free space on the volume of the store, and its size.
	Disk   func() (free, total uint64, err error)
	Clock  clock.Clock
	Logger *slog.Logger
}

// Service reports what goes on. It is safe for concurrent use.
type Service struct {
	o Options
	// looked bounds the things of one kind that are read for one request.
	looked int

	mu sync.Mutex
	// surveys are the latest surveys, by environment.
	surveys map[j17.Tenant]*survey
	// retries are those in progress. A turn is held while things of an environment are retried.
	retries map[retry]bool
	turns   map[j17.Tenant]*sync.Mutex

	// retrying is the context of all retries, cut ends it.
	retrying context.Context //nolint:containedctx // it lives as long as the service
	cut      context.CancelFunc
	under    sync.WaitGroup
}

// maxLooked is how many things of one kind are read for one request.
const maxLooked = 10_000

// New returns a service. Retries go on until Run ends.
func New(ctx context.Context, o Options) *Service {
	s := &Service{
		o: o, looked: maxLooked, surveys: map[j17.Tenant]*survey{}, retries: map[retry]bool{},
		turns: map[j17.Tenant]*sync.Mutex{},
	}
	s.retrying, s.cut = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// Part returns the service as a part of the program.
func (s *Service) Part() part.Part { return part.Part{Name: "attention", Work: part.Work{Run: s.Run}} }

// Run waits for the end of the context, and then cancels the retries in progress and waits for them: what they have not
// retried waits for a person as before.
func (s *Service) Run(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.cut()
	s.mu.Unlock()
	s.under.Wait()
	return nil
}

// instanceOf returns the instance and the environment of a tenant.
func instanceOf(t j17.Tenant) (string, j17.Environment) {
	for _, env := range j17.Environments() {
		if end := "/" + string(env); len(t) > len(end) && string(t[len(t)-len(end):]) == end {
			return string(t[:len(t)-len(end)]), env
		}
	}
	return string(t), ""
}

// seconds is a time in whole seconds, nil for the zero time.
func seconds(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC().Truncate(time.Second)
	return &at
}
