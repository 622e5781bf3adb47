// Package saga carries out the sagas of specs: workflows of several steps over several aggregates, whose steps are
// compensated in reverse order when one of them fails.
//
// A saga is a side item of its environment, written in the commit of its trigger (effects.go). machine.go is its pure
// state machine: a saga, its definition and what has happened give the next state. run.go executes it: one step is one
// commit, with the event that it writes, the next state, and the claim on the work item, so that a crash anywhere
// neither repeats nor skips a step. The answer that a step awaits is found in the commit path of its writer
// (effects.go): nothing polls. Sagas beyond the number that may run at once are queued, and started in the order of
// their triggers (admission.go).
//
// A saga stores only the positions of events: what its templates see is read from the log when it is needed. So a saga
// at rest takes some hundred bytes on disk and no memory, and erasing an event leaves no copy behind.
//
// The decisions behind it are in docs/internals/follow.md.
package saga

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/core/engine"
	"j17/internal/core/worker"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Storage is what sagas need of a store.
type Storage interface {
	store.Sides
	store.Feed
}

// Specs gives access to the specs that were deployed to environments, by version.
type Specs interface {
	// Deployed returns the deployed version.
	Deployed(ctx context.Context, t j17.Tenant) (int, error)
	// Compiled returns a version, compiled.
	Compiled(ctx context.Context, t j17.Tenant, version int) (*spec.Compiled, error)
}

// DefaultMost is how many sagas of an instance run at once unless the options set it.
const DefaultMost = 100

// DefaultPerWrite is how many sagas one write may start unless the options set it.
const DefaultPerWrite = 100

// Options configures a Service. All fields but Most and PerWrite are required.
type Options struct {
	Store  Storage
	Engine *engine.Engine
	Specs  Specs
	Clock  clock.Clock
	Worker *worker.Kit
	Logger *slog.Logger
	// Most is how many sagas of an instance run at once; 0 means DefaultMost.
	Most int
	// PerWrite is how many sagas one write may start, including its consequences; 0 means DefaultPerWrite.
	PerWrite int
}

// Service carries out the sagas of all environments. It is safe for concurrent use.
type Service struct {
	store       Storage
	engine      *engine.Engine
	clock       clock.Clock
	logger      *slog.Logger
	mint        *ident.Minter
	most        int64
	perWrite    int
	definitions definitions
	steps       *worker.Queue
	admission   *worker.Queue
	// latest is the largest number that order has issued.
	latest atomic.Int64
	counts counters

	awaited awaitedTypes
}

// Stats has the counters of a service since it was made.
type Stats struct {
	// Started counts sagas that began to run, Queued those that had to wait first.
	Started, Queued uint64
	// Completed, Failed and DeadLettered count the ends of sagas, Retried the retries by operators.
	Completed, Failed, DeadLettered, Retried uint64
	// Events counts the events written by sagas, Compensations those that compensated a step, TimedOut the answers that
	// did not come.
	Events, Compensations, TimedOut uint64
}

type counters struct {
	started, queued, completed, failed, deadLettered, retried, events, compensations, timedOut atomic.Uint64
}

// The side spaces of an environment.
const (
	// rowSpace holds every saga under its id.
	rowSpace store.Space = "saga.rows"
	// listSpace has an entry for each saga under "s/<status>/<order>/<id>" and another one under
	// "t/<type>/<status>/<order>/<id>", without values.
	listSpace store.Space = "saga.list"
	// workSpace has the present or future due work of each running saga under its ID.
	workSpace store.Space = "saga.work"
	// waitSpace has the number of sagas that wait for events of an aggregate under its key, and what each of them waits
	// for under "<key>/<id>". The number changes whenever a saga begins or ceases to wait: events are fenced on it.
	waitSpace store.Space = "saga.waiting"
	// knownSpace has one item, which lists all types of events that sagas of the environment have ever awaited.
	knownSpace store.Space = "saga.known"
	// countSpace has one item, the number of running sagas.
	countSpace store.Space = "saga.counts"
	// causeSpace has the IDs of sagas under the positions of the events that have triggered or answered them.
	causeSpace store.Space = "saga.causes"
	// arrivalSpace has the sagas that wait for room under their IDs, as they arrive; queueSpace has them under the
	// positions of their triggers. admissionSpace has one item while there are any, which is due when there may be
	// room.
	arrivalSpace   store.Space = "saga.arrivals"
	queueSpace     store.Space = "saga.queued"
	admissionSpace store.Space = "saga.admission"
)

// The keys of spaces that have one item.
const (
	knownKey     = "awaited"
	runningKey   = "running"
	admissionKey = "next"
)

const (
	// lease is how long one step may take; atOnce and each are how many are under way, in all and of one environment.
	lease  = 20 * time.Second
	atOnce = 64
	each   = 48
	// retention is how long completed sagas are kept.
	retention = 30 * 24 * time.Hour
)

// New returns a service. Its Effects must be among those of the engine.
func New(o Options) *Service {
	if o.Most <= 0 {
		o.Most = DefaultMost
	}
	if o.PerWrite <= 0 {
		o.PerWrite = DefaultPerWrite
	}
	s := &Service{
		store: o.Store, engine: o.Engine, clock: o.Clock, logger: o.Logger, mint: ident.NewMinter(o.Clock.Now),
		most: int64(o.Most), perWrite: o.PerWrite,
		definitions: definitions{specs: o.Specs, known: map[definition]*compiled{}},
	}
	s.steps = o.Worker.Queue(worker.Work{
		Name: "saga_steps", Store: o.Store, Space: workSpace, Do: s.do, Lease: lease, AtOnce: atOnce, Each: each,
	})
	s.admission = o.Worker.Queue(worker.Work{
		Name: "saga_admission", Store: o.Store, Space: admissionSpace, Do: s.admit, Lease: lease, AtOnce: 4,
	})
	return s
}

// Run carries out what is due until the context ends.
func (s *Service) Run(ctx context.Context) error { return s.queues().Run(ctx) }

// NextDue returns when the next work is due, the zero time for none.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.queues().NextDue(ctx) }

func (s *Service) queues() worker.Queues { return worker.Queues{s.admission, s.steps} }

// Settle carries out all work that is due now, and what becomes due through it. Work that cannot be done now is left.
// It returns worker.ErrUnsettled if sagas start others without end.
func (s *Service) Settle(ctx context.Context) error {
	for range worker.MaxRounds {
		if err := s.admission.Settle(ctx); err != nil {
			return err
		}
		stuck, err := s.admissionDue(ctx)
		if err != nil {
			return err
		}
		if err := s.steps.Settle(ctx); err != nil {
			return err
		}
		more, err := s.admissionDue(ctx)
		if err != nil || !more || stuck {
			return err
		}
	}
	return worker.ErrUnsettled
}

// admissionDue reports whether the admission of queued sagas is due.
func (s *Service) admissionDue(ctx context.Context) (bool, error) {
	next, err := s.store.NextDue(ctx, admissionSpace)
	return !next.IsZero() && !next.After(s.clock.Now()), err
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	c := &s.counts
	return Stats{
		Started: c.started.Load(), Queued: c.queued.Load(),
		Completed: c.completed.Load(), Failed: c.failed.Load(), DeadLettered: c.deadLettered.Load(),
		Retried: c.retried.Load(),
		Events:  c.events.Load(), Compensations: c.compensations.Load(), TimedOut: c.timedOut.Load(),
	}
}

// at returns when the consequences of events of a time in Unix seconds are due: at once, even if the clock was turned
// back after earlier events.
func (s *Service) at(timestamp int64) time.Time {
	at, now := time.Unix(timestamp, 0), s.clock.Now()
	if at.After(now) {
		return now
	}
	return at
}

// order returns a text that sorts before every earlier one, so that lists begin with the newest saga. timestamp is the
// time that it stands for.
func (s *Service) order(timestamp int64) string {
	now := max(s.clock.Now().UnixNano(), timestamp*int64(time.Second))
	for {
		last := s.latest.Load()
		next := max(now, last+1)
		if s.latest.CompareAndSwap(last, next) {
			return orderOf(next)
		}
	}
}

// orderOf encodes a time in nanoseconds so that later ones sort first.
func orderOf(n int64) string {
	const digits = 16
	text := strconv.FormatUint(^uint64(n), 16)
	for len(text) < digits {
		text = "0" + text
	}
	return text
}
