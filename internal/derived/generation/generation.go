// Package generation tries stored events under a spec: whether each can be brought to the newest generation of its
// event type, and fits its schema. It goes through the feed in the background, keeps what it has found for each way of
// reading events, and goes on from there: what was tried under the same steps and the same schema is not tried again
// (pass.go). A deployment is refused if an event fails (deploy.go). On the way it counts stored events by their names
// and generations (report.go).
//
// The decisions behind it are in docs/internals/derived.md.
package generation

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// The side spaces of an environment.
const (
	// trials has an item for each way in which stored events were read, under "type/fingerprint": up to which position
	// they were tried, and how many have failed. It has no data of events.
	trials store.Space = "generation.trials"
	// failures has the first events that have failed, under "type/fingerprint/position". It has no data of events
	// either, but their keys.
	failures store.Space = "generation.failures"
	// counts has an item for each aggregate type, with the numbers of its events by name and generation.
	counts store.Space = "generation.counts"
	// waiting has one item, for a trial of the deployed spec in the background, which is due.
	waiting store.Space = "generation.waiting"
)

// waitingKey is the key of the item of waiting.
const waitingKey = "deployed"

const (
	// pageEvents and pageBytes bound the events of the feed that are read before they are tried, in number and size.
	pageEvents = 4096
	pageBytes  = 4 << 20
	// flushEvents and flushFailures are after how many entries of the feed, and new failures, the progress is written.
	flushEvents   = 100_000
	flushFailures = 1000
	// maxFailures is how many failed events are kept of one way of reading events; all of them are counted.
	maxFailures = 10_000
	// maxReadings is how many ways of reading events that are not in use are kept of an aggregate type.
	maxReadings = 100
	// workers is how many events are tried at a time, of one environment.
	workers = 2
	// examples is how many events are kept as examples of each way of reading events.
	examples = 3
	// followPages bounds the pages read beyond the initial end of the feed, so that fast writers are held up
	// eventually.
	followPages = 20
	// maxTries bounds how often a trial begins again because others have changed what it rests on.
	maxTries = 20
	// maxRest is the longest pause after a page while others write.
	maxRest = 20 * time.Millisecond
	// passTime is how long a trial in the background goes on before it gives way to others; lease is how long it may
	// take. readyTime is how long Ready works.
	passTime   = 5 * time.Second
	lease      = time.Minute
	readyTime  = 2 * time.Second
	readyPages = 10_000
)

// Storage is what trials need of a store.
type Storage interface {
	store.Sides
	store.Feed
}

// Options configures a Service. All fields are required unless they say otherwise.
type Options struct {
	Store  Storage
	Engine *engine.Engine
	Clock  clock.Clock
	Worker *worker.Kit
	Logger *slog.Logger
	// PageEvents is how many elements of the feed are read at a time, and ReadyPages how many times Ready does that at
	// most; 0 for the defaults.
	PageEvents, ReadyPages int
}

// Service tries stored events. It is safe for concurrent use, and so are several of them over one store.
type Service struct {
	Options
	work *worker.Queue
	// turns has the turn of each tenant: one trial of an environment runs at a time.
	turns sync.Map // of *turn by j17.Tenant
}

// turn is held by the trial of an environment that runs. done and total are the entries of the feed up to where it is,
// and all of them.
type turn struct {
	held        chan struct{}
	done, total atomic.Uint64
}

// New returns a service.
func New(o Options) *Service {
	o.PageEvents, o.ReadyPages = cmp.Or(o.PageEvents, pageEvents), cmp.Or(o.ReadyPages, readyPages)
	s := &Service{Options: o}
	s.work = o.Worker.Queue(worker.Work{
		Name: "trials", Store: o.Store, Space: waiting, Do: s.runPass, Lease: lease, AtOnce: 2, Each: 1,
	})
	return s
}

// turn waits for the turn of a tenant, which the caller ends.
func (s *Service) turn(ctx context.Context, t j17.Tenant) (end func(), err error) {
	of := s.turnOf(t)
	select {
	case of.held <- struct{}{}:
		return sync.OnceFunc(func() { <-of.held }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Service) turnOf(t j17.Tenant) *turn {
	found, _ := s.turns.LoadOrStore(t, &turn{held: make(chan struct{}, 1)})
	of, _ := found.(*turn)
	return of
}

// Running returns the progress of the trial of an environment that this server carries out at the moment, nil if there
// is none.
func (s *Service) Running(t j17.Tenant) *wire.Build {
	of := s.turnOf(t)
	if len(of.held) == 0 {
		return nil
	}
	return &wire.Build{Kind: part.TrialKind, Status: "running", Done: of.done.Load(), Total: of.total.Load()}
}
