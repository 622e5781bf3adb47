// Package checkpoint keeps the state of an environment at a position: the states of aggregates (named.go), from which
// later states can be folded, and roots of the log of its events (roots.go), which can prove later that nothing was
// changed. It also yields the states of all aggregates at one moment (states.go), over which the hash of a checkpoint
// is computed.
//
// A kept state is stored under the key of its stream: an erasure of the stream finds it there, in any checkpoint.
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
	// named and roots have the rows of checkpoints under numbers, in the order in which they were made; the spaces with
	// ".ids" map their ids to these.
	named    store.Space = "checkpoints"
	namedIDs store.Space = "checkpoints.ids"
	roots    store.Space = "checkpoint.roots"
	rootIDs  store.Space = "checkpoint.roots.ids"
	// states has the states that checkpoints keep, each under the key of its stream and the id of the checkpoint.
	states store.Space = "checkpoint.states"
	// jobs has the removals: of the states of checkpoints that were deleted, or that their process could not finish.
	jobs store.Space = "checkpoint.jobs"
	// settings has when automatic root checkpoints are made; hours has an item that is due when the period is over.
	settings store.Space = "checkpoint.settings"
	hours    store.Space = "checkpoint.hours"
	// counts has the number of aggregates at a position.
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
	// Log has the logs that root checkpoints are made from.
	Log *envlog.Service
}

// Service makes checkpoints. It is safe for concurrent use.
type Service struct {
	Options
	*rootStore
	// erasing is held while kept states of erased streams are removed, and shared by writers of states: either a writer
	// checks after the erasure whether its streams were erased, or its states are removed.
	erasing sync.RWMutex

	removals, periods *worker.Queue

	mu sync.Mutex
	// making are the checkpoints that this process makes, or is about to, by their ids; waiting are those that wait for
	// their turn in the background, in their order; failed are those that have failed there, the latest last.
	making          map[string]*making
	waiting, failed []*making
	// restoring are the restorations in progress.
	restoring map[*restoring]bool
	// more is signalled when checkpoints wait.
	more chan struct{}
	// auto has the environments with automatic root checkpoints, and the number of events at which the next one is
	// made; look has those that have to be checked for it, and changed is signalled for these.
	auto    map[j17.Tenant]uint64
	look    map[j17.Tenant]bool
	changed chan struct{}
}

// New returns a service. Its background work needs Run.
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

// Queues are the queues of scheduled work.
func (s *Service) Queues() worker.Queues { return worker.Queues{s.removals, s.periods} }

// Settle does the scheduled work that is due now.
func (s *Service) Settle(ctx context.Context) error { return s.Queues().Settle(ctx) }

// NextDue returns when scheduled work is next due, the zero time for never.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.Queues().NextDue(ctx) }

// Run makes automatic root checkpoints, and removes what is no longer needed, until the context ends.
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
