// Package checkpoint keeps what an environment was at a position: the states of aggregates (named.go), from which they
// can be folded on later, and roots of the log of its events (roots.go), with which somebody can show later that
// nothing was changed. It also yields the states of all aggregates at one moment (states.go), which is what the hash of
// a checkpoint is of.
//
// A kept state is stored under the key of its stream: an erasure of the stream finds it there, in whatever checkpoint
// it is.
package checkpoint

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/core/engine"
	"j17/internal/core/worker"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
)

// The side spaces of an environment.
const (
	// named and roots have the rows of checkpoints under numbers, in the order in which they were made; named and roots
	// with ".ids" lead from their ids to these.
	named    store.Space = "checkpoints"
	namedIDs store.Space = "checkpoints.ids"
	roots    store.Space = "checkpoint.roots"
	rootIDs  store.Space = "checkpoint.roots.ids"
	// states has the states that checkpoints keep, each under the key of its stream and the id of the checkpoint.
	states store.Space = "checkpoint.states"
	// jobs has what is to be removed: the states of checkpoints that were deleted, or that their process did not live
	// to finish.
	jobs store.Space = "checkpoint.jobs"
	// settings says when root checkpoints are made by themselves; hours has an item that is due when the hours are
	// over.
	settings store.Space = "checkpoint.settings"
	hours    store.Space = "checkpoint.hours"
	// counts has how many aggregates there were at a position.
	counts store.Space = "checkpoint.counts"
)

// Storage is what checkpoints need of a store.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
	store.Moments
	store.Tenants
}

// Options configures a Service. All fields are required.
type Options struct {
	Store  Storage
	Engine *engine.Engine
	Clock  clock.Clock
	Logger *slog.Logger
	Worker *worker.Kit
	// Log has the logs of which there are roots.
	Log *envlog.Service
}

// Service makes checkpoints. It is safe for concurrent use.
type Service struct {
	Options
	*rootStore
	// erasing is held while kept states of erased streams are removed, and shared by those who write states: a writer
	// has looked at what was erased before, or its states are removed.
	erasing sync.RWMutex

	removals, periods *worker.Queue

	mu sync.Mutex
	// making are the checkpoints that this process makes, or is about to, by their ids; waiting those of them that wait
	// for their turn in the background, in their order; failed those that have failed there, the latest at the end.
	making          map[string]*making
	waiting, failed []*making
	// restoring are the restorations that are under way.
	restoring map[*restoring]bool
	// more is signalled when some wait.
	more chan struct{}
	// auto has the environments for which root checkpoints are made by themselves, and with how many events the next
	// one is; look those that are to be looked at for it, and changed is signalled for these.
	auto    map[j17.Tenant]uint64
	look    map[j17.Tenant]bool
	changed chan struct{}
}

// New returns a service. Run must be called for what it does by itself.
func New(o Options) *Service {
	s := &Service{
		Options: o,
		rootStore: &rootStore{
			store: o.Store, engine: o.Engine, log: o.Log, clock: o.Clock, mint: ident.NewMinter(o.Clock.Now),
		},
		making: map[string]*making{}, restoring: map[*restoring]bool{}, more: make(chan struct{}, atOnce),
		auto: map[j17.Tenant]uint64{}, look: map[j17.Tenant]bool{}, changed: make(chan struct{}, 1),
	}
	s.removals = o.Worker.Queue(worker.Work{
		Name: "checkpoint_removal", Store: o.Store, Space: jobs, Do: s.remove, Lease: removalLease, AtOnce: 2,
		Freeing: true,
	})
	s.periods = o.Worker.Queue(worker.Work{
		Name: "root_checkpoints", Store: o.Store, Space: hours, Do: s.hourly, Lease: rootLease, AtOnce: 2,
	})
	return s
}

// Queues are those of the work that the service waits with until it is due.
func (s *Service) Queues() worker.Queues { return worker.Queues{s.removals, s.periods} }

// Settle does all of that which is due now.
func (s *Service) Settle(ctx context.Context) error { return s.Queues().Settle(ctx) }

// NextDue returns when something of it is due next, the zero time for nothing.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.Queues().NextDue(ctx) }

// Run makes root checkpoints by themselves, and removes what is no longer needed, until the context ends.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return s.Queues().Run(ctx) })
	loops := []worker.Loop{{Name: "root_checkpoint_events", Every: followPause, Do: s.follow()}}
	for range atOnce {
		loops = append(loops, worker.Loop{Name: "checkpoints", Wake: s.more, Do: s.next})
	}
	g.Go(func() error {
		s.Worker.Every(ctx, loops...)
		return nil
	})
	return g.Wait()
}
